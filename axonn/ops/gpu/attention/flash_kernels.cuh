#pragma once

#include <cmath>
#include <cstdint>

#include "axonn/ops/backend.h"
#include "axonn/ops/gpu/fragment.h"
#include "axonn/ops/gpu/warp.cuh"
#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"
#include "axonn/tensor/address.h"

namespace axonn::cuda {

using rowwise::Matrix;

// Causal attention in bf16 with sums in f32, without scores in memory. A block of threads has 64
// queries and goes over the keys that they see, tile by tile, with a maximum, a sum and an
// unnormalised result for each query. Backward computes the scores again, from lse: once by
// queries, for d_q, and once by keys, for d_k and d_v. So each sum has one block and one order.
//
// All products are of matrices of 16 x 16, by a warp's matrix instruction (fragment.h, warp.cuh).
//
// Bound by the products: forward 2, backward 7, of T² · D flops each (the causal half).
// Source: Dao, "FlashAttention-2", 2023.

/// Threads of a block: four warps, 16 rows of a tile each.
constexpr int kFlashWarps = 4, kFlashThreads = kWarp * kFlashWarps, kFlashRows = 16 * kFlashWarps;

/// A lane's elements of a matrix of 16 x 16: as an operand in bf16, and as sums.
using Layout = Fragment<kWarp>;
using Operand = std::uint32_t[Layout::kElements / 2];
using Sums = float[Layout::kElements];

__device__ inline int flash_thread() { return static_cast<int>(threadIdx.x); }
__device__ inline int flash_warp_row() { return flash_thread() / kWarp * 16; }
/// The row in the tile of 64 of the lane's row r, and the column of its element i, of 16.
__device__ inline int flash_row(int r) {
  return flash_warp_row() + Layout::row(flash_thread() % kWarp, r);
}
__device__ inline int flash_col(int i) { return Layout::col(flash_thread() % kWarp, i); }

/// Combines the x of the four lanes that hold the same rows.
__device__ inline float across_row(float x, auto op) {
  x = op(x, shuffle_xor(x, Layout::kAcross));
  return op(x, shuffle_xor(x, 2 * Layout::kAcross));
}

/// Two adjacent elements at an even index.
__device__ inline std::uint32_t word(const bf16* p) {
  return *reinterpret_cast<const std::uint32_t*>(p);
}

/// Loads a lane's elements of the matrix whose two elements at (row, col) are pair(row, col).
__device__ inline void load_operand(Operand& a, auto pair) {
  const int lane = flash_thread() % kWarp;
#pragma unroll
  for (int i = 0; i < Layout::kElements; i += 2)
    a[i / 2] = pair(Layout::row(lane, Layout::row_of(i)), Layout::col(lane, i));
}

/// Rows of a matrix in memory. Rows from `count` on count as zero.
struct FlashRows {
  const bf16* data;
  std::int64_t stride;
  int count;

  __device__ std::uint32_t pair(int row, int col) const {
    return row < count ? word(data + row * stride + col) : 0;
  }
};

/// kRows rows of D elements in shared memory. Rows are padded by 16 bytes, so that the eight rows
/// that a warp reads at once lie in different banks.
template <int kRows, int D>
struct alignas(16) FlashTile {
  static constexpr int kStride = D + 8;
  bf16 values[kRows * kStride];

  /// Starts to fill the tile from memory, 16 bytes at a time. All threads call it.
  __device__ void fill(AsyncCopies& copies, const FlashRows& from) {
    struct alignas(16) Pack {
      std::uint32_t words[4];
    };
    constexpr int kPacks = D / 8;
    static_assert(kRows * kPacks % kFlashThreads == 0);
#pragma unroll
    for (int i = 0; i < kRows * kPacks / kFlashThreads; ++i) {
      const int n = i * kFlashThreads + flash_thread(), row = n / kPacks, col = n % kPacks * 8;
      const bool exists = row < from.count;  // row 0 always does
      const bf16* source = from.data + (exists ? row : 0) * from.stride + col;
      copies.start(reinterpret_cast<Pack*>(values + row * kStride + col),
                   reinterpret_cast<const Pack*>(source), exists);
    }
  }

  /// c (16 x 16) += a · the transpose of rows [row, row + 16), columns [col, col + 16).
  __device__ void add_across(Sums& c, const Operand& a, int row, int col) const {
    Operand b;
    load_operand(b, [&](int r, int k) { return word(values + (row + r) * kStride + col + k); });
    mma_across(c, a, b);
  }

