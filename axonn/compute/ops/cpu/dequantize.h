#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "axonn/compute/ops/cpu/codes.h"
#include "axonn/compute/ops/cpu/registers.h"
#include "axonn/compute/tensor/quantization.h"

// The values of codes.

namespace axonn::cpu {

/// The values of codes whose fifth bit, if any, is 0, of a factor of 1.
template <Quantization kind>
constexpr std::array<float, 16> kHalfByteValues = [] {
  std::array<float, 16> values{};
  for (unsigned code = 0; code < 16; ++code) values[code] = dequantized(kind, code, {1});
  return values;
}();

/// The numbers 0 to 15.
constexpr std::array<float, 16> kHalfByteNumbers = [] {
  std::array<float, 16> values{};
  for (int code = 0; code < 16; ++code) values[code] = static_cast<float>(code);
  return values;
}();

/// A register of values from codes of a record, of which the first is code `at`.
template <Quantization kind>
[[gnu::always_inline]] inline Registers::Register register_of(const QuantizedForm& form,
                                                              const std::uint8_t* record, int at) {
  const std::uint8_t* const codes = record + form.factor_bytes();
  const float factor = is_of_ggml(kind) && kind != Quantization::mxfp4
                           ? detail::from_f16(record)
                           : record_factors<kind>(record).factor;
  if constexpr (QuantizedForm{kind}.half_bytes()) {
    Registers::Register x =
        detail::from_half_bytes(codes + form.fifth_bytes() + at % (form.unit / 2),
                                at >= form.unit / 2, kHalfByteValues<kind>);
    if constexpr (QuantizedForm{kind}.fifth_bytes() > 0)
      x = detail::plus_if_set(x, codes + at / 8, at % 8, 16);
    if constexpr (has_least_values(kind)) return x * factor + detail::from_f16(record + 2);
    return x * factor;
  }
  const Registers::Register x = detail::from_bytes(codes + at) * factor;
  return kind == Quantization::int8 ? x / 127.0f : x;
}

/// Registers::kEach bytes as pairs: shifts of bytes would each need a mask, and bits that cross
/// from a neighbour are masked anyway.
using BytePairs = std::uint16_t __attribute__((vector_size(Registers::kEach)));

[[gnu::always_inline]] inline BytePairs pairs_at(const std::uint8_t* bytes) {
  BytePairs pairs;
  std::memcpy(&pairs, bytes, sizeof pairs);
  return pairs;
}
[[gnu::always_inline]] inline Registers::Register as_floats(const BytePairs& codes) {
  return detail::from_bytes(reinterpret_cast<const std::uint8_t*>(&codes));
}

/// The codes in the lower or higher halves of Registers::kEach bytes. Registers of 16 floats look
/// them up, which is faster; others would need two tables.
[[gnu::always_inline]] inline Registers::Register from_four_bits(const std::uint8_t* codes,
                                                                 bool higher) {
  if constexpr (Registers::kEach == 16)
    return detail::from_half_bytes(codes, higher, kHalfByteNumbers);
  return as_floats((higher ? pairs_at(codes) >> 4 : pairs_at(codes)) & 0x0f0f);
}

/// `count` bits of each of Registers::kEach bytes, from bit `from` on, moved to bit `to`.
[[gnu::always_inline]] inline BytePairs bits_of(const std::uint8_t* bytes, int count, int from,
                                                int to) {
  const BytePairs moved =
      from < to ? pairs_at(bytes) << (to - from) : pairs_at(bytes) >> (from - to);
  const auto each = static_cast<std::uint16_t>(((1 << count) - 1) * 0x0101 << to);
  return moved & each;
}

/// A record of a large block with the numbers of its parts as floats. Products are exact, so that
/// values are those of record_value(), zeros but for their sign.
template <Quantization kind>
class LargeRecord {
 public:
  [[gnu::always_inline]] explicit LargeRecord(const std::uint8_t* record) : record_(record) {
    const std::uint8_t* const bytes = record + kAt.scales;
    const float factor = detail::from_f16(record + kAt.factor);
    using Words = std::uint32_t __attribute__((vector_size(16)));
    if constexpr (kind == Quantization::q2_k) {
      Words all;
      std::memcpy(&all, bytes, sizeof all);
      set(scales_, all & 0x0f0f0f0f, factor);
      set(least_, all >> 4 & 0x0f0f0f0f, detail::from_f16(record + kAt.least));
    } else if constexpr (has_least_values(kind)) {
      // The 12 bytes of SixBits, as words behind the two factors: scales, then least values.
      Words all;
      std::memcpy(&all, record, sizeof all);
      const Words low = __builtin_shuffle(all, Words{1, 3, 2, 3}) >> Words{0, 0, 0, 4},
                  high = __builtin_shuffle(all, Words{1, 1, 2, 2}) >> 2;
      const Words numbers = (low & Words{0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f}) |
                            (high & Words{0, 0x30303030, 0, 0x30303030});
      set(scales_, numbers, factor);
      set(least_, numbers, detail::from_f16(record + kAt.least));
    } else if constexpr (kind == Quantization::q3_k) {
      // The 12 bytes of six_bit_scale(), of which the last word has the higher bits.
      std::uint32_t word[3];
      std::memcpy(word, bytes, sizeof word);
      const Words low = Words{word[0], word[1], word[0], word[1]} >> Words{0, 0, 4, 4},
                  high = (Words{} + word[2]) >> Words{0, 2, 4, 6},
                  six = (low & 0x0f0f0f0f) | (high & 0x03030303) << 4;
      set(scales_, six, factor, 32);
      set_least(4);
    } else if constexpr (kind == Quantization::iq4_xs) {
      // The bits of a scale are spread over bytes of their own.
      const auto bits = [](std::uint64_t word, int step, std::uint64_t each) {
        return (word | word << step) & each;
      };
      std::uint64_t low = 0, high = 0;
      std::memcpy(&high, bytes, 2);
      std::memcpy(&low, bytes + 2, 4);
      low = bits(bits(bits(low, 16, 0x0000ffff0000ffff), 8, 0x00ff00ff00ff00ff), 4,
                 0x0f0f0f0f0f0f0f0f);
      high = bits(bits(bits(high, 24, 0x000000ff000000ff), 12, 0x000f000f000f000f), 6,
                  0x0303030303030303);
      const std::uint64_t six[2] = {low | high << 4, 0};
      set(scales_, six, factor, 32);
    } else {
      Words all;
      std::memcpy(&all, bytes, sizeof all);
      set(scales_, all, factor);
      set_least(32);
    }
  }

