#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/cpu/matmul/amx_matmul.h"
#include "axonn/compute/tensor/address.h"

// Products of few rows of bf16 with a matrix stored (N, K), by AMX: sums (N, rows) = b · aᵀ, so
// that the matrix, of which there is most, is read as it lies in memory.

namespace axonn::cpu {

/// The rows of a as pairs along K side by side: (words, width), zeros beyond rows and K.
struct RowTiles {
  static constexpr int kMostRows = 48;

  float* data;
  int width;           ///< the rows up to a multiple of 16
  std::int64_t words;  ///< pairs of K up to a multiple of 16

  static int width_of(std::int64_t rows) { return round_up(static_cast<int>(rows), amx::kWords); }
  static std::int64_t words_of(std::int64_t K) {
    return (K + 2 * amx::kWords - 1) / (2 * amx::kWords) * amx::kWords;
  }
  /// The floats of memory for them.
  static std::int64_t count(const View& a) { return width_of(a.rows) * words_of(a.cols); }
  static RowTiles of(const View& a, float* memory) {
    return {memory, width_of(a.rows), words_of(a.cols)};
  }
  /// Steps of sixteen words that pack() writes.
  std::int64_t steps() const { return words / amx::kWords; }

  void pack(const View& a, std::int64_t step) const {
    constexpr int kWords = amx::kWords, kEach = Floats::kEach;
    static_assert(kEach == kWords || !kHasAmx);
    const std::int64_t k = 2 * kWords * step,
                       count = std::min<std::int64_t>(2 * kWords, a.cols - k);
    for (std::int64_t first = 0; first < width; first += kEach) {
      Floats::Register square[kEach] = {};
      for (int i = 0; i < kEach && first + i < a.rows; ++i) {
        const bf16* const from = address<const bf16>(a, first + i) + k;
        if (count == 2 * kWords)
          square[i] = *reinterpret_cast<const Floats::Unaligned*>(from);
        else
          std::memcpy(&square[i], from, count * sizeof(bf16));
      }
      transpose(square);
      for (int i = 0; i < kEach; ++i)
        *reinterpret_cast<Floats::Unaligned*>(data + (step * kWords + i) * width + first) =
            square[i];
    }
  }

  /// sums (rows of b, width) (+)= b · aᵀ over `depth` elements from k on, a multiple of 32. The
  /// rows of b, from element k on, are `b_row` elements apart, an even number.
  void add_products(const bf16* b, std::int64_t b_row, int rows, std::int64_t k, std::int64_t depth,
                    float* sums) const {
    amx::block_product(
        sums, width, {reinterpret_cast<const float*>(b), static_cast<int>(b_row / 2), 1},
        data + k / 2 * width, width, {rows, width, static_cast<int>(depth / 2)}, k > 0);
  }

  /// Calls write(row, column, sum) for rows of a, or write.registers(row, column, sums).
  void write(const auto& write, std::int64_t rows, int columns, const float* sums) const {
    constexpr int kEach = Floats::kEach;
    int col = 0;
    for (; col + kEach <= columns; col += kEach)
      for (int first = 0; first < rows; first += kEach) {
        Floats::Register square[kEach];
#pragma GCC unroll 16
        for (int i = 0; i < kEach; ++i)
          square[i] = *reinterpret_cast<const Floats::Unaligned*>(sums + (col + i) * width + first);
        transpose(square);
        for (int i = 0; i < kEach && first + i < rows; ++i)
          write.registers(first + i, col, square[i]);
      }
    for (; col < columns; ++col)
      for (std::int64_t row = 0; row < rows; ++row) write(row, col, sums[col * width + row]);
  }
};

}  // namespace axonn::cpu
