#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "axonn/compute/ops/gpu/launch_shape.h"
#include "axonn/compute/ops/gpu/team.cuh"
#include "axonn/compute/ops/rowwise/embedding.h"
#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/norm.h"
#include "axonn/compute/tensor/gpu/kernel.cuh"
#include "axonn/compute/tensor/scratch.h"
#include "axonn/foundation/base/check.h"

namespace axonn::cuda {

using rowwise::Matrix;
using rowwise::Tile;

/// The most threads of a block: rows of 4096 elements or more have a pack for each.
constexpr int kMostThreads = 512;

/// Blocks of kMostThreads that must fit on a multiprocessor. Without such a number nvcc's assembler
/// saves registers: it puts loads behind arithmetic, where each waits for memory in turn.
constexpr int kAtOnce = 1;

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
__global__ void __launch_bounds__(kMostThreads, kAtOnce) run_rows(const Kernel kernel) {
  kernel(Team{}, static_cast<std::int64_t>(blockIdx.x));
}

/// The heads of all rows are numbered. Parts of a warp without one go along, for its reductions.
template <typename Kernel>
__global__ void __launch_bounds__(HeadShape::kThreads, kAtOnce)
    run_heads(const Kernel kernel, rowwise::Divisor heads, unsigned count, HeadShape shape) {
  const unsigned i = blockIdx.x * shape.heads + (threadIdx.x >> shape.shift);
  const unsigned head = i < count ? i : 0, row = heads.quotient(head);
  const int of_row = static_cast<int>(head - row * heads.value), lanes = 1 << shape.shift,
            lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  kernel(TeamOf<ThreadsOfHead>{{i < count ? lane : ThreadsOfHead::kNone, lanes}},
         static_cast<std::int64_t>(row), rowwise::HeadSpan{of_row, of_row + 1});
}

template <typename Kernel>
__global__ void __launch_bounds__(kMostThreads, kAtOnce)
    run_wide_heads(const Kernel kernel, rowwise::Divisor heads) {
  const unsigned row = heads.quotient(blockIdx.x);
  const int head = static_cast<int>(blockIdx.x - row * heads.value);
  kernel(Team{}, static_cast<std::int64_t>(row), rowwise::HeadSpan{head, head + 1});
}

template <typename Kernel>
__global__ void __launch_bounds__(kMostThreads, kAtOnce)
    run_tiles(const Kernel kernel, std::int64_t cols, unsigned across, int width) {
  // A division of 64 bits would take longer than the work on a tile.
  const unsigned i = blockIdx.x;
  const std::int64_t begin = static_cast<std::int64_t>(i % across) * width, rest = cols - begin;
  kernel(Team{}, Tile{i / across, begin, static_cast<int>(rest < width ? rest : width), i});
}

/// Runs kernel(Team, Tile) for every `width` columns of every row.
template <typename Kernel>
void launch_tiles(cudaStream_t stream, std::int64_t rows, std::int64_t cols, int width,
                  const Kernel& kernel) {
  const std::int64_t across = tiles_of(cols, width);
  if (rows * across == 0) return;
  const int threads = threads_for(std::min<std::int64_t>(cols, width), kPack);
  launch_kernel(stream, grid_of(rows * across), threads, run_tiles<Kernel>, kernel, cols,
                static_cast<unsigned>(across), width);
}

/// For each i: out[i][c] += the sum of partial[i][...][c], in an order that depends only on the
/// number of blocks. A block of threads has as many columns as a warp has threads.
template <std::size_t n>
struct RowSums {
  std::array<float*, n> out;            // (C) each
  std::array<const float*, n> partial;  // (blocks, C) each
  std::int64_t blocks, C;
};
template <std::size_t n>
__global__ void add_rows(RowSums<n> sums) {
  constexpr int kGroups = kMostThreads / kWarp;  // each has every kGroups-th row
  AXONN_SHARED(parts, float[kMostThreads]);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  static_assert(n <= 2, "an index that the compiler does not know puts an array in local memory");
  const bool other = blockIdx.y > 0;
  const float* partial = other ? sums.partial[n - 1] : sums.partial[0];
  float sum = 0;
  if (c < sums.C)
#pragma unroll 8
    for (std::int64_t b = thread / kWarp; b < sums.blocks; b += kGroups)
      sum += partial[b * sums.C + c];
  parts[thread] = sum;
  __syncthreads();
  if (thread >= kWarp || c >= sums.C) return;
  for (int group = 1; group < kGroups; ++group) sum += parts[group * kWarp + lane];
  (other ? sums.out[n - 1] : sums.out[0])[c] += sum;
}

template <std::size_t n>
void launch_add_rows(cudaStream_t stream, const RowSums<n>& sums) {
  launch_kernel(stream, dim3(grid_of(tiles_of(sums.C, kWarp)), n), kMostThreads, add_rows<n>, sums);
}

/// Combines out and the partials, in an order that depends only on their number. Runs in one block.
template <typename T, typename Combine>
__global__ void combine_partials(T* out, const T* partial, std::int64_t count, Combine combine) {
  T mine = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) mine = combine(mine, partial[i]);
  const T total = block_reduce(mine, combine);
  if (threadIdx.x == 0) *out = combine(*out, total);
}

