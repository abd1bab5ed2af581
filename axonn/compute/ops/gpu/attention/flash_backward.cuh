#pragma once

#include <climits>
#include <cmath>
#include <cstdint>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/gpu/attention/flash_queries.cuh"

namespace axonn::cuda {

/// The gradients, and delta: the sums over D of d_out · out.
struct FlashGradients {
  Matrix<const bf16> d_out;        // (B·Tq, h·D)
  Matrix<bf16> d_q, d_k, d_v;      // (B·Tq, h·D), (B·T, k·D)
  Matrix<float> d_keys, d_values;  // in place of d_k and d_v if those are f32
  Matrix<const float> delta;       // (B·Tq, h)
  int heads;

  FlashGradients(const AttentionBackward& args, Matrix<const float> dots)
      : d_out(args.d_out),
        d_q(args.d_q),
        d_k(args.d_k),
        d_v(args.d_v),
        delta(dots),
        heads(static_cast<int>(args.forward.heads)) {
    if (args.d_k.dtype != DType::f32) return;
    d_keys = args.d_k;
    d_values = args.d_v;
  }
};

/// Turns a score into P = 2^(factor · score - lse), and d_P into P · (d_P - delta).
__device__ inline void flash_gradient(float& score, float& d_probability, float factor, float lse,
                                      float delta) {
  score = power_of_2(fmaf(score, factor, -lse));
  d_probability = score * (d_probability - delta);
}

template <int D>
using FlashQueryShape = FlashShape<D == 64 ? 4 : 8, D == 64 ? 2 : 1, 32, 32, true>;
template <int D>
using FlashBackwardQueriesMemory = FlashQueriesMemory<FlashQueryShape<D>, D, 2>;

/// Computes d_q of the block's queries, over the keys that they see.
template <int D>
__device__ void flash_backward_queries(const FlashOperands& args, const FlashGradients& gradients,
                                       FlashOffset at, FlashBackwardQueriesMemory<D>& memory) {
  using Shape = FlashQueryShape<D>;
  constexpr int kStrips = Shape::kStrips;
  const FlashQueries<Shape> queries(args, at, memory.starts);
  const float factor = args.scale * kLog2E;
  AsyncCopies copies;
  FlashOwnRows<Shape, D> rows, d_outs;
  rows.load(copies, memory.own[0], queries.rows(args.q, D));
  d_outs.load(copies, memory.own[1], queries.rows(gradients.d_out, D));
  float lse[kStrips][Layout::kRows], delta[kStrips][Layout::kRows];
  for (int s = 0; s < kStrips; ++s)
    for (int r = 0; r < Layout::kRows; ++r) {
      const bool is = queries.exists(s, r);
      lse[s][r] = is ? args.stats.row(queries.at(s, r))[at.head] * kLog2E : 0;
      delta[s][r] = is ? gradients.delta.row(queries.at(s, r))[at.head] : 0;
    }

  Sums sums[kStrips][D / 16] = {};
  for_keys(copies, memory, queries, [&](int key, const auto& keys, const auto& values) {
    Sums scores[kStrips][Shape::kAcross / 16], d_scores[kStrips][Shape::kAcross / 16];
    multiply_across(scores, rows, keys, 0);
    multiply_across(d_scores, d_outs, values, 0);
    queries.hide_unseen(scores, key, memory.starts);
#pragma unroll
    for (int s = 0; s < kStrips; ++s)
#pragma unroll
      for (int m = 0; m < Shape::kAcross / 16; ++m)
#pragma unroll
        for (int i = 0; i < Layout::kElements; ++i) {
          const int r = Layout::row_of(i);
          flash_gradient(scores[s][m][i], d_scores[s][m][i], factor, lse[s][r], delta[s][r]);
        }
    add_product_down(sums, d_scores, keys, 0);
  });
  store_rows<Shape, D, bf16>(
      {gradients.d_q.row(queries.first()) + at.head * D, gradients.d_q.stride}, queries.count(),
      sums, [&](int, int) { return args.scale; });
}

template <int D>
using FlashKeyShape =
    FlashShape<4, D == 64 ? 2 : 1, 32, D == 64 ? 32 : 16, D == 128 || kWarp == 64>;

/// What scores depend on besides products, for each query of a tile.
template <int kQueries>
struct FlashColumns {
  float lse[kQueries], delta[kQueries];
  int starts[kQueries];  // the first key that it sees
};
template <int D>
struct FlashBackwardKeysMemory : FlashMemory<FlashKeyShape<D>, D, 2> {
  FlashColumns<FlashKeyShape<D>::kAcross> columns[2];
};

/// The keys of a block, of one key-value head, and the tiles of queries that see them, of one head
/// of the group after the other.
template <typename Shape>
struct FlashKeys {
  const FlashOperands& args;
  int sequence, key, count;  // the block's first key, and how many there are
  int warp_key;              // the warp's first
  int first_head, heads;     // those of the group that are here
  int first_tile, tiles;     // of a head's queries