  /// A register of values from value `at` on.
  [[gnu::always_inline]] Registers::Register get(int at) const {
    const int part = at / kAt.part, first = has_least_values(kind) && kAt.part == 32 ? 8 : 0;
    if constexpr (kind == Quantization::iq4_xs) return codes(at) * scales_[part];
    return codes(at) * scales_[part] - least_[first + part];
  }
  /// Of each part what its codes are multiplied by; with least values of 8 parts, these from number
  /// 8 on.
  const float* scales() const { return scales_; }
  const float* least() const { return least_; }

 private:
  static constexpr LargeBlock kAt = LargeBlock::of(kind);

  /// A register of codes as floats, from value `at` on.
  [[gnu::always_inline]] Registers::Register codes(int at) const {
    const int half = at / 128, in = at % 128;
    const std::uint8_t *const low = record_ + kAt.low, *const high = record_ + kAt.high;
    if constexpr (kind == Quantization::iq4_xs)
      return detail::from_half_bytes(low + at / 32 * 16 + at % 16, at % 32 >= 16,
                                     kHalfByteValues<Quantization::iq4_nl>);
    if constexpr (kind == Quantization::q2_k)
      return as_floats(bits_of(low + half * 32 + in % 32, 2, in / 32 * 2, 0));
    if constexpr (kind == Quantization::q3_k)
      return as_floats(bits_of(low + half * 32 + in % 32, 2, in / 32 * 2, 0) |
                       bits_of(high + at % 32, 1, at / 32, 2));
    if constexpr (kind == Quantization::q6_k)
      return as_floats(bits_of(low + half * 64 + in % 64, 4, in / 64 * 4, 0) |
                       bits_of(high + half * 32 + in % 32, 2, in / 32 * 2, 4));
    const std::uint8_t* const halves = low + at / 64 * 32 + at % 32;
    if constexpr (kind == Quantization::q5_k)
      return as_floats(bits_of(halves, 4, at % 64 / 32 * 4, 0) |
                       bits_of(high + at % 32, 1, at / 32, 4));
    return from_four_bits(halves, at % 64 >= 32);
  }
  /// Sets sixteen numbers from bytes, less `below` each, times the factor.
  [[gnu::always_inline]] static void set(float (&out)[16], const auto& numbers, float factor,
                                         float below = 0) {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&numbers);
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += Registers::kEach)
      *reinterpret_cast<Floats::Unaligned*>(out + i) =
          (detail::from_bytes(bytes + i) - below) * factor;
  }
  /// Makes the codes of all parts begin that far below 0.
  [[gnu::always_inline]] void set_least(float below) {
    using Vector = Floats::Unaligned;
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += Registers::kEach)
      *reinterpret_cast<Vector*>(least_ + i) =
          *reinterpret_cast<const Vector*>(scales_ + i) * below;
  }

  const std::uint8_t* record_;
  float scales_[16], least_[16];
};

