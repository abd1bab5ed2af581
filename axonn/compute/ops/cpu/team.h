#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "axonn/compute/ops/cpu/dequantize.h"
#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/registers.h"
#include "axonn/compute/ops/rowwise/matrix.h"

namespace axonn::cpu {

/// 64 sums in double side by side, over strips of floats.
class Doubles {
 public:
  /// sums += f(x) in double; f must accept vector registers.
  [[gnu::always_inline]] void add(auto f, const Floats& x) {
    Floats::for_each([&](int i) {
      sums_[2 * i] += f(lower(x.r[i]));
      sums_[2 * i + 1] += f(upper(x.r[i]));
    });
  }

  /// The total: halves are added to halves.
  double fold() const {
    alignas(64) double sums[Floats::kCount];
    for (int i = 0; i < 2 * Floats::kRegisters; ++i)
      *reinterpret_cast<Floats::Doubles*>(sums + std::ptrdiff_t{i} * kEach) = sums_[i];
    for (int half = Floats::kCount / 2; half > 0; half /= 2) {
#pragma omp simd
      for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    return sums[0];
  }

 private:
  static constexpr int kEach = Floats::kEach / 2;
  Floats::Doubles sums_[2 * Floats::kRegisters] = {};
};

/// Mean and sum of squared deviations in one pass. Each lane sums deviations from its first value
/// k, s = sum(x - k) and q = sum((x - k)²), so no digits cancel if the mean is far from zero. In
/// the end a lane of n values contributes q + d · (2 s + n d), d = k - mean, which is the sum of
/// its (x - mean)². If k is far from the mean, this loses digits relative to (mean - k)², but then
/// the row's whole sum is no smaller than that.
class Moments {
 public:
  /// x: the first strip, or the whole row if it is shorter, with zeros after it.
  [[gnu::always_inline]] explicit Moments(const Floats& x) : first_(x) {}

  /// Adds the next strip, of which n values count.
  [[gnu::always_inline]] void add(const Floats& x, auto n) {
    const Floats d = first_of(x - first_, n);
    sums_ = sums_ + d;
    squares_ = squares_ + d * d;
  }

  /// Mean and sum of squared deviations of all `count` values.
  [[gnu::always_inline]] rowwise::Pair<float> total(int count) const {
    Floats n = static_cast<float>(count / Floats::kCount);
    if (const int rest = count % Floats::kCount; rest > 0) n = n + first_of(Floats(1.0f), rest);
    const float mean = fold(n * first_ + sums_) / static_cast<float>(count);
    const Floats d = first_ - mean;
    return {mean, fold(squares_ + d * (2.0f * sums_ + n * d))};
  }

 private:
  Floats first_, sums_, squares_;
};

/// A team of one thread: its members are the lanes of the registers that hold a strip. Bodies take
/// Floats; bodies that do not compile for Floats take the strip's floats one by one.
struct Team {
  /// Whether the data may lie beyond the L2 cache, so that the team prefetches it. For data within
  /// the L2 cache, prefetching takes up to a third of the time.
  bool far = true;

  template <typename F, typename... In>
  [[gnu::flatten]] float sum(int count, F f, const In*... in) const {
    Floats total;
    for_strips<kOrder<In...>>(
        count, [&](int, auto n, const auto&... x) { total = total + first_of(apply(f, x...), n); },
        in...);
    return fold(total);
  }

  /// Two sums in one pass: the body returns both terms.
  template <typename F, typename... In>
  [[gnu::flatten]] rowwise::Pair<float> sum_two(int count, F f, const In*... in) const {
    Floats a, b;
    for_strips<kOrder<In...>>(
        count,
        [&](int, auto n, const auto&... x) {
          const rowwise::Pair<Floats> terms = f(x...);
          a = a + first_of(terms.first, n);
          b = b + first_of(terms.second, n);
        },
        in...);
    return {fold(a), fold(b)};
  }