  __device__ FlashKeys(const FlashOperands& operands, FlashOffset at, int all_heads)
      : args(operands),
        sequence(at.sequence),
        key(at.tile * Shape::kRows),
        count(Least()(args.T - key, Shape::kRows)),
        warp_key(key + flash_warp_row<Shape>()) {
    const int begin = at.head * args.group - args.first_query, past = begin + args.group;
    first_head = Greatest()(begin, 0);
    heads = Greatest()(Least()(past, all_heads) - first_head, 0);
    const int seen = Shape::kRows - 1 + args.window;  // queries from `key` on that see some keys
    const int end = args.window > 0 && seen < args.T - key ? key + seen : args.T;
    first_tile = args.rows_before(sequence, key) / Shape::kAcross;
    tiles = (args.rows_before(sequence, end) + Shape::kAcross - 1) / Shape::kAcross - first_tile;
  }
  __device__ int steps() const { return heads * tiles; }
  __device__ int head(int step) const { return first_head + step / tiles; }
  /// The step's first query, as a row of the sequence's.
  __device__ int row(int step) const { return (first_tile + step % tiles) * Shape::kAcross; }

  /// Whether any of kStep queries sees any of the warp's keys, and whether all see all. The first
  /// is in this row of the sequence's, `past` positions after the warp's first key.
  struct Seen {
    bool any, all;
  };
  __device__ Seen seen(const int* starts, int row, int past) const {
    static_assert(Shape::kStep <= kWarp);
    int earliest = 0, latest = 0;
    if (args.starts || args.window > 0 || row + Shape::kStep > args.Tq) {
      const int start = starts[flash_lane() % Shape::kStep];
      earliest = across_warp(start, Least());
      latest = across_warp(start, Greatest());
    }
    return {past + Shape::kStep > 0 && earliest < warp_key + Shape::kWarpRows,
            past >= Shape::kWarpRows - 1 && latest <= warp_key};
  }

