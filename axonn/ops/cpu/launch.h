#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/ops/cpu/team.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::cpu {

using rowwise::Matrix;
using rowwise::matrix;
using rowwise::Tile;

/// Elements of a tile: 16 to 32 KiB, so that its overhead is nothing and a thousand make work for
/// many threads. Fixed, as sums are cut by it.
constexpr int kTile = 8192;

/// Below this many elements waking other threads costs more than they save (a few microseconds).
constexpr std::int64_t kParallelElements = 1 << 14;

/// Runs kernel(Team, row) for every row. What it computes does not depend on `threads`.
template <typename Kernel>
void launch_rows(int threads, std::int64_t rows, std::int64_t cols, const Kernel& kernel) {
  const int used = rows * cols < kParallelElements ? 1 : threads;
#pragma omp parallel for num_threads(used) schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) kernel(Team{}, row);
}

inline std::int64_t tiles_of(std::int64_t cols, int width) { return (cols + width - 1) / width; }

/// Runs kernel(Team, Tile) for every `width` columns of every row.
template <typename Kernel>
void launch_tiles(int threads, std::int64_t rows, std::int64_t cols, int width,
                  const Kernel& kernel) {
  const std::int64_t across = tiles_of(cols, width), tiles = rows * across;
  const int used = rows * cols < kParallelElements ? 1 : threads;
#pragma omp parallel for num_threads(used) schedule(static)
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t begin = i % across * width;
    const int count = static_cast<int>(std::min<std::int64_t>(width, cols - begin));
    kernel(Team{}, Tile{i / across, begin, count, i});
  }
}

/// Calls f with a value of the view's element type, f32 or bf16, which the caller has checked.
template <typename F>
void with_type(DType dtype, F f) {
  if (dtype == DType::bf16)
    f(bf16{});
  else
    f(float{});
}

/// One long row where every view is contiguous, so that narrow rows do not make narrow tiles.
template <typename... Views>
void flatten(Views&... views) {
  if (!(views.contiguous() && ...)) return;
  const auto one_row = [](View& v) {
    v.cols = v.stride = v.count();
    v.rows = 1;
  };
  (one_row(views), ...);
}

}  // namespace axonn::cpu
