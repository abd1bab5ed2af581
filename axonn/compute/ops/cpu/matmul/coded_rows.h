#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/cpu/codes.h"
#include "axonn/compute/ops/cpu/registers.h"
#include "axonn/compute/tensor/quantization.h"

// The values of codes in registers, and in memory.

namespace axonn::cpu {

/// The values of codes of 4 bits, of a factor of 1.
template <Quantization kind>
constexpr std::array<float, 16> kHalfByteValues = [] {
  std::array<float, 16> values{};
  for (unsigned code = 0; code < 16; ++code) values[code] = dequantized(kind, code, 1);
  return values;
}();

/// A row of records of q8_0 with units of 32 values, of which a register holds as many T, f32 or
/// bf16, as it does of a row in memory.
template <typename T>
struct Q8Row {
  static constexpr int kUnit = 32, kBytes = 34, kBytesAhead = 4096;
  static constexpr int kEach = sizeof(Registers::Register) / sizeof(T);
  const std::uint8_t* records;

  /// Values first + offset to first + offset + kEach of the row; `first` begins a record.
  [[gnu::always_inline]] Registers::Register get(std::int64_t first, int offset) const {
    const std::uint8_t* const record = records + first / kUnit * kBytes + offset / kUnit * kBytes;
    const float factor = detail::from_f16(record);
    const std::uint8_t* const codes = record + 2 + offset % kUnit;
    const Registers::Register low = detail::from_bytes(codes) * factor;
    if constexpr (std::is_same_v<T, float>)
      return low;
    else
      return detail::narrow_two(low, detail::from_bytes(codes + Registers::kEach) * factor);
  }
  [[gnu::always_inline]] void prefetch(std::int64_t first, int offset) const {
    if (offset % (2 * kUnit) == 0)
      __builtin_prefetch(records + (first + offset) / kUnit * kBytes + kBytesAhead);
  }
};

/// A row of values in memory, as Q8Row.
template <typename T>
struct PlainRow {
  static constexpr int kBytesAhead = 4096;
  const T* values;

  [[gnu::always_inline]] Registers::Register get(std::int64_t first, int offset) const {
    return *reinterpret_cast<const Floats::Unaligned*>(values + first + offset);
  }
  [[gnu::always_inline]] void prefetch(std::int64_t first, int offset) const {
    __builtin_prefetch(reinterpret_cast<const char*>(values + first + offset) + kBytesAhead);
  }
};

/// A register of values from codes of a record, of which the first is code `at`.
template <Quantization kind>
[[gnu::always_inline]] inline Registers::Register register_of(const QuantizedForm& form,
                                                              const std::uint8_t* record, int at) {
  const std::uint8_t* const codes = record + form.factor_bytes();
  const float factor = is_of_ggml(kind) ? detail::from_f16(record) : record_factor<kind>(record);
  if constexpr (QuantizedForm{kind}.half_bytes())
    return detail::from_half_bytes(codes + at / 2, kHalfByteValues<kind>) * factor;
  const Registers::Register x = detail::from_bytes(codes + at) * factor;
  return kind == Quantization::int8 ? x / 127.0f : x;
}

/// Writes `count` values from records of `unit` values, a constant or not: at least a register's.
template <Quantization kind, typename T>
void dequantize_strips(auto unit, const std::uint8_t* __restrict records, std::int64_t count,
                       T* __restrict out) {
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
  for (; count >= kStrip; count -= kStrip, records += form.bytes(kStrip), out += kStrip)
    strip(Whole{});
  if (count > 0) strip(static_cast<int>(count));
}

/// Writes the values of so many records. Units below a register's floats, those of grids that cut
/// blocks, take longer.
template <Quantization kind, typename T>
void dequantize(std::int64_t unit, const std::uint8_t* __restrict records, std::int64_t count,
                T* __restrict out) {
  constexpr int kWhole = static_cast<int>(QuantizedForm::most_unit(kind));
  if (unit == kWhole)
    return dequantize_strips<kind>(std::integral_constant<int, kWhole>{}, records, count * unit,
                                   out);
  if (unit >= Registers::kEach)
    return dequantize_strips<kind>(static_cast<int>(unit), records, count * unit, out);
  const QuantizedForm form{kind, unit};
  for (; count > 0; --count, records += form.record_bytes(), out += unit) {
    const std::uint8_t* const codes = records + form.factor_bytes();
    for (std::int64_t i = 0; i < unit; ++i) {
      const unsigned code =
          form.half_bytes() ? (codes[i / 2] >> (i % 2 == 0 ? 4 : 0)) & 15 : codes[i];
      put(out[i], dequantized(kind, code, record_factor<kind>(records)));
    }
  }
}

}  // namespace axonn::cpu
