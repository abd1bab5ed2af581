#pragma once

#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/gpu/fragment.h"
#include "axonn/compute/ops/gpu/warp.cuh"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/ops/rowwise/matrix.h"
#include "axonn/compute/tensor/address.h"

// The pieces of attention's kernels: rows of a block of threads as matrices of 16 x 16, tiles of
// the other side in shared memory, and their products by warps' matrix instructions (fragment.h,
// warp.cuh).

namespace axonn::cuda {

using rowwise::kLog2E;
using rowwise::Matrix;

/// A lane's elements of a matrix of 16 x 16: as an operand in bf16, and as sums.
using Layout = Fragment<kWarp>;
using Operand = std::uint32_t[Layout::kElements / 2];
using Sums = float[Layout::kElements];

/// How a kernel is cut. Each of a block's warps has `strips` strips of 16 rows, so that an operand
/// that it loads from shared memory serves all of them. The block goes over the other side in tiles
/// of `across` rows, of which a warp computes `step` at a time: fewer take fewer registers. held:
/// the rows stay in registers, as left operands of products; otherwise they are in shared memory,
/// too.
template <int warps, int strips, int across, int step, bool held>
struct FlashShape {
  static constexpr int kThreads = kWarp * warps, kStrips = strips, kWarpRows = 16 * strips,
                       kRows = kWarpRows * warps, kAcross = across, kStep = step;
  static constexpr bool kHeld = held;
};

__device__ inline int flash_thread() { return static_cast<int>(threadIdx.x); }
__device__ inline int flash_lane() { return flash_thread() % kWarp; }
/// The warp's first row in the block.
template <typename Shape>
__device__ int flash_warp_row() {
  return flash_thread() / kWarp * Shape::kWarpRows;
}
/// The row in the warp of the lane's row r of a strip, and the column of its element i, of 16.
__device__ inline int flash_row(int strip, int r) {
  return 16 * strip + Layout::row(flash_lane(), r);
}
__device__ inline int flash_col(int i) { return Layout::col(flash_lane(), i); }

/// Combines the x of the four lanes that hold the same rows.
__device__ inline float across_row(float x, auto op) {
  x = op(x, shuffle_xor(x, Layout::kAcross));
  return op(x, shuffle_xor(x, 2 * Layout::kAcross));
}

/// Combines the x of all lanes.
__device__ inline int across_warp(int x, auto op) {
#pragma unroll
  for (int mask = 1; mask < kWarp; mask *= 2) x = op(x, shuffle_xor(x, mask));
  return x;
}

struct Least {
  __device__ int operator()(int a, int b) const { return a < b ? a : b; }
};
struct Greatest {
  __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};

/// Rows of a matrix in memory. Rows from `count` on count as zero.
struct FlashRows {
  const bf16* data;
  std::int64_t stride;
  int count;

  /// Two adjacent elements, from an even column on.
  __device__ std::uint32_t pair(int row, int col) const {
    return row < count ? *reinterpret_cast<const std::uint32_t*>(data + row * stride + col) : 0;
  }
};

/// Rows of a matrix from `first_row` on, from column `col` on; rows from `count` on are zero.
__device__ inline FlashRows rows_of(Matrix<const bf16> of, std::int64_t first_row, int col,
                                    int count) {
  return {of.row(first_row) + col, of.stride, count};
}

/// kRows rows of D elements in shared memory. Rows are padded by 16 bytes, so that the eight rows
/// that a warp reads at once lie in different banks.
template <int kRows, int D>
struct alignas(16) FlashTile {
  static constexpr int kStride = D + 8;
  bf16 values[kRows * kStride];

  __device__ const bf16* at(int row, int col) const { return values + row * kStride + col; }

  /// Starts to fill the tile from memory, 16 bytes at a time. All threads of the block call it.
  template <int kThreads>
  __device__ void fill(AsyncCopies& copies, const FlashRows& from) {
    struct alignas(16) Pack {
      std::uint32_t words[4];
    };
    constexpr int kPacks = D / 8, kAtOnce = kThreads / kPacks;  // rows
    static_assert(kThreads % kPacks == 0 && kRows % kAtOnce == 0);
    const int first = flash_thread() / kPacks, col = flash_thread() % kPacks * 8;
    bf16* to = values + first * kStride + col;
    const bf16* source = from.data + first * from.stride + col;
#pragma unroll
    for (int row = 0; row < kRows; row += kAtOnce) {
      const bool exists = first + row < from.count;
      copies.start(reinterpret_cast<Pack*>(to + row * kStride),
                   reinterpret_cast<const Pack*>(exists ? source : from.data), exists);
      source += kAtOnce * from.stride;
    }
  }
};

/// The block's rows as left operands of products, of each warp (16 · kStrips, D): in registers.
template <typename Shape, int D, bool held = Shape::kHeld>
class FlashOwnRows {
 public:
  using Kept = std::type_identity<void>;  // of shared memory: nothing

