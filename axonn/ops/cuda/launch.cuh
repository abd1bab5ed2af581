#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "axonn/base/check.h"
#include "axonn/ops/cuda/scratch.cuh"
#include "axonn/ops/cuda/team.cuh"
#include "axonn/ops/rowwise/launch.h"
#include "axonn/tensor/cuda/runtime.cuh"

namespace axonn::cuda {

using rowwise::Matrix;
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

/// The number of blocks of a launch, of which a GPU takes at most 2^31 - 1.
inline unsigned grid_of(std::int64_t blocks) {
  AXONN_CHECK(blocks <= std::numeric_limits<std::int32_t>::max(), "a launch of ", blocks,
              " blocks on a GPU, which takes at most 2^31 - 1; use a smaller micro-batch");
  return static_cast<unsigned>(blocks);
}

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

/// Runs kernel(Team, Tile) for every `width` columns of every row; a thread takes `each` at once.
void launch_tiles(cudaStream_t stream, std::int64_t rows, std::int64_t cols, int width,
                  const auto& kernel, int each = kPack) {
  const std::int64_t across = tiles_of(cols, width);
  if (rows * across == 0) return;
  const int threads = threads_for(std::min<std::int64_t>(cols, width), each);
  run_tiles<<<grid_of(rows * across), threads, 0, stream>>>(kernel, cols, across, width);
  check(cudaGetLastError());
}

/// out[c] += partial[0][c] + partial[1][c] + ..., in this order.
__global__ void add_rows(float* out, const float* partial, std::int64_t blocks, std::int64_t C);

/// out += the partials, in an order that depends only on their number. Runs in one block.
template <typename T>
__global__ void add_partials(T* out, const T* partial, std::int64_t count) {
  T mine = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) mine += partial[i];
  const T total = block_sum(mine);
  if (threadIdx.x == 0) *out += total;
}

/// Launches kernels on a stream, see rowwise/launch.h. The scratch memory is the stream's.
struct Launch {
  cudaStream_t stream;
  Scratch& scratch;

  /// One block per row.
  void rows(const rowwise::RowWork& work, const auto& kernel) const {
    if (work.rows == 0) return;
    run_rows<<<grid_of(work.rows), threads_for(work.at_once, kPack), 0, stream>>>(kernel);
    check(cudaGetLastError());
  }

  void tiles(std::int64_t rows, std::int64_t cols, const auto& kernel) const {
    launch_tiles(stream, rows, cols, kTile, kernel);
  }

  template <typename Sum>
  void reduce(std::int64_t rows, std::int64_t cols, Sum* out, const auto& make) const {
    const std::int64_t count = rows * tiles_of(cols, kSumTile);
    Sum* partial = scratch.take<Sum>(count);
    launch_tiles(stream, rows, cols, kSumTile, make(partial));
    add_partials<<<1, kMostThreads, 0, stream>>>(out, partial, count);
    check(cudaGetLastError());
  }

  template <std::size_t n>
  void columns(std::int64_t R, std::int64_t C, const std::array<float*, n>& out,
               const auto& make) const {
    constexpr int kColumnTile = 256 * kColumns;
    const std::int64_t blocks = tiles_of(R, rowwise::kRowBlock);
    const auto partial = rowwise::partial_sums<n>(scratch, blocks, C);
    launch_tiles(stream, blocks, C, kColumnTile, make(partial), kColumns);
    for (std::size_t i = 0; i < n; ++i) add_blocks(out[i], partial[i], blocks);
  }

  void row_blocks(const rowwise::RowWork& work, std::int64_t C, float* out,
                  const auto& make) const {
    const std::int64_t blocks = tiles_of(work.rows, rowwise::kRowBlock);
    const Matrix<float> partial = rowwise::partial_sums<1>(scratch, blocks, C)[0];
    rows({blocks, work.at_once}, make(partial));
    add_blocks(out, partial, blocks);
  }

  /// Defined in cuda_backend.cu.
  void rows_by_id(const auto& kernel) const;

 private:
  /// Adds `blocks` rows of partial sums, (blocks, C), to out (C).
  void add_blocks(float* out, const Matrix<float>& partial, std::int64_t blocks) const {
    constexpr int kThreads = 64;  // small blocks, so that few columns occupy more multiprocessors
    const std::int64_t C = partial.stride;
    if (C == 0) return;
    add_rows<<<grid_of(tiles_of(C, kThreads)), kThreads, 0, stream>>>(out, partial.data, blocks, C);
    check(cudaGetLastError());
  }
};

}  // namespace axonn::cuda
