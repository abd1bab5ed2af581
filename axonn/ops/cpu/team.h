#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "axonn/ops/cpu/floats.h"
#include "axonn/ops/cpu/moments.h"
#include "axonn/ops/cpu/strips.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::cpu {

/// A team of one thread: its members are the lanes of a vector register. Bodies take values, as
/// floats; strips.h turns elements into floats and back, a strip at a time.
struct Team {
  template <typename F, typename... In>
  float sum(int count, F f, const In*... in) const {
    float sums[kStrip] = {};
    for_strips_of(
        count, [&](int, auto n, auto... x) { add(sums, n, f, x...); }, in...);
    return detail::fold(sums);
  }

  /// Two sums in one pass: the body returns both terms.
  template <typename F, typename... In>
  rowwise::Pair sum_two(int count, F f, const In*... in) const {
    float a[kStrip] = {}, b[kStrip] = {};
    for_strips_of(
        count,
        [&](int, auto n, auto... x) {
#pragma omp simd
          for (int i = 0; i < n; ++i) {
            const rowwise::Pair terms = f(x[i]...);
            a[i] += terms.first;
            b[i] += terms.second;
          }
        },
        in...);
    return {detail::fold(a), detail::fold(b)};
  }

  /// Mean, and sum of squared deviations from it, in one pass.
  template <typename In>
  rowwise::Pair moments(int count, const In* in) const {
    const int head = std::min(count, kStrip);
    detail::Moments moments(in, head);
    for_strips_of(
        count - head, [&](int, auto n, const float* x) { moments.add(x, n); }, in + head);
    return moments.total(count);
  }

  /// map(), and the moments of out as it holds them. A strip is read again before it leaves the
  /// first cache.
  template <typename Out, typename F, typename... In>
  rowwise::Pair map_moments(Out* out, int count, F f, const In*... in) const {
    const int head = std::min(count, kStrip);
    map(out, head, f, in...);
    detail::Moments moments(out, head);
    for_strips_of(
        count - head,
        [&](int begin, auto n, auto... x) {
          detail::Target<Out> target;
          Out* y = out + head + begin;
          apply(target.floats(y), n, f, x...);
          target.store(y, n);
          moments.add(detail::Source<Out>().load(y, n), n);
        },
        (in + head)...);
    return moments.total(count);
  }

  /// For sums over more than a row, where a float's 24 bits would not do.
  template <typename F, typename... In>
  double sum_double(int count, F f, const In*... in) const {
    double sums[kStrip] = {};
    for_strips_of(
        count,
        [&](int, auto n, auto... x) {
#pragma omp simd
          for (int i = 0; i < n; ++i) sums[i] += f(static_cast<double>(x[i])...);
        },
        in...);
    return fold(sums);
  }

  template <typename F, typename... In>
  int count_if(int count, F f, const In*... in) const {
    int total = 0;
    for_strips_of(
        count,
        [&](int, auto n, auto... x) {
#pragma omp simd reduction(+ : total)
          for (int i = 0; i < n; ++i) total += f(x[i]...) ? 1 : 0;
        },
        in...);
    return total;
  }

  /// -infinity if there is none. NaN elements are passed over.
  template <typename In>
  float max(int count, const In* in) const {
    float most[kStrip];
    for (float& each : most) each = -std::numeric_limits<float>::infinity();
    for_strips_of(
        count,
        [&](int, auto n, const float* x) {
#pragma omp simd
          for (int i = 0; i < n; ++i) most[i] = x[i] > most[i] ? x[i] : most[i];
        },
        in);
    for (int half = kStrip / 2; half > 0; half /= 2) {
#pragma omp simd
      for (int i = 0; i < half; ++i) most[i] = most[i + half] > most[i] ? most[i + half] : most[i];
    }
    return most[0];
  }

  /// Rows that are read soon: `count` elements from p are fetched into the caches.
  template <typename T>
  void prefetch(const T* p, int count) const {
    constexpr int kLine = 64 / sizeof(T);
    for (int i = 0; i < count; i += kLine) __builtin_prefetch(p + i);
  }

