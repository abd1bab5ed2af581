#pragma once

#include <cstdint>
#include <type_traits>

#include <hip/hip_runtime.h>

#include "axonn/compute/ops/gpu/fragment.h"

#define AXONN_SHARED(name, ...) __shared__ std::type_identity_t<__VA_ARGS__> name
#define AXONN_SHARED_OF_LAUNCH(name, ...)         \
  extern __shared__ uint4 axonn_dynamic_shared[]; \
  auto& name = *reinterpret_cast<std::type_identity_t<__VA_ARGS__>*>(axonn_dynamic_shared)

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

__device__ inline int count(Lanes lanes) { return __popcll(lanes); }
__device__ inline int lowest(Lanes lanes) { return __ffsll(lanes) - 1; }

__device__ inline void keep_least(int* at, int x) { atomicMin(at, x); }
__device__ inline void keep_most(int* at, int x) { atomicMax(at, x); }

/// The instruction computes a · b, with b and the result in the transposed layout: so it computes
/// the transpose of c from b and a.
__device__ inline void mma(float (&c)[4], const std::uint32_t (&a)[2],
                           const std::uint32_t (&b)[2]) {
  using Halves = short __attribute__((ext_vector_type(4)));
  using Floats = float __attribute__((ext_vector_type(4)));
  const Floats sums = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
      __builtin_bit_cast(Halves, b), __builtin_bit_cast(Halves, a), __builtin_bit_cast(Floats, c),
      0, 0, 0);
#pragma unroll
  for (int i = 0; i < 4; ++i) c[i] = sums[i];
}

__device__ inline void load_left(std::uint32_t (&to)[2], const bf16* from, int stride) {
  load_elements<kWarp>(to, from, stride, static_cast<int>(threadIdx.x) % kWarp);
}

__device__ inline void load_right(std::uint32_t (&to)[2], const bf16* from, int stride) {
  load_left(to, from, stride);
}

__device__ inline void load_right_transposed(std::uint32_t (&to)[2], const bf16* from, int stride) {
  load_transposed_elements<kWarp>(to, from, stride, static_cast<int>(threadIdx.x) % kWarp);
}

__device__ inline float power_of_2(float x) { return exp2f(x); }

/// Here each copy is complete when start() returns.
struct AsyncCopies {
  template <typename T>
  __device__ void start(T* to, const T* from, bool exists) {
    // A vector: clang puts a struct that exists only sometimes into memory.
    using Words = std::uint32_t __attribute__((ext_vector_type(sizeof(T) / 4)));
    *reinterpret_cast<Words*>(to) = exists ? *reinterpret_cast<const Words*>(from) : Words(0);
  }
  __device__ void wait() {}
};

}  // namespace axonn::cuda
