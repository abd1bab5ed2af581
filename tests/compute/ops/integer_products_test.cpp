// Products of few rows with codes in integers, beside plain loops in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/quantization.h"

#include "tests/compute/ops/harness.h"
#include "tests/support/some_records.h"

using namespace axonn;
using reference::Matrix;

namespace {

QuantizedForm whole(Quantization kind) { return {kind, QuantizedForm::most_unit(kind)}; }

/// Records of any bytes, so with all codes and scales, whose factors are finite.
struct AnyCodes {
  QuantizedForm form;
  std::vector<std::byte> bytes;
  std::vector<float> values;  ///< (N, K)

  AnyCodes(Quantization kind, std::int64_t N, std::int64_t K)
      : form(whole(kind)), bytes(form.bytes(N * K)), values(N * K) {
    const std::vector<std::int32_t> random = random_ids("bytes", std::ssize(bytes), 256);
    std::ranges::transform(random, bytes.begin(), [](int byte) { return std::byte(byte); });
    for (std::int64_t at = 0; at < std::ssize(bytes); at += form.record_bytes())
      for (const std::int64_t factor : testing_support::factor_places(kind))
        bytes[at + factor + 1] &= std::byte{0xbf};  // no exponents of infinity
    read_values(form, bytes, 0, values);
  }
  Operand records() const {
    Matrix all(1, std::ssize(bytes));
    for (std::size_t i = 0; i < bytes.size(); ++i) all.values[i] = std::to_integer<int>(bytes[i]);
    return {all, DType::u8};
  }
};

/// A row's values in 8 bits, as Q8_0 rounds them but for the factor, which is not rounded.
std::vector<double> in_8_bits(const std::vector<float>& values) {
  std::vector<double> all;
  for (std::size_t first = 0; first < values.size(); first += 32) {
    float most = 0;
    for (std::size_t i = first; i < first + 32; ++i) most = std::max(most, std::abs(values[i]));
    const float factor = most / 127, inverse = most == 0 ? 0 : 1 / factor;
    for (std::size_t i = first; i < first + 32; ++i)
      all.push_back(std::round(values[i] * inverse) * double{factor});
  }
  return all;
}

/// The backend under test with so many threads and products of integers; null if it has none.
std::unique_ptr<Backend> integer_backend(int threads) {
  auto backend = test_backend(threads);
  return backend->set_integer_products(true) ? std::move(backend) : nullptr;
}

/// A product of some rows with a matrix of 0.37 as codes.
std::vector<std::byte> product(Backend& backend, const QuantizedForm& form, std::int64_t rows) {
  constexpr std::int64_t kN = 10, kK = 512;
  std::vector<std::byte> bytes(form.bytes(kN * kK));
  quantize_records(form, std::vector<float>(kN * kK, 0.37f), bytes);
  Matrix all(1, std::ssize(bytes));
  for (std::size_t i = 0; i < bytes.size(); ++i) all.values[i] = std::to_integer<int>(bytes[i]);
  const Operand a(random_values("a", rows, kK, DType::f32), DType::f32), records(all, DType::u8),
      out(rows, kN, DType::f32);
  backend.quantized_product({out, a, records, form});
  const auto memory = out.memory();
  const auto values = std::as_bytes(std::span(memory));
  return {values.begin(), values.end()};
}

/// The most rows whose products round: 4, or 16.
std::int64_t most_rows(Backend& integers) {
  const QuantizedForm form = whole(Quantization::q4_0);
  return product(integers, form, 16) == product(*test_backend(1), form, 16) ? 4 : 16;
}

}  // namespace

