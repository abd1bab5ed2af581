#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/ops/cuda/team.cuh"
#include "axonn/ops/dispatch.h"
#include "axonn/ops/rowwise/columns.h"
#include "axonn/tensor/cuda/runtime.cuh"

namespace axonn::cuda {

using rowwise::Matrix;
using rowwise::matrix;
using rowwise::Tile;

/// The most threads of a block: rows of 4096 elements or more have a pack for each.
constexpr int kMostThreads = 512;

/// Elements of a tile of independent elements: a pack for each of 256 threads, so that a GPU of 132
/// multiprocessors has enough bytes in flight from a million elements on.
constexpr int kTile = 2048;

/// Elements of a tile that is summed to one number: more, because one block adds the partial sums.
constexpr int kSumTile = 32768;

/// The number of threads, in whole warps, that have work if each takes `each` elements at once.
inline int threads_for(std::int64_t elements, int each) {
  const std::int64_t warps = tiles_of(std::max<std::int64_t>(elements, 1), each * kWarp);
  return static_cast<int>(std::min<std::int64_t>(warps * kWarp, kMostThreads));
}

inline unsigned grid_of(std::int64_t blocks) { return static_cast<unsigned>(blocks); }

template <typename Kernel>
__global__ void __launch_bounds__(kMostThreads) run_rows(const Kernel kernel) {
  kernel(Team{}, static_cast<std::int64_t>(blockIdx.x));
}

template <typename Kernel>
__global__ void __launch_bounds__(kMostThreads)
    run_tiles(const Kernel kernel, std::int64_t cols, std::int64_t across, int width) {
  const std::int64_t i = blockIdx.x, begin = i % across * width, rest = cols - begin;
  kernel(Team{}, Tile{i / across, begin, static_cast<int>(rest < width ? rest : width), i});
}

/// Runs kernel(Team, row) for every row, one block per row; `cols` determines the block's size.
template <typename Kernel>
void launch_rows(cudaStream_t stream, std::int64_t rows, std::int64_t cols, const Kernel& kernel) {
  if (rows == 0) return;
  run_rows<<<grid_of(rows), threads_for(cols, kPack), 0, stream>>>(kernel);
  check(cudaGetLastError());
}

/// Runs kernel(Team, Tile) for every `width` columns of every row; a thread takes `each` at once.
template <typename Kernel>
void launch_tiles(cudaStream_t stream, std::int64_t rows, std::int64_t cols, int width,
                  const Kernel& kernel, int each = kPack) {
  const std::int64_t across = tiles_of(cols, width);
  if (rows * across == 0) return;
  const int threads = threads_for(std::min<std::int64_t>(cols, width), each);
  run_tiles<<<grid_of(rows * across), threads, 0, stream>>>(kernel, cols, across, width);
  check(cudaGetLastError());
}

/// out[c] += partial[0][c] + partial[1][c] + ..., in this order.
__global__ void add_rows(float* out, const float* partial, std::int64_t blocks, std::int64_t C);

/// Partial sums down the columns of (R, C), see rowwise/columns.h: partials(team, tile) writes the
/// sums of a row block to its row of partial sums. launch_add_rows() then adds these to the result.
template <typename Partials>
void launch_column_partials(cudaStream_t stream, std::int64_t R, std::int64_t C,
                            const Partials& partials) {
  constexpr int kColumnTile = 256 * kColumns;
  launch_tiles(stream, tiles_of(R, rowwise::kRowBlock), C, kColumnTile, partials, kColumns);
}

/// Adds `blocks` rows of partial sums, (blocks, C), to out (C).
void launch_add_rows(cudaStream_t stream, float* out, const Matrix<float>& partial,
                     std::int64_t blocks, std::int64_t C);

}  // namespace axonn::cuda