  template <typename Out, typename F, typename... In>
  void map(Out* out, int count, F f, const In*... in) const {
    for_strips_of(
        count,
        [&](int begin, auto n, auto... x) {
          detail::Target<Out> target;
          apply(target.floats(out + begin), n, f, x...);
          target.store(out + begin, n);
        },
        in...);
  }

  /// The body returns a Pair; either may be written over what it is made from.
  template <typename Out, typename F, typename... In>
  void map_pair(Out* first, Out* second, int count, F f, const In*... in) const {
    for_strips_of(
        count,
        [&](int begin, auto n, auto... x) {
          detail::Target<Out> a, b;
          float *y = a.floats(first + begin), *z = b.floats(second + begin);
#pragma omp simd
          for (int i = 0; i < n; ++i) {
            const rowwise::Pair pair = f(x[i]...);
            y[i] = pair.first;
            z[i] = pair.second;
          }
          a.store(first + begin, n);
          b.store(second + begin, n);
        },
        in...);
  }

  /// The body takes the index first, as a float: indices are below 2^24.
  template <typename Out, typename F, typename... In>
  void map_indexed(Out* out, int count, F f, const In*... in) const {
    for_strips_of(
        count,
        [&](int begin, auto n, auto... x) {
          detail::Target<Out> target;
          float index[kStrip];
#pragma omp simd
          for (int i = 0; i < kStrip; ++i) index[i] = static_cast<float>(begin + i);
          apply(target.floats(out + begin), n, f, index, x...);
          target.store(out + begin, n);
        },
        in...);
  }

  /// Updates a, b and c in one pass and writes out: the body takes the three by reference and the
  /// values of `in`, and returns what out becomes.
  template <typename Out, typename F, typename... In>
  void update(Out* out, float* a, float* b, float* c, int count, F f, const In*... in) const {
    for_strips_of(
        count,
        [&](int begin, auto n, auto... x) {
          detail::Target<Out> target;
          float* y = target.floats(out + begin);
          float *pa = a + begin, *pb = b + begin, *pc = c + begin;
#pragma omp simd
          for (int i = 0; i < n; ++i) {
            float u = pa[i], v = pb[i], w = pc[i];
            y[i] = f(u, v, w, x[i]...);
            pa[i] = u;
            pb[i] = v;
            pc[i] = w;
          }
          target.store(out + begin, n);
        },
        in...);
  }

  /// out[c] = sum over rows [begin, end), in order, of f(row)(in.row(row)[c]...), c below count.
  template <typename F, typename... In>
  void column_sums(float* out, int count, std::int64_t begin, std::int64_t end, F f,
                   rowwise::Matrix<In>... in) const {
    map(out, count, [] { return 0.0f; });
    std::int64_t r = begin;
    for (; r + 4 <= end; r += 4)  // a sum is loaded and stored once for four rows
      for_strips_of(
          count,
          [=, f0 = f(r), f1 = f(r + 1), f2 = f(r + 2), f3 = f(r + 3)](int at, auto n, auto... x) {
            const float* const rows[] = {x...};
            float* y = out + at;
#pragma omp simd
            for (int i = 0; i < n; ++i) {
              float sum = y[i] + at_row<0, sizeof...(In)>(f0, rows, i);
              sum += at_row<1, sizeof...(In)>(f1, rows, i);
              sum += at_row<2, sizeof...(In)>(f2, rows, i);
              y[i] = sum + at_row<3, sizeof...(In)>(f3, rows, i);
            }
          },
          in.row(r)..., in.row(r + 1)..., in.row(r + 2)..., in.row(r + 3)...);
    for (; r < end; ++r)
      map(
          out, count, [term = f(r)](float sum, auto... x) { return sum + term(x...); }, out,
          in.row(r)...);
  }