TEST(IntegerProducts, AreThoseOfTheOtherOperandInEightBits) {
  const auto backend = integer_backend(1);
  if (!backend) GTEST_SKIP() << "this backend has no products of integers";
  constexpr std::int64_t kN = 70;
  const std::int64_t most = most_rows(*backend);
  for (const Quantization kind : kCodes) {
    if (!has_integer_products(kind)) continue;
    const std::int64_t unit = QuantizedForm::most_unit(kind);
    for (const std::int64_t K : {unit, 3 * unit, 5 * unit, 8 * unit})
      for (const DType type : kModelTypes)
        for (const std::int64_t rows : {1L, 2L, 3L, most - 1, most}) {
          const AnyCodes b(kind, kN, K);
          const Operand a(random_values("a", rows, K, type), type, 5),
              bias(random_values("bias", 1, kN, type), type), out(rows, kN, DType::f32, 3),
              records = b.records();
          backend->quantized_product({out, a, records, b.form, K == unit ? bias.view() : View{}});
          const Matrix left = a.values(), added = bias.values(), got = out.values();
          for (std::int64_t r = 0; r < rows; ++r) {
            const auto* const row = left.values.data() + r * K;
            const std::vector<double> rounded = in_8_bits(std::vector<float>(row, row + K));
            for (std::int64_t n = 0; n < kN; ++n) {
              double want = K == unit ? added.values[n] : 0, size = std::abs(want);
              for (std::int64_t k = 0; k < K; ++k) {
                want += rounded[k] * b.values[n * K + k];
                size += std::abs(rounded[k] * b.values[n * K + k]);
              }
              ASSERT_NEAR(got.values[r * kN + n], want, 4e-6 * size)
                  << name_of(kind) << ' ' << name_of(type) << " K " << K << " row " << r << ' '
                  << n;
            }
          }
          EXPECT_TRUE(out.gap_untouched());
        }
  }
}

TEST(IntegerProducts, HaveBitsThatDependNeitherOnThreadsNorOnOtherRows) {
  const auto one = integer_backend(1);
  if (!one) GTEST_SKIP() << "this backend has no products of integers";
  const auto three = integer_backend(3);
  constexpr std::int64_t kN = 300, kK = 1280;
  for (const Quantization kind : kCodes) {
    if (!has_integer_products(kind)) continue;
    const AnyCodes b(kind, kN, kK);
    const Operand four(random_values("a", 4, kK, DType::bf16), DType::bf16),
        records = b.records(), by_one(4, kN, DType::f32), by_three(4, kN, DType::f32);
    one->quantized_product({by_one, four, records, b.form});
    three->quantized_product({by_three, four, records, b.form});
    EXPECT_EQ(by_one.memory(), by_three.memory()) << name_of(kind);
    const Matrix want = by_one.values();
    for (const std::int64_t rows : {1, 2, 3}) {
      const Operand some(rows, kN, DType::f32);
      one->quantized_product({some, four.view().row_range(1, rows), records, b.form});
      const Matrix got = some.values();
      for (std::int64_t i = 0; i < rows * kN; ++i)
        ASSERT_EQ(got.values[i], want.values[kN + i]) << name_of(kind) << ' ' << rows << ' ' << i;
    }
  }
}

TEST(IntegerProducts, OfOtherCodesAndOfMoreRowsHaveTheBitsOfValues) {
  const auto integers = integer_backend(1), values = test_backend(1);
  if (!integers) GTEST_SKIP() << "this backend has no products of integers";
  const auto compare = [&](const QuantizedForm& form, std::int64_t rows, bool same) {
    EXPECT_EQ(product(*integers, form, rows) == product(*values, form, rows), same)
        << name_of(form.kind) << ' ' << rows;
  };
  compare(whole(Quantization::q4_0), 4, false);
  compare(whole(Quantization::q4_0), 17, true);
  compare({Quantization::q4_0, 16}, 1, true);
  compare(whole(Quantization::nf4), 1, true);
  compare(whole(Quantization::q5_1), 1, true);
  ASSERT_TRUE(integers->set_batch_invariant(true));
  compare(whole(Quantization::q4_0), 3, true);
  ASSERT_TRUE(values->set_batch_invariant(true));
  compare(whole(Quantization::q4_0), 1, true);
  ASSERT_TRUE(integers->set_batch_invariant(false) && integers->set_integer_products(false));
  ASSERT_TRUE(values->set_batch_invariant(false));
  compare(whole(Quantization::q4_0), 1, true);
}

TEST(IntegerProducts, KeepValuesThatAreNotFinite) {
  const auto backend = integer_backend(1);
  if (!backend) GTEST_SKIP() << "this backend has no products of integers";
  for (const Quantization kind : {Quantization::q8_0, Quantization::q4_0, Quantization::q4_k})
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
      const AnyCodes b(kind, 4, 512);
      Matrix row = random_values("a", 1, 512, DType::f32);
      row.values[300] = bad;
      const Operand a(row, DType::f32), out(1, 4, DType::f32);
      backend->quantized_product({out, a, b.records(), b.form});
      for (const double value : out.values().values)
        EXPECT_FALSE(std::isfinite(value)) << name_of(kind) << ' ' << bad;
    }
}
