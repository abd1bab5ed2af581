#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "axonn/ops/backend.h"
#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::cuda {

using rowwise::Matrix;

// Tiles of bf16 matrices in the layout of a warp's matrix instruction m16n8k16 (PTX ISA, "Matrix
// Fragments for mma.m16n8k16"). Elements that lane i holds, with g = i / 4 and t = i % 4:
//
//   a  16 x 16  words: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..)
//   b  16 x 8   words: (2t.., g), (2t + 8.., g): two rows of a column
//   c  16 x 8   floats: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
//
// The code runs on a GPU's block of threads and, in the tests, on a block that a CPU emulates.
// `gpu` is the interface to either, with
//
//   int thread()                                 of the block
//   void sync()                                  all threads of the block
//   float shuffle_xor(float x, int mask)         the x of lane i ^ mask
//   void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])    c += a · b
//   void load_down(uint32_t (&b)[2], const bf16* row)   lanes 0 to 15 point to 16 rows of 8
//   void copy(T* to, const T* from, bool exists)   starts a copy of 4 or 16 bytes to shared memory;
//                                                  zeros if `from` does not exist
//   void commit()          makes a group of the thread's copies since the last call
//   void wait_but_last()   until the thread's copies before its last group are there; other threads
//                          see them after sync()

/// Threads of a block: four warps, 16 rows of a tile each.
constexpr int kFlashWarps = 4, kFlashThreads = 32 * kFlashWarps, kFlashRows = 16 * kFlashWarps;

/// Two adjacent elements at an even index.
AXONN_DEVICE inline std::uint32_t word(const bf16* p) {
  return *reinterpret_cast<const std::uint32_t*>(p);
}

/// The place of a lane's elements in a tile.
struct Lane {
  int g, t;
  AXONN_DEVICE explicit Lane(int thread) : g(thread % 32 / 4), t(thread % 4) {}
};

/// Rows of a matrix in memory. Rows from `count` on count as zero.
struct FlashRows {
  const bf16* data;
  std::int64_t stride;
  int count;

  AXONN_DEVICE std::uint32_t pair(int row, int col) const {
    return row < count ? word(data + row * stride + col) : 0;
  }
};

/// Columns [col, col + 16) of 16 rows as operand a.
AXONN_DEVICE inline void load_across(std::uint32_t (&a)[4], const FlashRows& rows, Lane lane,
                                     int row, int col) {
  a[0] = rows.pair(row + lane.g, col + 2 * lane.t);
  a[1] = rows.pair(row + lane.g + 8, col + 2 * lane.t);
  a[2] = rows.pair(row + lane.g, col + 2 * lane.t + 8);
  a[3] = rows.pair(row + lane.g + 8, col + 2 * lane.t + 8);
}

/// Two adjacent results, together 16 rows of 16, rounded, as operand a.
AXONN_DEVICE inline void as_operand(std::uint32_t (&a)[4], const float (&left)[4],
                                    const float (&right)[4]) {
  a[0] = rounded(left[0], left[1]);
  a[1] = rounded(left[2], left[3]);
  a[2] = rounded(right[0], right[1]);
  a[3] = rounded(right[2], right[3]);
}

/// kRows rows of D elements in shared memory. Rows are padded by 16 bytes, so that the eight rows
/// that a warp reads at once lie in different banks.
template <int kRows, int D>
struct alignas(16) FlashTile {
  static constexpr int kStride = D + 8;
  bf16 values[kRows * kStride];

  /// Starts to fill the tile from memory, 16 bytes at a time. All threads call it.
  AXONN_DEVICE void fill(const auto& gpu, const FlashRows& from) {
    struct alignas(16) Pack {
      std::uint32_t words[4];
    };
    constexpr int kPacks = D / 8;
#pragma unroll
    for (int i = gpu.thread(); i < kRows * kPacks; i += kFlashThreads) {
      const int row = i / kPacks, col = i % kPacks * 8;
      const bool exists = row < from.count;
      const bf16* source = from.data + (exists ? row * from.stride + col : 0);
      gpu.copy(reinterpret_cast<Pack*>(values + row * kStride + col),
               reinterpret_cast<const Pack*>(source), exists);
    }
  }