  /// Loads them, the block's from the first row of `from` on.
  __device__ void load(AsyncCopies&, Kept&, const FlashRows& from) {
    const int lane = flash_lane(), row = flash_warp_row<Shape>();
#pragma unroll
    for (int s = 0; s < Shape::kStrips; ++s)
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
#pragma unroll
        for (int i = 0; i < Layout::kElements; i += 2)
          values_[s][k][i / 2] = from.pair(row + 16 * s + Layout::row(lane, Layout::row_of(i)),
                                           16 * k + Layout::col(lane, i));
  }
  __device__ void get(Operand& to, int strip, int k) const {
#pragma unroll
    for (int i = 0; i < Layout::kElements / 2; ++i) to[i] = values_[strip][k][i];
  }

 private:
  Operand values_[Shape::kStrips][D / 16];
};

/// The same in shared memory.
template <typename Shape, int D>
class FlashOwnRows<Shape, D, false> {
 public:
  using Kept = FlashTile<Shape::kRows, D>;

  __device__ void load(AsyncCopies& copies, Kept& tile, const FlashRows& from) {
    tile.template fill<Shape::kThreads>(copies, from);
    first_ = tile.at(flash_warp_row<Shape>(), 0);
  }
  __device__ void get(Operand& to, int strip, int k) const {
    load_left(to, first_ + 16 * strip * Kept::kStride + 16 * k, Kept::kStride);
  }

 private:
  const bf16* first_;
};

/// The shared memory of a kernel: the rows that it keeps there, and two tiles each of two operands
/// of the other side.
template <typename Shape, int D, int kept>
struct FlashMemory {
  FlashTile<Shape::kAcross, D> tiles[2][2];
  typename FlashOwnRows<Shape, D>::Kept own[kept];
};

/// Runs multiply(i) for tiles 0 to count - 1, where fill(i) starts to fill tile i into one half of
/// the shared memory, i % 2, while the threads work on the other half. Other copies that were
/// started before are complete in multiply(), too.
__device__ inline void for_tiles(AsyncCopies& copies, int count, auto fill, auto multiply) {
  if (count > 0) fill(0);
  for (int i = 0; i < count; ++i) {
    copies.wait();
    __syncthreads();  // all copies of tile i are there, and no thread reads tile i - 1 any more
    if (i + 1 < count) fill(i + 1);
    multiply(i);
  }
}

/// products (16 · kStrips, 16 · kBlocks) = the warp's rows (16 · kStrips, D) times the transpose of
/// rows of a tile, from `first` on.
template <int kStrips, int kBlocks, int kRows, int D>
__device__ void multiply_across(Sums (&products)[kStrips][kBlocks], const auto& rows,
                                const FlashTile<kRows, D>& tile, int first) {
  for (auto& strip : products)
    for (Sums& c : strip)
      for (float& x : c) x = 0;
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    Operand a[kStrips];
#pragma unroll
    for (int s = 0; s < kStrips; ++s) rows.get(a[s], s, k);
#pragma unroll
    for (int n = 0; n < kBlocks; ++n) {
      Operand b;
      load_right(b, tile.at(first + 16 * n, 16 * k), tile.kStride);
#pragma unroll
      for (int s = 0; s < kStrips; ++s) mma(products[s][n], a[s], b);
    }
  }
}

/// sums (16 · kStrips, D) += factors (16 · kStrips, 16 · kBlocks), rounded, times rows of a tile,
/// from `first` on.
template <int kStrips, int kBlocks, int kRows, int D>
__device__ void add_product_down(Sums (&sums)[kStrips][D / 16],
                                 const Sums (&factors)[kStrips][kBlocks],
                                 const FlashTile<kRows, D>& tile, int first) {
#pragma unroll
  for (int k = 0; k < kBlocks; ++k) {
    Operand a[kStrips];
#pragma unroll
    for (int s = 0; s < kStrips; ++s)
#pragma unroll
      for (int i = 0; i < Layout::kElements; i += 2)
        a[s][i / 2] = rounded(factors[s][k][i], factors[s][k][i + 1]);
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      Operand b;
      load_right_transposed(b, tile.at(first + 16 * k, 16 * n), tile.kStride);
#pragma unroll
      for (int s = 0; s < kStrips; ++s) mma(sums[s][n], a[s], b);
    }
  }
}

__device__ inline void store_pair(bf16* to, float first, float second) {
  *reinterpret_cast<std::uint32_t*>(to) = rounded(first, second);
}
__device__ inline void store_pair(float* to, float first, float second) {
  to[0] = first;
  to[1] = second;
}

/// Stores the block's rows of sums, of each warp (16 · kStrips, D), times factor(strip, r) for the
/// lane's row r of a strip, to the rows of out that are below `count`.
template <typename Shape, int D, typename T>
__device__ void store_rows(Matrix<T> out, int count, const Sums (&sums)[Shape::kStrips][D / 16],
                           auto factor) {
#pragma unroll
  for (int s = 0; s < Shape::kStrips; ++s)
#pragma unroll
    for (int r = 0; r < Layout::kRows; ++r) {
      const int row = flash_warp_row<Shape>() + flash_row(s, r);
      if (row >= count) continue;
      T* const to = out.row(row);
#pragma unroll
      for (int n = 0; n < D / 16; ++n)
#pragma unroll
        for (int i = 0; i < Layout::kElements; i += 2)
          if (Layout::row_of(i) == r)
            store_pair(to + 16 * n + flash_col(i), sums[s][n][i] * factor(s, r),
                       sums[s][n][i + 1] * factor(s, r));
    }
}

}  // namespace axonn::cuda
