#pragma once

#include <cstdint>
#include <limits>

#include "axonn/ops/cuda/reduce_block.h"
#include "axonn/ops/cuda/warp.cuh"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::cuda {

/// Elements that a thread moves at once: 16 bytes of bf16, or twice 16 bytes of f32.
constexpr int kPack = 8;
/// Columns that a thread sums up: fewer, because there are seldom many columns.
constexpr int kColumns = 4;

/// n adjacent elements, moved 16 bytes at a time, or all at once if they are less.
template <typename T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T value[n];
};

template <int n, typename T>
__device__ bool packed(const T* p, int count) {
  return count >= n && reinterpret_cast<std::uintptr_t>(p) % alignof(Pack<T, n>) == 0;
}

/// n elements of a row as floats; those from `count` on are zero.
template <int n>
struct Values {
  float value[n];

  __device__ Values() {}
  template <typename T>
  __device__ Values(const T* p, int count) {
    if (packed<n>(p, count)) {
      const auto pack = *reinterpret_cast<const Pack<T, n>*>(p);
#pragma unroll
      for (int j = 0; j < n; ++j) value[j] = get(pack.value[j]);
    } else {
#pragma unroll
      for (int j = 0; j < n; ++j) value[j] = j < count ? get(p[j]) : 0.0f;
    }
  }

  template <typename T>
  __device__ void store(T* p, int count) const {
    if (packed<n>(p, count)) {
      Pack<T, n> pack;
#pragma unroll
      for (int j = 0; j < n; ++j) put(pack.value[j], value[j]);
      *reinterpret_cast<Pack<T, n>*>(p) = pack;
    } else {
#pragma unroll
      for (int j = 0; j < n; ++j)
        if (j < count) put(p[j], value[j]);
    }
  }
};

/// A block of a GPU's threads, in the form that reduce_block() takes.
struct ThreadsOfBlock {
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  __device__ void sync() const { __syncthreads(); }
  template <typename T>
  __device__ T shuffle_xor(T x, int mask) const {
    return cuda::shuffle_xor(x, mask);
  }
};

/// Combines the values of all threads of a block by op; all get the result. All must call it.
template <typename T, typename Op>
__device__ T block_reduce(T mine, Op op) {
  constexpr int kMostWarps = 1024 / kWarp;  // of a block, on any GPU
  __shared__ T parts[kMostWarps];
  return reduce_block<kWarp>(ThreadsOfBlock{}, parts, mine, op);
}

template <typename T>
__device__ T block_sum(T mine) {
  return block_reduce(mine, [](T a, T b) { return a + b; });
}