  /// The sum of f(x), and the largest x, in one pass. The largest is -infinity if there is none;
  /// it ignores NaN.
  template <typename F, typename In>
  [[gnu::flatten]] rowwise::Pair<float> sum_and_max(int count, F f, const In* in) const {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    Floats total, most = kLowest;
    for_strips<kOrder<In>>(
        count,
        [&](int, auto n, const Floats& x) {
          total = total + first_of(f(x), n);
          most = greatest(first_of(x, n, kLowest), most);
        },
        in);
    return {fold(total), largest(most)};
  }

  /// The largest element: -infinity if there is none; ignores NaN.
  float max(int count, const auto* in) const {
    return sum_and_max(
               count, [](const Floats&) { return 0.0f; }, in)
        .second;
  }

  /// The largest size of an element: 0 if there is none; ignores NaN.
  template <typename In>
  [[gnu::flatten]] float largest_size(int count, const In* in) const {
    Floats most;
    for_strips<kOrder<In>>(
        count,
        [&](int, auto n, const Floats& x) {
          most = greatest(first_of(greatest(x, 0.0f - x), n), most);
        },
        in);
    return largest(most);
  }

  /// Mean, and sum of squared deviations from it, in one pass over count > 0 elements.
  template <typename In>
  [[gnu::flatten]] rowwise::Pair<float> moments(int count, const In* in) const {
    constexpr Order kAs = kOrder<In>;
    if (count < Floats::kCount) return Moments(load<kAs>(in, count)).total(count);
    Moments moments(load<kAs>(in, Whole{}));
    for_strips<kAs>(
        count - Floats::kCount, [&](int, auto n, const Floats& x) { moments.add(x, n); },
        in + Floats::kCount);
    return moments.total(count);
  }

  /// map(), and the moments of out as stored, after rounding.
  template <typename Out, typename F, typename... In>
  [[gnu::flatten]] rowwise::Pair<float> map_moments(Out* out, int count, F f,
                                                    const In*... in) const {
    constexpr Order kAs = kOrder<Out, In...>;
    const auto made = [&](int at, auto n, const auto&... x) {
      return store<kAs>(out + at, apply(f, x...), n);
    };
    if (count < Floats::kCount)
      return Moments(first_of(made(0, count, load<kAs>(in, count)...), count)).total(count);
    Moments moments(made(0, Whole{}, load<kAs>(in, Whole{})...));
    for_strips<kAs>(
        count - Floats::kCount,
        [&](int at, auto n, const auto&... x) {
          moments.add(made(at + Floats::kCount, n, x...), n);
        },
        (in + Floats::kCount)...);
    return moments.total(count);
  }

  /// For sums over more than a row, for which a float's 24 bits are too few. f(0) must be 0.
  template <typename F, typename In>
  [[gnu::flatten]] double sum_double(int count, F f, const In* in) const {
    Doubles total;
    for_strips<kOrder<In>>(
        count, [&](int, auto, const Floats& x) { total.add(f, x); }, in);
    return total.fold();
  }

  template <typename F, typename In>
  [[gnu::flatten]] int count_if(int count, F f, const In* in) const {
    int total = 0;
    for_strips<kOrder<In>>(
        count,
        [&](int, auto n, const Floats& x) {
          const Values values(x);
#pragma omp simd reduction(+ : total)
          for (int i = 0; i < n; ++i) total += f(values[i]) ? 1 : 0;
        },
        in);
    return total;
  }

  /// Prefetches `count` elements from p into the caches.
  void prefetch(const auto* p, int count) const {
    constexpr int kLine = 64 / sizeof(*p);
    for (int i = 0; i < count; i += kLine) __builtin_prefetch(p + i);
  }

  template <typename Out, typename F, typename... In>
  [[gnu::flatten]] void map(Out* out, int count, F f, const In*... in) const {
    constexpr Order kAs = kOrder<Out, In...>;
    for_strips<kAs>(
        count, [&](int at, auto n, const auto&... x) { store<kAs>(out + at, apply(f, x...), n); },
        in...);
  }

