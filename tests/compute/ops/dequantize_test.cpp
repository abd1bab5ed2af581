// Values of records of codes, of every kind, in every unit and type.
#include <array>
#include <cstring>

#include "axonn/compute/tensor/quantization.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

constexpr std::array kKinds{Quantization::nf4, Quantization::fp4, Quantization::int8,
                            Quantization::q8_0};
constexpr std::int64_t kValues = 5 * QuantizedForm::kMostUnit;

}  // namespace

TEST(Dequantize, MultipliesEachCodesValueByTheFactorOfItsRecord) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes)
    for (const Quantization kind : kKinds)
      for (const std::int64_t unit : {2, 4, 8, 32, 64}) {
        const QuantizedForm form{kind, unit};
        const Matrix values = random_values("w", 1, kValues, DType::f32);
        const std::vector<float> floats(values.values.begin(), values.values.end());
        QuantizedValues codes;
        quantize(kind, unit, floats, codes);
        std::vector<std::byte> bytes(form.bytes(kValues));
        Matrix want(1, kValues), records(1, std::ssize(bytes));
        for (std::int64_t i = 0; i < kValues / unit; ++i)
          write_record(form, std::span(codes.codes).subspan(i * unit, unit), codes.factors[i],
                       bytes.data() + i * form.record_bytes());
        for (std::size_t i = 0; i < bytes.size(); ++i)
          records.values[i] = std::to_integer<int>(bytes[i]);
        for (std::int64_t i = 0; i < kValues; ++i) want.values[i] = codes.value(kind, i, unit);
        const Operand packed(records, DType::u8), out(1, kValues, type);
        backend->run(ops::Dequantize{out, packed, form});
        EXPECT_TRUE(close(out, want, rounded_to(type)))
            << kQuantizations[static_cast<int>(kind)] << ' ' << unit;
      }
}

TEST(Dequantize, RefusesRowsThatAreNotWhole) {
  const Operand out(1, 96, DType::f32), records(1, 60, DType::u8);
  expect_refusal("96 values, want a multiple of 64",
                 ops::Dequantize{out, records, {Quantization::nf4, 32}});
}
