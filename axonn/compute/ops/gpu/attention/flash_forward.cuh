#pragma once

#include <cmath>

#include "axonn/compute/ops/gpu/attention/flash_queries.cuh"

namespace axonn::cuda {

// Causal attention in bf16 with sums in f32, without scores in memory. A block of threads has some
// rows, queries or keys, of one head of one sequence, and goes over the rows of the other side that
// matter to them, tile by tile. Forward keeps a maximum, a sum and an unnormalised result for each
// query. Backward computes the scores again, from lse: once by queries, for d_q, and once by keys,
// for d_k and d_v. So each sum has one block and one order.
//
// A warp leaves out the tiles in which its rows see nothing, and compares positions only in those
// that they see in part. So the bits of a row depend on nothing but its position and what it sees.
//
// Bound by the products: forward 2, backward 7, of T² · D flops each (the causal half).
// Source: Dao, "FlashAttention-2", 2023.

constexpr float kLn2 = 0.69314718f;

/// The running maximum and sum of a lane's rows. Scores are products, before their scale; each lane
/// has only its own columns' part of the sum.
template <int kStrips>
struct FlashSoftmax {
  float most[kStrips][Layout::kRows], total[kStrips][Layout::kRows];

  __device__ FlashSoftmax() {
    for (int s = 0; s < kStrips; ++s)
      for (int r = 0; r < Layout::kRows; ++r) {
        most[s][r] = -INFINITY;
        total[s][r] = 0;
      }
  }

  /// Turns scores into 2^(factor · score) relative to the new maximum, and rescales sums to it.
  template <int kTiles, int kSums>
  __device__ void update(Sums (&scores)[kStrips][kTiles], Sums (&sums)[kStrips][kSums],
                         float factor) {
#pragma unroll
    for (int s = 0; s < kStrips; ++s)
#pragma unroll
      for (int r = 0; r < Layout::kRows; ++r) {
        float highest = most[s][r];
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
          for (int i = 0; i < Layout::kElements; ++i)
            if (Layout::row_of(i) == r) highest = fmaxf(highest, scores[s][n][i]);
        highest = across_row(highest, [](float a, float b) { return fmaxf(a, b); });
        const float top = highest == -INFINITY ? 0 : highest;  // no key seen yet
        const float about = top * factor;
        const float rescale = power_of_2((most[s][r] - top) * factor);  // 1 if both are equal
        most[s][r] = highest;
        total[s][r] *= rescale;
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
          for (int i = 0; i < Layout::kElements; ++i)
            if (Layout::row_of(i) == r) {
              scores[s][n][i] = power_of_2(fmaf(scores[s][n][i], factor, -about));
              total[s][r] += scores[s][n][i];
            }
#pragma unroll
        for (int n = 0; n < kSums; ++n)
#pragma unroll
          for (int i = 0; i < Layout::kElements; ++i)
            if (Layout::row_of(i) == r) sums[s][n][i] *= rescale;
      }
  }
};

template <int D>
using FlashForwardShape =
    FlashShape<4, 2, D == 64 ? 64 : 32, D == 64 ? 64 : 32, D == 64 || kWarp == 64>;

template <int D>
using FlashForwardMemory = FlashQueriesMemory<FlashForwardShape<D>, D, 1>;

/// Computes the results of the block's queries, over the keys that they see.
template <int D>
__device__ void flash_forward(const FlashOperands& args, FlashOffset at,
                              FlashForwardMemory<D>& memory) {
  using Shape = FlashForwardShape<D>;
  constexpr int kStrips = Shape::kStrips;
  const FlashQueries<Shape> queries(args, at, memory.starts);
  const float factor = args.scale * kLog2E;
  AsyncCopies copies;
  FlashOwnRows<Shape, D> rows;
  rows.load(copies, memory.own[0], queries.rows(args.q, D));
  FlashSoftmax<kStrips> softmax;
  Sums sums[kStrips][D / 16] = {};
  for_keys(copies, memory, queries, [&](int key, const auto& keys, const auto& values) {
    Sums scores[kStrips][Shape::kAcross / 16];
    multiply_across(scores, rows, keys, 0);
    queries.hide_unseen(scores, key, memory.starts);
    softmax.update(scores, sums, factor);
    add_product_down(sums, scores, values, 0);
  });

  float inverse[kStrips][Layout::kRows];
  for (int s = 0; s < kStrips; ++s)
    for (int r = 0; r < Layout::kRows; ++r) {
      const float total = across_row(softmax.total[s][r], [](float a, float b) { return a + b; });
      inverse[s][r] = 1 / total;
      if (queries.exists(s, r) && flash_col(0) == 0)
        args.stats.row(queries.at(s, r))[at.head] =
            (softmax.most[s][r] * factor + log2f(total)) * kLn2;
    }
  store_rows<Shape, D, bf16>({args.out.row(queries.first()) + at.head * D, args.out.stride},
                             queries.count(), sums, [&](int s, int r) { return inverse[s][r]; });
}

}  // namespace axonn::cuda
