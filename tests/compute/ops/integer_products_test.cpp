// Products with codes in integers, beside plain loops in double.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/host.h"

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

/// Whether products of so many rows round.
bool rounds(Backend& integers, Quantization kind, std::int64_t rows) {
  return product(integers, whole(kind), rows) != product(*test_backend(1), whole(kind), rows);
}

constexpr std::int64_t kN = 70;

/// Compares a product of rows with any codes.
void expect_rounded(Backend& backend, const AnyCodes& b, DType type, std::int64_t rows) {
  const std::int64_t K = std::ssize(b.values) / kN;
  const Operand a(random_values("a", rows, K, type), type, 5),
      bias(random_values("bias", 1, kN, type), type), out(rows, kN, DType::f32, 3),
      records = b.records();
  const bool biased = rows % 2 == 1;
  backend.quantized_product({out, a, records, b.form, biased ? bias.view() : View{}});
  const Matrix left = a.values(), added = bias.values(), got = out.values();
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto* const row = left.values.data() + r * K;
    const std::vector<double> rounded = in_8_bits(std::vector<float>(row, row + K));
    for (std::int64_t n = 0; n < kN; ++n) {
      double want = biased ? added.values[n] : 0, size = std::abs(want);
      for (std::int64_t k = 0; k < K; ++k) {
        want += rounded[k] * b.values[n * K + k];
        size += std::abs(rounded[k] * b.values[n * K + k]);
      }
      ASSERT_NEAR(got.values[r * kN + n], want, 4e-6 * size)
          << name_of(b.form.kind) << ' ' << name_of(type) << " K " << K << ", " << rows
          << " rows: " << r << ' ' << n;
    }
  }
  EXPECT_TRUE(out.gap_untouched());
}

}  // namespace

TEST(IntegerProducts, AreThoseOfTheOtherOperandInEightBits) {
  const auto backend = integer_backend(1);
  if (!backend) GTEST_SKIP() << "this backend has no products of integers";
  for (const Quantization kind : kCodes) {
    if (!has_integer_products(kind)) continue;
    const std::int64_t unit = QuantizedForm::most_unit(kind);
    for (const std::int64_t K : {unit, 3 * unit, 5 * unit, 8 * unit, 1024 + unit})
      for (const DType type : kModelTypes)
        for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 9, 16})
          if (rows <= 4 || rounds(*backend, kind, rows))
            expect_rounded(*backend, AnyCodes(kind, kN, K), type, rows);
    if (rounds(*backend, kind, 250))
      expect_rounded(*backend, AnyCodes(kind, kN, unit), DType::f32, 250);
  }
}

TEST(IntegerProducts, HaveBitsThatDependNeitherOnThreadsNorOnWhatIsInOtherRows) {
  const auto one = integer_backend(1);
  if (!one) GTEST_SKIP() << "this backend has no products of integers";
  const auto three = integer_backend(3);
  constexpr std::int64_t kCols = 300, kK = 1280, kRows = 20;
  for (const Quantization kind : kCodes) {
    if (!has_integer_products(kind)) continue;
    const AnyCodes b(kind, kCols, kK);
    const Operand a(random_values("a", kRows, kK, DType::bf16), DType::bf16), records = b.records();
    const auto same = [&](std::int64_t all, std::initializer_list<std::int64_t> counts) {
      const Operand by_one(all, kCols, DType::f32), by_three(all, kCols, DType::f32);
      const View rows = a.view().row_range(0, all);
      one->quantized_product({by_one, rows, records, b.form});
      three->quantized_product({by_three, rows, records, b.form});
      EXPECT_EQ(by_one.memory(), by_three.memory()) << name_of(kind);
      const Matrix want = by_one.values();
      for (const std::int64_t count : counts) {
        const Operand some(count, kCols, DType::f32);
        one->quantized_product({some, a.view().row_range(1, count), records, b.form});
        const Matrix got = some.values();
        for (std::int64_t i = 0; i < count * kCols; ++i)
          ASSERT_EQ(got.values[i], want.values[kCols + i])
              << name_of(kind) << ' ' << count << " of " << all << " rows: " << i;
      }
    };
    same(4, {1, 2, 3});
    if (rounds(*one, kind, kRows)) same(kRows, {5, 6, 7, 13, 19});
  }
}

TEST(IntegerProducts, OfOtherCodesHaveTheBitsOfValues) {
  const auto integers = integer_backend(1), values = test_backend(1);
  if (!integers) GTEST_SKIP() << "this backend has no products of integers";
  const auto compare = [&](const QuantizedForm& form, std::int64_t rows, bool same) {
    EXPECT_EQ(product(*integers, form, rows) == product(*values, form, rows), same)
        << name_of(form.kind) << ' ' << rows;
  };
  compare(whole(Quantization::q4_0), 4, false);
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

TEST(IntegerProducts, OfManyRowsReadCodesOnX86) {
  const auto integers = integer_backend(1), values = test_backend(1);
  if (!integers) GTEST_SKIP() << "this backend has no products of integers";
  const bool tiles = machine_name() == "x86_64";
  const auto reads = [](Backend& backend, std::int64_t rows, const QuantizedForm& form) {
    const View a{nullptr, DType::f32, rows, 512, 512};
    return backend.reads_codes({.out = a, .a = a, .records = {}, .form = form});
  };
  for (const Quantization kind : {Quantization::q4_0, Quantization::q4_k, Quantization::q6_k}) {
    EXPECT_EQ(rounds(*integers, kind, 17), tiles) << name_of(kind);
    EXPECT_EQ(reads(*integers, 300, whole(kind)), tiles) << name_of(kind);
    EXPECT_FALSE(reads(*values, 300, whole(kind))) << name_of(kind);
  }
  EXPECT_FALSE(reads(*integers, 300, whole(Quantization::nf4)));
  EXPECT_FALSE(reads(*integers, 300, {Quantization::q4_0, 16}));
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
