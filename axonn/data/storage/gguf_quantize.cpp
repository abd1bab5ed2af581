#include "axonn/data/storage/gguf_quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "axonn/compute/tensor/quantization.h"

namespace axonn {

namespace {

constexpr int kSmall = 32, kLarge = 256;  // values of a block

using SmallBlock = std::span<const float, kSmall>;
using SmallCodes = std::array<unsigned, kSmall>;

void put_byte(std::byte*& out, unsigned value) { *out++ = static_cast<std::byte>(value); }

/// Writes a scale in f16.
void put_half(std::byte*& out, float value) {
  f16 half;
  put(half, value);
  put_byte(out, half.bits & 255U);
  put_byte(out, half.bits >> 8);
}

float inverse(float scale) { return scale == 0 ? 0 : 1 / scale; }

/// Writes the lower halves of codes: those of values 0 to 15 first in each byte.
void put_half_bytes(std::byte*& out, const auto& codes) {
  for (int i = 0; i < kSmall / 2; ++i)
    put_byte(out, (codes[i] & 15U) | (codes[i + kSmall / 2] & 15U) << 4);
}

void put_fifth_bits(std::byte*& out, const SmallCodes& codes) {
  std::uint32_t bits = 0;
  for (int i = 0; i < kSmall; ++i) bits |= (codes[i] >> 4) << i;
  for (int i = 0; i < 4; ++i) put_byte(out, bits >> 8 * i & 255U);
}

/// The codes of 5 bits of a scale alone, where the value of the largest size has code 0.
SmallCodes codes_of_scale(SmallBlock x, float& scale) {
  float most = x[0];
  for (const float value : x)
    if (std::abs(value) > std::abs(most)) most = value;
  scale = most / -16;
  const float by = inverse(scale);
  SmallCodes codes;
  for (int i = 0; i < kSmall; ++i)
    codes[i] = std::min(static_cast<unsigned>(static_cast<float>(double{x[i]} * by + 16.5)), 31U);
  return codes;
}

/// The codes from 0 to `last` of a scale and a least value.
SmallCodes codes_above_least(SmallBlock x, unsigned last, float& scale, float& least) {
  const auto [low, high] = std::ranges::minmax(x);
  least = low;
  scale = (high - low) / static_cast<float>(last);
  const float by = inverse(scale);
  SmallCodes codes;
  for (int i = 0; i < kSmall; ++i) {
    const float shifted = (x[i] - low) * by;
    codes[i] = std::min(static_cast<unsigned>(shifted + 0.5F), last);
  }
  return codes;
}

void make_q4_0(SmallBlock x, std::byte* out) {
  std::array<std::uint8_t, kSmall> codes;
  put_half(out, quantize_block(Quantization::q4_0, x, codes.data()));
  put_half_bytes(out, codes);
}

void make_q5_0(SmallBlock x, std::byte* out) {
  float scale = 0;
  const SmallCodes codes = codes_of_scale(x, scale);
  put_half(out, scale);
  put_fifth_bits(out, codes);
  put_half_bytes(out, codes);
}

void make_q4_1(SmallBlock x, std::byte* out) {
  float scale = 0, least = 0;
  const SmallCodes codes = codes_above_least(x, 15, scale, least);
  put_half(out, scale);
  put_half(out, least);
  put_half_bytes(out, codes);
}

void make_q5_1(SmallBlock x, std::byte* out) {
  float scale = 0, least = 0;
  const SmallCodes codes = codes_above_least(x, 31, scale, least);
  put_half(out, scale);
  put_half(out, least);
  put_fifth_bits(out, codes);
  put_half_bytes(out, codes);
}

void make_q8_0(SmallBlock x, std::byte* out) {
  std::array<std::uint8_t, kSmall> codes;
  put_half(out, quantize_block(Quantization::q8_0, x, codes.data()));
  for (const unsigned code : codes) put_byte(out, code);
}

/// A power of two as scale, and codes of the doubled values 0 1 2 3 4 6 8 12.
void make_mxfp4(SmallBlock x, std::byte* out) {
  constexpr std::array<float, 16> kValues = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};
  float most = 0;
  for (const float value : x) most = std::max(most, std::abs(value));
  const int exponent = most > 0 ? static_cast<int>(std::floor(std::log2(most))) - 2 + 127 : 0;
  const float scale = std::ldexp(1.0F, exponent - 128);
  SmallCodes codes;
  for (int i = 0; i < kSmall; ++i) {
    float nearest = std::numeric_limits<float>::infinity();
    for (unsigned code = 0; code < kValues.size(); ++code) {
      const float off = std::abs(scale * kValues[code] - x[i]);
      if (off >= nearest) continue;
      nearest = off;
      codes[i] = code;
    }
  }
  put_byte(out, static_cast<unsigned>(exponent));
  put_half_bytes(out, codes);
}

/// A part of a block of 256 values as value = scale · code - least.
struct ScaledPart {
  float scale = 0, least = 0;
};

/// The code from `first` to `last` nearest to value · by, counted from `first`.
unsigned nearest_code(float value, float by, float first, float last) {
  constexpr float kRounder = 12582912;  // 1.5 · 2^23: adding it rounds to an integer
  const float code = (std::clamp(value * by, first, last) + kRounder) - kRounder;
  return static_cast<unsigned>(static_cast<int>(code - first));
}

/// The scale and the least value, at most 0, with the least squared error of the codes from 0 to 15
/// that are nearest with scale and least value `of`; and that error.
ScaledPart fit_part(SmallBlock x, const ScaledPart& of, double& squares) {
  double sum_c = 0, sum_cc = 0, sum_x = 0, sum_cx = 0;
  std::array<double, kSmall> codes;
  const float by = inverse(of.scale);
  for (int i = 0; i < kSmall; ++i) {
    codes[i] = nearest_code(x[i] + of.least, by, 0, 15);
    sum_c += codes[i];
    sum_cc += codes[i] * codes[i];
    sum_x += x[i];
    sum_cx += codes[i] * x[i];
  }
  const double spread = kSmall * sum_cc - sum_c * sum_c;
  squares = std::numeric_limits<double>::infinity();
  if (spread <= 0) return of;
  double scale = (kSmall * sum_cx - sum_c * sum_x) / spread,
         least = (sum_cc * sum_x - sum_c * sum_cx) / spread;
  if (least > 0) {
    least = 0;
    scale = sum_cx / sum_cc;
  }
  squares = 0;
  for (int i = 0; i < kSmall; ++i) squares += std::pow(scale * codes[i] + least - x[i], 2);
  return {static_cast<float>(scale), static_cast<float>(-least)};
}

/// The best of those that fit codes of several ranges, and codes that follow from the fit.
ScaledPart part_above_least(SmallBlock x) {
  constexpr int kTries = 31, kRepeats = 4;
  const auto [low, high] = std::ranges::minmax(x);
  const float least = std::min(low, 0.0F);
  if (high <= least) return {0, -least};
  ScaledPart best{(high - least) / 15, -least};
  double fewest = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    ScaledPart part{(high - least) / (13.5F + 0.1F * static_cast<float>(attempt)), -least};
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      double squares = 0;
      part = fit_part(x, part, squares);
      if (squares >= fewest || part.scale <= 0) break;
      fewest = squares;
      best = part;
    }
  }
  return best;
}

