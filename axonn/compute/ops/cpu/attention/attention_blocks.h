#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/cpu/matmul/amx_matmul.h"
#include "axonn/compute/ops/cpu/matmul/block_matmul.h"
#include "axonn/compute/ops/cpu/matmul/pair_matmul.h"
#include "axonn/compute/ops/cpu/team.h"
#include "axonn/compute/ops/rowwise/elementwise.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::cpu {

/// Queries, and keys, of a block: q, k and scores of 64 rows of 64 floats fit in the L1 cache.
constexpr int kBlock = kSequenceBlock;

/// The query heads [begin, end) of an Attention or CachedAttention that use one key-value head.
struct HeadRange {
  std::int64_t begin, end;
};

HeadRange heads_of(const auto& args, std::int64_t kv_head) {
  const std::int64_t begin = kv_head * args.group - args.first_query;
  return {std::clamp<std::int64_t>(begin, 0, args.heads),
          std::clamp<std::int64_t>(begin + args.group, 0, args.heads)};
}

/// The position of the first key that a row at this position sees.
inline std::int64_t first_key(const CachedAttention& args, std::int64_t at) {
  if (args.chunks) return at / args.window * args.window;
  return args.window > 0 ? std::max<std::int64_t>(0, at + 1 - args.window) : 0;
}

/// The blocks of queries of one sequence, and the blocks of positions at which they lie.
struct QueryBlocks {
  std::int64_t rows, first_row;  // of the sequence in q
  int count;
  const std::int32_t* indices;  // ascending; null: all blocks of the sequence

  QueryBlocks(const Attention& args, std::int64_t sequence)
      : rows(args.queries()),
        first_row(sequence * rows),
        count(static_cast<int>((rows + kBlock - 1) / kBlock)),
        indices(args.query_blocks.data
                    ? address<const std::int32_t>(args.query_blocks) + sequence * count
                    : nullptr) {}

  int index(int i) const { return indices ? indices[i] : i; }
  /// The first block that is `block` or after it; `count` if there is none.
  int from(int block) const {
    if (!indices) return std::min(block, count);
    return static_cast<int>(std::lower_bound(indices, indices + count, block) - indices);
  }
  int rows_of(int i) const {
    return static_cast<int>(std::min<std::int64_t>(kBlock, rows - std::int64_t{i} * kBlock));
  }
};

/// The number of key blocks before its own of which a block of queries may see keys.
inline int blocks_back(const Attention& args) {
  const std::int64_t seen = args.window > 0 ? args.window : args.positions;
  return static_cast<int>((seen + kBlock - 2) / kBlock);  // a query sees seen - 1 earlier keys
}

/// The bounds of a block of a head: rows [row, row + rows), columns [column, column + dim).
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
    each = address<const std::int32_t>(args.starts) + queries.row;
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
    Team{}.prefetch(address<const T>(from, block.row + r) + block.column, block.dim);
}

/// to (rows, width) = the block as floats; rows and columns beyond it are zero.
template <typename T>
void pack(float* to, int width, const View& from, Block block, int rows = kBlock) {
  const Team team;
  prefetch_rows<T>(from, block);
  for (int r = 0; r < rows; ++r, to += width) {
    const int filled = r < block.rows ? block.dim : 0;
    team.map(
        to, filled, [](auto x) { return x; }, address<const T>(from, block.row + r) + block.column);
    team.map(to + filled, width - filled, [] { return 0.0f; });
  }
}

/// to (dim, rows) = the transpose of a packed block, whose rows are `width` words.
template <int rows = kBlock>
void transpose(float* to, const float* packed, int width, int dim) {
  constexpr int kEach = Floats::kEach;
  for (int r = 0; r < rows; r += kEach)
    for (int d = 0; d < dim; d += kEach) {
      Floats::Register square[kEach];
      for (int i = 0; i < kEach; ++i)
        square[i] = *reinterpret_cast<const Floats::Unaligned*>(packed + (r + i) * width + d);
      transpose(square);
      for (int i = 0; i < kEach; ++i)
        *reinterpret_cast<Floats::Unaligned*>(to + (d + i) * rows + r) = square[i];
    }
}

/// Calls f(begin, count) for strips of at most 16 of `rows` on the diagonal, where a strip can skip
/// the columns a strip or more beyond it; elsewhere once for all rows.
void for_strips(bool diagonal, int rows, auto f) {
  if (!diagonal) return f(0, rows);
  for (int begin = 0; begin < rows; begin += kLanes) f(begin, std::min(kLanes, rows - begin));
}

/// The block of `view` = rows of `from` (kBlock, width) times `factor`.
template <typename T>
void unpack(const View& view, Block block, const float* from, int width, float factor = 1) {
  for (int r = 0; r < block.rows; ++r)
    Team{}.map(
        address<T>(view, block.row + r) + block.column, block.dim,
        [=](auto x) { return x * factor; }, from + r * width);
}

