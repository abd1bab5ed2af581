#include "tests/compute/ops/harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

using reference::Matrix;

namespace {

constexpr char kGapByte = '\xa5';

double load(const View& view, std::int64_t r, std::int64_t c) {
  switch (view.dtype) {
    case DType::f32:
      return view.row<float>(r)[c];
    case DType::bf16:
      return get(view.row<bf16>(r)[c]);
    case DType::f16:
      return get(view.row<f16>(r)[c]);
    case DType::f64:
      return view.row<double>(r)[c];
    case DType::i32:
      return view.row<std::int32_t>(r)[c];
    case DType::i64:
      return static_cast<double>(view.row<std::int64_t>(r)[c]);
    case DType::u8:
      return view.row<std::uint8_t>(r)[c];
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void store(const View& view, std::int64_t r, std::int64_t c, double value) {
  switch (view.dtype) {
    case DType::f32:
      view.row<float>(r)[c] = static_cast<float>(value);
      break;
    case DType::bf16:
      put(view.row<bf16>(r)[c], static_cast<float>(value));
      break;
    case DType::f16:
      put(view.row<f16>(r)[c], static_cast<float>(value));
      break;
    case DType::f64:
      view.row<double>(r)[c] = value;
      break;
    case DType::i32:
      view.row<std::int32_t>(r)[c] = static_cast<std::int32_t>(value);
      break;
    case DType::i64:
      view.row<std::int64_t>(r)[c] = static_cast<std::int64_t>(value);
      break;
    case DType::u8:
      view.row<std::uint8_t>(r)[c] = static_cast<std::uint8_t>(value);
      break;
  }
}

/// The bytes of a matrix whose elements are value(row, col).
std::vector<char> bytes_of_matrix(std::int64_t rows, std::int64_t cols, DType dtype,
                                  std::int64_t gap, const auto& value) {
  // One byte more, so that there is always an address.
  std::vector<char> bytes(rows * (cols + gap) * bytes_of(dtype) + 1, kGapByte);
  const View view{bytes.data(), dtype, rows, cols, cols + gap};
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) store(view, r, c, value(r, c));
  return bytes;
}

}  // namespace

Operand::Operand(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t gap,
                 const auto& value)
    : memory_(bytes_of_matrix(rows, cols, dtype, gap, value)),
      view_{memory_.data(), dtype, rows, cols, cols + gap, memory_of_operands()} {}

Operand::Operand(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t gap)
    : Operand(rows, cols, dtype, gap, [](auto...) { return 0; }) {}

Operand::Operand(const Matrix& values, DType dtype, std::int64_t gap)
    : Operand(values.rows, values.cols, dtype, gap,
              [&](std::int64_t r, std::int64_t c) { return values(r, c); }) {}

Operand::Operand(const std::vector<std::int32_t>& ids)
    : Operand(1, std::ssize(ids), DType::i32, 0,
              [&](std::int64_t, std::int64_t c) { return ids[c]; }) {}

Matrix Operand::values() const {
  std::vector<char> bytes = memory_.values();
  View host = view_;
  host.data = bytes.data();
  host.memory = Memory::host;
  Matrix out(host.rows, host.cols);
  for (std::int64_t r = 0; r < host.rows; ++r)
    for (std::int64_t c = 0; c < host.cols; ++c) out(r, c) = load(host, r, c);
  return out;
}

bool Operand::gap_untouched() const {
  const std::int64_t width = bytes_of(view_.dtype);
  const std::vector<char> bytes = memory_.values();
  for (std::int64_t i = 0; i < std::ssize(bytes); ++i) {
    const std::int64_t column = i / width % std::max<std::int64_t>(view_.stride, 1);
    const bool inside = i < view_.rows * view_.stride * width && column < view_.cols;
    if (!inside && bytes[i] != kGapByte) return false;
  }
  return true;
}

Matrix random_values(std::string_view name, std::int64_t rows, std::int64_t cols, DType dtype) {
  const Random random(7, name);
  Matrix out(rows, cols);
  for (std::size_t i = 0; i < out.values.size(); ++i) out.values[i] = 2 * random.uniform(i) - 1;
  return Operand(out, dtype).values();
}

std::vector<std::int32_t> random_ids(std::string_view name, std::int64_t count,
                                     std::int64_t bound) {
  const Random random(8, name);
  std::vector<std::int32_t> ids(count);
  for (std::int64_t i = 0; i < count; ++i)
    ids[i] = static_cast<std::int32_t>(random.below(i, bound));
  return ids;
}

double rounding(DType dtype) {
  if (dtype == DType::f16) return 0x1p-11;
  return dtype == DType::bf16 ? 0x1p-8 : 0x1p-24;
}

testing::AssertionResult close(const Matrix& got, const Matrix& want, Tolerance tolerance) {
  if (got.rows != want.rows || got.cols != want.cols)
    return testing::AssertionFailure() << "got (" << got.rows << ',' << got.cols << "), want ("
                                       << want.rows << ',' << want.cols << ')';
  double worst = 1;
  std::int64_t row = -1, col = -1;
  for (std::int64_t r = 0; r < want.rows; ++r)
    for (std::int64_t c = 0; c < want.cols; ++c) {
      const double allowed = tolerance.absolute + tolerance.relative * std::abs(want(r, c));
      const double error = std::abs(got(r, c) - want(r, c));
      const double excess = error == 0 ? 0 : error / allowed;
      if (!(excess <= worst)) {
        worst = std::isnan(excess) ? std::numeric_limits<double>::infinity() : excess;
        row = r;
        col = c;
      }
    }
  if (row < 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "worst at (" << row << ',' << col << "): got " << got(row, col) << ", want "
         << want(row, col) << ", off by " << worst << " times the tolerance";
}

testing::AssertionResult close(const Operand& got, const Matrix& want, Tolerance tolerance) {
  if (!got.gap_untouched())
    return testing::AssertionFailure() << "the padding between rows was written";
  return close(got.values(), want, tolerance);
}

void expect_refusal(std::string_view words, const RowwiseOperation& operation) {
  EXPECT_THAT([&] { test_backend()->run(operation); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(std::string(words))));
}

double largest(const Matrix& values) {
  double most = 0;
  for (double value : values.values) most = std::max(most, std::abs(value));
  return most;
}

}  // namespace axonn
