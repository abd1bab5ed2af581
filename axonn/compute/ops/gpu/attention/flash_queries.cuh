#pragma once

#include <climits>
#include <cmath>
#include <cstdint>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/gpu/attention/flash_tiles.cuh"

namespace axonn::cuda {

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
    return query_blocks + static_cast<std::int64_t>(sequence) * (Tq / kSequenceBlock);
  }
  /// The position of a row of a sequence's queries.
  __device__ int position(int sequence, int row) const {
    constexpr int kBlock = kSequenceBlock;
    return query_blocks ? blocks_of(sequence)[row / kBlock] * kBlock + row % kBlock : row;
  }
  /// The number of rows of a sequence's queries in blocks that begin before a position.
  __device__ int rows_before(int sequence, int position) const {
    if (!query_blocks) return position;
    constexpr int kBlock = kSequenceBlock;
    const std::int32_t* const blocks = blocks_of(sequence);
    int low = 0, high = Tq / kBlock;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (blocks[middle] * kBlock < position)
        low = middle + 1;
      else
        high = middle;
    }
    return low * kBlock;
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

/// The work of a block: the tile-th part of the rows, queries or keys, of a head of a sequence.
struct FlashOffset {
  int tile, head, sequence;
};

/// The tiles of keys that the queries of a block see: the n-th is operator[](n). The queries are at
/// one or, if a block of kSequenceBlock follows that is not the next one, two runs of positions,
/// with a gap between their tiles.
struct FlashKeyTiles {
  int begin = 0, end_of_first = 0, gap = 0, count = 0;

  __device__ FlashKeyTiles(const FlashOperands& args, int sequence, int first_row, int rows,
                           int keys) {
    int end = 0;
    for (int row = 0; row < rows; row += kSequenceBlock) {
      const int query = args.position(sequence, first_row + row), rest = rows - row,
                past = query + (rest < kSequenceBlock ? rest : kSequenceBlock),
                from = args.first_key(query) / keys;
      if (row == 0) begin = from;
      if (row > 0 && from > end) {
        gap = from - end;
        end_of_first = end;
      }
      end = (past + keys - 1) / keys;
    }
    count = end - begin - gap;
  }
  __device__ int operator[](int n) const {
    return begin + n + (begin + n >= end_of_first ? gap : 0);
  }
};

/// The queries of a block, and those of the calling warp, which are at consecutive positions.
template <typename Shape>
struct FlashQueries {
  const FlashOperands& args;
  FlashOffset offset;
  int position;          // of the warp's first row
  int earliest, latest;  // of the first keys that the warp's rows see
  FlashKeyTiles tiles;

  /// Leaves the first key that each of the block's rows sees in `starts`.
  __device__ FlashQueries(const FlashOperands& operands, FlashOffset of,
                          int (&starts)[Shape::kRows])
      : args(operands),
        offset(of),
        position(row() < count() ? args.position(of.sequence, of.tile * Shape::kRows + row()) : 0),
        earliest(INT_MAX),
        latest(0),
        tiles(args, of.sequence, of.tile * Shape::kRows, count(), Shape::kAcross) {
#pragma unroll
    for (int s = 0; s < Shape::kStrips; ++s)
#pragma unroll
      for (int r = 0; r < Layout::kRows; ++r) {
        const int i = flash_row(s, r);  // rows that do not exist see nothing
        const int start = exists(s, r) ? args.start(at(s, r), position + i) : INT_MAX;
        if (flash_col(0) == 0) starts[row() + i] = start;
        earliest = Least()(earliest, start);
        latest = Greatest()(latest, start);
      }
    earliest = across_warp(earliest, Least());
    latest = across_warp(latest, Greatest());
  }
  /// The block's first row of q.
  __device__ std::int64_t first() const {
    return static_cast<std::int64_t>(offset.sequence) * args.Tq + offset.tile * Shape::kRows;
  }
  /// The block's rows that exist.
  __device__ int count() const {
    return Least()(args.Tq - offset.tile * Shape::kRows, Shape::kRows);
  }
  /// The warp's first row in the block.
  __device__ static int row() { return flash_warp_row<Shape>(); }
  /// The row of q of the lane's row r of a strip, and whether it exists.
  __device__ std::int64_t at(int strip, int r) const {
    return first() + row() + flash_row(strip, r);
  }
  __device__ bool exists(int strip, int r) const { return row() + flash_row(strip, r) < count(); }
  /// The block's rows of a matrix like q, those of its head.
  __device__ FlashRows rows(const Matrix<const bf16>& of, int width) const {
    return rows_of(of, first(), offset.head * width, count());
  }
  /// Whether any query of the warp sees a key of the tile that begins with this one.
  __device__ bool see(int key) const {
    return key < position + Shape::kWarpRows && key + Shape::kAcross > earliest;
  }

  /// Hides the scores of keys of the tile that a query does not see.
  __device__ void hide_unseen(Sums (&scores)[Shape::kStrips][Shape::kAcross / 16], int key,
                              const int (&starts)[Shape::kRows]) const {
    if (key + Shape::kAcross <= position + 1 && key >= latest) return;  // all see all
#pragma unroll
    for (int s = 0; s < Shape::kStrips; ++s)
#pragma unroll
      for (int r = 0; r < Layout::kRows; ++r) {
        const int i = flash_row(s, r), begin = starts[row() + i] - key, last = position + i - key;
#pragma unroll
        for (int n = 0; n < Shape::kAcross / 16; ++n)
#pragma unroll
          for (int j = 0; j < Layout::kElements; ++j) {
            const int k = 16 * n + flash_col(j);
            if (Layout::row_of(j) == r && (k < begin || k > last)) scores[s][n][j] = -INFINITY;
          }
      }
  }
};

/// The shared memory of a kernel whose rows are queries.
template <typename Shape, int D, int kept>
struct FlashQueriesMemory : FlashMemory<Shape, D, kept> {
  int starts[Shape::kRows];
};

/// Runs multiply(key, keys, values) for every tile of the keys and values of the block's key-value
/// head in which some query of the warp sees something; `key` is the tile's first.
template <typename Shape, int D, int kept>
__device__ void for_keys(AsyncCopies& copies, FlashMemory<Shape, D, kept>& memory,
                         const FlashQueries<Shape>& queries, auto multiply) {
  const FlashOperands& args = queries.args;
  const FlashOffset at = queries.offset;
  const auto first_key = [&](int n) { return queries.tiles[n] * Shape::kAcross; };
  const auto fill = [&](int n) {
    const int key = first_key(n), col = args.kv_head(at.head) * D, rest = args.T - key;
    const std::int64_t row = static_cast<std::int64_t>(at.sequence) * args.T + key;
    auto& [keys, values] = memory.tiles[n % 2];
    keys.template fill<Shape::kThreads>(copies, rows_of(args.k, row, col, rest));
    values.template fill<Shape::kThreads>(copies, rows_of(args.v, row, col, rest));
  };
  for_tiles(copies, queries.tiles.count, fill, [&](int n) {
    const auto& [keys, values] = memory.tiles[n % 2];
    if (const int key = first_key(n); queries.see(key)) multiply(key, keys, values);
  });
}

}  // namespace axonn::cuda
