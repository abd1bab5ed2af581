#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "axonn/compute/ops/cpu/attention/attention_blocks.h"
#include "axonn/compute/ops/rowwise/math.h"

// A block of keys and values in the running softmax of some queries (see attention_forward.cpp).
// kQueries, a multiple of kLanes: the rows that scores have, those beyond the queries included. No
// bit of a query's results depends on it or on the other queries.

namespace axonn::cpu {

/// One thread's memory for `parts` times kQueries queries.
template <int kQueries>
struct SoftmaxWorkspace {
  float *qt, *o, *m, *l;        // per part: (D, kQueries), (kQueries, width), (kQueries) twice
  float *k, *v, *v_down;        // (kBlock, width) each; k also takes queries to transpose
  float *s, *p_down, *rescale;  // (kBlock, kQueries) twice, (kQueries)

  static std::int64_t count(int width, std::int64_t parts) {
    return kQueries * (parts * (2 * width + 2) + 2 * kBlock + 1) + 3 * kBlock * width;
  }

  SoftmaxWorkspace(float* memory, int width, std::int64_t parts) {
    const auto take = [&](std::int64_t count) { return std::exchange(memory, memory + count); };
    qt = take(parts * kQueries * width);
    o = take(parts * kQueries * width);
    m = take(parts * kQueries);
    l = take(parts * kQueries);
    k = take(kBlock * width);
    v = take(kBlock * width);
    v_down = take(kBlock * width);
    s = take(kBlock * kQueries);
    p_down = take(kBlock * kQueries);
    rescale = take(kQueries);
  }

  /// Sets maximum, sum and result to those before any key.
  void begin(int width, std::int64_t parts) const {
    std::fill_n(o, parts * kQueries * width, 0.0f);
    std::fill_n(l, parts * kQueries, 0.0f);
    std::fill_n(m, parts * kQueries, -std::numeric_limits<float>::infinity());
  }
};

/// s (keys, queries) = scale · k · qᵀ, summed over size.k words, and capped. On the diagonal only
/// for the queries at or after the first key of a strip of keys.
template <typename Product, int kQueries>
void scores(float* s, Left k, const float* qt, const ScoreFactors& factors, Extents size,
            bool diagonal) {
  for_strips(diagonal, size.m, [&](int key, int count) {
    const int first = diagonal ? key : 0, seen = kQueries - first;
    block_product<Product>(s + key * kQueries + first, kQueries,
                           {k.data + key * k.row, k.row, k.col}, qt + first, kQueries,
                           {count, seen, size.k}, false);
    for (int r = key; r < key + count; ++r) factors.apply(s + r * kQueries + first, seen);
  });
}

/// Calls f(first key, end, query) for the keys of a block and sixteen queries at a time, so that
/// what is kept for the queries stays in registers. On the diagonal, for strips of keys and the
/// queries at or after the first key of the strip.
template <int kQueries>
void for_sixteen_queries(bool diagonal, int keys, auto f) {
  for_strips(diagonal, keys, [&](int key, int count) {
    for (int query = diagonal ? key : 0; query < kQueries; query += kLanes)
      f(key, key + count, query);
  });
}

/// Turns scores into p, updates m and l for the new maximum, and sets rescale, the factor of o.
template <int kQueries>
void softmax_block(float* s, float* m, float* l, float* rescale, int keys, bool diagonal) {
  using Sixteen = FloatStrip<kLanes / Registers::kEach>;
  const Team team;
  team.map(
      rescale, kQueries, [](auto x) { return x; }, m);
  if (diagonal)
    for (int key = 0; key < keys; ++key) {
      float* row = s + key * kQueries + key / kLanes * kLanes;
      team.map_indexed(
          row, kLanes,
          [first = static_cast<float>(key % kLanes)](auto i, auto x) {
            return select_less(i, first, -std::numeric_limits<float>::infinity(), x);
          },
          row);
    }
  for_sixteen_queries<kQueries>(diagonal, keys, [&](int first, int end, int query) {
    Sixteen most = Sixteen::from(m + query);
    for (int key = first; key < end; ++key)
      most = greatest(Sixteen::from(s + key * kQueries + query), most);
    most.to(m + query);
  });
  team.map(
      rescale, kQueries, [](auto a, auto b) { return rowwise::exponential(a - b); }, rescale, m);
  team.map(
      l, kQueries, [](auto a, auto b) { return a * b; }, l, rescale);
  for_sixteen_queries<kQueries>(diagonal, keys, [&](int first, int end, int query) {
    const Sixteen most = Sixteen::from(m + query);
    Sixteen sum = Sixteen::from(l + query);
    for (int key = first; key < end; ++key) {
      float* const p = s + key * kQueries + query;
      const Sixteen x = rowwise::exponential(Sixteen::from(p) - most);
      x.to(p);
      sum = sum + x;
    }
    sum.to(l + query);
  });
}

/// The score of a key that the query does not see: far below any real score but finite, so that a
/// query that has not yet seen a key has a finite maximum. Its sums up to then are multiplied by
/// exp(kHidden - m) = 0 at the first key that it sees.
constexpr float kHidden = -1e30f;

/// Hides from every query the keys that are `window` or more before it. `distance` is that of the
/// first query from the block's first key.
inline void hide_beyond(float* s, int keys, std::int64_t distance, std::int64_t window) {
  for (int key = 0; key < keys; ++key) {
    const auto first = std::clamp<std::int64_t>(key - distance + window, 0, kBlock);
    std::fill(s + key * kBlock + first, s + (key + 1) * kBlock, kHidden);
  }
}

/// Hides from every query the keys before its first one.
inline void hide_before(float* s, int keys, int first_key, const FirstKeys& first, int queries) {
  for (int key = 0; key < keys; ++key, s += kBlock)
#pragma omp simd
    for (int q = 0; q < queries; ++q) s[q] = first.each[q] > first_key + key ? kHidden : s[q];
}

/// o (queries, width) = o · rescale + pᵀ · v, p and v down.
template <typename Ops, int kQueries>
void add_values(float* o, const float* p, const float* v, const float* rescale, Extents size,
                bool diagonal) {
  const auto [queries, width, keys] = size;
  for (int r = 0; r < queries; ++r)
    Team{}.map(
        o + r * width, width, [factor = rescale[r]](auto x) { return x * factor; }, o + r * width);
  for_strips(diagonal, queries, [&](int query, int count) {
    const int seen = diagonal ? std::min(keys, query + count) : keys;
    const Extents words{count, width, (seen + Ops::kPack - 1) / Ops::kPack};
    block_product<typename Ops::Product>(o + query * width, width, {p + query, 1, kQueries}, v,
                                         width, words, true);
  });
}

}  // namespace axonn::cpu
