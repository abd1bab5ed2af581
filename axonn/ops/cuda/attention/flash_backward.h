#pragma once

#include "axonn/ops/cuda/attention/flash_attention.h"

namespace axonn::cuda {

/// Turns one score and d_P into P and P · (d_P - delta).
AXONN_DEVICE inline void flash_gradient(float& score, float& d_probability, bool seen, float lse,
                                        float delta) {
  const float p = seen ? exp2f(score - lse) : 0;
  d_probability = p * (d_probability - delta);
  score = p;
}

/// Computes d_q of 64 queries, over the keys that they see.
template <int D, typename Gpu>
AXONN_DEVICE void flash_backward_queries(const Gpu& gpu, const FlashOperands& args,
                                         const FlashGradients& gradients, FlashPlace at,
                                         FlashForwardMemory<D>& memory) {
  constexpr int kKeys = kFlashKeys<D>;
  const Lane lane(gpu.thread());
  const int warp_row = gpu.thread() / 32 * 16, query = at.tile * kFlashRows;
  const std::int64_t first = static_cast<std::int64_t>(at.sequence) * args.T;
  const int count = args.T - query, end = query + (count < kFlashRows ? count : kFlashRows);
  const FlashRows queries = rows_of(args.q, args.q_stride, first + query, at.head * D, count),
                  d_outs = rows_of(gradients.d_out, gradients.d_out_stride, first + query,
                                   at.head * D, count);
  const int kv_col = args.kv_head(at.head) * D;
  float lse[2] = {}, delta[2] = {};
  int start[2] = {args.T, args.T};  // rows beyond the last see nothing
  for (int half = 0; half < 2; ++half) {
    const int row = query + warp_row + lane.g + 8 * half;
    if (row >= args.T) continue;
    lse[half] = args.stats[(first + row) * args.stats_stride + at.head] * kLog2E;
    delta[half] = gradients.delta[(first + row) * gradients.heads + at.head];
    start[half] = args.start(first + row, row);
  }

  float sums[D / 8][4] = {};
  for (int key = args.first_key(query) / kKeys * kKeys; key < end; key += kKeys) {
    gpu.sync();
    memory.keys.fill(gpu, rows_of(args.k, args.k_stride, first + key, kv_col, args.T - key));
    memory.values.fill(gpu, rows_of(args.v, args.v_stride, first + key, kv_col, args.T - key));
    gpu.sync();
    float scores[kKeys / 8][4], d_scores[kKeys / 8][4];
    multiply_across(gpu, scores, queries, warp_row, memory.keys);
    multiply_across(gpu, d_scores, d_outs, warp_row, memory.values);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = query + warp_row + lane.g + j / 2 * 8, k = key + 8 * n + 2 * lane.t + j % 2;
        scores[n][j] *= args.scale * kLog2E;
        flash_gradient(scores[n][j], d_scores[n][j], k <= i && k >= start[j / 2], lse[j / 2],
                       delta[j / 2]);
      }
    add_product_down(gpu, sums, d_scores, memory.keys);
  }
  const float factor[2] = {args.scale, args.scale};
  store_rows<D>(gradients.d_q + (first + query) * gradients.d_q_stride + at.head * D,
                gradients.d_q_stride, count, warp_row, lane, sums, factor);
}

template <int D>
struct FlashKeysMemory {
  FlashTile<kFlashKeys<D>, D> queries, d_outs;
  float lse[kFlashKeys<D>], delta[kFlashKeys<D>];
  int start[kFlashKeys<D>];
};

/// Computes d_k and d_v of 64 keys of key-value head at.head, over the queries that see them, one
/// head of the group after the other. Scores are transposed: rows are keys, columns queries.
template <int D, typename Gpu>
AXONN_DEVICE void flash_backward_keys(const Gpu& gpu, const FlashOperands& args,
                                      const FlashGradients& gradients, FlashPlace at,
                                      FlashKeysMemory<D>& memory) {
  constexpr int kQueries = kFlashKeys<D>;
  const Lane lane(gpu.thread());
  const int warp_row = gpu.thread() / 32 * 16, key = at.tile * kFlashRows;
  const std::int64_t first = static_cast<std::int64_t>(at.sequence) * args.T;
  const int count = args.T - key, col = at.head * D;
  const FlashRows keys = rows_of(args.k, args.k_stride, first + key, col, count),
                  values = rows_of(args.v, args.v_stride, first + key, col, count);
  const int last = key + kFlashRows - 1 + args.window;  // queries below it see some of the keys
  const int end = args.window > 0 && last < args.T ? last : args.T;
  const int begin = at.head * args.group - args.first_query, past = begin + args.group;

  float d_keys[D / 8][4] = {}, d_values[D / 8][4] = {};
  for (int head = begin < 0 ? 0 : begin; head < past && head < gradients.heads; ++head)
    for (int query = key / kQueries * kQueries; query < end; query += kQueries) {
      gpu.sync();
      const int rest = args.T - query;
      memory.queries.fill(gpu, rows_of(args.q, args.q_stride, first + query, head * D, rest));
      memory.d_outs.fill(
          gpu, rows_of(gradients.d_out, gradients.d_out_stride, first + query, head * D, rest));
      if (gpu.thread() < kQueries) {
        const int i = gpu.thread();
        const std::int64_t row = first + query + i;
        memory.lse[i] = i < rest ? args.stats[row * args.stats_stride + head] * kLog2E : 0;
        memory.delta[i] = i < rest ? gradients.delta[row * gradients.heads + head] : 0;
        memory.start[i] = i < rest ? args.start(row, query + i) : args.T;
      }
      gpu.sync();
      float scores[kQueries / 8][4], d_scores[kQueries / 8][4];
      multiply_across(gpu, scores, keys, warp_row, memory.queries);
      multiply_across(gpu, d_scores, values, warp_row, memory.d_outs);
#pragma unroll
      for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int i = 8 * n + 2 * lane.t + j % 2, k = key + warp_row + lane.g + j / 2 * 8;
          scores[n][j] *= args.scale * kLog2E;
          flash_gradient(scores[n][j], d_scores[n][j], k <= query + i && k >= memory.start[i],
                         memory.lse[i], memory.delta[i]);
        }
      add_product_down(gpu, d_values, scores, memory.d_outs);
      add_product_down(gpu, d_keys, d_scores, memory.queries);
    }
  const float one[2] = {1, 1}, scale[2] = {args.scale, args.scale};
  store_rows<D>(gradients.d_k + (first + key) * gradients.d_k_stride + col, gradients.d_k_stride,
                count, warp_row, lane, d_keys, scale);
  store_rows<D>(gradients.d_v + (first + key) * gradients.d_v_stride + col, gradients.d_v_stride,
                count, warp_row, lane, d_values, one);
}

}  // namespace axonn::cuda