  /// Hides the scores of keys that these queries do not see.
  __device__ void hide_unseen(Sums (&scores)[Shape::kStrips][Shape::kStep / 16], const int* starts,
                              int past) const {
#pragma unroll
    for (int n = 0; n < Shape::kStep / 16; ++n)
#pragma unroll
      for (int i = 0; i < Layout::kElements; ++i) {
        const int q = 16 * n + flash_col(i), begin = starts[q] - warp_key;
#pragma unroll
        for (int s = 0; s < Shape::kStrips; ++s) {
          const int k = flash_row(s, Layout::row_of(i));
          if (k > past + q || k < begin) scores[s][n][i] = -INFINITY;
        }
      }
  }
};

/// Starts to fill the tile of a step, and its columns.
template <int D>
__device__ void fill_queries(AsyncCopies& copies, FlashBackwardKeysMemory<D>& memory,
                             const FlashKeys<FlashKeyShape<D>>& own,
                             const FlashGradients& gradients, int step) {
  using Shape = FlashKeyShape<D>;
  const FlashOperands& args = own.args;
  const int row = own.row(step), head = own.head(step), rest = args.Tq - row, i = flash_thread();
  const std::int64_t first = static_cast<std::int64_t>(own.sequence) * args.Tq + row;
  auto& [queries, d_outs] = memory.tiles[step % 2];
  queries.template fill<Shape::kThreads>(copies, rows_of(args.q, first, head * D, rest));
  d_outs.template fill<Shape::kThreads>(copies, rows_of(gradients.d_out, first, head * D, rest));
  if (i >= Shape::kAcross) return;
  const bool exists = i < rest;
  const std::int64_t at = first + (exists ? i : 0);
  auto& columns = memory.columns[step % 2];
  copies.start(&columns.lse[i], args.stats.row(at) + head, exists);
  copies.start(&columns.delta[i], gradients.delta.row(at) + head, exists);
  const int query = args.position(own.sequence, row);
  columns.starts[i] = exists ? args.start(at, query + i) : INT_MAX;
}

/// Computes d_k and d_v of the keys of a block, of key-value head at.head. Scores are transposed:
/// rows are keys, columns queries.
template <int D>
__device__ void flash_backward_keys(const FlashOperands& args, const FlashGradients& gradients,
                                    FlashOffset at, FlashBackwardKeysMemory<D>& memory) {
  using Shape = FlashKeyShape<D>;
  constexpr int kStrips = Shape::kStrips, kBlocks = Shape::kStep / 16;
  const FlashKeys<Shape> own(args, at, gradients.heads);
  const std::int64_t first_key = static_cast<std::int64_t>(at.sequence) * args.T + own.key;
  const int col = at.head * D;
  const float factor = args.scale * kLog2E;
  AsyncCopies copies;
  FlashOwnRows<Shape, D> keys, values;
  keys.load(copies, memory.own[0], rows_of(args.k, first_key, col, own.count));
  values.load(copies, memory.own[1], rows_of(args.v, first_key, col, own.count));

  Sums d_keys[kStrips][D / 16] = {}, d_values[kStrips][D / 16] = {};
  const auto fill = [&](int step) { fill_queries<D>(copies, memory, own, gradients, step); };
  for_tiles(copies, own.steps(), fill, [&](int step) {
    const auto& [queries, d_outs] = memory.tiles[step % 2];
    const auto& columns = memory.columns[step % 2];
    const int row = own.row(step), past = args.position(at.sequence, row) - own.warp_key;
#pragma unroll 1
    for (int first = 0; first < Shape::kAcross; first += Shape::kStep) {
      const auto seen = own.seen(columns.starts + first, row + first, past + first);
      if (!seen.any) continue;
      Sums scores[kStrips][kBlocks], d_scores[kStrips][kBlocks];
      multiply_across(scores, keys, queries, first);
      multiply_across(d_scores, values, d_outs, first);
      if (!seen.all) own.hide_unseen(scores, columns.starts + first, past + first);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n)
#pragma unroll
        for (int i = 0; i < Layout::kElements; ++i) {
          const int q = first + 16 * n + flash_col(i);
          const float lse = columns.lse[q] * kLog2E, delta = columns.delta[q];
#pragma unroll
          for (int s = 0; s < kStrips; ++s)
            flash_gradient(scores[s][n][i], d_scores[s][n][i], factor, lse, delta);
        }
      add_product_down(d_values, scores, d_outs, first);
      add_product_down(d_keys, d_scores, queries, first);
    }
  });
  const auto store = [&](const auto& out, const auto& sums, float by) {
    store_rows<Shape, D>(Matrix{out.row(first_key) + col, out.stride}, own.count, sums,
                         [=](int, int) { return by; });
  };
  if (gradients.d_keys.data) {
    store(gradients.d_keys, d_keys, args.scale);
    store(gradients.d_values, d_values, 1);
  } else {
    store(gradients.d_k, d_keys, args.scale);
    store(gradients.d_v, d_values, 1);
  }
}

}  // namespace axonn::cuda