  /// c (16 x 16) += a · rows [row, row + 16), columns [col, col + 16).
  __device__ void add_down(Sums& c, const Operand& a, int row, int col) const {
    mma_down(c, a, values + row * kStride + col, kStride);
  }
};

/// Runs multiply(i) for tiles 0 to count - 1, where fill(copies, i) starts to fill tile i into one
/// half of the shared memory, i % 2, while the threads work on the other half.
__device__ inline void for_tiles(int count, auto fill, auto multiply) {
  AsyncCopies copies;
  if (count > 0) fill(copies, 0);
  copies.commit();
  for (int i = 0; i < count; ++i) {
    if (i + 1 < count) fill(copies, i + 1);
    copies.commit();
    copies.wait_but_last();
    __syncthreads();
    multiply(i);
    __syncthreads();  // until no thread reads the tile any more
  }
}

/// products (16, kRows) = 16 rows of `left` from `row` on, (16, D), times the transpose of a tile.
template <int kRows, int D>
__device__ void multiply_across(Sums (&products)[kRows / 16], const FlashRows& left, int row,
                                const FlashTile<kRows, D>& tile) {
  for (Sums& c : products)
    for (float& x : c) x = 0;
#pragma unroll 2  // more of them load so much ahead that registers do not suffice
  for (int k = 0; k < D; k += 16) {
    Operand a;
    load_operand(a, [&](int r, int col) { return left.pair(row + r, k + col); });
#pragma unroll
    for (int n = 0; n < kRows / 16; ++n) tile.add_across(products[n], a, 16 * n, k);
  }
}

/// sums (16, D) += factors (16, kRows), rounded, times a tile.
template <int kRows, int D>
__device__ void add_product_down(Sums (&sums)[D / 16], const Sums (&factors)[kRows / 16],
                                 const FlashTile<kRows, D>& tile) {
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    Operand a;
#pragma unroll
    for (int i = 0; i < Layout::kElements; i += 2)
      a[i / 2] = rounded(factors[k][i], factors[k][i + 1]);
#pragma unroll
    for (int n = 0; n < D / 16; ++n) tile.add_down(sums[n], a, 16 * k, 16 * n);
  }
}

__device__ inline void store_pair(bf16* to, float first, float second) {
  *reinterpret_cast<std::uint32_t*>(to) = rounded(first, second);
}
__device__ inline void store_pair(float* to, float first, float second) {
  to[0] = first;
  to[1] = second;
}

/// Stores the warp's 16 rows of sums, (16, D), times factor(r) for the lane's row r, to its rows of
/// out that are below `count`.
template <int D, typename T>
__device__ void store_rows(Matrix<T> out, int count, const Sums (&sums)[D / 16], auto factor) {
#pragma unroll
  for (int r = 0; r < Layout::kRows; ++r) {
    if (flash_row(r) >= count) continue;
    T* const to = out.row(flash_row(r));
#pragma unroll
    for (int n = 0; n < D / 16; ++n)
#pragma unroll
      for (int i = 0; i < Layout::kElements; i += 2)
        if (Layout::row_of(i) == r)
          store_pair(to + 16 * n + flash_col(i), sums[n][i] * factor(r),
                     sums[n][i + 1] * factor(r));
  }
}

/// The operands of Attention in the form that kernels take.
struct FlashOperands {
  Matrix<const bf16> q, k, v;        // (B·Tq, h·D), (B·T, k·D)
  Matrix<bf16> out;                  // (B·Tq, h·D)
  Matrix<float> stats;               // (B·Tq, h): log of the sum of exponentials
  const std::int32_t* starts;        // (B·Tq): the first key that a query sees, or null
  const std::int32_t* query_blocks;  // (B·Tq/64): where the queries lie; null: in order
  int T, Tq, group, first_query, window;
  float scale;

  explicit FlashOperands(const Attention& args)
      : q(args.q),
        k(args.k),
        v(args.v),
        out(args.out),
        stats(args.stats),
        starts(address<const std::int32_t>(args.starts)),
        query_blocks(address<const std::int32_t>(args.query_blocks)),
        T(static_cast<int>(args.positions)),
        Tq(static_cast<int>(args.queries())),
        group(static_cast<int>(args.group)),
        first_query(static_cast<int>(args.first_query)),
        window(static_cast<int>(args.window < args.positions ? args.window : args.positions)),
        scale(args.scale) {}

