#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "axonn/ops/gpu/fragment.h"
#include "axonn/tensor/dtype.h"

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

// The matrix instructions of warp_cuda.cuh, for warps of 32, and those of warp_hip.cuh.

inline void mma_8(float* c, const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  emulated_gpu::Line line) {
  float sums[4];
  std::copy_n(c, 4, sums);
  emulated_gpu::mma(sums, a, {b0, b1}, line);
  std::copy_n(sums, 4, c);
}

inline void mma_across(float (&c)[8], const std::uint32_t (&a)[4], const std::uint32_t (&b)[4],
                       emulated_gpu::Line line = emulated_gpu::Line::current()) {
  mma_8(c, a, b[0], b[2], line);
  mma_8(c + 4, a, b[1], b[3], line);
}

/// Here the lanes load their own elements, for the sanitizers to see.
inline void mma_down(float (&c)[8], const std::uint32_t (&a)[4], const bf16* b, int stride,
                     emulated_gpu::Line line = emulated_gpu::Line::current()) {
  for (int n = 0; n < 2; ++n) {
    const auto elements =
        emulated_gpu::elements_to_load(b + threadIdx.x % 16 * stride + 8 * n, line);
    const auto word = [&](int i) -> std::uint32_t {
      return static_cast<const bf16*>(elements[i])->bits |
             static_cast<const bf16*>(elements[i + 1])->bits << 16;
    };
    mma_8(c + 4 * n, a, word(0), word(2), line);
  }
}

inline void mma_across(float (&c)[4], const std::uint32_t (&a)[2], const std::uint32_t (&b)[2],
                       emulated_gpu::Line line = emulated_gpu::Line::current()) {
  emulated_gpu::mfma(c, b, a, line);
}

inline void mma_down(float (&c)[4], const std::uint32_t (&a)[2], const bf16* b, int stride,
                     emulated_gpu::Line line = emulated_gpu::Line::current()) {
  std::uint32_t transposed[2];
  load_transposed<64>(transposed, b, stride, static_cast<int>(threadIdx.x) % 64);
  mma_across(c, a, transposed, line);
}

/// Here a copy happens when it is waited for: as late as a GPU may make it.
class AsyncCopies {
 public:
  template <typename T>
  void start(T* to, const T* from, bool exists) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 16);
    open_.emplace_back([=] { *to = exists ? *from : T{}; });
  }
  void commit() { groups_.push_back(std::exchange(open_, {})); }
  void wait_but_last() {
    for (; groups_.size() > 1; groups_.erase(groups_.begin()))
      for (const auto& copy : groups_.front()) copy();
  }

 private:
  std::vector<std::function<void()>> open_;
  std::vector<std::vector<std::function<void()>>> groups_;
};

}  // namespace axonn::cuda