/// How attention's blocks are multiplied. Operands of a block are words of four bytes, each with
/// kPack elements of the summed dimension: floats, or pairs of bf16 if the processor multiplies
/// those. With pairs, an f32 result that is an operand of the next product is rounded to bf16, like
/// a stored tensor.
///
///   across  (rows, width / kPack): a word holds adjacent elements of a row
///   down    (rows / kPack, width): a word holds elements of consecutive rows, of one column
template <typename T, bool pairs = std::is_same_v<T, bf16>&& kDotProducts>
struct Operands {
  static constexpr int kPack = 1;
  using Product = FloatProduct;
  /// What a task holds while it multiplies.
  struct Instructions {
    Instructions() {}
  };

  /// Copies a block of a tensor, across; rows and columns beyond it are zero.
  static void pack(float* to, int width, const View& from, Block block, int rows = kBlock) {
    cpu::pack<T>(to, width, from, block, rows);
  }
  /// A block of a tensor as a left operand: packed, or where it lies if that is in words.
  static Left left(float* memory, int width, const View& from, Block block) {
    if constexpr (std::is_same_v<T, float>)
      return {address<const T>(from, block.row) + block.column, static_cast<int>(from.stride), 1};
    pack(memory, width, from, block);
    return {memory, width, 1};
  }
  /// A packed block in words down: written to the first argument, or `packed` itself.
  static const float* down(float*, const float* packed, int) { return packed; }
  /// A computed block (rows, cols) of floats in words down, or (rows, kBlock) across, in the same
  /// way.
  template <int cols = kBlock>
  static const float* down_of(float*, const float* computed, int) {
    return computed;
  }
  static const float* across_of(float*, const float* computed, int, int) { return computed; }
};

template <typename T>
struct Operands<T, true> {
  static constexpr int kPack = 2;
  using Product = PairProduct;
  using Instructions = amx::TilesInUse;

  static void pack(float* to, int width, const View& from, Block block, int rows = kBlock) {
    auto* row = reinterpret_cast<bf16*>(to);
    prefetch_rows<T>(from, block);
    for (int r = 0; r < rows; ++r, row += width) {
      const int filled = r < block.rows ? block.dim : 0;
      if (filled > 0)
        std::copy_n(address<const bf16>(from, block.row + r) + block.column, filled, row);
      std::fill(row + filled, row + width, bf16{});
    }
  }

  static Left left(float* memory, int width, const View& from, Block block) {
    pack(memory, width, from, block);
    return {memory, width / kPack, 1};
  }

  static const float* down(float* memory, const float* packed, int width) {
    const auto* rows = reinterpret_cast<const bf16*>(packed);
    for (int r = 0; r < kBlock; r += 2, rows += 2 * width)
      for (int c = 0; c < width; c += kLanes)
        pair_16(memory + r / 2 * width + c, rows + c, rows + width + c);
    return memory;
  }

  /// Rows from `count` on are zero.
  template <int cols = kBlock>
  static const float* down_of(float* memory, const float* computed, int count) {
    constexpr float kZeros[cols] = {};
    for (int r = 0; r < count; r += 2) {
      const float *first = computed + r * cols, *second = r + 1 < count ? first + cols : kZeros;
      for (int c = 0; c < cols; c += kLanes)
        pair_16(memory + r / 2 * cols + c, first + c, second + c);
    }
    return memory;
  }

  /// The first `rows` rows; columns from `count` on are zero.
  static const float* across_of(float* memory, const float* computed, int rows, int count) {
    auto* to = reinterpret_cast<bf16*>(memory);
    for (int r = 0; r < rows; ++r, to += kBlock) {
      Team{}.map(
          to, kBlock, [](auto x) { return x; }, computed + r * kBlock);
      std::fill(to + count, to + kBlock, bf16{});
    }
    return memory;
  }
};

/// block_matmul() of such operands: pairs by AMX's tiles if there are any, or by BlockProduct if
/// the processor has it and there are enough rows to reorder operands for. The bits of the latter
/// are the same, those of tiles are not.
template <typename Product>
void block_product(float* out, int out_row, Left a, const float* b, int b_row, Extents size,
                   bool accumulate) {
  constexpr int kFewest = 8;
  if constexpr (std::is_same_v<Product, PairProduct> && kHasAmx)
    if (uses_amx()) return amx::block_product(out, out_row, a, b, b_row, size, accumulate);
  if constexpr (std::is_same_v<Product, PairProduct> && !std::is_void_v<BlockProduct>)
    if (size.m >= kFewest)
      return pair_matmul<BlockProduct>(out, out_row, a, b, b_row, size, accumulate);
  block_matmul<Product>(out, out_row, a, b, b_row, size, accumulate);
}

/// What products of queries and keys become: scale · x, capped if cap is above 0.
struct ScoreFactors {
  float scale, cap;

  void apply(float* scores, int count) const {
    if (cap > 0)
      Team{}.map(
          scores, count, [=, this](auto x) { return rowwise::Capped{cap}(x * scale); }, scores);
    else
      Team{}.map(
          scores, count, [factor = scale](auto x) { return x * factor; }, scores);
  }
};

}  // namespace axonn::cpu
