#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/matmul/block_matmul.h"
#include "axonn/compute/ops/cpu/matmul/matrix_tile.h"
#include "axonn/compute/ops/cpu/registers.h"

// Products of blocks of pairs of bf16, as block_matmul<PairProduct>() and with its bits, by
// matrix_tile.h, which takes operands in another order.

namespace axonn::cpu {

namespace detail {

/// Words along k, and rows, of a block's left operand that are packed at a time: 8 KB.
constexpr int kPairWords = 32, kPairRows = 11 * kMatrixTileRows;

/// to (rows / 2, words / 2, 4): words 2p, 2p + 1 of rows 2i, 2i + 1. An odd last row is there
/// twice.
inline void pack_left(float* to, Left a, int rows, int words) {
  using Two = float __attribute__((vector_size(8), aligned(4), may_alias));
  using Four = float __attribute__((vector_size(16), aligned(4), may_alias));
  const auto two = [](const float* p) { return *reinterpret_cast<const Two*>(p); };
  for (int i = 0; i < rows; i += 2) {
    const int next = i + 1 < rows ? a.row : 0;
    const float* from = a.data + i * a.row;
    for (int p = 0; p < words; p += 2, from += 2 * a.col, to += 4) {
      auto& four = *reinterpret_cast<Four*>(to);
      if (a.col == 1)
        four = __builtin_shufflevector(two(from), two(from + next), 0, 1, 2, 3);
      else if (next == 1)
        four = __builtin_shufflevector(two(from), two(from + a.col), 0, 2, 1, 3);
      else
        four = Four{from[0], from[a.col], from[next], from[next + a.col]};
    }
  }
}

/// to (words / 2, 2 · width), width = Vectors · kEach: words 2p, 2p + 1 of each column of b in
/// turns.
template <int Vectors>
void pack_right(float* to, const float* b, int b_row, int words) {
  using Vector = Floats::Unaligned;
  constexpr int kEach = Floats::kEach;
  Floats::Words low, high;
  for (int i = 0; i < kEach; ++i) {
    low[i] = static_cast<std::uint32_t>(i / 2 + i % 2 * kEach);
    high[i] = low[i] + kEach / 2;
  }
  for (int p = 0; p < words; p += 2, b += 2 * b_row)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v, to += 2 * kEach) {
      const Floats::Register first = *reinterpret_cast<const Vector*>(b + v * kEach),
                             second = *reinterpret_cast<const Vector*>(b + b_row + v * kEach);
      *reinterpret_cast<Vector*>(to) = __builtin_shuffle(first, second, low);
      *reinterpret_cast<Vector*>(to + kEach) = __builtin_shuffle(first, second, high);
    }
}

/// A strip of Vectors · kEach columns of out (+)= the packed left operand · b, of `words` words.
template <typename Block, int Vectors>
void pair_strip(float* out, int out_row, const float* left, const float* b, int b_row, int rows,
                int words, bool accumulate) {
  constexpr auto kTiles = matrix_tiles<Block, Vectors>();
  constexpr int kWidth = Vectors * Floats::kEach;
  alignas(64) float right[kPairWords * kWidth];
  pack_right<Vectors>(right, b, b_row, words);
  for (int i = 0; i < rows; i += kMatrixTileRows) {
    const int count = std::min(kMatrixTileRows, rows - i);
    kTiles[count - 1](out + i * out_row, out_row, {left + i * words, 2 * words, 4}, right, kWidth,
                      words, accumulate);
  }
}

}  // namespace detail

/// block_matmul<PairProduct>(), for two rows or more, by Block.
template <typename Block>
void pair_matmul(float* out, int out_row, Left a, const float* b, int b_row, Extents size,
                 bool accumulate) {
  using namespace detail;
  constexpr int kWide = kTileRegisters * Floats::kEach;
  alignas(64) float left[kPairRows * kPairWords];
  int k = 0;
  for (int words; k + 1 < size.k; k += words, accumulate = true) {
    words = std::min(kPairWords, size.k - k) / 2 * 2;
    const float* const right = b + k * b_row;
    for (int i = 0; i < size.m; i += kPairRows) {
      const int rows = std::min(kPairRows, size.m - i);
      pack_left(left, {a.data + i * a.row + k * a.col, a.row, a.col}, rows, words);
      float* const to = out + i * out_row;
      int column = 0;
      for (; column + kWide <= size.n; column += kWide)
        pair_strip<Block, kTileRegisters>(to + column, out_row, left, right + column, b_row, rows,
                                          words, accumulate);
      if constexpr (kWide > kLanes)
        for (; column < size.n; column += kLanes)
          pair_strip<Block, kLanes / Floats::kEach>(to + column, out_row, left, right + column,
                                                    b_row, rows, words, accumulate);
    }
  }
  if (k < size.k)
    block_matmul<PairProduct>(out, out_row, {a.data + k * a.col, a.row, a.col}, b + k * b_row,
                              b_row, {size.m, size.n, 1}, accumulate);
}

}  // namespace axonn::cpu
