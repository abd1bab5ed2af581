#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "axonn/compute/ops/gpu/fragment.h"
#include "axonn/compute/tensor/dtype.h"

/// Declares memory that a block shares: a reference `name` to a type, such as float[256].
#define AXONN_SHARED(name, ...) auto& name = ::emulated_gpu::shared<__VA_ARGS__>([] {})

/// The same in the memory that the launch gives.
#define AXONN_SHARED_OF_LAUNCH(name, ...) \
  auto& name = ::emulated_gpu::launched_shared<std::type_identity_t<__VA_ARGS__>>()

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

inline int count(Lanes lanes) { return std::popcount(lanes); }
inline int lowest(Lanes lanes) { return std::countr_zero(lanes); }

inline void keep_least(int* at, int x) {
  const std::atomic_ref<int> now(*at);
  for (int seen = now.load(); x < seen && !now.compare_exchange_weak(seen, x);) {
  }
}
inline void keep_most(int* at, int x) {
  const std::atomic_ref<int> now(*at);
  for (int seen = now.load(); x > seen && !now.compare_exchange_weak(seen, x);) {
  }
}

// The matrix instructions of warp_cuda.cuh, for warps of 32, and those of warp_hip.cuh.

inline void mma_8(float* c, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  emulated_gpu::Line line) {
  float sums[4];
  std::copy_n(c, 4, sums);
  emulated_gpu::mma(sums, a, {b0, b1}, line);
  std::copy_n(sums, 4, c);
}

inline void mma(float (&c)[8], const std::uint32_t (&a)[4], const std::uint32_t (&b)[4],
                emulated_gpu::Line line = emulated_gpu::Line::current()) {
  mma_8(c, a, b[0], b[1], line);
  mma_8(c + 4, a, b[2], b[3], line);
}

/// Here the lanes load their own elements, for the sanitizers to see.
inline void load_matrices(std::uint32_t (&to)[4], const bf16* row, bool transposed,
                          emulated_gpu::Line line) {
  const auto elements = emulated_gpu::elements_to_load(row, transposed, line);
  const auto bits = [&](int i) -> std::uint32_t {
    return static_cast<const bf16*>(elements[i])->bits;
  };
  for (int i = 0; i < 4; ++i) to[i] = bits(2 * i) | bits(2 * i + 1) << 16;
}

inline void load_left(std::uint32_t (&to)[4], const bf16* from, int stride,
                      emulated_gpu::Line line = emulated_gpu::Line::current()) {
  load_matrices(to, left_row(from, stride, static_cast<int>(threadIdx.x) % kWarp), false, line);
}

inline void load_right(std::uint32_t (&to)[4], const bf16* from, int stride,
                       emulated_gpu::Line line = emulated_gpu::Line::current()) {
  load_matrices(to, right_row(from, stride, static_cast<int>(threadIdx.x) % kWarp), false, line);
}

inline void load_right_transposed(std::uint32_t (&to)[4], const bf16* from, int stride,
                                  emulated_gpu::Line line = emulated_gpu::Line::current()) {
  load_matrices(to, left_row(from, stride, static_cast<int>(threadIdx.x) % kWarp), true, line);
}

inline void mma(float (&c)[4], const std::uint32_t (&a)[2], const std::uint32_t (&b)[2],
                emulated_gpu::Line line = emulated_gpu::Line::current()) {
  emulated_gpu::mfma(c, b, a, line);
}

inline void load_left(std::uint32_t (&to)[2], const bf16* from, int stride) {
  load_elements<64>(to, from, stride, static_cast<int>(threadIdx.x) % 64);
}

inline void load_right(std::uint32_t (&to)[2], const bf16* from, int stride) {
  load_left(to, from, stride);
}

inline void load_right_transposed(std::uint32_t (&to)[2], const bf16* from, int stride) {
  load_transposed_elements<64>(to, from, stride, static_cast<int>(threadIdx.x) % 64);
}

inline float power_of_2(float x) { return x < -126 ? 0 : std::exp2(x); }

/// Here a copy happens when it is waited for: as late as a GPU may make it.
class AsyncCopies {
 public:
  template <typename T>
  void start(T* to, const T* from, bool exists) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 16);
    started_.emplace_back([=] { *to = exists ? *from : T{}; });
  }
  void wait() {
    for (const auto& copy : std::exchange(started_, {})) copy();
  }

 private:
  std::vector<std::function<void()>> started_;
};

}  // namespace axonn::cuda
