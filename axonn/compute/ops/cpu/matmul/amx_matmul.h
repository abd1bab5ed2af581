#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "axonn/compute/ops/cpu/amx.h"
#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/matmul/block_matmul.h"

// Products of blocks of pairs of bf16, with the operands of block_matmul<PairProduct>(), by AMX.

namespace axonn::cpu {

namespace amx {

/// Words along k that are packed at a time: of 32 rows 8 KB.
constexpr int kMostWords = 64;

/// to (16, words up to a multiple of 16) = rows of a left operand; what is beyond them is zero.
inline void pack_rows(float* to, Left a, int rows, int words) {
  const int width = round_up(words, kWords);
  if (a.col == 1 || rows < kRows) {
    for (int r = 0; r < kRows; ++r, to += width) {
      const int filled = r < rows ? words : 0;
      const float* const from = a.data + r * a.row;
      if (a.col == 1)
        std::copy_n(from, filled, to);
      else
        for (int p = 0; p < filled; ++p) to[p] = from[p * a.col];
      std::fill(to + filled, to + width, 0.0f);
    }
    return;
  }
  static_assert(Floats::kEach <= kWords);
  constexpr int kEach = Floats::kEach;
  for (int first = 0; first < width; first += kEach)
    for (int r = 0; r < kRows; r += kEach) {
      Floats::Register square[kEach];
#pragma GCC unroll 16
      for (int i = 0; i < kEach; ++i)
        square[i] =
            first + i < words
                ? *reinterpret_cast<const Floats::Unaligned*>(a.data + (first + i) * a.col + r)
                : Floats::Register{};
      axonn::cpu::transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kEach; ++i)
        *reinterpret_cast<Floats::Unaligned*>(to + (r + i) * width + first) = square[i];
    }
}

/// Calls f with 0, and 1 if there are two, as constants.
template <int count>
[[gnu::always_inline]] inline void each(auto f) {
  f(std::integral_constant<int, 0>());
  if constexpr (count == 2) f(std::integral_constant<int, 1>());
}

/// What a block is multiplied from: 16 or 32 rows of a, as many columns of b, words along k.
struct TileOperands {
  const float* a[2];  ///< of each 16 rows
  int a_row;
  const float* b;
  int b_row;
  int words;  ///< a multiple of 16
};

/// out (16 · Rows, 16 · Cols) (+)= a · b: sums in tiles 0 to 3.
template <int Rows, int Cols>
void add_block(float* const (&out)[2], std::int64_t out_row, const TileOperands& of,
               bool accumulate) {
  const std::int64_t out_bytes = out_row * 4, a_bytes = std::int64_t{of.a_row} * 4,
                     b_bytes = std::int64_t{of.b_row} * 4;
  const auto sums = [&](auto f) __attribute__((always_inline)) {
    each<Rows>([&](auto i) __attribute__((always_inline)) {
      each<Cols>([&](auto j) __attribute__((always_inline)) { f(i, j); });
    });
  };
  sums([&](auto i, auto j) __attribute__((always_inline)) {
    if (accumulate)
      load<2 * i + j>(out[i] + j * kWords, out_bytes);
    else
      clear<2 * i + j>();
  });
  for (int p = 0; p < of.words; p += kWords) {
    each<Rows>([&](auto i) __attribute__((always_inline)) { load<4 + i>(of.a[i] + p, a_bytes); });
    each<Cols>([&](auto j) __attribute__((always_inline)) {
      load<6 + j>(of.b + std::int64_t{p} * of.b_row + j * kWords, b_bytes);
    });
    sums([&](auto i, auto j)
             __attribute__((always_inline)) { add_products<2 * i + j, 4 + i, 6 + j>(); });
  }
  sums([&](auto i, auto j)
           __attribute__((always_inline)) { store<2 * i + j>(out[i] + j * kWords, out_bytes); });
}

inline void add_block(int rows, int cols, float* const (&out)[2], std::int64_t out_row,
                      const TileOperands& of, bool accumulate) {
  const auto run = rows > kRows ? (cols > kWords ? add_block<2, 2> : add_block<2, 1>)
                                : (cols > kWords ? add_block<1, 2> : add_block<1, 1>);
  run(out, out_row, of, accumulate);
}

/// Up to 32 rows of block_product(), whose operands are packed already.
inline void add_rows(float* out, int out_row, const TileOperands& of, int rows, int n,
                     bool accumulate) {
  constexpr int kMost = 2 * kRows;
  alignas(64) float edge[kRows][kMost];
  const int whole = rows / kRows, rest = rows % kRows;
  for (int col = 0; col < n; col += kMost) {
    const int cols = std::min(kMost, n - col);
    TileOperands here = of;
    here.b += col;
    float* const first = out + col;
    if (rest == 0) {
      add_block(rows, cols, {first, first + kRows * out_row}, out_row, here, accumulate);
      continue;
    }
    if (whole > 0) add_block(kRows, cols, {first, nullptr}, out_row, here, accumulate);
    here.a[0] = here.a[whole];
    float* const last = first + whole * kRows * out_row;
    if (accumulate)
      for (int r = 0; r < rest; ++r) std::copy_n(last + r * out_row, cols, edge[r]);
    add_block(kRows, cols, {edge[0], nullptr}, kMost, here, accumulate);
    for (int r = 0; r < rest; ++r) std::copy_n(edge[r], cols, last + r * out_row);
  }
}

/// A part of block_product() of at most kMostWords along k, or of as many as there are.
inline void add_part(float* out, int out_row, Left a, const float* b, int b_row, Extents size,
                     bool accumulate) {
  constexpr int kMost = 2 * kRows;
  alignas(64) float packed[2][kRows * kMostWords];
  const bool whole_words = size.k % kWords == 0;
  for (int row = 0; row < size.m; row += kMost) {
    const int rows = std::min(kMost, size.m - row);
    TileOperands of{
        .a = {}, .a_row = a.row, .b = b, .b_row = b_row, .words = round_up(size.k, kWords)};
    const bool direct = a.col == 1 && whole_words && rows % kRows == 0;
    if (!direct) of.a_row = of.words;
    for (int i = 0; i * kRows < rows; ++i) {
      const Left from{a.data + (row + i * kRows) * a.row, a.row, a.col};
      of.a[i] = direct ? from.data : packed[i];
      if (!direct) pack_rows(packed[i], from, std::min(kRows, rows - i * kRows), size.k);
    }
    add_rows(out + row * out_row, out_row, of, rows, size.n, accumulate);
  }
}

/// block_matmul<PairProduct>() by tiles: while there are TilesInUse. Each sum grows by the products
/// of 32 elements at a time, so no bit depends on how rows and columns are cut, nor on zeros at the
/// end of k.
inline void block_product(float* out, int out_row, Left a, const float* b, int b_row, Extents size,
                          bool accumulate) {
  const int whole = size.k / kWords * kWords, rest = size.k - whole;
  const bool direct = a.col == 1 && size.m % kRows == 0;
  for (int k = 0; k < whole; k += direct ? whole : kMostWords, accumulate = true)
    add_part(out, out_row, {a.data + k * a.col, a.row, a.col}, b + k * b_row, b_row,
             {size.m, size.n, direct ? whole : std::min(kMostWords, whole - k)}, accumulate);
  if (rest == 0) return;
  constexpr int kMost = 2 * kRows;
  alignas(64) float last[kWords][kMost] = {};
  for (int col = 0; col < size.n; col += kMost) {
    const int cols = std::min(kMost, size.n - col);
    for (int p = 0; p < rest; ++p) std::copy_n(b + (whole + p) * b_row + col, cols, last[p]);
    add_part(out + col, out_row, {a.data + whole * a.col, a.row, a.col}, last[0], kMost,
             {size.m, cols, rest}, accumulate);
  }
}

}  // namespace amx

}  // namespace axonn::cpu
