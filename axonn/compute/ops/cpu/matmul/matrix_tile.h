#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/matmul/block_matmul.h"

// Tiles of products of bf16 by instructions that multiply blocks of two rows and two columns,
// BlockProduct of bf16.h. Operands are words of pairs along K, as for PairProduct; each two words
// of a row or column lie side by side, and those of two rows or columns follow each other:
//
//   a   rows 2i, 2i + 1 and words 2p, 2p + 1 at data + i · row + p · col
//   b   columns 2j, 2j + 1 and words 2p, 2p + 1 at b + 2p · b_row + 4j
//
// The sums, and their bits, are those of PairProduct: word after word.

namespace axonn::cpu {

namespace detail {

/// Rows of a tile, of which 24 of 32 registers hold sums.
constexpr int kMatrixTileRows = 6;

/// out (Rows, Vectors · kEach) (+)= a (Rows, k) · b (k, Vectors · kEach), k even, the sums in
/// registers. For an odd number of rows, reads one more of a.
template <typename Product, int Rows, int Vectors>
[[gnu::always_inline]] inline void matrix_tile(float* out, std::int64_t out_row, Left a,
                                               const float* b, std::int64_t b_row, int k,
                                               bool accumulate) {
  using Vector = Floats::Unaligned;
  constexpr int kEach = Floats::kEach, kPairs = (Rows + 1) / 2, kVectors = 2 * Vectors;
  Floats::Register sums[kPairs][kVectors] = {};
  const auto at = [&](int row, int v) {
    return reinterpret_cast<Vector*>(out + row * out_row + v / 2 * kEach);
  };
  if (accumulate)
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; ++i)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; v += 2) {
        const Floats::Register first = *at(2 * i, v),
                               second = 2 * i + 1 < Rows ? *at(2 * i + 1, v) : Vector{};
        sums[i][v] = Product::template zip<false>(first, second);
        sums[i][v + 1] = Product::template zip<true>(first, second);
      }
  for (int p = 0; p < k; p += 2, a.data += a.col) {
    Floats::Register left[kPairs];
#pragma GCC unroll 4
    for (int i = 0; i < kPairs; ++i) left[i] = Product::left(a.data + i * a.row);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      // Otherwise g++ 12 loads all columns first, and keeps sums in memory.
      if (v == kVectors / 2) asm volatile("" ::: "memory");
      const Floats::Register right = *reinterpret_cast<const Vector*>(b + p * b_row + v * kEach);
#pragma GCC unroll 4
      for (int i = 0; i < kPairs; ++i) Product::add(sums[i][v], left[i], right);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kPairs; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; v += 2) {
      *at(2 * i, v) = Product::template unzip<false>(sums[i][v], sums[i][v + 1]);
      if (2 * i + 1 < Rows)
        *at(2 * i + 1, v) = Product::template unzip<true>(sums[i][v], sums[i][v + 1]);
    }
}

/// The functions for tiles of 1 to kMatrixTileRows rows.
template <typename Product, int Vectors = kTileRegisters>
constexpr std::array<Tile, kMatrixTileRows> matrix_tiles() {
  return []<int... i>(std::integer_sequence<int, i...>) {
    return std::array<Tile, kMatrixTileRows>{matrix_tile<Product, i + 1, Vectors>...};
  }
  (std::make_integer_sequence<int, kMatrixTileRows>{});
}

}  // namespace detail

}  // namespace axonn::cpu
