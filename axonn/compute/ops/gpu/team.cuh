#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>

#include "axonn/compute/ops/gpu/launch_shape.h"
#include "axonn/compute/ops/gpu/reduce_block.h"
#include "axonn/compute/ops/gpu/warp.cuh"
#include "axonn/compute/ops/rowwise/matrix.h"

namespace axonn::cuda {

/// n adjacent elements, moved 16 bytes at a time, or all at once if they are less.
template <typename T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
  T value[n];
};

/// Whether packs of n elements can be moved to and from all of p.
template <int n, typename... T>
__device__ bool aligned(const T*... p) {
  return ((reinterpret_cast<std::uintptr_t>(p) % alignof(Pack<T, n>) == 0) && ...);
}

/// The number of elements of a whole pack in aligned memory; others are counted by an int.
template <int n>
using Whole = std::integral_constant<int, n>;

/// Loads a pack from aligned memory. Kernels convert to floats after all of their loads, or the
/// compiler puts the arithmetic on one pack before the load of the next.
template <int n, typename T>
__device__ auto load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, n>*>(p);
}

/// n elements of a row as floats; those from `count` on are zero.
template <int n>
struct Values {
  float value[n];

  __device__ Values() {}
  template <typename T>
  __device__ explicit Values(const Pack<T, n>& pack) {
#pragma unroll
    for (int j = 0; j < n; ++j) value[j] = get(pack.value[j]);
  }
  template <typename T>
  __device__ Values(const T* p, int count) {
#pragma unroll
    for (int j = 0; j < n; ++j) value[j] = j < count ? get(p[j]) : 0.0f;
  }

  template <typename T>
  __device__ void store(T* p, Whole<n>) const {
    *reinterpret_cast<Pack<T, n>*>(p) = pack<T>();
  }
  template <typename T>
  __device__ void store(T* p, int count) const {
#pragma unroll
    for (int j = 0; j < n; ++j)
      if (j < count) put(p[j], value[j]);
  }
  /// The values as memory of T holds them.
  template <typename T>
  __device__ Values stored() const {
    return Values(pack<T>());
  }

 private:
  template <typename T>
  __device__ Pack<T, n> pack() const {
    Pack<T, n> pack;
#pragma unroll
    for (int j = 0; j < n; j += 2) put_two(pack.value + j, value[j], value[j + 1]);
    return pack;
  }
};

/// The same for memory of any alignment: a branch for each pack.
template <int n, typename T>
__device__ Values<n> load_values(const T* p, int count) {
  return count >= n && aligned<n>(p) ? Values<n>(load_pack<n>(p)) : Values<n>(p, count);
}

template <typename V>
__device__ rowwise::Pair<V> shuffle_xor(const rowwise::Pair<V>& x, int mask) {
  return {shuffle_xor(x.first, mask), shuffle_xor(x.second, mask)};
}

/// A block of a GPU's threads, in the form that reduce_block() takes.
struct ThreadsOfBlock {
  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int threads() { return static_cast<int>(blockDim.x); }
  __device__ static void sync() { __syncthreads(); }
  template <typename T>
  __device__ static T shuffle_xor(T x, int mask) {
    return cuda::shuffle_xor(x, mask);
  }
  template <typename T>
  __device__ static T reduce(T mine, auto op);
};

/// Combines the values of all threads of a block by op; all get the result. All must call it.
template <typename T>
__device__ T block_reduce(T mine, auto op) {
  constexpr int kMostWarps = 1024 / kWarp;  // of a block, on any GPU
  AXONN_SHARED(parts, T[kMostWarps]);
  return reduce_block<kWarp>(ThreadsOfBlock{}, parts, mine, op);
}

template <typename T>
__device__ T block_sum(T mine) {
  return block_reduce(mine, [](T a, T b) { return a + b; });
}

template <typename T>
__device__ T ThreadsOfBlock::reduce(T mine, auto op) {
  return block_reduce(mine, op);
}

/// A part of a warp, a power of 2 of its lanes, which has a head to itself. All parts of a warp
/// must make the same reductions.
struct ThreadsOfHead {
  /// The number of threads without a head, which has no elements for it.
  static constexpr int kNone = 1 << 27;

  int lane, lanes;

