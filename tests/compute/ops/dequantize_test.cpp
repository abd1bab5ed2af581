// Values of records of codes, of every kind, in every unit and type.
#include <algorithm>
#include <array>
#include <vector>

#include "axonn/compute/tensor/quantization.h"

#include "tests/compute/ops/harness.h"
#include "tests/support/some_records.h"

using namespace axonn;
using reference::Matrix;

namespace {

constexpr std::int64_t kValues = 5 * 256;

/// Units of records of a kind, at most the values of a row.
std::vector<std::int64_t> units_of(Quantization kind, std::int64_t most) {
  if (has_large_blocks(kind)) return {QuantizedForm::most_unit(kind)};
  std::vector<std::int64_t> all{2, 4, 8, 32, 64};
  std::erase_if(all, [&](std::int64_t unit) { return unit > most; });
  return all;
}

/// Records of random values, and what they stand for.
struct Records {
  Matrix values{1, kValues}, bytes;

  explicit Records(const QuantizedForm& form) : bytes(1, form.bytes(kValues)) {
    const Matrix random = random_values("w", 1, kValues, DType::f32);
    std::vector<float> floats(random.values.begin(), random.values.end());
    const std::vector<std::byte> all = testing_support::some_records(form, floats);
    for (std::size_t i = 0; i < all.size(); ++i) bytes.values[i] = std::to_integer<int>(all[i]);
    read_values(form, all, 0, floats);
    std::ranges::copy(floats, values.values.begin());
  }
};

}  // namespace

TEST(Dequantize, MultipliesEachCodesValueByTheFactorOfItsRecord) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes)
    for (const Quantization kind : kCodes)
      for (const std::int64_t unit : units_of(kind, kValues)) {
        const QuantizedForm form{kind, unit};
        const Records records(form);
        const Operand packed(records.bytes, DType::u8), out(1, kValues, type);
        backend->run(ops::Dequantize{out, packed, form});
        EXPECT_TRUE(close(out, records.values, rounded_to(type))) << name_of(kind) << ' ' << unit;
      }
}

TEST(Dequantize, ReadsAllNumbersOfLargeBlocks) {  // scales of 0, below 0, and the largest, too
  const auto backend = test_backend();
  for (const Quantization kind : kCodes) {
    if (!has_large_blocks(kind)) continue;
    const QuantizedForm form{kind, 256};
    const std::vector<std::int32_t> random = random_ids("bytes", form.bytes(kValues), 256);
    std::vector<std::byte> all(random.size());
    std::ranges::transform(random, all.begin(), [](int byte) { return std::byte(byte); });
    for (std::int64_t at = 0; at < std::ssize(all); at += form.record_bytes())
      for (const std::int64_t factor : testing_support::factor_places(kind))
        all[at + factor + 1] &= std::byte{0xbf};  // no exponents of infinity
    Matrix bytes(1, std::ssize(all)), want(1, kValues);
    for (std::size_t i = 0; i < all.size(); ++i) bytes.values[i] = std::to_integer<int>(all[i]);
    std::vector<float> values(kValues);
    read_values(form, all, 0, values);
    std::ranges::copy(values, want.values.begin());
    const Operand out(1, kValues, DType::f32);
    backend->run(ops::Dequantize{out, Operand(bytes, DType::u8), form});
    EXPECT_TRUE(close(out, want, {0, 0})) << name_of(kind);
  }
}

TEST(Dequantize, RefusesRowsThatAreNotWhole) {
  const Operand out(1, 96, DType::f32), records(1, 60, DType::u8);
  expect_refusal("96 values, want a multiple of 64",
                 ops::Dequantize{out, records, {Quantization::nf4, 32}});
  expect_refusal("96 values, want a multiple of 256",
                 ops::Dequantize{out, records, {Quantization::q4_k, 256}});
}

TEST(DequantizeRows, TakesTheRowsOfTheTableAndZerosForOtherIds) {
  const auto backend = test_backend();
  constexpr std::int64_t kFirst = 7;
  const std::vector<std::int32_t> ids{7, 6, 16, 9, 9, 17, 0};
  for (const DType type : kModelTypes)
    for (const Quantization kind : kCodes)
      for (const std::int64_t unit : units_of(kind, 32)) {
        const QuantizedForm form{kind, unit};
        const std::int64_t cols = std::max<std::int64_t>(unit, 32), rows = kValues / cols;
        const Records records(form);
        Matrix want(std::ssize(ids), cols);
        for (std::size_t r = 0; r < ids.size(); ++r)
          if (const std::int64_t row = ids[r] - kFirst; row >= 0 && row < rows)
            std::copy_n(records.values.values.begin() + row * cols, cols,
                        want.values.begin() + static_cast<std::int64_t>(r) * cols);
        const Operand packed(records.bytes, DType::u8), out(std::ssize(ids), cols, type, 3);
        backend->run(ops::DequantizeRows{out, Operand(ids), packed, form, kFirst});
        EXPECT_TRUE(close(out, want, rounded_to(type))) << name_of(kind) << ' ' << unit;
      }
}

TEST(DequantizeRows, RefusesRowsThatCutRecordsAndTablesThatAreNotWhole) {
  const Operand out(2, 48, DType::f32), ids(std::vector<std::int32_t>{0, 1});
  const QuantizedForm form{Quantization::nf4, 32};
  expect_refusal("rows of 48 values, want a multiple of 32",
                 ops::DequantizeRows{out, ids, Operand(1, 60, DType::u8), form});
  const Operand wide(2, 64, DType::f32);
  expect_refusal("records", ops::DequantizeRows{wide, ids, Operand(1, 60, DType::u8), form});
}
