#pragma once

#include <cstdint>

#include "axonn/compute/tensor/dtype.h"

namespace axonn::cuda {

/// Which elements of a matrix of 16 x 16 each lane of a warp holds, as an operand (bf16) or as the
/// sums (f32) of the warp's matrix instruction. mma() of warp.cuh has its left operand and its
/// sums in this layout.
///
///   kElements       elements of a lane
///   kRows           rows that they are from
///   row(lane, r)    the lane's row r, of kRows
///   row_of(i)       which of the lane's rows element i is from
///   col(lane, i)    the column of element i
///   kAcross         the four lanes of a row are lane ^ 0, 1, 2 and 3 times kAcross
///
/// Elements 2i and 2i + 1 are adjacent in a row, from an even column on: in bf16 they are a word.
template <int lanes>
struct Fragment;

/// Operand a of m16n8k16, and c of two of them that are side by side (NVIDIA, PTX ISA, "Matrix
/// Fragments for mma.m16n8k16").
template <>
struct Fragment<32> {
  static constexpr int kElements = 8, kRows = 2, kAcross = 1;
  AXONN_DEVICE static constexpr int row(int lane, int r) { return lane / 4 + 8 * r; }
  AXONN_DEVICE static constexpr int row_of(int i) { return i / 2 % 2; }
  AXONN_DEVICE static constexpr int col(int lane, int i) {
    return lane % 4 * 2 + i / 4 * 8 + i % 2;
  }
};

/// Operand a of V_MFMA_F32_16X16X16_BF16_1K; its operand b and its result hold the transpose in
/// this way (AMD matrix instruction calculator, architectures cdna2 and cdna3: A[i][k] is in lane
/// 16 · (k / 4) + i, B[k][j] in 16 · (k / 4) + j, D[i][j] in 16 · (i / 4) + j).
template <>
struct Fragment<64> {
  static constexpr int kElements = 4, kRows = 1, kAcross = 16;
  AXONN_DEVICE static constexpr int row(int lane, int) { return lane % 16; }
  AXONN_DEVICE static constexpr int row_of(int) { return 0; }
  AXONN_DEVICE static constexpr int col(int lane, int i) { return lane / 16 * 4 + i; }
};

/// The address that each lane gives to ldmatrix.x4 so that the warp gets a matrix of 16 x 16 as
/// operand a of m16n8k16, or, with .trans, its transpose as the operands b of two of them.
AXONN_DEVICE inline const bf16* left_row(const bf16* from, int stride, int lane) {
  return from + lane % 16 * stride + lane / 16 * 8;
}
/// The same for the matrix as the operands b of two of them, side by side.
AXONN_DEVICE inline const bf16* right_row(const bf16* from, int stride, int lane) {
  return from + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8;
}

/// Loads a lane's elements of a matrix of 16 x 16. Each two that are adjacent are aligned.
template <int lanes>
AXONN_DEVICE void load_elements(std::uint32_t (&to)[Fragment<lanes>::kElements / 2],
                                const bf16* from, int stride, int lane) {
  using Layout = Fragment<lanes>;
  for (int i = 0; i < Layout::kElements; i += 2)
    to[i / 2] = *reinterpret_cast<const std::uint32_t*>(
        from + Layout::row(lane, Layout::row_of(i)) * stride + Layout::col(lane, i));
}

/// Loads a lane's elements of its transpose, one by one.
template <int lanes>
AXONN_DEVICE void load_transposed_elements(std::uint32_t (&to)[Fragment<lanes>::kElements / 2],
                                           const bf16* from, int stride, int lane) {
  using Layout = Fragment<lanes>;
  const auto bits = [&](int i) -> std::uint32_t {
    return from[Layout::col(lane, i) * stride + Layout::row(lane, Layout::row_of(i))].bits;
  };
  for (int i = 0; i < Layout::kElements; i += 2) to[i / 2] = bits(i) | bits(i + 1) << 16;
}

}  // namespace axonn::cuda
