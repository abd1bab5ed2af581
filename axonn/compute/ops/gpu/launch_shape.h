#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "axonn/compute/ops/rowwise/launch.h"

// The sizes of launches on a GPU, which also decide how much memory they take.

namespace axonn::cuda {

/// Elements that a thread moves at once: 16 bytes of bf16, or twice 16 bytes of f32.
constexpr int kPack = 8;

/// The most threads of a block that sums down columns.
constexpr int kColumnThreads = 256;

/// The launch of heads: blocks of kThreads threads, in parts of a warp that have a head each.
struct HeadShape {
  static constexpr int kThreads = 256;

  int shift = -1;  ///< 2^shift threads have a head; negative: it is so wide that a block has it
  int heads = 1;   ///< of a block, counted over all rows

  static HeadShape of(std::int64_t at_once) {
    constexpr int kLanes = 32;
    const std::int64_t packs = std::max<std::int64_t>(tiles_of(at_once, kPack), 1);
    if (packs > kLanes) return {};
    const int shift = std::bit_width(static_cast<std::uint64_t>(packs - 1));
    return {shift, kThreads >> shift};
  }
};

/// Elements of a tile of independent elements: a pack for each of 256 threads, so that a GPU of 132
/// multiprocessors has enough bytes in flight from a million elements on.
constexpr int kTile = 2048;

/// Elements of a tile that is summed to one number: more, because one block adds the partial sums.
constexpr int kSumTile = 32768;

/// Columns of a block of sums down columns.
constexpr int kColumnWidth = kColumnThreads * kPack;

/// Rows that such a block sums.
inline std::int64_t rows_of_block(const rowwise::ColumnWork& work) {
  // Blocks of threads: a few for each multiprocessor of any GPU. A thread has at least 8 rows.
  constexpr int kBlocks = 1024, kFewest = 8;
  const std::int64_t tiles = tiles_of(work.cols, kColumnWidth), packs = tiles_of(work.cols, kPack),
                     groups = std::max<std::int64_t>(kColumnThreads / packs, 1);
  return std::max(tiles_of(work.rows * tiles, kBlocks), kFewest * groups);
}

/// The launch of the gradients of a norm (gpu/norm_backward.cuh), which depends on the shape alone
/// and not on the GPU, and so do the bits of its sums.
struct NormShape {
  static constexpr int kThreads = 256;  ///< the most of a block
  static constexpr int kPacks = 4;      ///< the most that a thread keeps of each operand of a row
  static constexpr int kRows = 2;       ///< of a block at a time, if a row has one warp

  int packs = 0;            ///< that a thread keeps; 0: rows are too long
  int lanes = 0;            ///< threads of a row, in warps of 32
  std::int64_t each = 0;    ///< rows of a block, but for the last
  std::int64_t blocks = 0;  ///< each has sums of its rows

  static NormShape of(std::int64_t rows, std::int64_t cols) {
    // As many blocks as the 132 multiprocessors of an H100 or H200 have at once, by the registers
    // of a thread. A block of fewer rows would store more sums than it reads rows.
    constexpr int kRegisters[] = {96, 144, 184, 216}, kAll = 65536, kLanes = 32;
    constexpr std::int64_t kFewestRows = 16;
    const std::int64_t lanes = tiles_of(cols, kLanes * kPacks * kPack) * kLanes;
    if (lanes > kThreads || cols <= 0 || cols % kPack != 0) return {};
    const auto packs = static_cast<int>(tiles_of(cols, static_cast<int>(lanes) * kPack));
    const std::int64_t threads = lanes == kLanes ? lanes * kRows : lanes,
                       most = 132 * (kAll / (kRegisters[packs - 1] * threads)),
                       each = std::max((rows + most - 1) / most, kFewestRows);
    return {packs, static_cast<int>(lanes), each, (rows + each - 1) / each};
  }
};

}  // namespace axonn::cuda
