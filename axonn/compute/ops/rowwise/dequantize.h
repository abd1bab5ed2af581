#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/quantization.h"

namespace axonn::rowwise {

/// Writes a row of kMostUnit values, one team per row. Bound by the look-ups on a CPU, by memory on
/// GPUs: form.bytes(n) + n · sizeof(T) bytes.
template <Quantization kind, typename T>
struct DequantizeKernel {
  T* out;                       // (R · kMostUnit)
  const std::uint8_t* records;  // (R · kMostUnit / unit) records
  int unit;

  static constexpr int kRow = QuantizedForm::kMostUnit;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const QuantizedForm form{kind, unit};
    const int each = unit;
    const auto bytes = static_cast<int>(form.record_bytes()),
               header = static_cast<int>(form.factor_bytes());
    const std::uint8_t* const first = records + row * (kRow / each * bytes);
    T* const y = out + row * kRow;
    team.each(kRow / 2, [=](int pair) {  // both values have codes in one unit
      const int at = 2 * pair, in = at % each;
      const std::uint8_t *const record = first + at / each * bytes, *const codes = record + header;
      const float factor = factor_of(record);
      unsigned a = 0, b = 0;
      if (form.half_bytes()) {
        a = codes[in / 2] >> 4;
        b = codes[in / 2] & 15;
      } else {
        a = codes[in];
        b = codes[in + 1];
      }
      put_two(y + at, dequantized(kind, a, factor), dequantized(kind, b, factor));
    });
  }

 private:
  /// Records begin anywhere, so words are put together from bytes.
  AXONN_DEVICE static float factor_of(const std::uint8_t* record) {
    if constexpr (kind == Quantization::q8_0) {
      return get(f16{static_cast<std::uint16_t>(record[0] | record[1] << 8)});
    } else {
      std::uint32_t bits = 0;
      for (int i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(record[i]) << 8 * i;
      return std::bit_cast<float>(bits);
    }
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Calls f with a kernel's kind as a type.
void with_quantization(Quantization kind, auto f) {
  const auto as = [&]<Quantization which>() {
    if (kind == which) f(std::integral_constant<Quantization, which>{});
  };
  as.template operator()<Quantization::nf4>();
  as.template operator()<Quantization::fp4>();
  as.template operator()<Quantization::int8>();
  as.template operator()<Quantization::q8_0>();
}

void Dequantize::run(auto launch, const Checker& check) const {
  constexpr std::int64_t kRow = QuantizedForm::kMostUnit;
  check.values("out", out, 1, out.cols);
  AXONN_CHECK(out.cols % kRow == 0, "dequantize: ", out.cols, " values, want a multiple of ", kRow);
  check.typed("records", records, DType::u8, 1, form.bytes(out.cols));
  with_quantization(form.kind, [&](auto kind) {
    with_type(out.dtype, [&]<typename T>(T) {
      launch.rows(
          {out.cols / kRow, kRow},
          rowwise::DequantizeKernel<kind(), T>{
              address<T>(out), address<const std::uint8_t>(records), static_cast<int>(form.unit)});
    });
  });
}

}  // namespace axonn::ops
