#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/compute/ops/backend.h"

// The epilogues that cuBLASLt may be asked for. Plain arithmetic, so that tests and dry runs on
// machines without a GPU have it.

namespace axonn::cuda {

/// Bytes of the vectors by which cuBLASLt's kernels load operands. Hopper's need no more either.
constexpr std::uint32_t kVectorBytes = 16;

/// The largest power of two, up to kVectorBytes, that divides the address.
inline std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data) | kVectorBytes;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// Elements from one row to the next; a matrix of a single row may have a smaller stride.
inline std::int64_t row_step(const View& view) { return std::max(view.stride, view.cols); }

/// The longest bias gradient that cuBLASLt computes, in bytes.
constexpr std::int64_t kSumBytes = std::int64_t{1} << 20;

/// Whether cuBLASLt adds the bias itself: if it is of the result's type and aligned for vectors.
inline bool fuses_bias(const Matmul& args) {
  return args.bias.dtype == args.out.dtype && alignment_of(args.bias.data) >= kVectorBytes;
}

/// The matrix of the result's size that the epilogue reads or writes; empty if there is none.
inline const View& auxiliary_of(const Matmul& args) {
  return args.gelu ? args.gelu_input : args.gelu_derivative_at;
}

/// Whether Backend::matmul() computes it in parts if it is not fused.
inline bool has_epilogue(const MatmulShape& shape) {
  return shape.gelu || shape.gelu_derivative || shape.bias_gradient;
}

/// Whether cuBLASLt may be asked for this product with its epilogue. It may still refuse.
///
/// GELU and its derivative only in 16 bits: cuBLASLt's is the tanh form, too, but its precision is
/// not documented, and results are compared in f32. Rows of the auxiliary matrix must begin at
/// multiples of 8 elements. cuBLASLt's bias gradient has the result's type, which must be f32.
inline bool may_fuse(const Matmul& args) {
  if (args.out.count() == 0 || args.a.count() == 0) return false;
  if (args.bias_gradient.data)
    return args.out.dtype == DType::f32 && !args.bias.data && !args.gelu &&
           !args.gelu_derivative_at.data &&
           args.bias_gradient.count() * bytes_of(DType::f32) <= kSumBytes;
  if (!is_half(args.out.dtype)) return false;
  if (args.bias.data && !fuses_bias(args)) return false;
  const View& beside = auxiliary_of(args);
  return !beside.data || (row_step(beside) % 8 == 0 && alignment_of(beside.data) >= kVectorBytes);
}

}  // namespace axonn::cuda
