#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/ops/cpu/team.h"
#include "axonn/ops/dispatch.h"
#include "axonn/ops/rowwise/columns.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::cpu {

using rowwise::Matrix;
using rowwise::matrix;
using rowwise::Tile;

/// Elements of a tile, 16 to 32 KiB: enough that its overhead is negligible, few enough that a
/// large array is work for many threads. Fixed, because reductions sum up tile by tile.
constexpr int kTile = 8192;

/// Below this many elements, waking other threads costs more than they save (a few microseconds).
constexpr std::int64_t kParallelElements = 1 << 14;

/// Up to this many elements are assumed to lie in the threads' L2 caches, or not far beyond.
constexpr std::int64_t kNearElements = 1 << 20;

/// Runs kernel(Team, row) for every row. The results do not depend on `threads`.
template <typename Kernel>
void launch_rows(int threads, std::int64_t rows, std::int64_t cols, const Kernel& kernel) {
  const int used = rows * cols < kParallelElements ? 1 : threads;
#pragma omp parallel for num_threads(used) schedule(static)
  for (std::int64_t row = 0; row < rows; ++row)
    kernel(Team{.far = rows * cols > kNearElements}, row);
}

/// Runs kernel(Team, Tile) for every `width` columns of every row, on as many threads.
template <typename Kernel>
void run_tiles(int threads, std::int64_t rows, std::int64_t cols, int width, const Kernel& kernel) {
  const std::int64_t across = tiles_of(cols, width), tiles = rows * across;
#pragma omp parallel for num_threads(tiles == 1 ? 1 : threads) schedule(static)
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t begin = i % across * width;
    const int count = static_cast<int>(std::min<std::int64_t>(width, cols - begin));
    kernel(Team{.far = rows * cols > kNearElements}, Tile{i / across, begin, count, i});
  }
}

/// The same, on one thread if there is too little work for more.
template <typename Kernel>
void launch_tiles(int threads, std::int64_t rows, std::int64_t cols, int width,
                  const Kernel& kernel) {
  run_tiles(rows * cols < kParallelElements ? 1 : threads, rows, cols, width, kernel);
}

/// The width of tiles of one long row whose elements do not depend on each other: at most kTile,
/// whole strips, and a number of tiles that divides evenly among the threads.
inline int even_tile(int threads, std::int64_t cols) {
  const std::int64_t rounds = tiles_of(tiles_of(std::max<std::int64_t>(cols, 1), kTile), threads);
  const std::int64_t each =
      tiles_of(std::max<std::int64_t>(cols, 1), static_cast<int>(rounds * threads));
  return static_cast<int>(tiles_of(each, Floats::kCount) * Floats::kCount);
}

/// Runs kernel(team, tile) for every row of partial sums, in their order.
template <typename Kernel>
void over_blocks(std::int64_t blocks, Tile tile, const Kernel& kernel) {
  for (tile.row = 0; tile.row < blocks; ++tile.row) kernel(Team{.far = false}, tile);
}

/// Adds the rows of partial sums, (blocks, C), to the result: add(team, tile) adds one of them.
template <typename Add>
void launch_add(int threads, std::int64_t blocks, std::int64_t C, const Add& add) {
  launch_tiles(threads, 1, C, rowwise::kColumnTile,
               [&](const Team&, Tile tile) { over_blocks(blocks, tile, add); });
}

/// Sums down the columns of (R, C), see rowwise/columns.h: partials(team, tile) writes the sums of
/// a row block to its row of partial sums, add(team, tile) adds that row to the result. If there is
/// little work, each thread has columns of its own and one launch is enough; else the threads share
/// row blocks first. The sums and their order are the same.
template <typename Partials, typename Add>
void launch_columns(int threads, std::int64_t R, std::int64_t C, const Partials& partials,
                    const Add& add) {
  constexpr std::int64_t kNarrowest = 256;
  const std::int64_t blocks = tiles_of(R, rowwise::kRowBlock);
  const int used = R * C < kParallelElements ? 1 : threads;
  if (R * C <= kNearElements && C >= used * kNarrowest) {
    run_tiles(used, 1, C, even_tile(used, C), [&](const Team&, Tile tile) {
      over_blocks(blocks, tile, partials);
      over_blocks(blocks, tile, add);
    });
    return;
  }
  const bool far = R * C > kNearElements;
  run_tiles(used, blocks, C, rowwise::kColumnTile,
            [&](const Team&, Tile tile) { partials(Team{far}, tile); });
  launch_add(threads, blocks, C, add);
}

}  // namespace axonn::cpu