  /// map() over rows that lie anywhere, so that the hardware does not prefetch them. It prefetches
  /// `count` elements from each of `soon`, which a later call reads, at the pace of this row.
  template <typename Out, typename F, typename... Soon, typename... In>
  [[gnu::flatten]] void map_asking(std::tuple<const Soon*...> soon, Out* out, int count, F f,
                                   const In*... in) const {
    constexpr Order kAs = kOrder<Out, In...>;
    for_strips_asking<kAs>(
        asking(soon), count,
        [&](int at, auto n, const auto&... x) { store<kAs>(out + at, apply(f, x...), n); }, in...);
  }

  /// map_asking(), and a sum: the body returns a Pair of the value and the term.
  template <typename Out, typename F, typename... Soon, typename... In>
  [[gnu::flatten]] float map_sum_asking(std::tuple<const Soon*...> soon, Out* out, int count, F f,
                                        const In*... in) const {
    constexpr Order kAs = kOrder<Out, In...>;
    Floats total;
    for_strips_asking<kAs>(
        asking(soon), count,
        [&](int at, auto n, const auto&... x) {
          const rowwise::Pair<Floats> both = f(x...);
          store<kAs>(out + at, both.first, n);
          total = total + first_of(both.second, n);
        },
        in...);
    return fold(total);
  }

  /// out = the sum of rows of inp, each times its weight, in f32. It prefetches the rows `soon` as
  /// map_asking() does.
  template <typename Out, typename In>
  [[gnu::flatten]] void combine(Out* out, int count, rowwise::Matrix<const In> inp,
                                const rowwise::RowTerms& terms, const std::int32_t* soon) const {
    constexpr Order kAs = kOrder<Out, In>;
    for_strips_asking<kAs>(
        [&](int at) __attribute__((always_inline)) {
          if (!far) return;
          for (int j = 0; j < terms.count; ++j) ask(inp.row(soon[j]) + at);
        },
        count,
        [&](int at, auto n) {
          Floats total;
          for (int j = 0; j < terms.count; ++j)
            total = total + Floats(terms.weight(j)) * load<kAs>(inp.row(terms.rows[j]) + at, n);
          store<kAs>(out + at, total, n);
        });
  }

  /// The body returns a Pair. Each result may overwrite the inputs.
  template <typename Out, typename F, typename... In>
  [[gnu::flatten]] void map_pair(Out* first, Out* second, int count, F f, const In*... in) const {
    constexpr Order kAs = kOrder<Out, In...>;
    for_strips<kAs>(
        count,
        [&](int at, auto n, const auto&... x) {
          const rowwise::Pair<Floats> pair = f(x...);
          store<kAs>(first + at, pair.first, n);
          store<kAs>(second + at, pair.second, n);
        },
        in...);
  }

  /// Of a row of `pairs` neighbours: the body takes both and an element of each `in`, and returns a
  /// Pair, which may overwrite them.
  template <typename T, typename F>
  void map_neighbours(T* out, int pairs, F f, const T* inp, const auto*... in) const {
#pragma omp simd
    for (int i = 0; i < pairs; ++i) {
      const rowwise::Pair<float> both = f(get(inp[2 * i]), get(inp[2 * i + 1]), in[i]...);
      put(out[2 * i], both.first);
      put(out[2 * i + 1], both.second);
    }
  }

  /// The body takes the index first, as a float; so indices must be below 2^24.
  template <typename Out, typename F, typename... In>
  [[gnu::flatten]] void map_indexed(Out* out, int count, F f, const In*... in) const {
    for_strips<Order::memory>(
        count,
        [&](int at, auto n, const auto&... x) {
          const Floats index = from_zero() + static_cast<float>(at);
          store<Order::memory>(out + at, apply(f, index, x...), n);
        },
        in...);
  }