/// Launches kernels on a stream, see rowwise/launch.h.
struct Launch {
  cudaStream_t stream;
  Scratch& scratch;

  /// One block per row.
  template <typename Kernel>
  void rows(const rowwise::RowWork& work, const Kernel& kernel) const {
    if (work.rows == 0) return;
    launch_kernel(stream, grid_of(work.rows), threads_for(work.at_once, kPack), run_rows<Kernel>,
                  kernel);
  }

  /// Parts of warps have a head each, or a block if it is wide.
  template <typename Kernel>
  void heads(const rowwise::HeadWork& work, const Kernel& kernel) const {
    const std::int64_t count = work.rows * work.heads;
    if (count == 0) return;
    const unsigned all = grid_of(count);
    const rowwise::Divisor heads(static_cast<int>(work.heads));
    const HeadShape shape = HeadShape::of(work.at_once);
    if (shape.shift >= 0)
      launch_kernel(stream, grid_of(tiles_of(count, shape.heads)), HeadShape::kThreads,
                    run_heads<Kernel>, kernel, heads, all, shape);
    else
      launch_kernel(stream, all, threads_for(work.at_once, kPack), run_wide_heads<Kernel>, kernel,
                    heads);
  }

  void tiles(std::int64_t rows, std::int64_t cols, const auto& kernel) const {
    launch_tiles(stream, rows, cols, kTile, kernel);
  }

  template <typename Sum>
  void reduce(std::int64_t rows, std::int64_t cols, Sum* out, const auto& make,
              const auto& combine) const {
    const std::int64_t count = rows * tiles_of(cols, kSumTile);
    Sum* partial = scratch.take<Sum>(count);
    launch_tiles(stream, rows, cols, kSumTile, make(partial));
    launch_kernel(stream, 1, kMostThreads,
                  combine_partials<Sum, std::remove_cvref_t<decltype(combine)>>, out, partial,
                  count, combine);
  }

  template <std::size_t n>
  void columns(const rowwise::ColumnWork& work, const std::array<float*, n>& out,
               const auto& make) const {
    if (work.rows * work.cols == 0) return;
    const std::int64_t tiles = tiles_of(work.cols, kColumnWidth), each = rows_of_block(work);
    const rowwise::RowBlocks<n> sums = rowwise::row_blocks<n>(scratch, work, each);
    const std::int64_t blocks = (work.rows + each - 1) / each;
    const auto kernel = make(sums);
    launch_kernel(stream, grid_of(blocks * tiles), kColumnThreads,
                  run_tiles<std::remove_const_t<decltype(kernel)>>, kernel, work.cols,
                  static_cast<unsigned>(tiles), kColumnWidth);
    RowSums<n> rows{.out = out, .partial = {}, .blocks = blocks, .C = work.cols};
    for (std::size_t i = 0; i < n; ++i) rows.partial[i] = sums.partial[i].data;
    launch_add_rows(stream, rows);
  }

  /// Defined in cuda_backend.cu.
  template <typename T>
  void rows_by_id(const rowwise::EmbeddingBackwardKernel<T>& kernel) const;

  /// Defined in norm_backward.cuh.
  template <typename T, typename W>
  bool norm_backward(const rowwise::NormBackwardRows<T, W>& rows) const;
};

}  // namespace axonn::cuda