  /// Two sums a column in one pass: f(row) returns both terms.
  template <typename F, typename... In>
  void column_sums_two(float* a, float* b, int count, std::int64_t begin, std::int64_t end, F f,
                       rowwise::Matrix<In>... in) const {
    map(a, count, [] { return 0.0f; });
    map(b, count, [] { return 0.0f; });
    std::int64_t r = begin;
    for (; r + 4 <= end; r += 4)
      for_strips_of(
          count,
          [=, f0 = f(r), f1 = f(r + 1), f2 = f(r + 2), f3 = f(r + 3)](int at, auto n, auto... x) {
            const float* const rows[] = {x...};
            float *y = a + at, *z = b + at;
#pragma omp simd
            for (int i = 0; i < n; ++i) {
              const rowwise::Pair t0 = at_row<0, sizeof...(In)>(f0, rows, i),
                                  t1 = at_row<1, sizeof...(In)>(f1, rows, i),
                                  t2 = at_row<2, sizeof...(In)>(f2, rows, i),
                                  t3 = at_row<3, sizeof...(In)>(f3, rows, i);
              y[i] = y[i] + t0.first + t1.first + t2.first + t3.first;
              z[i] = z[i] + t0.second + t1.second + t2.second + t3.second;
            }
          },
          in.row(r)..., in.row(r + 1)..., in.row(r + 2)..., in.row(r + 3)...);
    for (; r < end; ++r) {
      map(
          a, count, [term = f(r)](float sum, auto... x) { return sum + term(x...).first; }, a,
          in.row(r)...);
      map(
          b, count, [term = f(r)](float sum, auto... x) { return sum + term(x...).second; }, b,
          in.row(r)...);
    }
  }

  /// Calls f(i) for every i below count.
  template <typename F>
  void each(int count, F f) const {
    for (int i = 0; i < count; ++i) f(i);
  }

  template <typename F>
  void once(F f) const {
    f();
  }

 private:
  /// y[i] = f(x[i]...), i below n, side by side where the body takes that.
  template <typename N, typename F, typename... X>
  [[gnu::always_inline]] static void apply(float* y, N n, F f, const X*... x) {
    if constexpr (!kWide<F, X...>) {
#pragma omp simd
      for (int i = 0; i < n; ++i) y[i] = f(x[i]...);
    } else if (n == kStrip) {
#pragma GCC unroll 4
      for (int i = 0; i < kStrip; i += Floats::kCount) f(Floats::load(x + i)...).store(y + i);
    } else {
      apply_padded(y, n, f, detail::Padded(x, n)...);
    }
  }

  /// The same of a part of a strip.
  template <typename F, typename... X>
  [[gnu::noinline]] static void apply_padded(float* y, int n, F f, const X&... x) {
    float results[kStrip];
    for (int i = 0; i < n; i += Floats::kCount) f(Floats::load(x.values + i)...).store(results + i);
    std::copy_n(results, n, y);
  }

  /// sums[i] += f(x[i]...), i below n.
  template <typename N, typename F, typename... X>
  [[gnu::always_inline]] static void add(float* sums, N n, F f, const X*... x) {
    if constexpr (!kWide<F, X...>) {
#pragma omp simd
      for (int i = 0; i < n; ++i) sums[i] += f(x[i]...);
    } else if (n == kStrip) {
#pragma GCC unroll 4
      for (int i = 0; i < kStrip; i += Floats::kCount)
        (Floats::load(sums + i) + f(Floats::load(x + i)...)).store(sums + i);
    } else {
      float terms[kStrip];
      apply_padded(terms, n, f, detail::Padded(x, n)...);
      for (int i = 0; i < n; ++i) sums[i] += terms[i];
    }
  }

  template <typename>
  using Wide = Floats;
  /// Whether the body takes Floats.
  template <typename F, typename... X>
  static constexpr bool kWide = sizeof...(X) > 0 && std::is_invocable_v<F, Wide<X>...>;

  /// f of element i of the `Inputs` rows that belong to row `Row`.
  template <std::size_t Row, std::size_t Inputs, typename F>
  static auto at_row(F f, const float* const* rows, int i) {
    return [&]<std::size_t... k>(std::index_sequence<k...>) {
      return f(rows[Row * Inputs + k][i]...);
    }
    (std::make_index_sequence<Inputs>{});
  }

  static double fold(double (&sums)[kStrip]) {
    for (int half = kStrip / 2; half > 0; half /= 2) {
#pragma omp simd
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    return sums[0];
  }
};

}  // namespace axonn::cpu
