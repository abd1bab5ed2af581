#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/compute/ops/rowwise/launch.h"

// The sizes of launches on a GPU, which also decide how much memory they take.

namespace axonn::cuda {

/// Elements that a thread moves at once: 16 bytes of bf16, or twice 16 bytes of f32.
constexpr int kPack = 8;

/// The most threads of a block that sums down columns.
constexpr int kColumnThreads = 256;

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

}  // namespace axonn::cuda
