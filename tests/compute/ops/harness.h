#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/operations.h"
#include "axonn/compute/tensor/tensor.h"

#include "tests/compute/ops/operand_memory.h"
#include "tests/support/reference.h"

namespace axonn {

/// The types that models compute in.
inline constexpr std::array kModelTypes{DType::f32, DType::bf16, DType::f16};

/// Whether an operation may have operands of both types: not of bf16 and of f16.
constexpr bool may_mix(DType a, DType b) { return a == b || !is_half(a) || !is_half(b); }

/// A matrix in memory that the backend under test can access, with `gap` elements of padding after
/// each row, which no operation may write.
class Operand {
 public:
  /// All elements zero.
  Operand(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t gap = 0);
  /// With these values, rounded to dtype.
  Operand(const reference::Matrix& values, DType dtype, std::int64_t gap = 0);
  Operand(const std::vector<std::int32_t>& ids);  // NOLINT: (1, n) i32, as ids and targets are

  Operand(Operand&&) = default;
  Operand& operator=(Operand&&) = delete;

  operator View() const { return view_; }  // NOLINT: so that it can be handed to an operation
  const View& view() const { return view_; }
  reference::Matrix values() const;
  /// All bytes, for comparing bits.
  std::vector<char> memory() const { return memory_.values(); }
  bool gap_untouched() const;

 private:
  /// Fills the elements by value(row, col).
  Operand(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t gap, const auto& value);

  OperandMemory memory_;
  View view_;
};

/// Values in [-1, 1) that dtype represents exactly, a function of the name and the sizes alone.
reference::Matrix random_values(std::string_view name, std::int64_t rows, std::int64_t cols,
                                DType dtype);
std::vector<std::int32_t> random_ids(std::string_view name, std::int64_t count, std::int64_t bound);

/// Relative error of rounding to dtype: half a unit in the last place.
double rounding(DType dtype);

/// |got - want| <= absolute + relative · |want|.
struct Tolerance {
  double absolute = 0, relative = 0;
};

/// The tolerance for an f32 value that is rounded to dtype. Below 2^-14, f16 has steps of 2^-24.
inline Tolerance rounded_to(DType dtype) {
  return {dtype == DType::f16 ? 0x1p-25 : 0, dtype == DType::f32 ? 0 : rounding(dtype)};
}

/// The tolerance for a result that is computed in f32 with errors up to `absolute` and stored as
/// dtype.
inline Tolerance stored(DType dtype, double absolute) {
  return {absolute + rounded_to(dtype).absolute, rounding(dtype) * 1.01 + rounding(DType::f32)};
}

/// Success, or a failure that shows the worst element. NaN is never close; padding must be intact.
testing::AssertionResult close(const Operand& got, const reference::Matrix& want,
                               Tolerance tolerance);
testing::AssertionResult close(const reference::Matrix& got, const reference::Matrix& want,
                               Tolerance tolerance);

/// Expects that the backend under test refuses the operation with a message that contains `words`.
void expect_refusal(std::string_view words, const RowwiseOperation& operation);

/// The largest magnitude in it.
double largest(const reference::Matrix& values);

/// The error of a product to which more is added, a bias or the old values. A GPU's library may
/// round it to out's type before; others add in f32.
inline double of_early_rounding(Backend& backend, DType out, const reference::Matrix& product) {
  return backend.device().name() == "cpu" ? 0 : rounding(out) * 1.01 * largest(product);
}

}  // namespace axonn
