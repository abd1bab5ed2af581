#pragma once

#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/cpu/registers.h"
#include "axonn/compute/tensor/dtype.h"

// Dot products of rows of bf16 by instructions that multiply blocks of two rows and two columns,
// BlockProduct of bf16.h, for tiles of row_dots.h.

namespace axonn::cpu::detail {

/// Whether rows of T are multiplied in such blocks.
template <typename T>
constexpr bool kDotsInBlocks = std::is_same_v<T, bf16> && !std::is_void_v<BlockProduct>;

/// Sums of the dot products of two rows of a and two of b, (0, 0), (0, 1), (1, 0), (1, 1), each in
/// two parts: of elements 0 to 3 of each eight, and of 4 to 7. The parts are the same whatever the
/// width of registers.
struct BlockSums {
  static constexpr int kParts = 2, kRegisters = kParts * 16 / Registers::kBytes;
  Registers::Register r[kRegisters];

  [[gnu::always_inline]] float sum(int row, int col) const {
    const auto part = [&](int i) __attribute__((always_inline)) {
      const int at = 4 * i + 2 * row + col;
      return r[at / Registers::kEach][at % Registers::kEach];
    };
    return part(0) + part(1);
  }
};

/// Elements of two rows, four of one beside four of the other, in the order of BlockSums.
template <typename Product>
struct RowsOfBlock {
  Registers::Register low, high;

  [[gnu::always_inline]] static RowsOfBlock at(const bf16* first, const bf16* second) {
    const Registers::Register a = *reinterpret_cast<const Registers::Unaligned*>(first),
                              b = *reinterpret_cast<const Registers::Unaligned*>(second);
    asm volatile("" ::: "memory");  // or g++ loads all rows first, and keeps sums in memory
    return {Product::template zip<false>(a, b), Product::template zip<true>(a, b)};
  }
};

/// Where Rows rows begin, each `row` elements after the one before it. For an odd number the last
/// one is there twice.
template <int Rows>
struct RowStarts {
  const bf16* each[(Rows + 1) / 2 * 2];

  [[gnu::always_inline]] RowStarts(const bf16* first, std::int64_t row) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r, first += row) {
      asm("" : "+r"(first));  // or g++ would keep an address in memory for each load of a loop
      each[r] = first;
    }
    if constexpr (Rows % 2 == 1) each[Rows] = each[Rows - 1];
  }
  template <typename Product>
  [[gnu::always_inline]] RowsOfBlock<Product> block(int pair, int element) const {
    return RowsOfBlock<Product>::at(each[2 * pair] + element, each[2 * pair + 1] + element);
  }
};

/// sums (Rows, Cols), in blocks, += the products of kCount elements from `a` and `b`, whose rows
/// are a_row and b_row elements apart.
template <int Rows, int Cols, int kCount, typename Product = BlockProduct>
[[gnu::always_inline]] inline void add_block_products(
    BlockSums (&sums)[(Rows + 1) / 2][(Cols + 1) / 2], const bf16* a, std::int64_t a_row,
    const bf16* b, std::int64_t b_row) {
  constexpr int kEach = 2 * Registers::kEach, kRows = (Rows + 1) / 2, kCols = (Cols + 1) / 2;
  const RowStarts<Rows> lefts(a, a_row);
  const RowStarts<Cols> rights(b, b_row);
#pragma GCC unroll 4
  for (int k = 0; k < kCount; k += kEach) {
    RowsOfBlock<Product> right[kCols];
#pragma GCC unroll 2
    for (int c = 0; c < kCols; ++c) right[c] = rights.template block<Product>(c, k);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const RowsOfBlock<Product> left = lefts.template block<Product>(r, k);
#pragma GCC unroll 2
      for (int c = 0; c < kCols; ++c) {
        Product::add(sums[r][c].r[0], left.low, right[c].low);
        Product::add(sums[r][c].r[BlockSums::kRegisters - 1], left.high, right[c].high);
      }
    }
  }
}

}  // namespace axonn::cpu::detail