  /// c (16 x 8) += a (16 x 16) · the transpose of rows [row, row + 8), columns [col, col + 16).
  AXONN_DEVICE void add_across(const auto& gpu, float (&c)[4], const std::uint32_t (&a)[4], int row,
                               int col) const {
    const Lane lane(gpu.thread());
    const bf16* p = values + (row + lane.g) * kStride + col + 2 * lane.t;
    const std::uint32_t b[2] = {word(p), word(p + 8)};
    gpu.mma(c, a, b);
  }

  /// c (16 x 8) += a (16 x 16) · rows [row, row + 16), columns [col, col + 8).
  AXONN_DEVICE void add_down(const auto& gpu, float (&c)[4], const std::uint32_t (&a)[4], int row,
                             int col) const {
    std::uint32_t b[2];
    gpu.load_down(b, values + (row + gpu.thread() % 16) * kStride + col);
    gpu.mma(c, a, b);
  }
};

/// Runs multiply(i) for tiles 0 to count - 1, where fill(i) fills tile i into one half of the
/// shared memory, i % 2, while the threads work on the other half.
AXONN_DEVICE void for_tiles(const auto& gpu, int count, auto fill, auto multiply) {
  if (count > 0) fill(0);
  gpu.commit();
  for (int i = 0; i < count; ++i) {
    if (i + 1 < count) fill(i + 1);
    gpu.commit();
    gpu.wait_but_last();
    gpu.sync();
    multiply(i);
    gpu.sync();  // until no thread reads the tile any more
  }
}

/// products (16, kRows) = 16 rows of `left` from `row` on, (16, D), times the transpose of a tile.
template <int kRows, int D>
AXONN_DEVICE void multiply_across(const auto& gpu, float (&products)[kRows / 8][4],
                                  const FlashRows& left, int row, const FlashTile<kRows, D>& tile) {
  const Lane lane(gpu.thread());
  for (auto& c : products)
    for (float& x : c) x = 0;
#pragma unroll 2  // more of them load so much ahead that registers do not suffice
  for (int k = 0; k < D; k += 16) {
    std::uint32_t a[4];
    load_across(a, left, lane, row, k);
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) tile.add_across(gpu, products[n], a, 8 * n, k);
  }
}

/// sums (16, D) += factors (16, kRows), rounded, times a tile.
template <int kRows, int D>
AXONN_DEVICE void add_product_down(const auto& gpu, float (&sums)[D / 8][4],
                                   const float (&factors)[kRows / 8][4],
                                   const FlashTile<kRows, D>& tile) {
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    std::uint32_t a[4];
    as_operand(a, factors[2 * k], factors[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) tile.add_down(gpu, sums[n], a, 16 * k, 8 * n);
  }
}

/// Stores 16 rows of sums, (16, D), times a factor for each of the lane's two rows, to rows row + g
/// and row + g + 8 of out, if these are below `count`.
template <int D>
AXONN_DEVICE void store_rows(Matrix<bf16> out, int count, int row, Lane lane,
                             const float (&sums)[D / 8][4], const float (&factor)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + lane.g + 8 * half;
    if (r >= count) continue;
    bf16* to = out.row(r) + 2 * lane.t;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      *reinterpret_cast<std::uint32_t*>(to + 8 * n) =
          rounded(sums[n][2 * half] * factor[half], sums[n][2 * half + 1] * factor[half]);
  }
}

// Causal attention in bf16 with sums in f32, without scores in memory. A block of threads has 64
// queries and goes over the keys that they see, tile by tile, with a maximum, a sum and an
// unnormalised result for each query. Backward computes the scores again, from lse: once by
// queries, for d_q, and once by keys, for d_k and d_v. So each sum has one block and one order.
//
// Bound by the products: forward 2, backward 7, of T² · D flops each (the causal half).
// Source: Dao, "FlashAttention-2", 2023.