/// A team is a block of threads in whole warps. Element i of a row always belongs to the same
/// thread, (i / kPack) modulo the number of threads, whatever the alignment. So a call of map may
/// read what the call before it wrote, without a barrier. Rows may have any address and length.
struct Team {
  template <typename F, typename... In>
  __device__ float sum(int count, F f, const In*... in) const {
    float mine = 0;
    for_packs(
        count,
        [&](int, int n, const auto&... x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) mine += j < n ? f(x.value[j]...) : 0.0f;
        },
        in...);
    return block_sum(mine);
  }

  /// Two sums in one pass: the body returns both terms.
  template <typename F, typename... In>
  __device__ auto sum_two(int count, F f, const In*... in) const {
    float a = 0, b = 0;
    for_packs(
        count,
        [&](int, int n, const auto&... x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) {
            const auto terms = f(x.value[j]...);
            a += j < n ? terms.first : 0.0f;
            b += j < n ? terms.second : 0.0f;
          }
        },
        in...);
    a = block_sum(a);
    return rowwise::pair(a, block_sum(b));
  }

  /// Mean, and sum of squared deviations from it. The second pass finds the row in cache.
  template <typename In>
  __device__ auto moments(int count, const In* in) const {
    const float mean = sum(
                           count, [](float x) { return x; }, in) /
                       static_cast<float>(count);
    const float squares = sum(
        count, [mean](float x) { return (x - mean) * (x - mean); }, in);
    return rowwise::pair(mean, squares);
  }

  /// map(), and the moments of out as stored, after rounding.
  template <typename Out, typename F, typename... In>
  __device__ auto map_moments(Out* out, int count, F f, const In*... in) const {
    map(out, count, f, in...);
    return moments(count, static_cast<const Out*>(out));
  }

  template <typename F, typename... In>
  __device__ double sum_double(int count, F f, const In*... in) const {
    double mine = 0;
    for_packs(
        count,
        [&](int, int n, const auto&... x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j)
            mine += j < n ? f(static_cast<double>(x.value[j])...) : 0.0;
        },
        in...);
    return block_sum(mine);
  }

  template <typename F, typename... In>
  __device__ int count_if(int count, F f, const In*... in) const {
    int mine = 0;
    for_packs(
        count,
        [&](int, int n, const auto&... x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) mine += j < n && f(x.value[j]...) ? 1 : 0;
        },
        in...);
    return block_sum(mine);
  }

  /// The largest element: -infinity if there is none; ignores NaN.
  template <typename In>
  __device__ float max(int count, const In* in) const {
    float most = -std::numeric_limits<float>::infinity();
    for_packs(
        count,
        [&](int, int n, const auto& x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) most = j < n && x.value[j] > most ? x.value[j] : most;
        },
        in);
    return block_reduce(most, [](float a, float b) { return a > b ? a : b; });
  }

  /// The sum of f(x), and the largest x, in one pass. The largest is -infinity if there is none;
  /// it ignores NaN.
  template <typename F, typename In>
  __device__ auto sum_and_max(int count, F f, const In* in) const {
    float total = 0, most = -std::numeric_limits<float>::infinity();
    for_packs(
        count,
        [&](int, int n, const auto& x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) {
            total += j < n ? f(x.value[j]) : 0.0f;
            most = j < n && x.value[j] > most ? x.value[j] : most;
          }
        },
        in);
    total = block_sum(total);
    return rowwise::pair(total, block_reduce(most, [](float a, float b) { return a > b ? a : b; }));
  }

  template <typename Out, typename F, typename... In>
  __device__ void map(Out* out, int count, F f, const In*... in) const {
    for_packs(
        count,
        [&](int i, int n, const auto&... x) {
          Values<kPack> y;
#pragma unroll
          for (int j = 0; j < kPack; ++j) y.value[j] = f(x.value[j]...);
          y.store(out + i, n);
        },
        in...);
  }

  /// map() over rows that lie anywhere. Ignores `soon`, which is for teams of few members: here
  /// many rows are in flight at once without prefetching.
  template <typename Soon, typename Out, typename F, typename... In>
  __device__ void map_asking(const Soon&, Out* out, int count, F f, const In*... in) const {
    map(out, count, f, in...);
  }

  /// The body returns a Pair. Each result may overwrite the inputs.
  template <typename Out, typename F, typename... In>
  __device__ void map_pair(Out* first, Out* second, int count, F f, const In*... in) const {
    for_packs(
        count,
        [&](int i, int n, const auto&... x) {
          Values<kPack> y, z;
#pragma unroll
          for (int j = 0; j < kPack; ++j) {
            const auto pair = f(x.value[j]...);
            y.value[j] = pair.first;
            z.value[j] = pair.second;
          }
          y.store(first + i, n);
          z.store(second + i, n);
        },
        in...);
  }

  /// The body takes the index first, as a float; so indices must be below 2^24.
  template <typename Out, typename F, typename... In>
  __device__ void map_indexed(Out* out, int count, F f, const In*... in) const {
    for_packs(
        count,
        [&](int i, int n, const auto&... x) {
          Values<kPack> y;
#pragma unroll
          for (int j = 0; j < kPack; ++j) y.value[j] = f(static_cast<float>(i + j), x.value[j]...);
          y.store(out + i, n);
        },
        in...);
  }

  /// Updates the non-const arrays of `inout` in one pass and writes out. The body takes values of
  /// all arrays, those to update by reference, and returns the value of out.
  template <typename Out, typename F, typename... InOut>
  __device__ void update(Out* out, int count, F f, InOut*... inout) const {
    const int step = static_cast<int>(blockDim.x) * kPack;
    for (int i = static_cast<int>(threadIdx.x) * kPack; i < count; i += step) {
      const int n = count - i < kPack ? count - i : kPack;
      update_pack(out + i, n, f, inout + i...);
    }
  }

  /// out[c] = sum over rows [begin, end), in order, of f(row)(in.row(row)[c]...), c below count.
  template <typename F, typename... In>
  __device__ void column_sums(float* out, int count, std::int64_t begin, std::int64_t end, F f,
                              rowwise::Matrix<In>... in) const {
    for_columns(count, [&](int c, int n) {
      Values<kColumns> sums;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums.value[j] = 0;
#pragma unroll 4
      for (std::int64_t r = begin; r < end; ++r)
        add_row(sums, f(r), Values<kColumns>(in.row(r) + c, n)...);
      sums.store(out + c, n);
    });
  }

  /// Two sums per column in one pass: the body returns both terms.
  template <typename F, typename... In>
  __device__ void column_sums_two(float* a, float* b, int count, std::int64_t begin,
                                  std::int64_t end, F f, rowwise::Matrix<In>... in) const {
    for_columns(count, [&](int c, int n) {
      Values<kColumns> first, second;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) first.value[j] = second.value[j] = 0;
#pragma unroll 4
      for (std::int64_t r = begin; r < end; ++r)
        add_row_two(first, second, f(r), Values<kColumns>(in.row(r) + c, n)...);
      first.store(a + c, n);
      second.store(b + c, n);
    });
  }

  /// Calls f(i) for every i below count.
  template <typename F>
  __device__ void each(int count, F f) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) f(i);
  }

  /// Returns f(). All members have called it before the team's next operation writes anything.
  template <typename F>
  __device__ auto first(F f) const {
    const auto value = f();
    __syncthreads();
    return value;
  }

  /// Calls f once, after the team's operations before it are complete.
  template <typename F>
  __device__ void once(F f) const {
    __syncthreads();
    if (threadIdx.x == 0) f();
  }

 private:
  /// Calls body(begin, elements, values of each input...) for this thread's packs.
  template <typename Body, typename... In>
  __device__ static void for_packs(int count, Body body, const In*... in) {
    const int step = static_cast<int>(blockDim.x) * kPack;
    for (int i = static_cast<int>(threadIdx.x) * kPack; i < count; i += step) {
      const int n = count - i < kPack ? count - i : kPack;
      body(i, n, Values<kPack>(in + i, n)...);
    }
  }

  template <typename Out, typename F, typename... InOut>
  __device__ static void update_pack(Out* out, int n, F f, InOut*... inout) {
    const auto update_values = [&](auto... x) {
      Values<kPack> y;
#pragma unroll
      for (int j = 0; j < kPack; ++j) y.value[j] = f(x.value[j]...);
      (store_unless_const(inout, n, x), ...);
      y.store(out, n);
    };
    update_values(Values<kPack>(inout, n)...);
  }

  __device__ static void store_unless_const(float* to, int n, const Values<kPack>& x) {
    x.store(to, n);
  }
  __device__ static void store_unless_const(const float*, int, const Values<kPack>&) {}

  /// Calls body(begin, columns) for this thread's columns.
  template <typename Body>
  __device__ static void for_columns(int count, Body body) {
    const int step = static_cast<int>(blockDim.x) * kColumns;
    for (int c = static_cast<int>(threadIdx.x) * kColumns; c < count; c += step)
      body(c, count - c < kColumns ? count - c : kColumns);
  }

  template <typename Term, typename... X>
  __device__ static void add_row(Values<kColumns>& sums, Term term, const X&... x) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sums.value[j] += term(x.value[j]...);
  }

  template <typename Term, typename... X>
  __device__ static void add_row_two(Values<kColumns>& a, Values<kColumns>& b, Term term,
                                     const X&... x) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const auto terms = term(x.value[j]...);
      a.value[j] += terms.first;
      b.value[j] += terms.second;
    }
  }
};

}  // namespace axonn::cuda
