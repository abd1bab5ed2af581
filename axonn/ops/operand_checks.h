#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "axonn/ops/backend.h"

namespace axonn {

/// Checks the operands of an operation, the same on every device. Every function throws Error with
/// the names of the operation and of the operand, what it is and what was wanted.
struct Checker {
  std::string_view operation;

  void shape(std::string_view name, const View& view, std::int64_t rows, std::int64_t cols) const;
  void type(std::string_view name, const View& view, std::initializer_list<DType> wanted) const;
  /// f32 or bf16, the types that models compute in.
  void compute_type(std::string_view name, const View& view) const;
  /// f32 or bf16, of any shape.
  void values(std::string_view name, const View& view) const;
  /// f32 or bf16, of this shape.
  void values(std::string_view name, const View& view, std::int64_t rows, std::int64_t cols) const;
  void typed(std::string_view name, const View& view, DType dtype, std::int64_t rows,
             std::int64_t cols) const;
  /// (rows, cols) f32.
  void f32(std::string_view name, const View& view, std::int64_t rows, std::int64_t cols) const;
  /// (1, count) i32.
  void ids(std::string_view name, const View& view, std::int64_t count) const;
  /// Of the type and the shape of `other`.
  void like(std::string_view name, const View& view, const View& other) const;
};

void check_matmul(const Matmul& args);
void check_attention(std::string_view operation, const Attention& args);
void check_attention_backward(const AttentionBackward& args);
void check_cached_attention(const CachedAttention& args);

}  // namespace axonn
