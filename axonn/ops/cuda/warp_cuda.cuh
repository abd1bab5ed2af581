#pragma once

namespace axonn::cuda {

// A build for AMD's cards has warp_hip.cuh in place of this; CMake makes axonn/ops/cuda/warp.cuh of
// one of them.

/// Threads that run in step.
constexpr int kWarp = 32;

/// A bit for each thread of a warp.
using Lanes = unsigned;

/// What lane i ^ mask has, in lane i. All lanes call it, as they do what follows.
template <typename T>
__device__ T shuffle_xor(T x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}

/// The lanes that pass true.
__device__ inline Lanes lanes_with(bool is) { return __ballot_sync(0xffffffffu, is); }

/// The number of the lowest, which there is.
__device__ inline int lowest(Lanes lanes) { return __ffs(static_cast<int>(lanes)) - 1; }

}  // namespace axonn::cuda