  __device__ int kv_head(int head) const { return (first_query + head) / group; }
  __device__ const std::int32_t* blocks_of(int sequence) const {
    return query_blocks + static_cast<std::int64_t>(sequence) * (Tq / kFlashRows);
  }
  /// The position of a row of a sequence's queries.
  __device__ int position(int sequence, int row) const {
    if (!query_blocks) return row;
    return blocks_of(sequence)[row / kFlashRows] * kFlashRows + row % kFlashRows;
  }
  /// The number of rows of a sequence's queries in blocks that begin before a position.
  __device__ int rows_before(int sequence, int position) const {
    if (!query_blocks) return position;
    const std::int32_t* const blocks = blocks_of(sequence);
    int low = 0, high = Tq / kFlashRows;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (blocks[middle] * kFlashRows < position)
        low = middle + 1;
      else
        high = middle;
    }
    return low * kFlashRows;
  }
  /// The first key that any query from `query` on sees, by the window alone.
  __device__ int first_key(int query) const {
    return window > 0 && query >= window ? query - window + 1 : 0;
  }
  /// The first key that the query in row `row` of q, at position `query`, sees.
  __device__ int start(std::int64_t row, int query) const {
    const int oldest = first_key(query), own = starts ? starts[row] : 0;
    return own > oldest ? own : oldest;
  }
};

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

/// The work of a block: a tile of 64 rows, queries or keys, of one head of one sequence.
struct FlashOffset {
  int tile, head, sequence;
};

using rowwise::kLog2E;
constexpr float kLn2 = 0.69314718f;

/// Keys of a tile: fewer if heads are wide, because results stay in registers.
template <int D>
constexpr int kFlashKeys = D > 64 ? 32 : 64;

/// Rows of a matrix from `first_row` on, from column `col` on; rows from `count` on are zero.
__device__ inline FlashRows rows_of(Matrix<const bf16> of, std::int64_t first_row, int col,
                                    int count) {
  return {of.row(first_row) + col, of.stride, count};
}

/// Two tiles each, see for_tiles().
template <int D>
struct FlashForwardMemory {
  FlashTile<kFlashKeys<D>, D> keys[2], values[2];
};

/// The running maximum and sum of a lane's rows. Scores are in units of ln 2; each lane has only
/// its own columns' part of the sum.
struct FlashSoftmax {
  float most[Layout::kRows], total[Layout::kRows];

  __device__ FlashSoftmax() {
    for (float& x : most) x = -INFINITY;
    for (float& x : total) x = 0;
  }

  /// Turns scores into exponentials relative to the new maximum; rescale: for earlier sums.
  template <int kTiles>
  __device__ void update(Sums (&scores)[kTiles], float (&rescale)[Layout::kRows]) {
#pragma unroll
    for (int r = 0; r < Layout::kRows; ++r) {
      float highest = most[r];
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < Layout::kElements; ++i)
          if (Layout::row_of(i) == r) highest = fmaxf(highest, scores[n][i]);
      highest = across_row(highest, [](float a, float b) { return fmaxf(a, b); });
      const float about = highest == -INFINITY ? 0 : highest;  // no key seen yet
      rescale[r] = exp2f(most[r] - about);
      most[r] = highest;
      total[r] *= rescale[r];
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < Layout::kElements; ++i)
          if (Layout::row_of(i) == r) {
            scores[n][i] = exp2f(scores[n][i] - about);
            total[r] += scores[n][i];
          }
    }
  }
};

