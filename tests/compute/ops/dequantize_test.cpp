// Values of records of codes, of every kind, in every unit and type.
#include <algorithm>
#include <array>
#include <vector>

#include "axonn/compute/tensor/quantization.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

constexpr std::array kKinds{Quantization::nf4, Quantization::fp4, Quantization::int8,
                            Quantization::q8_0, Quantization::q4_0};
constexpr std::int64_t kValues = 5 * QuantizedForm::kMostUnit;

/// Random values as records, and what these stand for.
struct Records {
  Matrix values{1, kValues}, bytes;

  explicit Records(const QuantizedForm& form) : bytes(1, form.bytes(kValues)) {
    const Matrix random = random_values("w", 1, kValues, DType::f32);
    const std::vector<float> floats(random.values.begin(), random.values.end());
    QuantizedValues codes;
    quantize(form.kind, form.unit, floats, codes);
    std::vector<std::byte> all(form.bytes(kValues));
    for (std::int64_t i = 0; i < kValues / form.unit; ++i)
      write_record(form, std::span(codes.codes).subspan(i * form.unit, form.unit), codes.factors[i],
                   all.data() + i * form.record_bytes());
    for (std::size_t i = 0; i < all.size(); ++i) bytes.values[i] = std::to_integer<int>(all[i]);
    for (std::int64_t i = 0; i < kValues; ++i)
      values.values[i] = codes.value(form.kind, i, form.unit);
  }
};

}  // namespace

TEST(Dequantize, MultipliesEachCodesValueByTheFactorOfItsRecord) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes)
    for (const Quantization kind : kKinds)
      for (const std::int64_t unit : {2, 4, 8, 32, 64}) {
        const QuantizedForm form{kind, unit};
        const Records records(form);
        const Operand packed(records.bytes, DType::u8), out(1, kValues, type);
        backend->run(ops::Dequantize{out, packed, form});
        EXPECT_TRUE(close(out, records.values, rounded_to(type)))
            << kQuantizations[static_cast<int>(kind)] << ' ' << unit;
      }
}

TEST(Dequantize, RefusesRowsThatAreNotWhole) {
  const Operand out(1, 96, DType::f32), records(1, 60, DType::u8);
  expect_refusal("96 values, want a multiple of 64",
                 ops::Dequantize{out, records, {Quantization::nf4, 32}});
}

TEST(DequantizeRows, TakesTheRowsOfTheTableAndZerosForOtherIds) {
  const auto backend = test_backend();
  constexpr std::int64_t kCols = 32, kFirst = 7, kRows = kValues / kCols;
  const std::vector<std::int32_t> ids{7, 6, 16, 9, 9, 17, 0};
  for (const DType type : kModelTypes)
    for (const Quantization kind : kKinds)
      for (const std::int64_t unit : {2, 8, 32}) {
        const QuantizedForm form{kind, unit};
        const Records records(form);
        Matrix want(std::ssize(ids), kCols);
        for (std::size_t r = 0; r < ids.size(); ++r)
          if (const std::int64_t row = ids[r] - kFirst; row >= 0 && row < kRows)
            std::copy_n(records.values.values.begin() + row * kCols, kCols,
                        want.values.begin() + static_cast<std::int64_t>(r) * kCols);
        const Operand packed(records.bytes, DType::u8), out(std::ssize(ids), kCols, type, 3);
        backend->run(ops::DequantizeRows{out, Operand(ids), packed, form, kFirst});
        EXPECT_TRUE(close(out, want, rounded_to(type)))
            << kQuantizations[static_cast<int>(kind)] << ' ' << unit;
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
