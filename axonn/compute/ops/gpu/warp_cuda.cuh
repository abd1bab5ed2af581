#pragma once

#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/gpu/fragment.h"
#include "axonn/compute/tensor/dtype.h"

/// Declares an object of a block's shared memory: AXONN_SHARED(sums, float[256]).
#define AXONN_SHARED(name, ...) __shared__ std::type_identity_t<__VA_ARGS__> name

/// Declares the object in the shared memory that a launch gives (BlockSize), which may be more.
#define AXONN_SHARED_OF_LAUNCH(name, ...)         \
  extern __shared__ uint4 axonn_dynamic_shared[]; \
  auto& name = *reinterpret_cast<std::type_identity_t<__VA_ARGS__>*>(axonn_dynamic_shared)

namespace axonn::cuda {

// What differs between the platforms' blocks. CMake generates axonn/compute/ops/gpu/warp.cuh, which
// includes this file, warp_hip.cuh for AMD GPUs, or tests/emulated_gpu/warp_cpu.cuh.

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

/// How many lanes there are.
__device__ inline int count(Lanes lanes) { return __popc(lanes); }

/// The number of the lowest lane; there must be one.
__device__ inline int lowest(Lanes lanes) { return __ffs(static_cast<int>(lanes)) - 1; }

/// *at = the smaller, or the larger, of it and x; of many threads in any order.
__device__ inline void keep_least(int* at, int x) { atomicMin(at, x); }
__device__ inline void keep_most(int* at, int x) { atomicMax(at, x); }

/// c (16 x 8) += a (16 x 16) · b (16 x 8), by a warp. Without effect before compute
/// capability 8.0: attention_ways.cpp keeps older GPUs from the kernels that use it.
__device__ inline void mma_8([[maybe_unused]] float* c,
                             [[maybe_unused]] const std::uint32_t (&a)[4],
                             [[maybe_unused]] std::uint32_t b0, [[maybe_unused]] std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/// c += a · the transpose of b, all 16 x 16, by a warp: a and c in the layout of Fragment<32>, b as
/// load_right() has it, the operands of both halves of c one after the other.
__device__ inline void mma(float (&c)[8], const std::uint32_t (&a)[4],
                           const std::uint32_t (&b)[4]) {
  mma_8(c, a, b[0], b[1]);
  mma_8(c + 4, a, b[2], b[3]);
}

/// Loads four matrices of 8 x 8 by a warp; lane i has the address of row i % 8 of matrix i / 8, 16
/// aligned bytes of shared memory.
template <bool transposed>
__device__ void load_matrices(std::uint32_t (&to)[4], const bf16* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

/// Loads a matrix of 16 x 16 as operand a of mma(), by a warp. It is in shared memory, and its rows
/// begin at multiples of 16 bytes.
__device__ inline void load_left(std::uint32_t (&to)[4], const bf16* from, int stride) {
  load_matrices<false>(to, left_row(from, stride, static_cast<int>(threadIdx.x) % kWarp));
}

/// Loads such a matrix as operand b.
__device__ inline void load_right(std::uint32_t (&to)[4], const bf16* from, int stride) {
  load_matrices<false>(to, right_row(from, stride, static_cast<int>(threadIdx.x) % kWarp));
}

/// Loads the transpose of such a matrix as operand b.
__device__ inline void load_right_transposed(std::uint32_t (&to)[4], const bf16* from, int stride) {
  load_matrices<true>(to, left_row(from, stride, static_cast<int>(threadIdx.x) % kWarp));
}

/// 2^x within 2 units in the last place, by one instruction; 0 below 2^-126.
__device__ inline float power_of_2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// A thread's copies of 4 or 16 bytes from memory to shared memory, which no register holds on
/// their way. start(): of zeros if `from` does not exist. wait(): until they are there, for this
/// thread; other threads see them after __syncthreads().
struct AsyncCopies {
  template <typename T>
  __device__ void start(T* to, const T* from, bool exists) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 16);
#if __CUDA_ARCH__ >= 800
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    const int bytes = exists ? static_cast<int>(sizeof(T)) : 0;
    if constexpr (sizeof(T) == 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
                   "l"(__cvta_generic_to_global(from)), "r"(bytes)
                   : "memory");
    else
      asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address),
                   "l"(__cvta_generic_to_global(from)), "r"(bytes)
                   : "memory");
#else
    *to = exists ? *from : T{};
#endif
  }
  __device__ void wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  }
};

}  // namespace axonn::cuda