  /// Updates the non-const arrays of `inout` in one pass and writes out. The body takes values of
  /// all arrays, those to update by reference, and returns the value of out.
  template <typename Out, typename F, typename... InOut>
  [[gnu::flatten]] void update(Out* out, int count, F f, InOut*... inout) const {
    for_strips<Order::memory>(
        count,
        [&](int at, auto n, auto... x) {
          const Floats y = f(x...);
          (write_back(inout + at, x, n), ...);
          store<Order::memory>(out + at, y, n);
        },
        inout...);
  }

  /// out[i][c] = sum over rows [begin, end), in order, of term i of f(row)(in.row(row)[c]...), c
  /// below count. The body returns the term, or a Pair of two.
  template <std::size_t Sums, typename F, template <typename> typename Rows, typename... In>
  void column_sums(std::array<float*, Sums> out, int count, std::int64_t begin, std::int64_t end,
                   F f, Rows<In>... in) const {
    constexpr Order kAs = kOrder<In...>;
    // Adds several rows at a time, so that the sums are loaded and stored once for all of them.
    // With more than eight streams the hardware would prefetch less.
    constexpr int kRows = 8 / sizeof...(In);
    const int whole = count / Floats::kCount * Floats::kCount;
    for (float* sums : out) std::fill_n(sums, whole, 0.0f);
    std::int64_t r = begin;
    for (; r + kRows <= end; r += kRows)
      if (far)
        add_strips<kAs, kRows, true>(out, whole, r, f, in...);
      else
        add_strips<kAs, kRows>(out, whole, r, f, in...);
    for (; r < end; ++r) add_strips<kAs, 1>(out, whole, r, f, in...);
    if constexpr (kAs == Order::zipped)
      for (float* sums : out)
        for (int at = 0; at < whole; at += Floats::kCount)
          store<kAs>(sums + at, unzip(load<kAs>(sums + at, Whole{})), Whole{});
    if (whole == count) return;
    Floats sums[Sums];
    for (r = begin; r < end; ++r)
      add(sums, f(r)(load<Order::memory>(in.row(r) + whole, count - whole)...));
    for (std::size_t k = 0; k < Sums; ++k)
      store<Order::memory>(out[k] + whole, sums[k], count - whole);
  }

  /// The largest f(i) for i below count; 0 if there is none.
  template <typename F>
  [[gnu::flatten]] std::uint64_t largest_of(int count, F f) const {
    std::uint64_t most = 0;
#pragma omp simd reduction(max : most)
    for (int i = 0; i < count; ++i) {
      const std::uint64_t one = f(i);
      most = one > most ? one : most;
    }
    return most;
  }

  /// The sum of f(i), modulo 2^64, for i below count.
  template <typename F>
  [[gnu::flatten]] std::uint64_t sum_of(int count, F f) const {
    std::uint64_t total = 0;
#pragma omp simd reduction(+ : total)
    for (int i = 0; i < count; ++i) total += f(i);
    return total;
  }

  /// out[c] += factor · values[c], with the rowwise::ScaledRow row(r), for rows [begin, end), in
  /// order, and c below count. Element c of out always belongs to the same member, c modulo their
  /// number.
  template <typename Row>
  [[gnu::flatten]] void sums_in_double(double* out, int count, std::int64_t begin, std::int64_t end,
                                       Row row) const {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto [x, factor] = row(r);
      if (!x) continue;
#pragma omp simd
      for (int c = 0; c < count; ++c) out[c] += factor * x[c];
    }
  }

  /// Calls f(member, members) for every member of the team, for work that they divide by a number
  /// modulo `members`.
  void share(auto f) const { f(0, std::integral_constant<int, 1>{}); }