/// The operands of Attention in the form that kernels take.
struct FlashOperands {
  Matrix<const bf16> q, k, v;  // (B·T, h·D), (B·T, k·D)
  Matrix<bf16> out;            // (B·T, h·D)
  Matrix<float> stats;         // (B·T, h): log of the sum of exponentials
  const std::int32_t* starts;  // (B·T): the first key that a query sees, or null
  int T, group, first_query, window;
  float scale;

  explicit FlashOperands(const Attention& args)
      : q(args.q),
        k(args.k),
        v(args.v),
        out(args.out),
        stats(args.stats),
        starts(args.starts.as<const std::int32_t>()),
        T(static_cast<int>(args.positions)),
        group(static_cast<int>(args.group)),
        first_query(static_cast<int>(args.first_query)),
        window(static_cast<int>(args.window < args.positions ? args.window : args.positions)),
        scale(args.scale) {}

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
  Matrix<const bf16> d_out;  // (B·T, h·D)
  Matrix<bf16> d_q, d_k, d_v;
  Matrix<const float> delta;  // (B·T, h)
  int heads;
};

/// The work of a block: a tile of 64 positions of one head of one sequence.
struct FlashPlace {
  int tile, head, sequence;
};

using rowwise::kLog2E;
constexpr float kLn2 = 0.69314718f;

/// Keys of a tile: fewer if heads are wide, because results stay in registers.
template <int D>
constexpr int kFlashKeys = D > 64 ? 32 : 64;

/// Rows of a matrix from `first_row` on, from column `col` on; rows from `count` on are zero.
AXONN_DEVICE inline FlashRows rows_of(Matrix<const bf16> of, std::int64_t first_row, int col,
                                      int count) {
  return {of.row(first_row) + col, of.stride, count};
}

/// Two tiles each, see for_tiles().
template <int D>
struct FlashForwardMemory {
  FlashTile<kFlashKeys<D>, D> keys[2], values[2];
};

