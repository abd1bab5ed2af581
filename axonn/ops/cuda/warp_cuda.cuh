#pragma once

#include <cstdint>
#include <type_traits>

#include "axonn/tensor/dtype.h"

/// Declares an object of a block's shared memory: AXONN_SHARED(sums, float[256]).
#define AXONN_SHARED(name, ...) __shared__ std::type_identity_t<__VA_ARGS__> name

namespace axonn::cuda {

// What differs between the platforms' blocks. CMake generates axonn/ops/cuda/warp.cuh, which
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

/// The number of the lowest lane; there must be one.
__device__ inline int lowest(Lanes lanes) { return __ffs(static_cast<int>(lanes)) - 1; }

/// c (16 x 8) += a (16 x 16) · b (16 x 8), by a warp; flash_kernels.h describes the operands.
__device__ inline void mma(float (&c)[4], const std::uint32_t (&a)[4],
                           const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Loads operand b of mma() from shared memory: lanes 0 to 15 point to 16 rows of 8 elements.
__device__ inline void load_down(std::uint32_t (&b)[2], const bf16* row) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(b[0]), "=r"(b[1])
               : "r"(address)
               : "memory");
}

/// A thread's copies from memory to shared memory, which no register holds on their way; see
/// flash_kernels.h.
struct AsyncCopies {
  template <typename T>
  __device__ void start(T* to, const T* from, bool exists) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 16);
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
  }
  __device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  __device__ void wait_but_last() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
};

}  // namespace axonn::cuda
