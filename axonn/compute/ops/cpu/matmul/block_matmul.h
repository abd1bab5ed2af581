#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "axonn/compute/ops/cpu/floats.h"
#include "axonn/compute/ops/cpu/registers.h"

namespace axonn::cpu {

/// A block's left operand: element (i, p) is data[i · row + p · col], so a transpose costs nothing.
struct Left {
  const float* data;
  int row, col;
};

/// Each step of k adds a product of floats to a sum.
struct FloatProduct {
  static void add(Floats::Register& sum, float left, const Floats::Register& right) {
    sum += left * right;
  }
};

/// Each step of k adds the two products of pairs of bf16.
struct PairProduct {
  static void add(Floats::Register& sum, float left, const Floats::Register& right) {
    add_product(sum, left, right);
  }
};

namespace detail {

/// Rows and registers of a tile: of 32 registers 24 hold sums and 5 operands, of 16 registers 12
/// and 3. On ARM, where the left operands are in registers, too, 20 hold sums and 9 operands.
constexpr int kTileRows = kArm64 ? 5 : 6, kTileRegisters = Registers::kCount / 8;

/// out (Rows, Vectors · kEach) (+)= a (Rows, k) · b (k, Vectors · kEach), the sums in registers.
template <typename Product, int Rows, int Vectors>
[[gnu::always_inline]] inline void register_tile(float* out, std::int64_t out_row, Left a,
                                                 const float* b, std::int64_t b_row, int k,
                                                 bool accumulate) {
  using Vector = Floats::Unaligned;
  constexpr int kEach = Floats::kEach;
  Floats::Register sums[Rows][Vectors];
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      sums[i][v] = accumulate ? *reinterpret_cast<const Vector*>(out + i * out_row + v * kEach)
                              : Floats::Register{};
  for (int p = 0; p < k; ++p) {
    Floats::Register right[Vectors];
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v)
      right[v] = *reinterpret_cast<const Vector*>(b + p * b_row + v * kEach);
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
      *reinterpret_cast<Vector*>(out + i * out_row + v * kEach) = sums[i][v];
}

/// The functions for tiles of 1 to kTileRows rows.
using Tile = void (*)(float* out, std::int64_t out_row, Left a, const float* b, std::int64_t b_row,
                      int k, bool accumulate);
template <typename Product, int Vectors>
constexpr std::array<Tile, kTileRows> tiles() {
  return []<int... i>(std::integer_sequence<int, i...>) {
    return std::array<Tile, kTileRows>{register_tile<Product, i + 1, Vectors>...};
  }
  (std::make_integer_sequence<int, kTileRows>{});
}

/// All rows of a strip of columns: kTileRows at a time, then the rest.
template <typename Product, int Vectors>
[[gnu::noinline]] void strip(float* out, int out_row, Left a, const float* b, int b_row, int m,
                             int k, bool accumulate) {
  constexpr auto kTiles = tiles<Product, Vectors>();
  int i = 0;
  for (; i + kTileRows <= m;
       i += kTileRows, out += kTileRows * out_row, a.data += kTileRows * a.row)
    register_tile<Product, kTileRows, Vectors>(out, out_row, a, b, b_row, k, accumulate);
  if (i < m) kTiles[m - i - 1](out, out_row, a, b, b_row, k, accumulate);
}

}  // namespace detail

/// The extents of a block's product; n is a multiple of 16.
struct Extents {
  int m, n, k;
};

/// out (m, n) (+)= a (m, k) · b (k, n) for operands in the L1 and L2 caches. Each element is one
/// sum in the order of k, so it does not depend on how blocks are cut. Elements of a and b are
/// words, which Product may take as more than one number each; k counts words. Bound by arithmetic:
/// 24 fused multiply-adds for 6 broadcasts and 4 loads, or 12 for 6 and 2 with 16 registers.
template <typename Product = FloatProduct>
void block_matmul(float* out, int out_row, Left a, const float* b, int b_row, Extents size,
                  bool accumulate) {
  constexpr int kWide = detail::kTileRegisters * Floats::kEach;
  int column = 0;
  for (; column + kWide <= size.n; column += kWide)
    detail::strip<Product, detail::kTileRegisters>(out + column, out_row, a, b + column, b_row,
                                                   size.m, size.k, accumulate);
  for (; column < size.n; column += Floats::kEach)
    detail::strip<Product, 1>(out + column, out_row, a, b + column, b_row, size.m, size.k,
                              accumulate);
}

}  // namespace axonn::cpu