/// The running maximum and sum of a lane's two rows. Scores are in units of ln 2; each lane has
/// only its own columns' part of the sum.
struct FlashSoftmax {
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};

  /// Turns scores into exponentials relative to the new maximum; rescale: for earlier sums.
  template <int kTiles>
  AXONN_DEVICE void update(const auto& gpu, float (&scores)[kTiles][4], float (&rescale)[2]) {
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

template <int D>
AXONN_DEVICE void flash_forward(const auto& gpu, const FlashOperands& args, FlashPlace at,
                                FlashForwardMemory<D>& memory) {
  constexpr int kKeys = kFlashKeys<D>;
  const Lane lane(gpu.thread());
  const int warp_row = gpu.thread() / 32 * 16, query = at.tile * kFlashRows;
  const std::int64_t first = static_cast<std::int64_t>(at.sequence) * args.T;
  const int left = args.T - query, end = query + (left < kFlashRows ? left : kFlashRows);
  const FlashRows queries = rows_of(args.q, first + query, at.head * D, args.T - query);
  const int kv_col = args.kv_head(at.head) * D;

  int start[2] = {};
  for (int half = 0; half < 2; ++half) {
    const int row = query + warp_row + lane.g + 8 * half;
    if (row < args.T) start[half] = args.start(first + row, row);
  }
  FlashSoftmax softmax;
  float sums[D / 8][4] = {};
  const int from = args.first_key(query) / kKeys;
  const auto fill = [&](int tile) {
    const int key = (from + tile) * kKeys;
    memory.keys[tile % 2].fill(gpu, rows_of(args.k, first + key, kv_col, args.T - key));
    memory.values[tile % 2].fill(gpu, rows_of(args.v, first + key, kv_col, args.T - key));
  };
  for_tiles(gpu, (end + kKeys - 1) / kKeys - from, fill, [&](int tile) {
    const int key = (from + tile) * kKeys;
    float scores[kKeys / 8][4], rescale[2];
    multiply_across(gpu, scores, queries, warp_row, memory.keys[tile % 2]);
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
    add_product_down(gpu, sums, scores, memory.values[tile % 2]);
  });

  float inverse[2];
  for (int half = 0; half < 2; ++half) {
    float total = softmax.total[half];
    total += gpu.shuffle_xor(total, 1);
    total += gpu.shuffle_xor(total, 2);
    inverse[half] = 1 / total;
    const int row = query + warp_row + lane.g + 8 * half;
    if (row < args.T && lane.t == 0)
      args.stats.row(first + row)[at.head] = (softmax.most[half] + log2f(total)) * kLn2;
  }
  store_rows<D>({args.out.row(first + query) + at.head * D, args.out.stride}, args.T - query,
                warp_row, lane, sums, inverse);
}

/// Turns one score and d_P into P and P · (d_P - delta).
AXONN_DEVICE inline void flash_gradient(float& score, float& d_probability, bool seen, float lse,
                                        float delta) {
  const float p = seen ? exp2f(score - lse) : 0;
  d_probability = p * (d_probability - delta);
  score = p;
}

/// Computes d_q of 64 queries, over the keys that they see.
template <int D>
AXONN_DEVICE void flash_backward_queries(const auto& gpu, const FlashOperands& args,
                                         const FlashGradients& gradients, FlashPlace at,
                                         FlashForwardMemory<D>& memory) {
  constexpr int kKeys = kFlashKeys<D>;
  const Lane lane(gpu.thread());
  const int warp_row = gpu.thread() / 32 * 16, query = at.tile * kFlashRows;
  const std::int64_t first = static_cast<std::int64_t>(at.sequence) * args.T;
  const int count = args.T - query, end = query + (count < kFlashRows ? count : kFlashRows);
  const FlashRows queries = rows_of(args.q, first + query, at.head * D, count),
                  d_outs = rows_of(gradients.d_out, first + query, at.head * D, count);
  const int kv_col = args.kv_head(at.head) * D;
  float lse[2] = {}, delta[2] = {};
  int start[2] = {args.T, args.T};  // rows beyond the last see nothing
  for (int half = 0; half < 2; ++half) {
    const int row = query + warp_row + lane.g + 8 * half;
    if (row >= args.T) continue;
    lse[half] = args.stats.row(first + row)[at.head] * kLog2E;
    delta[half] = gradients.delta.row(first + row)[at.head];
    start[half] = args.start(first + row, row);
  }

  float sums[D / 8][4] = {};
  const int from = args.first_key(query) / kKeys;
  const auto fill = [&](int tile) {
    const int key = (from + tile) * kKeys;
    memory.keys[tile % 2].fill(gpu, rows_of(args.k, first + key, kv_col, args.T - key));
    memory.values[tile % 2].fill(gpu, rows_of(args.v, first + key, kv_col, args.T - key));
  };
  for_tiles(gpu, (end + kKeys - 1) / kKeys - from, fill, [&](int tile) {
    const int key = (from + tile) * kKeys;
    float scores[kKeys / 8][4], d_scores[kKeys / 8][4];
    multiply_across(gpu, scores, queries, warp_row, memory.keys[tile % 2]);
    multiply_across(gpu, d_scores, d_outs, warp_row, memory.values[tile % 2]);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = query + warp_row + lane.g + j / 2 * 8, k = key + 8 * n + 2 * lane.t + j % 2;
        scores[n][j] *= args.scale * kLog2E;
        flash_gradient(scores[n][j], d_scores[n][j], k <= i && k >= start[j / 2], lse[j / 2],
                       delta[j / 2]);
      }
    add_product_down(gpu, sums, d_scores, memory.keys[tile % 2]);
  });
  const float factor[2] = {args.scale, args.scale};
  store_rows<D>({gradients.d_q.row(first + query) + at.head * D, gradients.d_q.stride}, count,
                warp_row, lane, sums, factor);
}