template <int D>
__device__ void flash_forward(const FlashOperands& args, FlashOffset at,
                              FlashForwardMemory<D>& memory) {
  constexpr int kKeys = kFlashKeys<D>;
  const int tile_row = at.tile * kFlashRows, query = args.position(at.sequence, tile_row);
  const std::int64_t first = static_cast<std::int64_t>(at.sequence) * args.T,
                     first_row = static_cast<std::int64_t>(at.sequence) * args.Tq + tile_row;
  const int count = args.Tq - tile_row, end = query + (count < kFlashRows ? count : kFlashRows);
  const FlashRows queries = rows_of(args.q, first_row, at.head * D, count);
  const int kv_col = args.kv_head(at.head) * D;

  int start[Layout::kRows];
  for (int r = 0; r < Layout::kRows; ++r) {
    const int row = flash_row(r);
    start[r] = row < count ? args.start(first_row + row, query + row) : 0;
  }
  FlashSoftmax softmax;
  Sums sums[D / 16] = {};
  const int from = args.first_key(query) / kKeys;
  const auto fill = [&](AsyncCopies& copies, int tile) {
    const int key = (from + tile) * kKeys;
    memory.keys[tile % 2].fill(copies, rows_of(args.k, first + key, kv_col, args.T - key));
    memory.values[tile % 2].fill(copies, rows_of(args.v, first + key, kv_col, args.T - key));
  };
  for_tiles((end + kKeys - 1) / kKeys - from, fill, [&](int tile) {
    const int key = (from + tile) * kKeys;
    Sums scores[kKeys / 16];
    float rescale[Layout::kRows];
    multiply_across(scores, queries, flash_warp_row(), memory.keys[tile % 2]);
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n)
#pragma unroll
      for (int i = 0; i < Layout::kElements; ++i) {
        const int r = Layout::row_of(i), k = key + 16 * n + flash_col(i);
        const bool seen = k <= query + flash_row(r) && k >= start[r];
        scores[n][i] = seen ? scores[n][i] * (args.scale * kLog2E) : -INFINITY;
      }
    softmax.update(scores, rescale);
#pragma unroll
    for (Sums& sum : sums)
#pragma unroll
      for (int i = 0; i < Layout::kElements; ++i) sum[i] *= rescale[Layout::row_of(i)];
    add_product_down(sums, scores, memory.values[tile % 2]);
  });

  float inverse[Layout::kRows];
  for (int r = 0; r < Layout::kRows; ++r) {
    const float total = across_row(softmax.total[r], [](float a, float b) { return a + b; });
    inverse[r] = 1 / total;
    const int row = flash_row(r);
    if (row < count && flash_col(0) == 0)
      args.stats.row(first_row + row)[at.head] = (softmax.most[r] + log2f(total)) * kLn2;
  }
  store_rows<D, bf16>({args.out.row(first_row) + at.head * D, args.out.stride}, count, sums,
                      [&](int r) { return inverse[r]; });
}

/// Turns one score and d_P into P and P · (d_P - delta).
__device__ inline void flash_gradient(float& score, float& d_probability, bool seen, float lse,
                                      float delta) {
  const float p = seen ? exp2f(score - lse) : 0;
  d_probability = p * (d_probability - delta);
  score = p;
}