  /// Replaces the numbers of each of `count` columns, 32 at most, by the sum of those above;
  /// totals = the sums of all.
  void column_prefixes(rowwise::Matrix<std::int32_t> columns, std::int64_t rows, int count,
                       std::int32_t* totals) const {
    std::fill_n(totals, count, 0);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::int32_t* const row = columns.row(r);
#pragma omp simd
      for (int c = 0; c < count; ++c) {
        const std::int32_t above = totals[c];
        totals[c] += row[c];
        row[c] = above;
      }
    }
  }

  /// Writes the values of so many records.
  template <Quantization kind, typename T>
  void dequantize(std::int64_t unit, const std::uint8_t* records, std::int64_t count,
                  T* out) const {
    cpu::dequantize<kind>(unit, records, count, out);
  }

  /// Calls f(i) for every i below count.
  void each(int count, auto f) const {
    for (int i = 0; i < count; ++i) f(i);
  }

  /// Returns f(). All members have called it before the team's next operation writes anything.
  auto first(auto f) const { return f(); }

  /// Calls f once, after the team's operations before it are complete.
  void once(auto f) const { f(); }

 private:
  static constexpr int kLineBytes = 64;
  /// How far ahead strips are prefetched. The bandwidth of one core is limited by the number of
  /// loads in flight, so any time without new requests is lost. 6 KiB at 17 GB/s is 360 ns, enough
  /// for memory to answer. The first prefetch is into the L2 cache, because L1 can have only a
  /// dozen lines in flight; the second, from L2 to L1, comes shortly before use.
  static constexpr int kAheadBytes = 6144, kNearBytes = 768;
  enum class Cache { first, second };

  /// Prefetches the strip that begins `bytes` after p. Inlined, or g++ drops it as without effect.
  template <Cache cache = Cache::second, typename T>
  [[gnu::always_inline]] static void ask(const T* p, int bytes = 0) {
    for (int line = 0; line < static_cast<int>(sizeof(T)); ++line)
      __builtin_prefetch(reinterpret_cast<const std::byte*>(p) + bytes + line * kLineBytes, 0,
                         cache == Cache::first ? 3 : 2);
  }

  /// A function that prefetches each of `soon` from an element on.
  template <typename... Soon>
  auto asking(std::tuple<const Soon*...> soon) const {
    return [ this, soon ](int at) __attribute__((always_inline)) {
      if (!far) return;
      std::apply(
          [&](auto... p) __attribute__((always_inline)) { (ask(p + at), ...); }, soon);
    };
  }

  /// The floats of a strip, one by one.
  struct Values {
    alignas(64) float values[Floats::kCount];

    explicit Values(const Floats& x) { store<Order::memory>(values, x, Whole{}); }
    float operator[](int i) const { return values[i]; }
  };

  /// The order of strips: zipped if all arrays are bf16.
  template <typename... T>
  static constexpr Order kOrder = (std::is_same_v<std::remove_const_t<T>, bf16> && ...)
                                      ? Order::zipped
                                      : Order::memory;

  /// Calls f(begin, n, x...) for every strip of [0, count). x are the n elements from `begin` of
  /// each `in`, then zeros; n is Whole, or an int in an incomplete last strip.
  template <Order order, typename F, typename... In>
  [[gnu::always_inline]] void for_strips(int count, F f, const In*... in) const {
    const auto ahead = [&]([[maybe_unused]] int i) __attribute__((always_inline)) {
      (ask<Cache::second>(in + i, kAheadBytes), ...);
      (ask<Cache::first>(in + i, kNearBytes), ...);
    };
    if (far)
      for_whole_strips<order>(ahead, count, f, in...);
    else
      for_whole_strips<order>([](int) {}, count, f, in...);
    for_last_strip<order>(count, f, in...);
  }

  /// for_strips() with a call of asks(begin) before a strip's elements are loaded.
  template <Order order, typename Asks, typename F, typename... In>
  [[gnu::always_inline]] static void for_strips_asking(Asks asks, int count, F f, const In*... in) {
    for_whole_strips<order>(asks, count, f, in...);
    for_last_strip<order>(count, f, in...);
  }

