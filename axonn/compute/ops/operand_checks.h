#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "axonn/compute/ops/backend.h"

namespace axonn {

/// Checks the operands of an operation, the same on every device. Every function throws Error with
/// the names of the operation and of the operand, what it is and what was wanted.
struct Checker {
  std::string_view operation;

  void shape(std::string_view name, const View& view, std::int64_t rows, std::int64_t cols) const;
  void type(std::string_view name, const View& view, std::initializer_list<DType> wanted) const;
  void typed(std::string_view name, const View& view, DType dtype, std::int64_t rows,
             std::int64_t cols) const {
    type(name, view, {dtype});
    shape(name, view, rows, cols);
  }
  /// f32, bf16 or f16, the types that models compute in, of this shape.
  void values(std::string_view name, const View& view, std::int64_t rows, std::int64_t cols) const {
    type(name, view, {DType::f32, DType::bf16, DType::f16});
    shape(name, view, rows, cols);
  }
  /// The same, of any shape.
  void values(std::string_view name, const View& view) const {
    values(name, view, view.rows, view.cols);
  }
  /// (rows, cols) f32.
  void f32(std::string_view name, const View& view, std::int64_t rows, std::int64_t cols) const {
    typed(name, view, DType::f32, rows, cols);
  }
  /// (1, count) i32.
  void ids(std::string_view name, const View& view, std::int64_t count) const {
    typed(name, view, DType::i32, 1, count);
  }
  /// Of the type and the shape of `other`.
  void like(std::string_view name, const View& view, const View& other) const {
    typed(name, view, other.dtype, other.rows, other.cols);
  }
};

void check_matmul(const Matmul& args);
/// As check_matmul() for each, and that all are alike but for M, or for K if a is transposed, and
/// for accumulate.
void check_matmuls(std::span<const Matmul> all);
void check_quantized_matmul(const QuantizedMatmul& args);
void check_attention(std::string_view operation, const Attention& args);
void check_attention_backward(const AttentionBackward& args);
void check_cached_attention(const CachedAttention& args);

}  // namespace axonn