  __device__ int thread() const { return lane; }
  __device__ int threads() const { return lanes; }
  __device__ static void sync() {}
  template <typename T>
  __device__ T reduce(T mine, auto op) const {
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2)
      if (mask < lanes) mine = op(mine, shuffle_xor(mine, mask));
    return mine;
  }
};

/// A team is a block of threads in whole warps, or ThreadsOfHead. Its functions are those of
/// cpu/team.h. Element i of a row always belongs to the same thread, (i / kPack) modulo the number
/// of threads, whatever the alignment. So a call of map may read what the call before it wrote,
/// without a barrier. Rows may have any address and length.
template <typename Threads>
struct TeamOf {
  Threads at = {};

  __device__ float sum(int count, auto f, const auto*... in) const {
    return total<float>(count, f, in...);
  }

  __device__ auto sum_two(int count, auto f, const auto*... in) const {
    float a = 0, b = 0;
    for_packs(
        aligned<kPack>(in...), count,
        [&](int, auto n, const auto&... x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) {
            const auto terms = f(x.value[j]...);
            a += j < n ? terms.first : 0.0f;
            b += j < n ? terms.second : 0.0f;
          }
        },
        in...);
    return at.reduce(rowwise::pair(a, b), [](const auto& x, const auto& y) {
      return rowwise::pair(x.first + y.first, x.second + y.second);
    });
  }

  /// If a thread has one pack at most, it keeps it; else a second pass finds the row in cache.
  __device__ auto moments(int count, const auto* in) const {
    if (const int n = only_pack(count); n >= 0)
      return kept_moments(count, n, load_values<kPack>(in + at.thread() * kPack, n));
    const float mean = sum(
                           count, [](float x) { return x; }, in) /
                       static_cast<float>(count);
    const float squares = sum(
        count, [mean](float x) { return (x - mean) * (x - mean); }, in);
    return rowwise::pair(mean, squares);
  }

  template <typename Out>
  __device__ auto map_moments(Out* out, int count, auto f, const auto*... in) const {
    const int n = only_pack(count);
    if (n < 0) {
      map(out, count, f, in...);
      return moments(count, static_cast<const Out*>(out));
    }
    Values<kPack> kept;
    for_packs(
        aligned<kPack>(out, in...), count,
        [&](int i, auto whole, const auto&... x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) kept.value[j] = f(x.value[j]...);
          kept.store(out + i, whole);
          kept = kept.template stored<Out>();
        },
        in...);
    return kept_moments(count, n, kept);
  }

  __device__ double sum_double(int count, auto f, const auto* in) const {
    return total<double>(
        count, [f](float x) { return f(static_cast<double>(x)); }, in);
  }

  __device__ int count_if(int count, auto f, const auto* in) const {
    return total<int>(
        count, [f](float x) { return f(x) ? 1 : 0; }, in);
  }

  __device__ float max(int count, const auto* in) const {
    float most = -std::numeric_limits<float>::infinity();
    for_packs(
        aligned<kPack>(in), count,
        [&](int, auto n, const auto& x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) most = j < n && x.value[j] > most ? x.value[j] : most;
        },
        in);
    return at.reduce(most, [](float a, float b) { return a > b ? a : b; });
  }

  __device__ float largest_size(int count, const auto* in) const {
    float most = 0;
    for_packs(
        aligned<kPack>(in), count,
        [&](int, auto n, const auto& x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j)
            most = j < n && std::abs(x.value[j]) > most ? std::abs(x.value[j]) : most;
        },
        in);
    return at.reduce(most, [](float a, float b) { return a > b ? a : b; });
  }

  __device__ auto sum_and_max(int count, auto f, const auto* in) const {
    float total = 0, most = -std::numeric_limits<float>::infinity();
    for_packs<2>(
        aligned<kPack>(in), count,
        [&](int, auto n, const auto& x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) {
            total += j < n ? f(x.value[j]) : 0.0f;
            most = j < n && x.value[j] > most ? x.value[j] : most;
          }
        },
        in);
    return at.reduce(rowwise::pair(total, most), [](const auto& a, const auto& b) {
      return rowwise::pair(a.first + b.first, a.second > b.second ? a.second : b.second);
    });
  }

  __device__ void map(auto* out, int count, auto f, const auto*... in) const {
    map_indexed(
        out, count, [f](float, auto... x) { return f(x...); }, in...);
  }

  /// Ignores the rows to prefetch, which are for teams of few members: here
  /// many rows are in flight at once without prefetching.
  __device__ void map_asking(const auto&, auto* out, int count, auto f, const auto*... in) const {
    map(out, count, f, in...);
  }

  template <typename Out>
  __device__ float map_sum_asking(const auto&, Out* out, int count, auto f,
                                  const auto*... in) const {
    float mine = 0;
    for_packs(
        aligned<kPack>(out, in...), count,
        [&](int i, auto n, const auto&... x) {
          Values<kPack> y;
#pragma unroll
          for (int j = 0; j < kPack; ++j) {
            const auto both = f(x.value[j]...);
            y.value[j] = both.first;
            mine += j < n ? both.second : 0.0f;
          }
          y.store(out + i, n);
        },
        in...);
    return sum_of_threads(mine);
  }

  template <typename In>
  __device__ void combine(auto* out, int count, rowwise::Matrix<const In> inp,
                          const rowwise::RowTerms& terms, const std::int32_t*) const {
    const bool whole = aligned<kPack>(out, inp.data) && inp.template apart<kPack>();
    const int step = at.threads() * kPack;
    for (int i = at.thread() * kPack; i < count; i += step) {
      Values<kPack> total;
#pragma unroll
      for (int c = 0; c < kPack; ++c) total.value[c] = 0;
      const auto add = [&](float weight, const Values<kPack>& x) {
#pragma unroll
        for (int c = 0; c < kPack; ++c) total.value[c] += weight * x.value[c];
      };
      if (const int n = count - i; whole && n >= kPack) {
#pragma unroll 4
        for (int j = 0; j < terms.count; ++j)
          add(terms.weight(j), Values<kPack>(load_pack<kPack>(inp.row(terms.rows[j]) + i)));
        total.store(out + i, Whole<kPack>{});
      } else {
        for (int j = 0; j < terms.count; ++j)
          add(terms.weight(j), Values<kPack>(inp.row(terms.rows[j]) + i, n));
        total.store(out + i, n);
      }
    }
  }

  template <typename Out>
  __device__ void map_pair(Out* first, Out* second, int count, auto f, const auto*... in) const {
    for_packs(
        aligned<kPack>(first, second, in...), count,
        [&](int i, auto n, const auto&... x) {
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

  /// Thread i has pairs i, i + the number of threads...
  template <typename T>
  __device__ void map_neighbours(T* out, int pairs, auto f, const T* inp, const auto*... in) const {
    for (int i = at.thread(); i < pairs; i += at.threads()) {
      const auto both = f(get(inp[2 * i]), get(inp[2 * i + 1]), in[i]...);
      put_two(out + 2 * i, both.first, both.second);
    }
  }

  __device__ void map_indexed(auto* out, int count, auto f, const auto*... in) const {
    for_packs(
        aligned<kPack>(out, in...), count,
        [&](int i, auto n, const auto&... x) {
          Values<kPack> y;
#pragma unroll
          for (int j = 0; j < kPack; ++j) y.value[j] = f(static_cast<float>(i + j), x.value[j]...);
          y.store(out + i, n);
        },
        in...);
  }

  __device__ void update(auto* out, int count, auto f, auto*... inout) const {
    for_packs(
        aligned<kPack>(out, inout...), count,
        [&](int i, auto n, auto... x) {
          Values<kPack> y;
#pragma unroll
          for (int j = 0; j < kPack; ++j) y.value[j] = f(x.value[j]...);
          (store_unless_const(inout + i, n, x), ...);
          y.store(out + i, n);
        },
        inout...);
  }

  /// A thread has kPack columns. If these are few, the block's threads form groups: group g of G
  /// has the rows begin + g, begin + g + G..., and the groups' sums are added in their order. A
  /// kernel calls it once: after it, threads may still read the shared memory.
  template <std::size_t Sums, template <typename> typename Rows, typename... In>
  __device__ void column_sums(std::array<float*, Sums> out, int count, std::int64_t begin,
                              std::int64_t end, auto f, Rows<In>... in) const {
    struct alignas(16) Parts {
      float of[Sums][kColumnThreads * kPack];
    };
    AXONN_SHARED(parts, Parts);
    const int threads = at.threads(), thread = at.thread();
    const int packs = (count + kPack - 1) / kPack, across = packs < threads ? packs : threads;
    const int groups = threads / across, group = thread / across;
    const bool whole = aligned<kPack>(in.row(0)...) && (in.template apart<kPack>() && ...);
    for (int c = thread % across * kPack; c < count && group < groups; c += across * kPack) {
      Values<kPack> sums[Sums];
#pragma unroll
      for (int j = 0; j < kPack; ++j)
        for (Values<kPack>& sum : sums) sum.value[j] = 0;
      std::int64_t r = begin + group;
      if (whole && count - c >= kPack)
        for (; r + 3 * groups < end; r += 4 * groups) {
          const decltype(f(r)) terms[] = {f(r), f(r + groups), f(r + 2 * groups),
                                          f(r + 3 * groups)};
          std::tuple<Pack<std::remove_const_t<In>, kPack>...> rows[4];
#pragma unroll
          for (int k = 0; k < 4; ++k) rows[k] = {load_pack<kPack>(in.row(r + k * groups) + c)...};
#pragma unroll
          for (int k = 0; k < 4; ++k)
            std::apply([&](auto... x) { add_row(sums, terms[k], Values<kPack>(x)...); }, rows[k]);
        }
      for (; r < end; r += groups) add_row(sums, f(r), Values<kPack>(in.row(r) + c, count - c)...);
      for (std::size_t i = 0; i < Sums; ++i)
        if (groups == 1)
          sums[i].store(out[i] + c, count - c);
        else
          sums[i].store(&parts.of[i][(group * across + c / kPack) * kPack], Whole<kPack>{});
    }
    if (groups == 1) return;
    at.sync();
    for (std::size_t i = 0; i < Sums; ++i)
      for (int c = thread; c < count; c += threads) {
        float sum = 0;
        for (int g = 0; g < groups; ++g) sum += parts.of[i][g * across * kPack + c];
        out[i][c] = sum;
      }
  }

  __device__ std::uint64_t largest_of(int count, auto f) const {
    std::uint64_t most = 0;
    const int step = at.threads() * kPack;
    for (int i = at.thread() * kPack; i < count; i += step)
#pragma unroll
      for (int j = 0; j < kPack; ++j)
        if (i + j < count) {
          const std::uint64_t one = f(i + j);
          most = one > most ? one : most;
        }
    return at.reduce(most, [](std::uint64_t a, std::uint64_t b) { return a > b ? a : b; });
  }

  __device__ std::uint64_t sum_of(int count, auto f) const {
    std::uint64_t total = 0;
    const int step = at.threads();
    for (int i = at.thread(); i < count; i += step) total += f(i);
    return at.reduce(total, [](std::uint64_t a, std::uint64_t b) { return a + b; });
  }

  __device__ void sums_in_double(double* out, int count, std::int64_t begin, std::int64_t end,
                                 auto row) const {
    each(count, [&](int c) {
      double sum = out[c];
#pragma unroll 4
      for (std::int64_t r = begin; r < end; ++r)
        if (const auto one = row(r); one.values) sum += one.factor * one.values[c];
      out[c] = sum;
    });
  }

  /// A thread has a part of the rows of a column.
  __device__ void column_prefixes(rowwise::Matrix<std::int32_t> columns, std::int64_t rows,
                                  int count, std::int32_t* totals) const {
    constexpr int kColumns = 32, kMostThreads = 512, kTogether = 4;
    AXONN_SHARED(sums, std::int32_t[kMostThreads]);
    const int column = at.thread() % kColumns, part = at.thread() / kColumns,
              parts = at.threads() / kColumns;
    const auto all = static_cast<int>(rows), each = (all + parts - 1) / parts,
               begin = part * each < all ? part * each : all,
               end = begin + each < all ? begin + each : all;
    const bool exists = column < count;
    std::int32_t sum = 0;
    if (exists)
#pragma unroll 8
      for (int r = begin; r < end; ++r) sum += columns.row(r)[column];
    sums[at.thread()] = sum;
    at.sync();
    std::int32_t above = 0;
    for (int p = 0; p < part; ++p) above += sums[p * kColumns + column];
    if (!exists) return;
    for (int r = begin; r < end; r += kTogether) {
      std::int32_t kept[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) kept[i] = r + i < end ? columns.row(r + i)[column] : 0;
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (r + i < end) columns.row(r + i)[column] = above;
        above += kept[i];
      }
    }
    if (part == parts - 1) totals[column] = above;
  }

  __device__ void share(auto f) const { f(at.thread(), at.threads()); }

  __device__ void each(int count, auto f) const {
    for (int i = at.thread(); i < count; i += at.threads()) f(i);
  }

  __device__ auto first(auto f) const {
    const auto value = f();
    at.sync();
    return value;
  }

  __device__ void once(auto f) const {
    at.sync();
    if (at.thread() == 0) f();
  }

 private:
  template <typename T>
  __device__ T sum_of_threads(T mine) const {
    return at.reduce(mine, [](T a, T b) { return a + b; });
  }

  /// The sum of f(x...), in type T.
  template <typename T>
  __device__ T total(int count, auto f, const auto*... in) const {
    T mine = 0;
    for_packs(
        aligned<kPack>(in...), count,
        [&](int, auto n, const auto&... x) {
#pragma unroll
          for (int j = 0; j < kPack; ++j) mine += j < n ? f(x.value[j]...) : T{0};
        },
        in...);
    return sum_of_threads(mine);
  }

  /// Calls body(begin, elements, values of each input...) for this thread's packs. `whole`: whether
  /// all of its memory is aligned. That is one decision for a whole row, so that no branch
  /// separates the loads of a pack and they are under way together; those of kTogether packs are.
  template <int kTogether = 1>
  __device__ void for_packs(bool whole, int count, auto body, const auto*... in) const {
    const int step = at.threads() * kPack;
    int i = at.thread() * kPack;
    if constexpr (kTogether == 2)
      if (whole)
        for (; count - i >= step + kPack; i += 2 * step)
          two_unpacked(body, i, step, load_pack<kPack>(in + i)...,
                       load_pack<kPack>(in + i + step)...);
    if (whole)
      for (; count - i >= kPack; i += step) unpacked(body, i, load_pack<kPack>(in + i)...);
    for (; i < count; i += step) {
      const int n = count - i < kPack ? count - i : kPack;
      body(i, n, Values<kPack>(in + i, n)...);
    }
  }

  template <typename... In>
  __device__ static void unpacked(auto& body, int i, const Pack<In, kPack>&... in) {
    body(i, Whole<kPack>{}, Values<kPack>(in)...);
  }
  /// Of one input.
  template <typename In>
  __device__ static void two_unpacked(auto& body, int i, int step, const Pack<In, kPack>& first,
                                      const Pack<In, kPack>& second) {
    unpacked(body, i, first);
    unpacked(body, i + step, second);
  }

  /// The elements of this thread's pack if no thread has a second one; else negative.
  __device__ int only_pack(int count) const {
    if (count > at.threads() * kPack) return -1;
    const int rest = count - at.thread() * kPack;
    return rest < 0 ? 0 : rest < kPack ? rest : kPack;
  }

  /// moments(), of which this thread has n values.
  __device__ rowwise::Pair<float> kept_moments(int count, int n, const Values<kPack>& x) const {
    float sum = 0, squares = 0;
#pragma unroll
    for (int j = 0; j < kPack; ++j) sum += j < n ? x.value[j] : 0.0f;
    const float mean = sum_of_threads(sum) / static_cast<float>(count);
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      squares += j < n ? (x.value[j] - mean) * (x.value[j] - mean) : 0.0f;
    return rowwise::pair(mean, sum_of_threads(squares));
  }

  __device__ static void store_unless_const(float* to, auto n, const Values<kPack>& x) {
    x.store(to, n);
  }
  template <typename T>
  __device__ static void store_unless_const(const T*, auto, const Values<kPack>&) {}

  template <std::size_t Sums>
  __device__ static void add_row(Values<kPack> (&sums)[Sums], auto term, const auto&... x) {
#pragma unroll
    for (int j = 0; j < kPack; ++j) add(sums, j, term(x.value[j]...));
  }
  __device__ static void add(Values<kPack> (&sums)[1], int j, float term) {
    sums[0].value[j] += term;
  }
  __device__ static void add(Values<kPack> (&sums)[2], int j, rowwise::Pair<float> terms) {
    sums[0].value[j] += terms.first;
    sums[1].value[j] += terms.second;
  }
};

using Team = TeamOf<ThreadsOfBlock>;

}  // namespace axonn::cuda