/// Computes d_q of 64 queries, over the keys that they see.
template <int D>
__device__ void flash_backward_queries(const FlashOperands& args, const FlashGradients& gradients,
                                       FlashOffset at, FlashForwardMemory<D>& memory) {
  constexpr int kKeys = kFlashKeys<D>;
  const int tile_row = at.tile * kFlashRows, query = args.position(at.sequence, tile_row);
  const std::int64_t first = static_cast<std::int64_t>(at.sequence) * args.T,
                     first_row = static_cast<std::int64_t>(at.sequence) * args.Tq + tile_row;
  const int count = args.Tq - tile_row, end = query + (count < kFlashRows ? count : kFlashRows);
  const FlashRows queries = rows_of(args.q, first_row, at.head * D, count),
                  d_outs = rows_of(gradients.d_out, first_row, at.head * D, count);
  const int kv_col = args.kv_head(at.head) * D;
  float lse[Layout::kRows], delta[Layout::kRows];
  int start[Layout::kRows];
  for (int r = 0; r < Layout::kRows; ++r) {
    const int row = flash_row(r);
    const bool is = row < count;  // rows beyond the last see nothing
    lse[r] = is ? args.stats.row(first_row + row)[at.head] * kLog2E : 0;
    delta[r] = is ? gradients.delta.row(first_row + row)[at.head] : 0;
    start[r] = is ? args.start(first_row + row, query + row) : args.T;
  }

  Sums sums[D / 16] = {};
  const int from = args.first_key(query) / kKeys;
  const auto fill = [&](AsyncCopies& copies, int tile) {
    const int key = (from + tile) * kKeys;
    memory.keys[tile % 2].fill(copies, rows_of(args.k, first + key, kv_col, args.T - key));
    memory.values[tile % 2].fill(copies, rows_of(args.v, first + key, kv_col, args.T - key));
  };
  for_tiles((end + kKeys - 1) / kKeys - from, fill, [&](int tile) {
    const int key = (from + tile) * kKeys;
    Sums scores[kKeys / 16], d_scores[kKeys / 16];
    multiply_across(scores, queries, flash_warp_row(), memory.keys[tile % 2]);
    multiply_across(d_scores, d_outs, flash_warp_row(), memory.values[tile % 2]);
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n)
#pragma unroll
      for (int i = 0; i < Layout::kElements; ++i) {
        const int r = Layout::row_of(i), k = key + 16 * n + flash_col(i);
        scores[n][i] *= args.scale * kLog2E;
        flash_gradient(scores[n][i], d_scores[n][i], k <= query + flash_row(r) && k >= start[r],
                       lse[r], delta[r]);
      }
    add_product_down(sums, d_scores, memory.keys[tile % 2]);
  });
  store_rows<D, bf16>({gradients.d_q.row(first_row) + at.head * D, gradients.d_q.stride}, count,
                      sums, [&](int) { return args.scale; });
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
__device__ void flash_backward_keys(const FlashOperands& args, const FlashGradients& gradients,
                                    FlashOffset at, FlashKeysMemory<D>& memory) {
  constexpr int kQueries = kFlashKeys<D>;
  const int key = at.tile * kFlashRows;
  const std::int64_t first = static_cast<std::int64_t>(at.sequence) * args.T,
                     first_row = static_cast<std::int64_t>(at.sequence) * args.Tq;
  const int count = args.T - key, col = at.head * D;
  const FlashRows keys = rows_of(args.k, first + key, col, count),
                  values = rows_of(args.v, first + key, col, count);
  const int seen = kFlashRows - 1 + args.window;  // queries from `key` on that see some of the keys
  const int end = args.window > 0 && seen < count ? key + seen : args.T;
  const int begin = at.head * args.group - args.first_query, past = begin + args.group;

  const int earliest = begin < 0 ? 0 : begin,
            latest = past < gradients.heads ? past : gradients.heads,
            heads = latest > earliest ? latest - earliest : 0;
  const int from = args.rows_before(at.sequence, key) / kQueries,
            past_rows = args.rows_before(at.sequence, end),
            tiles = (past_rows + kQueries - 1) / kQueries - from;
  const auto fill = [&](AsyncCopies& copies, int step) {
    const int tile_row = (from + step % tiles) * kQueries, head = earliest + step / tiles,
              half = step % 2, rest = args.Tq - tile_row, i = flash_thread();
    memory.queries[half].fill(copies, rows_of(args.q, first_row + tile_row, head * D, rest));
    memory.d_outs[half].fill(copies,
                             rows_of(gradients.d_out, first_row + tile_row, head * D, rest));
    if (i >= kQueries) return;
    const bool exists = i < rest;
    const std::int64_t row = first_row + tile_row + (exists ? i : 0);
    const float* lse = args.stats.row(row) + head;
    copies.start(&memory.lse[half][i], lse, exists);
    copies.start(&memory.delta[half][i], gradients.delta.row(row) + head, exists);
    const int query = args.position(at.sequence, tile_row);
    memory.start[half][i] = exists ? args.start(row, query + i) : args.T;
  };
  Sums d_keys[D / 16] = {}, d_values[D / 16] = {};
  for_tiles(heads * tiles, fill, [&](int step) {
    const int query = args.position(at.sequence, (from + step % tiles) * kQueries), half = step % 2;
    Sums scores[kQueries / 16], d_scores[kQueries / 16];
    multiply_across(scores, keys, flash_warp_row(), memory.queries[half]);
    multiply_across(d_scores, values, flash_warp_row(), memory.d_outs[half]);
#pragma unroll
    for (int n = 0; n < kQueries / 16; ++n)
#pragma unroll
      for (int i = 0; i < Layout::kElements; ++i) {
        const int q = 16 * n + flash_col(i), k = key + flash_row(Layout::row_of(i));
        scores[n][i] *= args.scale * kLog2E;
        flash_gradient(scores[n][i], d_scores[n][i], k <= query + q && k >= memory.start[half][q],
                       memory.lse[half][q] * kLog2E, memory.delta[half][q]);
      }
    add_product_down(d_values, scores, memory.d_outs[half]);
    add_product_down(d_keys, d_scores, memory.queries[half]);
  });
  const auto store = [&]<typename T>(const Matrix<T>& out, const Sums(&sums)[D / 16],
                                     float factor) {
    store_rows<D, T>({out.row(first + key) + col, out.stride}, count, sums,
                     [=](int) { return factor; });
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
