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

constexpr int kSmall = 32, kLarge = LargeBlock::kValues;  // values of a block

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

template <Quantization kind>
void make_small(SmallBlock x, std::byte* out) {
  std::array<std::uint8_t, kSmall> codes;
  const float factor = quantize_block(kind, x, codes.data());
  write_record({kind, kSmall}, codes, factor, out);
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

template <Quantization kind>
void make_large(std::span<const float, LargeBlock::kValues> x, std::byte* out) {
  make_large_block(kind, x, out);
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
      return make_all<kSmall, 18, make_small<Quantization::q4_0>>;
    case 3:
      return make_all<kSmall, 20, make_q4_1>;
    case 6:
      return make_all<kSmall, 22, make_small<Quantization::q5_0>>;
    case 7:
      return make_all<kSmall, 24, make_q5_1>;
    case 8:
      return make_all<kSmall, 34, make_small<Quantization::q8_0>>;
    case 11:
      return make_all<kLarge, 110, make_large<Quantization::q3_k>>;
    case 12:
      return make_all<kLarge, 144, make_large<Quantization::q4_k>>;
    case 13:
      return make_all<kLarge, 176, make_large<Quantization::q5_k>>;
    case 14:
      return make_all<kLarge, 210, make_large<Quantization::q6_k>>;
    case 39:
      return make_all<kSmall, 17, make_mxfp4>;
    default:
      return nullptr;
  }
}

}  // namespace axonn
