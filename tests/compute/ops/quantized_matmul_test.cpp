// Products with a matrix of codes have the bits of the product with its values.
#include <algorithm>
#include <array>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/ops/operand_checks.h"
#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/harness.h"
#include "tests/support/some_records.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// Columns of a matrix, at least so many, that are whole records.
std::int64_t cols_of(Quantization kind, std::int64_t least) {
  const std::int64_t unit = QuantizedForm::most_unit(kind);
  return (least + unit - 1) / unit * unit;
}

/// A matrix (N, K) as records, each with a factor of its own, and its values in a type.
struct CodedMatrix {
  QuantizedForm form;
  Operand records, values;

  CodedMatrix(Backend& backend, const QuantizedForm& of, std::int64_t N, std::int64_t K, DType type)
      : form(of), records(bytes_of_records(of, N, K), DType::u8), values(N, K, type) {
    View flat = values;  // Dequantize takes a flat matrix
    flat.rows = 1;
    flat.cols = flat.stride = N * K;
    backend.run(ops::Dequantize{flat, records, form});
  }

 private:
  static Matrix bytes_of_records(const QuantizedForm& form, std::int64_t N, std::int64_t K) {
    const Matrix values = random_values("w", N, K, DType::f32);
    const std::vector<float> floats(values.values.begin(), values.values.end());
    const std::vector<std::byte> bytes = testing_support::some_records(form, floats);
    Matrix all(1, std::ssize(bytes));
    for (std::size_t i = 0; i < bytes.size(); ++i) all.values[i] = std::to_integer<int>(bytes[i]);
    return all;
  }
};

/// Expects that rows of some number times the matrix are the same by codes and by values.
void expect_bits_of_values(Backend& backend, const CodedMatrix& b, std::int64_t rows, bool bias) {
  const View& values = b.values.view();
  const Operand a(random_values("a", rows, values.cols, values.dtype), values.dtype, 3),
      added(random_values("bias", 1, values.rows, values.dtype), values.dtype),
      by_codes(rows, values.rows, values.dtype, 1), by_values(rows, values.rows, values.dtype, 1);
  const View of_bias = bias ? added.view() : View{};
  const QuantizedMatmul product{by_codes, a, b.records, b.form, of_bias};
  ASSERT_TRUE(backend.reads_codes(product));
  backend.quantized_product(product);
  backend.matmul({.out = by_values, .a = a, .b = b.values, .b_transposed = true, .bias = of_bias});
  EXPECT_EQ(by_codes.memory(), by_values.memory())
      << name_of(b.form.kind) << " unit " << b.form.unit << ", " << rows << " rows of " << values
      << (bias ? " + bias" : "");
  EXPECT_TRUE(by_codes.gap_untouched());
}

/// The backend under test with so many threads; null if it reads no codes, as on GPUs.
std::unique_ptr<Backend> reading_backend(int threads) {
  auto backend = test_backend(threads);
  const Operand row(1, 64, DType::f32), records(1, 64 * 68, DType::u8);
  const bool reads = backend->reads_codes({row, row, records, {Quantization::int8, 64}});
  return reads ? std::move(backend) : nullptr;
}

}  // namespace

TEST(QuantizedMatmul, HasTheBitsOfTheProductWithTheValues) {
  const auto backend = reading_backend(1);
  if (!backend) GTEST_SKIP() << "this backend reads no codes";
  constexpr std::int64_t kN = 74;  // more than a thread computes at a time, and no whole tiles
  for (const DType type : kModelTypes)
    for (const Quantization kind : kCodes)
      for (std::int64_t unit = QuantizedForm::least_unit(kind);
           unit <= QuantizedForm::most_unit(kind); unit *= 2)
        for (const std::int64_t K : {cols_of(kind, 64), cols_of(kind, 320)}) {
          const CodedMatrix b(*backend, {kind, unit}, kN, K, type);
          for (const std::int64_t rows : {1, 2, 3, 7, 48})
            expect_bits_of_values(*backend, b, rows, rows % 2 == 1);
        }
}

TEST(QuantizedMatmul, IsInvariantToOtherRowsIfTheBackendIs) {
  const auto backend = reading_backend(2);
  if (!backend) GTEST_SKIP() << "this backend reads no codes";
  ASSERT_TRUE(backend->set_batch_invariant(true));
  for (const DType type : kModelTypes)
    for (const Quantization kind : kCodes) {
      const CodedMatrix b(*backend, {kind, QuantizedForm::most_unit(kind)}, 130, cols_of(kind, 192),
                          type);
      for (const std::int64_t rows : {1, 2, 9}) expect_bits_of_values(*backend, b, rows, true);
    }
}

