#pragma once

#include <type_traits>

#include <hip/hip_runtime.h>

#define AXONN_SHARED(name, ...) __shared__ std::type_identity_t<__VA_ARGS__> name

namespace axonn::cuda {

// warp_cuda.cuh for AMD GPUs.

/// Threads that run in step: a wavefront of gfx90a and gfx942.
constexpr int kWarp = 64;

using Lanes = unsigned long long;

template <typename T>
__device__ T shuffle_xor(T x, int mask) {
  return __shfl_xor(x, mask, kWarp);
}

__device__ inline Lanes lanes_with(bool is) { return __ballot(is); }

__device__ inline int lowest(Lanes lanes) { return __ffsll(lanes) - 1; }

}  // namespace axonn::cuda
