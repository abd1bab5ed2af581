#pragma once

#include <type_traits>

#include "axonn/ops/cpu/attention/attention_blocks.h"
#include "axonn/ops/cpu/bf16.h"

namespace axonn::cpu {

/// How attention's blocks are multiplied. Operands of a block are words of four bytes, each with
/// kPack elements of the summed dimension: floats, or pairs of bf16 if the processor multiplies
/// those. With pairs, an f32 result that is an operand of the next product is rounded to bf16, like
/// a stored tensor.
///
///   across  (rows, width / kPack): a word holds adjacent elements of a row
///   down    (rows / kPack, width): a word holds elements of consecutive rows, of one column
template <typename T, bool pairs = std::is_same_v<T, bf16>&& kDotProducts>
struct Operands {
  static constexpr int kPack = 1;
  using Product = FloatProduct;

  /// Copies a block of a tensor, across; rows and columns beyond it are zero.
  static void pack(float* to, int width, const View& from, Block block) {
    cpu::pack<T>(to, width, from, block);
  }
  /// A packed block in words down: written to the first argument, or `packed` itself.
  static const float* down(float*, const float* packed, int) { return packed; }
  /// A computed block (rows, kBlock) of floats in words down, or across, in the same way.
  static const float* down_of(float*, const float* computed, int) { return computed; }
  static const float* across_of(float*, const float* computed, int, int) { return computed; }
};

template <typename T>
struct Operands<T, true> {
  static constexpr int kPack = 2;
  struct Product {
    static void add(Lanes& sum, float left, const Lanes& right) { add_product(sum, left, right); }
  };

  static void pack(float* to, int width, const View& from, Block block) {
    auto* row = reinterpret_cast<bf16*>(to);
    prefetch_rows<T>(from, block);
    for (int r = 0; r < kBlock; ++r, row += width) {
      const int filled = r < block.rows ? block.dim : 0;
      if (filled > 0) std::copy_n(from.row<const bf16>(block.row + r) + block.column, filled, row);
      std::fill(row + filled, row + width, bf16{});
    }
  }

  static const float* down(float* memory, const float* packed, int width) {
    const auto* rows = reinterpret_cast<const bf16*>(packed);
    for (int r = 0; r < kBlock; r += 2, rows += 2 * width)
      for (int c = 0; c < width; c += kLanes)
        pair_16(memory + r / 2 * width + c, rows + c, rows + width + c);
    return memory;
  }

  /// Rows from `count` on are zero.
  static const float* down_of(float* memory, const float* computed, int count) {
    constexpr float kZeros[kBlock] = {};
    for (int r = 0; r < count; r += 2) {
      const float *first = computed + r * kBlock, *second = r + 1 < count ? first + kBlock : kZeros;
      for (int c = 0; c < kBlock; c += kLanes)
        pair_16(memory + r / 2 * kBlock + c, first + c, second + c);
    }
    return memory;
  }

  /// The first `rows` rows; columns from `count` on are zero.
  static const float* across_of(float* memory, const float* computed, int rows, int count) {
    auto* to = reinterpret_cast<bf16*>(memory);
    for (int r = 0; r < rows; ++r, to += kBlock) {
      Team{}.map(
          to, kBlock, [](auto x) { return x; }, computed + r * kBlock);
      std::fill(to + count, to + kBlock, bf16{});
    }
    return memory;
  }
};

}  // namespace axonn::cpu