TEST(QuantizedMatmul, GivesSumsInF32AsLogitsAre) {
  const auto backend = reading_backend(1);
  if (!backend) GTEST_SKIP() << "this backend reads no codes";
  for (const Quantization kind : kCodes)
    for (const std::int64_t rows : {1, 5}) {
      const std::int64_t K = cols_of(kind, 128);
      const CodedMatrix b(*backend, {kind, QuantizedForm::most_unit(kind)}, 70, K, DType::bf16);
      const Operand a(random_values("a", rows, K, DType::bf16), DType::bf16),
          by_codes(rows, 70, DType::f32), by_values(rows, 70, DType::f32);
      backend->quantized_product({by_codes, a, b.records, b.form});
      backend->matmul({.out = by_values, .a = a, .b = b.values, .b_transposed = true});
      EXPECT_EQ(by_codes.memory(), by_values.memory());
    }
}

TEST(QuantizedMatmul, HasTheSameBitsOnAnyNumberOfThreads) {
  const auto one = reading_backend(1);
  if (!one) GTEST_SKIP() << "this backend reads no codes";
  const auto three = reading_backend(3);
  for (const DType type : kModelTypes)
    for (const std::int64_t rows : {1, 3}) {
      const CodedMatrix b(*one, {Quantization::q8_0, 32}, 300, 64, type);
      const Operand a(random_values("a", rows, 64, type), type);
      const Operand want(rows, 300, type), got(rows, 300, type);
      one->quantized_product({want, a, b.records, b.form});
      three->quantized_product({got, a, b.records, b.form});
      EXPECT_EQ(got.memory(), want.memory());
    }
}

TEST(QuantizedMatmul, EqualsPlainLoopsOverTheCodes) {
  const auto backend = reading_backend(1);
  if (!backend) GTEST_SKIP() << "this backend reads no codes";
  for (const Quantization kind : kCodes) {
    const QuantizedForm form{kind, QuantizedForm::most_unit(kind)};
    const std::int64_t N = 9, K = cols_of(kind, 128), rows = 2;
    const CodedMatrix b(*backend, form, N, K, DType::f32);
    const Matrix left = random_values("a", rows, K, DType::f32), bytes = b.records.values();
    std::vector<std::byte> records(bytes.values.size());
    std::ranges::transform(bytes.values, records.begin(),
                           [](double byte) { return std::byte(static_cast<int>(byte)); });
    std::vector<float> values(N * K);
    read_values(form, records, 0, values);
    Matrix want(rows, N);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t n = 0; n < N; ++n)
        for (std::int64_t k = 0; k < K; ++k)
          want.values[r * N + n] += left.values[r * K + k] * values[n * K + k];
    const Operand a(left, DType::f32), out(rows, N, DType::f32);
    backend->quantized_product({out, a, b.records, form});
    EXPECT_TRUE(close(out, want, {1e-5, 0})) << name_of(kind);
  }
}

TEST(QuantizedMatmul, ReadsNoCodesOfManyRowsOrOfRowsThatCutRecords) {
  const auto backend = reading_backend(1);
  if (!backend) GTEST_SKIP() << "this backend reads no codes";
  const QuantizedForm form{Quantization::nf4, 64};
  const auto reads = [&](std::int64_t rows, std::int64_t K) {
    const Operand out(rows, 4, DType::f32), a(rows, K, DType::f32),
        records(1, form.bytes(4 * K), DType::u8);
    return backend->reads_codes({out, a, records, form});
  };
  EXPECT_TRUE(reads(kFewRows, 128));
  EXPECT_FALSE(reads(kFewRows + 1, 128));
  EXPECT_FALSE(reads(1, 96));
}

TEST(QuantizedMatmul, RefusesRecordsThatAreNotThoseOfTheMatrix) {
  const Operand out(1, 4, DType::f32), a(1, 64, DType::f32), records(1, 135, DType::u8);
  EXPECT_THAT(
      [&] {
        check_quantized_matmul({out, a, records, {Quantization::q8_0, 32}});
      },
      testing::ThrowsMessage<Error>(
          testing::AllOf(testing::HasSubstr("quantized_matmul"), testing::HasSubstr("records"))));
}