/// Writes the values of so many records of large blocks.
template <Quantization kind, typename T>
void dequantize_large(const std::uint8_t* __restrict records, std::int64_t count,
                      T* __restrict out) {
  constexpr int kStrip = Floats::kCount, kBlock = LargeBlock::kValues;
  static_assert(kBlock % kStrip == 0);
  const std::int64_t bytes = QuantizedForm{kind, kBlock}.record_bytes(), ahead = count * bytes;
  for (; count > 0; --count, records += bytes, out += kBlock) {
    const LargeRecord<kind> record(records);
#pragma GCC unroll 4
    for (int first = 0; first < kBlock; first += kStrip) {
      Floats x;
      Floats::for_each([&](int i) __attribute__((always_inline)) {
        x.r[i] = record.get(first + i * Floats::kEach);
      });
      __builtin_prefetch(records + ahead + first);
      store<Order::memory>(out + first, x, Whole{});
    }
  }
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
  if constexpr (has_large_blocks(kind)) return dequantize_large<kind>(records, count, out);
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
      put(out[i], dequantized(kind, form.code(codes, i), record_factors<kind>(records)));
  }
}

/// Writes the values of the codes of so many heads (HeadCodes), which follow one another, and
/// prefetches as many behind them.
template <typename T>
void dequantize_heads(const std::uint8_t* __restrict codes, std::int64_t heads, std::int64_t D,
                      T* __restrict out) {
  constexpr Quantization kKind = Quantization::q8_0;
  constexpr int kRecord = HeadCodes::kRecord, kEach = Floats::kEach, kStrip = Floats::kCount;
  if (D % kRecord == 0) return dequantize<kKind>(kRecord, codes, heads * (D / kRecord), out);
  constexpr QuantizedForm kForm{kKind, kRecord};
  const std::int64_t bytes = HeadCodes::bytes(D), whole = D / kStrip * kStrip, rest = D - whole;
  const std::int64_t of_whole = HeadCodes::bytes(whole);
  for (; heads > 0; --heads, codes += bytes, out += D) {
    dequantize<kKind>(kRecord, codes, whole / kRecord, out);
    // The records of a strip: registers of codes may go beyond those that are left.
    std::uint8_t records[2 * HeadCodes::kRecordBytes] = {};
    static_assert(kStrip == 2 * kRecord);
    std::memcpy(records, codes + of_whole, bytes - of_whole);
    Floats x;
    Floats::for_each([&](int i) __attribute__((always_inline)) {
      x.r[i] = register_of<kKind>(kForm, records + i * kEach / kRecord * HeadCodes::kRecordBytes,
                                  i * kEach % kRecord);
    });
    store<Order::memory>(out + whole, x, static_cast<int>(rest));
  }
}

}  // namespace axonn::cpu
