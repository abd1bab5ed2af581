#pragma once

#include <algorithm>

#include "axonn/ops/cpu/floats.h"

namespace axonn::cpu {

/// A block's left operand: element (i, p) is data[i · row + p · col], so a transpose costs nothing.
struct Left {
  const float* data;
  int row, col;
};

/// Each step of k adds a product of floats to a sum.
struct FloatProduct {
  static void add(Lanes& sum, float left, const Lanes& right) { sum += left * right; }
};

namespace detail {

/// out (Rows, Vectors · 16) (+)= a (Rows, k) · b (k, Vectors · 16), the sums in registers.
template <typename Product, int Rows, int Vectors>
inline void register_tile(float* out, int out_row, Left a, const float* b, int b_row, int k,
                          bool accumulate) {
  Lanes sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      sums[i][v] =
          accumulate ? *reinterpret_cast<const Lanes*>(out + i * out_row + v * kLanes) : Lanes{};
  for (int p = 0; p < k; ++p) {
    Lanes right[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      right[v] = *reinterpret_cast<const Lanes*>(b + p * b_row + v * kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const float left = a.data[i * a.row + p * a.col];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) Product::add(sums[i][v], left, right[v]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      *reinterpret_cast<Lanes*>(out + i * out_row + v * kLanes) = sums[i][v];
}

/// All rows of a strip of columns: six at a time (24 of 32 registers hold sums), then the rest.
template <typename Product, int Vectors>
inline void strip(float* out, int out_row, Left a, const float* b, int b_row, int m, int k,
                  bool accumulate) {
  using Tile = void (*)(float*, int, Left, const float*, int, int, bool);
  constexpr Tile kTiles[] = {
      register_tile<Product, 1, Vectors>, register_tile<Product, 2, Vectors>,
      register_tile<Product, 3, Vectors>, register_tile<Product, 4, Vectors>,
      register_tile<Product, 5, Vectors>, register_tile<Product, 6, Vectors>};
  for (int i = 0; i < m; i += 6) {
    const Left rows{a.data + i * a.row, a.row, a.col};
    kTiles[std::min(m - i, 6) - 1](out + i * out_row, out_row, rows, b, b_row, k, accumulate);
  }
}

}  // namespace detail

/// The extents of a block's product; n is a multiple of 16.
struct Extents {
  int m, n, k;
};

/// out (m, n) (+)= a (m, k) · b (k, n) for operands in the L1 and L2 caches. Each element is one
/// sum in the order of k, so it does not depend on how blocks are cut. Elements of a and b are
/// words, which Product may take as more than one number each; k counts words. Bound by arithmetic:
/// 24 fused multiply-adds on 16 lanes for 6 broadcasts and 4 loads.
template <typename Product = FloatProduct>
void block_matmul(float* out, int out_row, Left a, const float* b, int b_row, Extents size,
                  bool accumulate) {
  int column = 0;
  for (; column + 4 * kLanes <= size.n; column += 4 * kLanes)
    detail::strip<Product, 4>(out + column, out_row, a, b + column, b_row, size.m, size.k,
                              accumulate);
  for (; column < size.n; column += kLanes)
    detail::strip<Product, 1>(out + column, out_row, a, b + column, b_row, size.m, size.k,
                              accumulate);
}

}  // namespace axonn::cpu
