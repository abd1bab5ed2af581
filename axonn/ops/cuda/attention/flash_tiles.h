#pragma once

#include <bit>
#include <cstdint>

#include "axonn/tensor/dtype.h"

namespace axonn::cuda {

// Tiles of bf16 matrices in the layout of a warp's matrix instruction m16n8k16 (PTX ISA, "Matrix
// Fragments for mma.m16n8k16"). Elements that lane i holds, with g = i / 4 and t = i % 4:
//
//   a  16 x 16  words: (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..)
//   b  16 x 8   words: (2t.., g), (2t + 8.., g): two rows of a column
//   c  16 x 8   floats: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
//
// The code runs on a GPU's block of threads and, in the tests, on a block that a CPU emulates. Gpu
// is the interface to either, with
//
//   int thread()                                 of the block
//   void sync()                                  all threads of the block
//   float shuffle_xor(float x, int mask)         the x of lane i ^ mask
//   void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])    c += a · b
//   void load_down(uint32_t (&b)[2], const bf16* row)   lanes 0 to 15 point to 16 rows of 8

/// Threads of a block: four warps, 16 rows of a tile each.
constexpr int kFlashWarps = 4, kFlashThreads = 32 * kFlashWarps, kFlashRows = 16 * kFlashWarps;

AXONN_DEVICE inline std::uint32_t pack(float low, float high) {
  bf16 a, b;
  put(a, low);
  put(b, high);
  return a.bits | static_cast<std::uint32_t>(b.bits) << 16;
}

/// Two adjacent elements at an even index.
AXONN_DEVICE inline std::uint32_t word(const bf16* p) {
  return *reinterpret_cast<const std::uint32_t*>(p);
}

/// The place of a lane's elements in a tile.
struct Lane {
  int g, t;
  AXONN_DEVICE explicit Lane(int thread) : g(thread % 32 / 4), t(thread % 4) {}
};

/// Rows of a matrix in memory. Rows from `count` on count as zero.
struct FlashRows {
  const bf16* data;
  std::int64_t stride;
  int count;

  AXONN_DEVICE std::uint32_t pair(int row, int col) const {
    return row < count ? word(data + row * stride + col) : 0;
  }
};

/// Columns [col, col + 16) of 16 rows as operand a.
AXONN_DEVICE inline void load_across(std::uint32_t (&a)[4], const FlashRows& rows, Lane lane,
                                     int row, int col) {
  a[0] = rows.pair(row + lane.g, col + 2 * lane.t);
  a[1] = rows.pair(row + lane.g + 8, col + 2 * lane.t);
  a[2] = rows.pair(row + lane.g, col + 2 * lane.t + 8);
  a[3] = rows.pair(row + lane.g + 8, col + 2 * lane.t + 8);
}

/// Two adjacent results, together 16 rows of 16, rounded, as operand a.
AXONN_DEVICE inline void as_operand(std::uint32_t (&a)[4], const float (&left)[4],
                                    const float (&right)[4]) {
  a[0] = pack(left[0], left[1]);
  a[1] = pack(left[2], left[3]);
  a[2] = pack(right[0], right[1]);
  a[3] = pack(right[2], right[3]);
}

/// kRows rows of D elements in shared memory. Rows are padded by 16 bytes, so that the eight rows
/// that a warp reads at once lie in different banks.
template <int kRows, int D>
struct alignas(16) FlashTile {
  static constexpr int kStride = D + 8;
  bf16 values[kRows * kStride];

  /// Fills the tile from memory, 16 bytes at a time. All threads call it.
  template <typename Gpu>
  AXONN_DEVICE void fill(const Gpu& gpu, const FlashRows& from) {
    struct alignas(16) Pack {
      std::uint32_t words[4];
    };
    constexpr int kPacks = D / 8;
    for (int i = gpu.thread(); i < kRows * kPacks; i += kFlashThreads) {
      const int row = i / kPacks, col = i % kPacks * 8;
      Pack pack{};
      if (row < from.count)
        pack = *reinterpret_cast<const Pack*>(from.data + row * from.stride + col);
      *reinterpret_cast<Pack*>(values + row * kStride + col) = pack;
    }
  }

  /// c (16 x 8) += a (16 x 16) · the transpose of rows [row, row + 8), columns [col, col + 16).
  template <typename Gpu>
  AXONN_DEVICE void add_across(const Gpu& gpu, float (&c)[4], const std::uint32_t (&a)[4], int row,
                               int col) const {
    const Lane lane(gpu.thread());
    const bf16* p = values + (row + lane.g) * kStride + col + 2 * lane.t;
    const std::uint32_t b[2] = {word(p), word(p + 8)};
    gpu.mma(c, a, b);
  }

  /// c (16 x 8) += a (16 x 16) · rows [row, row + 16), columns [col, col + 8).
  template <typename Gpu>
  AXONN_DEVICE void add_down(const Gpu& gpu, float (&c)[4], const std::uint32_t (&a)[4], int row,
                             int col) const {
    std::uint32_t b[2];
    gpu.load_down(b, values + (row + gpu.thread() % 16) * kStride + col);
    gpu.mma(c, a, b);
  }
};

/// products (16, kRows) = 16 rows of `left` from `row` on, (16, D), times the transpose of a tile.
template <typename Gpu, int kRows, int D>
AXONN_DEVICE void multiply_across(const Gpu& gpu, float (&products)[kRows / 8][4],
                                  const FlashRows& left, int row, const FlashTile<kRows, D>& tile) {
  const Lane lane(gpu.thread());
  for (auto& c : products)
    for (float& x : c) x = 0;
#pragma unroll
  for (int k = 0; k < D; k += 16) {
    std::uint32_t a[4];
    load_across(a, left, lane, row, k);
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) tile.add_across(gpu, products[n], a, 8 * n, k);
  }
}

/// sums (16, D) += factors (16, kRows), rounded, times a tile.
template <typename Gpu, int kRows, int D>
AXONN_DEVICE void add_product_down(const Gpu& gpu, float (&sums)[D / 8][4],
                                   const float (&factors)[kRows / 8][4],
                                   const FlashTile<kRows, D>& tile) {
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    std::uint32_t a[4];
    as_operand(a, factors[2 * k], factors[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) tile.add_down(gpu, sums[n], a, 16 * k, 8 * n);
  }
}

/// Stores 16 rows of sums, (16, D), times a factor for each of the lane's two rows, to rows row + g
/// and row + g + 8 of out, if these are below `count`.
template <int D>
AXONN_DEVICE void store_rows(bf16* out, std::int64_t stride, int count, int row, Lane lane,
                             const float (&sums)[D / 8][4], const float (&factor)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + lane.g + 8 * half;
    if (r >= count) continue;
    bf16* to = out + r * stride + 2 * lane.t;
#pragma unroll
    for (int n = 0; n < D / 8; ++n)
      *reinterpret_cast<std::uint32_t*>(to + 8 * n) =
          pack(sums[n][2 * half] * factor[half], sums[n][2 * half + 1] * factor[half]);
  }
}

}  // namespace axonn::cuda