/// The 6 bits of a part's scale and of its least value with the least squared error: the nearest,
/// or neighbours, since one can make up for the other's rounding.
std::pair<unsigned, unsigned> six_bits_of(SmallBlock x, const ScaledPart& part, float scale,
                                          float least) {
  constexpr int kMost = 63;
  const int own = static_cast<int>(nearest_code(part.scale, inverse(scale), 0, kMost)),
            from = static_cast<int>(nearest_code(part.least, inverse(least), 0, kMost));
  std::pair<unsigned, unsigned> best;
  double fewest = std::numeric_limits<double>::infinity();
  for (int s = std::max(0, own - 1); s <= std::min(kMost, own + 1); ++s)
    for (int l = std::max(0, from - 1); l <= std::min(kMost, from + 1); ++l) {
      const float each = scale * static_cast<float>(s), by = inverse(each),
                  less = least * static_cast<float>(l);
      double squares = 0;
      for (const float value : x) {
        const auto code = static_cast<float>(nearest_code(value + less, by, 0, 15));
        const double off = double{each} * code - less - value;
        squares += off * off;
      }
      if (squares >= fewest) continue;
      fewest = squares;
      best = {static_cast<unsigned>(s), static_cast<unsigned>(l)};
    }
  return best;
}

/// 8 parts with scales and least values of 6 bits, times two in f16; codes of 4 bits.
void make_q4_k(std::span<const float, kLarge> x, std::byte* out) {
  constexpr int kParts = 8, kMost = 63;
  std::array<ScaledPart, kParts> parts;
  float largest_scale = 0, largest_least = 0;
  for (int part = 0; part < kParts; ++part) {
    parts[part] = part_above_least(SmallBlock(x.data() + part * kSmall, kSmall));
    largest_scale = std::max(largest_scale, parts[part].scale);
    largest_least = std::max(largest_least, parts[part].least);
  }
  f16 halves[2];
  put(halves[0], largest_scale / kMost);
  put(halves[1], largest_least / kMost);
  const float scale = get(halves[0]), least = get(halves[1]);
  std::array<std::uint8_t, 12> packed{};
  std::array<unsigned, kLarge> codes;
  for (int part = 0; part < kParts; ++part) {
    const SmallBlock values(x.data() + part * kSmall, kSmall);
    const auto [own, from] = six_bits_of(values, parts[part], scale, least);
    const float by = inverse(scale * static_cast<float>(own)),
                less = least * static_cast<float>(from);
    for (int i = 0; i < kSmall; ++i)
      codes[part * kSmall + i] = nearest_code(values[i] + less, by, 0, 15);
    if (part < 4) {
      packed[part] |= own;
      packed[part + 4] |= from;
    } else {
      packed[part + 4] |= (own & 15U) | (from & 15U) << 4;
      packed[part - 4] |= own >> 4 << 6;
      packed[part] |= from >> 4 << 6;
    }
  }
  put_half(out, scale);
  put_half(out, least);
  for (const std::uint8_t byte : packed) put_byte(out, byte);
  for (int i = 0; i < kLarge; i += 2 * kSmall)
    for (int j = i; j < i + kSmall; ++j) put_byte(out, codes[j] | codes[j + kSmall] << 4);
}

