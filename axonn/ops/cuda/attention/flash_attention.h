#pragma once

#include <cmath>
#include <cstdint>

#include "axonn/ops/cuda/attention/flash_tiles.h"

namespace axonn::cuda {

// Causal attention in bf16 with sums in f32, without scores in memory. A block of threads has 64
// queries and goes over the keys that they see, tile by tile, with a maximum, a sum and an
// unnormalised result for each query. Backward computes the scores again, from lse: once by
// queries, for d_q, and once by keys, for d_k and d_v. So each sum has one block and one order.
//
// Bound by the products: forward 2, backward 7, of T² · D flops each (the causal half).
// Source: Dao, "FlashAttention-2", 2023.

/// The operands of Attention in the form that kernels take.
struct FlashOperands {
  const bf16 *q, *k, *v;  // (B·T, h·D), (B·T, k·D)
  bf16* out;              // (B·T, h·D)
  float* stats;           // (B·T, h): log of the sum of exponentials
  std::int64_t q_stride, k_stride, v_stride, out_stride, stats_stride;
  const std::int32_t* starts;  // (B·T): the first key that a query sees, or null
  int T, group, first_query, window;
  float scale;

  AXONN_DEVICE int kv_head(int head) const { return (first_query + head) / group; }
  /// The first key that any query from `query` on sees, by the window alone.
  AXONN_DEVICE int first_key(int query) const {
    return window > 0 && query >= window ? query - window + 1 : 0;
  }
  /// The first key that the query in row `row` of q, at position `query`, sees.
  AXONN_DEVICE int start(std::int64_t row, int query) const {
    const int oldest = first_key(query), own = starts ? starts[row] : 0;
    return own > oldest ? own : oldest;
  }
};

/// The gradients, and delta: the sums over D of d_out · out.
struct FlashGradients {
  const bf16* d_out;  // (B·T, h·D)
  bf16 *d_q, *d_k, *d_v;
  const float* delta;  // (B·T, h)
  std::int64_t d_out_stride, d_q_stride, d_k_stride, d_v_stride;
  int heads;
};

/// The work of a block: a tile of 64 positions of one head of one sequence.
struct FlashPlace {
  int tile, head, sequence;
};

constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f;

/// Keys of a tile: fewer if heads are wide, because results stay in registers.
template <int D>
constexpr int kFlashKeys = D > 64 ? 32 : 64;

/// Rows of a matrix from `first_row` on, from column `col` on; rows from `count` on are zero.
AXONN_DEVICE inline FlashRows rows_of(const bf16* data, std::int64_t stride, std::int64_t first_row,
                                      int col, int count) {
  return {data + first_row * stride + col, stride, count};
}

template <int D>
struct FlashForwardMemory {
  FlashTile<kFlashKeys<D>, D> keys, values;
};

/// The running maximum and sum of a lane's two rows. Scores are in units of ln 2; each lane has
/// only its own columns' part of the sum.
struct FlashSoftmax {
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};

  /// Turns scores into exponentials relative to the new maximum; rescale: for earlier sums.
  template <typename Gpu, int kTiles>
  AXONN_DEVICE void update(const Gpu& gpu, float (&scores)[kTiles][4], float (&rescale)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float highest = most[half];
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        highest = fmaxf(highest, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      highest = fmaxf(highest, gpu.shuffle_xor(highest, 1));
      highest = fmaxf(highest, gpu.shuffle_xor(highest, 2));
      const float about = highest == -INFINITY ? 0 : highest;  // no key seen yet
      rescale[half] = exp2f(most[half] - about);
      most[half] = highest;
      total[half] *= rescale[half];
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          scores[n][j] = exp2f(scores[n][j] - about);
          total[half] += scores[n][j];
        }
    }
  }
};

template <int D, typename Gpu>
AXONN_DEVICE void flash_forward(const Gpu& gpu, const FlashOperands& args, FlashPlace at,
                                FlashForwardMemory<D>& memory) {
  constexpr int kKeys = kFlashKeys<D>;
  const Lane lane(gpu.thread());
  const int warp_row = gpu.thread() / 32 * 16, query = at.tile * kFlashRows;
  const std::int64_t first = static_cast<std::int64_t>(at.sequence) * args.T;
  const int left = args.T - query, end = query + (left < kFlashRows ? left : kFlashRows);
  const FlashRows queries =
      rows_of(args.q, args.q_stride, first + query, at.head * D, args.T - query);
  const int kv_col = args.kv_head(at.head) * D;

  int start[2] = {};
  for (int half = 0; half < 2; ++half) {
    const int row = query + warp_row + lane.g + 8 * half;
    if (row < args.T) start[half] = args.start(first + row, row);
  }
  FlashSoftmax softmax;
  float sums[D / 8][4] = {};
  for (int key = args.first_key(query) / kKeys * kKeys; key < end; key += kKeys) {
    gpu.sync();  // until no thread reads the tiles any more
    memory.keys.fill(gpu, rows_of(args.k, args.k_stride, first + key, kv_col, args.T - key));
    memory.values.fill(gpu, rows_of(args.v, args.v_stride, first + key, kv_col, args.T - key));
    gpu.sync();
    float scores[kKeys / 8][4], rescale[2];
    multiply_across(gpu, scores, queries, warp_row, memory.keys);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = query + warp_row + lane.g + j / 2 * 8, k = key + 8 * n + 2 * lane.t + j % 2;
        const bool seen = k <= i && k >= start[j / 2];
        scores[n][j] = seen ? scores[n][j] * (args.scale * kLog2E) : -INFINITY;
      }
    softmax.update(gpu, scores, rescale);
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[n][j] *= rescale[j / 2];
    add_product_down(gpu, sums, scores, memory.values);
  }

  float inverse[2];
  for (int half = 0; half < 2; ++half) {
    float total = softmax.total[half];
    total += gpu.shuffle_xor(total, 1);
    total += gpu.shuffle_xor(total, 2);
    inverse[half] = 1 / total;
    const int row = query + warp_row + lane.g + 8 * half;
    if (row < args.T && lane.t == 0)
      args.stats[(first + row) * args.stats_stride + at.head] =
          (softmax.most[half] + log2f(total)) * kLn2;
  }
  store_rows<D>(args.out + (first + query) * args.out_stride + at.head * D, args.out_stride,
                args.T - query, warp_row, lane, sums, inverse);
}

}  // namespace axonn::cuda
