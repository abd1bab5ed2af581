#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/ops/backend.h"
#include "axonn/ops/cpu/matmul/block_matmul.h"
#include "axonn/ops/cpu/team.h"

namespace axonn::cpu {

/// Queries, and keys, of a block: q, k and scores of 64 rows of 64 floats fit in the L1 cache.
constexpr int kBlock = 64;

/// The query heads [begin, end) of an Attention or CachedAttention that use one key-value head.
struct HeadRange {
  std::int64_t begin, end;
};

template <typename Args>
HeadRange heads_of(const Args& args, std::int64_t kv_head) {
  const std::int64_t begin = kv_head * args.group - args.first_query;
  return {std::clamp<std::int64_t>(begin, 0, args.heads),
          std::clamp<std::int64_t>(begin + args.group, 0, args.heads)};
}

/// The number of key blocks before its own of which a block of queries may see keys.
inline int blocks_back(const Attention& args) {
  const std::int64_t seen = args.window > 0 ? args.window : args.positions;
  return static_cast<int>((seen + kBlock - 2) / kBlock);  // a query sees seen - 1 earlier keys
}

/// The place of a block of a head: rows [row, row + rows), columns [column, column + dim).
struct Block {
  std::int64_t row, column;
  int rows, dim;
};

/// For each query of a block, the first key of its sequence that it sees.
struct FirstKeys {
  const std::int32_t* each = nullptr;  // null: all see key 0 onwards
  std::int32_t least = 0, most = 0;

  FirstKeys(const Attention& args, Block queries) {
    if (!args.starts.data) return;
    each = args.starts.as<const std::int32_t>() + queries.row;
    const auto [low, high] = std::minmax_element(each, each + queries.rows);
    least = *low;
    most = *high;
  }
  /// The first block of keys of which a query sees one.
  int first_block() const { return least / kBlock; }
};

/// Prefetches a block: its rows may lie pages apart, across which the hardware does not prefetch.
template <typename T>
void prefetch_rows(const View& from, Block block) {
  for (int r = 0; r < block.rows; ++r)
    Team{}.prefetch(from.row<const T>(block.row + r) + block.column, block.dim);
}

/// to (kBlock, width) = the block as floats; rows and columns beyond it are zero.
template <typename T>
void pack(float* to, int width, const View& from, Block block) {
  const Team team;
  prefetch_rows<T>(from, block);
  for (int r = 0; r < kBlock; ++r, to += width) {
    const int filled = r < block.rows ? block.dim : 0;
    team.map(
        to, filled, [](auto x) { return x; }, from.row<const T>(block.row + r) + block.column);
    team.map(to + filled, width - filled, [] { return 0.0f; });
  }
}

/// to (dim, kBlock) = the transpose of a packed block, whose rows are `width` words.
inline void transpose(float* to, const float* packed, int width, int dim) {
  for (int begin = 0; begin < kBlock; begin += kLanes)  // a cache line of `to` at a time
    for (int d = 0; d < dim; ++d)
      for (int r = begin; r < begin + kLanes; ++r) to[d * kBlock + r] = packed[r * width + d];
}

/// Calls f(begin, count) for strips of at most 16 of `rows` on the diagonal, where a strip can skip
/// the columns a strip or more beyond it; elsewhere once for all rows.
template <typename F>
void for_strips(bool diagonal, int rows, F f) {
  if (!diagonal) return f(0, rows);
  for (int begin = 0; begin < rows; begin += kLanes) f(begin, std::min(kLanes, rows - begin));
}

/// The block of `view` = rows of `from` (kBlock, width) times `factor`.
template <typename T>
void unpack(const View& view, Block block, const float* from, int width, float factor = 1) {
  for (int r = 0; r < block.rows; ++r)
    Team{}.map(
        view.row<T>(block.row + r) + block.column, block.dim, [=](auto x) { return x * factor; },
        from + r * width);
}

}  // namespace axonn::cpu