constexpr int kPart6 = 16;  // values with one scale in Q6_K

/// The scale with the least squared error of codes from -32 to 31.
float scale_of_six_bits(std::span<const float> x) {
  float most = 0;
  for (const float value : x)
    if (std::abs(value) > std::abs(most)) most = value;
  if (most == 0) return 0;
  float best = 0;
  double gained = 0;
  for (int attempt = -12; attempt <= 12; ++attempt) {
    const float by = (-32.0F + 0.1F * static_cast<float>(attempt)) / most;
    double sum_cc = 0, sum_cx = 0;
    for (const float value : x) {
      const double code = static_cast<double>(nearest_code(value, by, -32, 31)) - 32;
      sum_cc += code * code;
      sum_cx += code * value;
    }
    if (sum_cc <= 0 || sum_cx * sum_cx <= gained * sum_cc) continue;
    gained = sum_cx * sum_cx / sum_cc;
    best = static_cast<float>(sum_cx / sum_cc);
  }
  return best;
}

/// 16 parts with scales of 8 bits, times one in f16; codes of 6 bits.
void make_q6_k(std::span<const float, kLarge> x, std::byte* out) {
  constexpr int kParts = kLarge / kPart6;
  std::array<float, kParts> scales;
  float most = 0;
  for (int part = 0; part < kParts; ++part) {
    scales[part] = scale_of_six_bits(x.subspan(part * kPart6, kPart6));
    if (std::abs(scales[part]) > std::abs(most)) most = scales[part];
  }
  f16 half;
  put(half, most / -128);
  const float scale = get(half);
  std::array<unsigned, kLarge> codes;
  std::array<std::uint8_t, kParts> own{};
  for (int part = 0; part < kParts; ++part) {
    const int number =
        static_cast<int>(nearest_code(scales[part], inverse(scale), -128, 127)) - 128;
    own[part] = static_cast<std::uint8_t>(static_cast<std::int8_t>(scale == 0 ? 0 : number));
    const float by = inverse(scale * static_cast<float>(scale == 0 ? 0 : number));
    for (int i = part * kPart6; i < (part + 1) * kPart6; ++i)
      codes[i] = nearest_code(x[i], by, -32, 31);
  }
  for (int i = 0; i < kLarge; i += 128)
    for (int j = i; j < i + 64; ++j) put_byte(out, (codes[j] & 15U) | (codes[j + 64] & 15U) << 4);
  for (int i = 0; i < kLarge; i += 128)
    for (int j = i; j < i + 32; ++j)
      put_byte(out, codes[j] >> 4 | codes[j + 32] >> 4 << 2 | codes[j + 64] >> 4 << 4 |
                        codes[j + 96] >> 4 << 6);
  for (const std::uint8_t byte : own) put_byte(out, byte);
  put_half(out, scale);
}

/// Makes all blocks of a type.
template <int count, std::size_t bytes, void (*make)(std::span<const float, count>, std::byte*)>
void make_all(std::span<const float> values, std::span<std::byte> blocks) {
  std::byte* out = blocks.data();
  for (std::size_t at = 0; at < values.size(); at += count, out += bytes)
    make(std::span<const float, count>(values.data() + at, count), out);
}

}  // namespace

QuantizeGguf find_gguf_quantizer(std::uint32_t number) {
  switch (number) {
    case 2:
      return make_all<kSmall, 18, make_q4_0>;
    case 3:
      return make_all<kSmall, 20, make_q4_1>;
    case 6:
      return make_all<kSmall, 22, make_q5_0>;
    case 7:
      return make_all<kSmall, 24, make_q5_1>;
    case 8:
      return make_all<kSmall, 34, make_q8_0>;
    case 12:
      return make_all<kLarge, 144, make_q4_k>;
    case 14:
      return make_all<kLarge, 210, make_q6_k>;
    case 39:
      return make_all<kSmall, 17, make_mxfp4>;
    default:
      return nullptr;
  }
}

}  // namespace axonn