template <int D>
struct FlashKeysMemory {
  FlashTile<kFlashKeys<D>, D> queries[2], d_outs[2];
  float lse[2][kFlashKeys<D>], delta[2][kFlashKeys<D>];
  int start[2][kFlashKeys<D>];
};

/// Computes d_k and d_v of 64 keys of key-value head at.head, over the queries that see them, one
/// head of the group after the other. Scores are transposed: rows are keys, columns queries.
template <int D>
AXONN_DEVICE void flash_backward_keys(const auto& gpu, const FlashOperands& args,
                                      const FlashGradients& gradients, FlashPlace at,
                                      FlashKeysMemory<D>& memory) {
  constexpr int kQueries = kFlashKeys<D>;
  const Lane lane(gpu.thread());
  const int warp_row = gpu.thread() / 32 * 16, key = at.tile * kFlashRows;
  const std::int64_t first = static_cast<std::int64_t>(at.sequence) * args.T;
  const int count = args.T - key, col = at.head * D;
  const FlashRows keys = rows_of(args.k, first + key, col, count),
                  values = rows_of(args.v, first + key, col, count);
  const int seen = kFlashRows - 1 + args.window;  // queries from `key` on that see some of the keys
  const int end = args.window > 0 && seen < count ? key + seen : args.T;
  const int begin = at.head * args.group - args.first_query, past = begin + args.group;

  const int earliest = begin < 0 ? 0 : begin,
            latest = past < gradients.heads ? past : gradients.heads, from = key / kQueries,
            tiles = (end + kQueries - 1) / kQueries - from;
  const auto fill = [&](int i) {
    const int query = (from + i % tiles) * kQueries, head = earliest + i / tiles, half = i % 2;
    const int rest = args.T - query, row = gpu.thread();
    memory.queries[half].fill(gpu, rows_of(args.q, first + query, head * D, rest));
    memory.d_outs[half].fill(gpu, rows_of(gradients.d_out, first + query, head * D, rest));
    if (row >= kQueries) return;
    const bool exists = row < rest;
    const std::int64_t source = first + query + (exists ? row : 0);
    gpu.copy(&memory.lse[half][row], static_cast<const float*>(args.stats.row(source) + head),
             exists);
    gpu.copy(&memory.delta[half][row], gradients.delta.row(source) + head, exists);
    memory.start[half][row] = exists ? args.start(source, query + row) : args.T;
  };
  float d_keys[D / 8][4] = {}, d_values[D / 8][4] = {};
  const int heads = latest > earliest ? latest - earliest : 0;
  for_tiles(gpu, heads * tiles, fill, [&](int step) {
    const int query = (from + step % tiles) * kQueries, half = step % 2;
    float scores[kQueries / 8][4], d_scores[kQueries / 8][4];
    multiply_across(gpu, scores, keys, warp_row, memory.queries[half]);
    multiply_across(gpu, d_scores, values, warp_row, memory.d_outs[half]);
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = 8 * n + 2 * lane.t + j % 2, k = key + warp_row + lane.g + j / 2 * 8;
        scores[n][j] *= args.scale * kLog2E;
        flash_gradient(scores[n][j], d_scores[n][j], k <= query + i && k >= memory.start[half][i],
                       memory.lse[half][i] * kLog2E, memory.delta[half][i]);
      }
    add_product_down(gpu, d_values, scores, memory.d_outs[half]);
    add_product_down(gpu, d_keys, d_scores, memory.queries[half]);
  });
  const float one[2] = {1, 1}, scale[2] = {args.scale, args.scale};
  store_rows<D>({gradients.d_k.row(first + key) + col, gradients.d_k.stride}, count, warp_row, lane,
                d_keys, scale);
  store_rows<D>({gradients.d_v.row(first + key) + col, gradients.d_v.stride}, count, warp_row, lane,
                d_values, one);
}

}  // namespace axonn::cuda
