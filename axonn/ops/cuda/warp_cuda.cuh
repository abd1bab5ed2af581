#pragma once

namespace axonn::cuda {

// CMake copies this file or, for AMD GPUs, warp_hip.cuh to axonn/ops/cuda/warp.cuh.

/// Threads that run in step.
constexpr int kWarp = 32;

/// A bit for each thread of a warp.
using Lanes = unsigned;

/// Lane i gets the x of lane i ^ mask. All lanes must call this and the functions below.
template <typename T>
__device__ T shuffle_xor(T x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}

/// The lanes that pass true.
__device__ inline Lanes lanes_with(bool is) { return __ballot_sync(0xffffffffu, is); }

/// The number of the lowest lane; there must be one.
__device__ inline int lowest(Lanes lanes) { return __ffs(static_cast<int>(lanes)) - 1; }

}  // namespace axonn::cuda