  /// for_strips_asking() without an incomplete last strip.
  template <Order order, typename Asks, typename F, typename... In>
  [[gnu::always_inline]] static void for_whole_strips(Asks asks, int count, F f, const In*... in) {
    for (int i = 0; i + Floats::kCount <= count; i += Floats::kCount) {
      asks(i);
      f(i, Whole{}, load<order>(in + i, Whole{})...);
    }
  }

  /// The incomplete last strip of for_strips(), if there is one.
  template <Order order, typename F, typename... In>
  [[gnu::always_inline]] static void for_last_strip(int count, F f, const In*... in) {
    const int rest = count % Floats::kCount, i = count - rest;
    if (rest > 0) f(i, rest, load<Order::memory>(in + i, rest)...);
  }

  /// f(x...), or element by element if the body does not accept strips.
  template <typename F, typename... X>
  [[gnu::always_inline]] static Floats apply(F f, const X&... x) {
    // With few registers, one after the other: the steps of a long body would not all fit.
    constexpr bool kOneByOne = Registers::kCount == 16 && sizeof...(X) > 0;
    if constexpr (kOneByOne && std::is_invocable_v<F, decltype(x.part(0))...>) {
      Floats y;
      Floats::for_each([&](int i) __attribute__((always_inline)) {
        const FloatStrip<1> part = f(x.part(i)...);
        y.r[i] = part.r[0];
      });
      return y;
    } else if constexpr (std::is_invocable_v<F, const X&...>) {
      return f(x...);
    } else {
      return by_element(f, Values(x)...);
    }
  }
  template <typename F, typename... X>
  static Floats by_element(F f, const X&... x) {
    alignas(64) float y[Floats::kCount];
#pragma omp simd
    for (int i = 0; i < Floats::kCount; ++i) y[i] = f(x[i]...);
    return load<Order::memory>(y, Whole{});
  }

  static void write_back(float* p, const Floats& x, auto n) { store<Order::memory>(p, x, n); }
  template <typename T>
  static void write_back(const T*, const Floats&, auto) {}

  /// Adds `whole` columns of rows [r, r + Rows) to out. If `asks`, prefetches these rows and the
  /// next `Rows` rows.
  template <Order order, int Rows, bool asks = false, std::size_t Sums>
  [[gnu::flatten]] static void add_strips(std::array<float*, Sums> out, int whole, std::int64_t r,
                                          auto f, const auto&... in) {
    const auto terms = [&]<std::size_t... i>(std::index_sequence<i...>) {
      return std::array{f(r + static_cast<int>(i))...};
    }
    (std::make_index_sequence<Rows>{});
    for (int at = 0; at < whole; at += Floats::kCount) {
      Floats sums[Sums];
      for (std::size_t k = 0; k < Sums; ++k) sums[k] = load<Order::memory>(out[k] + at, Whole{});
      if constexpr (asks)
#pragma GCC unroll 8
        for (int i = 0; i < Rows; ++i) {
          (ask(in.row(r + Rows + i) + at), ...);
          (ask<Cache::first>(in.row(r + i) + at, kNearBytes / 2), ...);
        }
#pragma GCC unroll 8
      for (int i = 0; i < Rows; ++i)
        add(sums, terms[i](load<order>(in.row(r + i) + at, Whole{})...));
      for (std::size_t k = 0; k < Sums; ++k) store<Order::memory>(out[k] + at, sums[k], Whole{});
    }
  }
  static void add(Floats (&sums)[1], const Floats& term) { sums[0] = sums[0] + term; }
  static void add(Floats (&sums)[2], const rowwise::Pair<Floats>& terms) {
    sums[0] = sums[0] + terms.first;
    sums[1] = sums[1] + terms.second;
  }
};

}  // namespace axonn::cpu
