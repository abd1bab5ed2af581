#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "axonn/compute/ops/cpu/team.h"
#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/matrix.h"

namespace axonn::cpu {

using rowwise::Matrix;
using rowwise::Tile;

/// Memory that grows to the largest request and is kept, so that later steps allocate nothing.
/// Aligned to cache lines, so that vector loads do not straddle them.
class HostScratch {
 public:
  /// Memory for `count` elements of T, uninitialised. Invalidates what earlier calls returned.
  template <typename T>
  T* take(std::int64_t count) {
    const std::size_t lines = (static_cast<std::size_t>(count) * sizeof(T) + kLine - 1) / kLine;
    if (lines_.size() < lines) lines_ = std::vector<Line>(lines);
    return reinterpret_cast<T*>(lines_.data());
  }

 private:
  static constexpr std::size_t kLine = 64;
  struct alignas(kLine) Line {
    std::byte bytes[kLine];
  };
  std::vector<Line> lines_;
};

/// Elements of a tile, 16 to 32 KiB: enough that its overhead is negligible, few enough that a
/// large array is work for many threads. Fixed, because reductions sum up tile by tile.
constexpr int kTile = 8192;

/// Below this many elements, waking other threads costs more than they save (a few microseconds).
constexpr std::int64_t kParallelElements = 1 << 14;

/// Up to this many elements are assumed to lie in the threads' L2 caches, or not far beyond.
constexpr std::int64_t kNearElements = 1 << 20;

/// Runs kernel(Team, Tile) for every `width` columns of every row, on as many threads.
void run_tiles(int threads, std::int64_t rows, std::int64_t cols, int width, const auto& kernel) {
  const std::int64_t across = tiles_of(cols, width), tiles = rows * across;
#pragma omp parallel for num_threads(tiles == 1 ? 1 : threads) schedule(static)
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t begin = i % across * width;
    const int count = static_cast<int>(std::min<std::int64_t>(width, cols - begin));
    kernel(Team{.far = rows * cols > kNearElements}, Tile{i / across, begin, count, i});
  }
}

/// run_tiles() on one thread if there is too little work for more.
void launch_tiles(int threads, std::int64_t rows, std::int64_t cols, int width,
                  const auto& kernel) {
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
void over_blocks(std::int64_t blocks, Tile tile, const auto& kernel) {
  for (tile.row = 0; tile.row < blocks; ++tile.row) kernel(Team{.far = false}, tile);
}

/// Launches kernels on CPU threads, see rowwise/launch.h. The results do not depend on `threads`.
struct Launch {
  int threads;
  HostScratch& scratch;

  void heads(const rowwise::HeadWork& work, const auto& kernel) const {
    const rowwise::HeadSpan all{0, static_cast<int>(work.heads)};
    rows({work.rows, work.heads * work.width},
         [&](const Team& team, std::int64_t row) { kernel(team, row, all); });
  }

  void rows(const rowwise::RowWork& work, const auto& kernel) const {
    const std::int64_t count = work.rows * work.cols;
    const int used = count < kParallelElements ? 1 : threads;
#pragma omp parallel for num_threads(used) schedule(static)
    for (std::int64_t row = 0; row < work.rows; ++row)
      kernel(Team{.far = count > kNearElements}, row);
  }

  void tiles(std::int64_t rows, std::int64_t cols, const auto& kernel) const {
    launch_tiles(threads, rows, cols, rows == 1 ? even_tile(threads, cols) : kTile, kernel);
  }

  template <typename Sum>
  void reduce(std::int64_t rows, std::int64_t cols, Sum* out, const auto& make,
              const auto& combine) const {
    const std::int64_t count = rows * tiles_of(cols, kTile);
    Sum* partial = scratch.take<Sum>(count);
    launch_tiles(threads, rows, cols, kTile, make(partial));
    Sum total = 0;
    for (std::int64_t i = 0; i < count; ++i) total = combine(total, partial[i]);
    *out = combine(*out, total);
  }

  /// If there is little work, each thread has columns of its own and one launch is enough; else the
  /// threads share row blocks first. The sums and their order are the same.
  template <std::size_t n>
  void columns(const rowwise::ColumnWork& work, const std::array<float*, n>& out,
               const auto& make) const {
    constexpr std::int64_t kNarrowest = 256;
    const std::int64_t R = work.rows, C = work.cols, blocks = tiles_of(R, work.block);
    const rowwise::RowBlocks<n> sums = rowwise::row_blocks<n>(scratch, work, work.block);
    const auto kernel = make(sums);
    const auto add = [&](const Team& team, Tile tile) {
      for (std::size_t i = 0; i < n; ++i) add_row(out[i], sums.partial[i], team, tile);
    };
    const int used = R * C < kParallelElements ? 1 : threads;
    if (R * C <= kNearElements && C >= used * kNarrowest) {
      run_tiles(used, 1, C, even_tile(used, C), [&](const Team&, Tile tile) {
        over_blocks(blocks, tile, kernel);
        over_blocks(blocks, tile, add);
      });
      return;
    }
    const bool far = R * C > kNearElements;
    run_tiles(used, blocks, C, rowwise::kColumnTile,
              [&](const Team&, Tile tile) { kernel(Team{far}, tile); });
    add_blocks(blocks, C, add);
  }

  /// Each thread has a part of the table.
  void rows_by_id(const auto& kernel) const {
    const std::int64_t count = kernel.R * kernel.C;
    const int parts = count < kParallelElements ? 1 : threads;
    const Team team{.far = count > kNearElements};
    run_tiles(parts, 1, parts, 1, [&](const Team&, Tile tile) { kernel(team, tile.begin, parts); });
  }

  bool norm_backward(const auto&) const { return false; }

 private:
  /// Adds all rows of partial sums to the result: add(team, tile) adds one of them.
  void add_blocks(std::int64_t blocks, std::int64_t C, const auto& add) const {
    launch_tiles(threads, 1, C, rowwise::kColumnTile,
                 [&](const Team&, Tile tile) { over_blocks(blocks, tile, add); });
  }

  static void add_row(float* out, const Matrix<float>& partial, const Team& team, Tile tile) {
    float* y = out + tile.begin;
    team.map(
        y, tile.count, [](auto a, auto b) { return a + b; }, y, partial.at(tile));
  }
};

}  // namespace axonn::cpu
