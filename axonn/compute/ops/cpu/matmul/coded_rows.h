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

namespace detail {

/// Finite floats rounded as by put() to bf16, each in the upper half of its word.
[[gnu::always_inline]] inline Registers::Words rounded_words(const Registers::Register& x) {
  const auto bits = reinterpret_cast<Registers::Words>(x);
  return (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000u;
}

/// Stores finite floats, rounded as by put().
[[gnu::always_inline]] inline void store_register(float* to, const Registers::Register& x) {
  *reinterpret_cast<Registers::Unaligned*>(to) = x;
}
[[gnu::always_inline]] inline void store_register(bf16* to, const Registers::Register& x) {
  store_lower(to, rounded_words(x) >> 16);
}
[[gnu::always_inline]] inline void store_register(f16* to, const Registers::Register& x) {
  for (int i = 0; i < Registers::kEach; ++i) put(to[i], x[i]);
}

}  // namespace detail

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
    if constexpr (std::is_same_v<T, float>) {
      return detail::from_bytes(codes) * factor;
    } else {
      Registers::Register even, odd;
      detail::pairs_from_bytes(codes, even, odd);
      return reinterpret_cast<Registers::Register>(detail::rounded_words(even * factor) >> 16 |
                                                   detail::rounded_words(odd * factor));
    }
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

/// Writes the values of so many records. Units below a register's floats, those of grids that cut
/// blocks, take longer.
template <Quantization kind, typename T>
void dequantize(std::int64_t unit, const std::uint8_t* __restrict records, std::int64_t count,
                T* __restrict out) {
  constexpr int kEach = Registers::kEach;
  const QuantizedForm form{kind, unit};
  for (; count > 0; --count, records += form.record_bytes(), out += unit) {
    const float factor =
        kind == Quantization::q8_0 ? detail::from_f16(records) : record_factor<kind>(records);
    const std::uint8_t* const codes = records + form.factor_bytes();
    if (unit % kEach == 0) {
      for (std::int64_t at = 0; at < unit; at += kEach) {
        Registers::Register x;
        if constexpr (kind == Quantization::nf4 || kind == Quantization::fp4)
          x = detail::from_half_bytes(codes + at / 2, kHalfByteValues<kind>) * factor;
        else
          x = detail::from_bytes(codes + at) * factor;
        if (kind == Quantization::int8) x /= 127.0f;
        detail::store_register(out + at, x);
      }
      continue;
    }
    for (std::int64_t i = 0; i < unit; ++i) {
      const unsigned code =
          form.half_bytes() ? (codes[i / 2] >> (i % 2 == 0 ? 4 : 0)) & 15 : codes[i];
      put(out[i], dequantized(kind, code, factor));
    }
  }
}

}  // namespace axonn::cpu
