#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <cuda_runtime_api.h>

#include "axonn/tensor/dtype.h"

#include "tests/support/async_copies.h"

/// Declares memory that a block shares: a reference `name` to a type, such as float[256].
#define AXONN_SHARED(name, ...) auto& name = ::emulated_gpu::shared<__VA_ARGS__>([] {})

namespace axonn::cuda {

// warp_cuda.cuh for emulated GPUs.

constexpr int kWarp = emulated_gpu::kWarpThreads;

using Lanes = std::conditional_t<kWarp == 32, std::uint32_t, std::uint64_t>;

template <typename T>
T shuffle_xor(T x, int mask, emulated_gpu::Line line = emulated_gpu::Line::current()) {
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &x, sizeof x);
  bits = emulated_gpu::shuffle_xor(bits, mask, typeid(T), line);
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

inline Lanes lanes_with(bool is, emulated_gpu::Line line = emulated_gpu::Line::current()) {
  return static_cast<Lanes>(emulated_gpu::lanes_with(is, line));
}

inline int lowest(Lanes lanes) { return std::countr_zero(lanes); }

inline void mma(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                emulated_gpu::Line line = emulated_gpu::Line::current()) {
  emulated_gpu::mma(c, a, b, line);
}

/// Here the lanes load their own elements, for the sanitizers to see.
inline void load_down(std::uint32_t (&b)[2], const bf16* row,
                      emulated_gpu::Line line = emulated_gpu::Line::current()) {
  const auto elements = emulated_gpu::elements_to_load(row, line);
  const auto bits = [&](int i) -> std::uint32_t {
    return static_cast<const bf16*>(elements[i])->bits;
  };
  for (int i = 0; i < 2; ++i) b[i] = bits(2 * i) | bits(2 * i + 1) << 16;
}

using axonn::testing_support::AsyncCopies;

}  // namespace axonn::cuda
