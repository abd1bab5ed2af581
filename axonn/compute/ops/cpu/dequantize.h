#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/cpu/codes.h"
#include "axonn/compute/ops/cpu/registers.h"
#include "axonn/compute/tensor/quantization.h"

// The values of codes.

namespace axonn::cpu {

/// The values of codes of 4 bits, of a factor of 1.
template <Quantization kind>
constexpr std::array<float, 16> kHalfByteValues = [] {
  std::array<float, 16> values{};
  for (unsigned code = 0; code < 16; ++code) values[code] = dequantized(kind, code, 1);
  return values;
}();

/// A register of values from codes of a record, of which the first is code `at`.
template <Quantization kind>
[[gnu::always_inline]] inline Registers::Register register_of(const QuantizedForm& form,
                                                              const std::uint8_t* record, int at) {
  const std::uint8_t* const codes = record + form.factor_bytes();
  const float factor = is_of_ggml(kind) ? detail::from_f16(record) : record_factor<kind>(record);
  if constexpr (QuantizedForm{kind}.half_bytes())
    return detail::from_half_bytes(codes + at % (form.unit / 2), at >= form.unit / 2,
                                   kHalfByteValues<kind>) *
           factor;
  const Registers::Register x = detail::from_bytes(codes + at) * factor;
  return kind == Quantization::int8 ? x / 127.0f : x;
}

/// Writes `count` values from records of `unit` values, a constant or not, which are at least as
/// many as a register has floats; with codes of 4 bits at least twice as many. Prefetches what lies
/// `ahead` bytes behind, which a later call reads.
template <Quantization kind, typename T>
void dequantize_strips(auto unit, const std::uint8_t* __restrict records, std::int64_t count,
                       T* __restrict out, std::int64_t ahead) {
  constexpr int kStrip = Floats::kCount, kEach = Floats::kEach;
  const QuantizedForm form{kind, unit};
  const std::int64_t bytes = form.record_bytes();
  const auto strip = [&](auto n) __attribute__((always_inline)) {
    Floats x;
    Floats::for_each([&](int i) __attribute__((always_inline)) {
      const int at = i * kEach;
      if (at < n) x.r[i] = register_of<kind>(form, records + at / unit * bytes, at % unit);
    });
    store<Order::memory>(out, x, n);
  };
  for (; count >= kStrip; count -= kStrip, records += form.bytes(kStrip), out += kStrip) {
    __builtin_prefetch(records + ahead);
    strip(Whole{});
  }
  if (count > 0) strip(static_cast<int>(count));
}

/// Writes the values of so many records, and prefetches as many behind them. Units below a
/// register's floats, those of grids that cut blocks, take longer.
template <Quantization kind, typename T>
void dequantize(std::int64_t unit, const std::uint8_t* __restrict records, std::int64_t count,
                T* __restrict out) {
  constexpr int kWhole = static_cast<int>(QuantizedForm::most_unit(kind));
  const std::int64_t ahead = QuantizedForm{kind, unit}.bytes(count * unit);
  if (unit == kWhole)
    return dequantize_strips<kind>(std::integral_constant<int, kWhole>{}, records, count * unit,
                                   out, ahead);
  if (unit >= (QuantizedForm{kind}.half_bytes() ? 2 : 1) * Registers::kEach)
    return dequantize_strips<kind>(static_cast<int>(unit), records, count * unit, out, ahead);
  const QuantizedForm form{kind, unit};
  for (; count > 0; --count, records += form.record_bytes(), out += unit) {
    const std::uint8_t* const codes = records + form.factor_bytes();
    for (std::int64_t i = 0; i < unit; ++i)
      put(out[i], dequantized(kind, form.code(codes, i), record_factor<kind>(records)));
  }
}

}  // namespace axonn::cpu
