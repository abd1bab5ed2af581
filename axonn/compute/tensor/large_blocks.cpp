#include "axonn/compute/tensor/large_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace axonn {

namespace {

constexpr int kLarge = LargeBlock::kValues, kPart = LargeBlock::kPart4;

using Part = std::span<const float, kPart>;
using LargeValues = std::span<const float, kLarge>;

/// Stores a factor in f16 and returns what that stands for.
float put_half(std::uint8_t* out, float value) {
  f16 half;
  put(half, value);
  std::memcpy(out, &half, sizeof half);
  return get(half);
}

float inverse(float scale) { return scale == 0 ? 0 : 1 / scale; }

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
ScaledPart fit_part(Part x, const ScaledPart& of, double& squares) {
  double sum_c = 0, sum_cc = 0, sum_x = 0, sum_cx = 0;
  std::array<double, kPart> codes;
  const float by = inverse(of.scale);
  for (int i = 0; i < kPart; ++i) {
    codes[i] = nearest_code(x[i] + of.least, by, 0, 15);
    sum_c += codes[i];
    sum_cc += codes[i] * codes[i];
    sum_x += x[i];
    sum_cx += codes[i] * x[i];
  }
  const double spread = kPart * sum_cc - sum_c * sum_c;
  squares = std::numeric_limits<double>::infinity();
  if (spread <= 0) return of;
  double scale = (kPart * sum_cx - sum_c * sum_x) / spread,
         least = (sum_cc * sum_x - sum_c * sum_cx) / spread;
  if (least > 0) {
    least = 0;
    scale = sum_cx / sum_cc;
  }
  squares = 0;
  for (int i = 0; i < kPart; ++i) squares += std::pow(scale * codes[i] + least - x[i], 2);
  return {static_cast<float>(scale), static_cast<float>(-least)};
}

/// The best of those that fit codes of several ranges, and codes that follow from the fit.
ScaledPart part_above_least(Part x) {
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
std::pair<unsigned, unsigned> six_bits_of(Part x, const ScaledPart& part, float scale,
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
void make_q4_k(LargeValues x, std::uint8_t* out) {
  constexpr int kParts = kLarge / kPart, kMost = 63;
  std::array<ScaledPart, kParts> parts;
  float largest_scale = 0, largest_least = 0;
  for (int part = 0; part < kParts; ++part) {
    parts[part] = part_above_least(Part(x.data() + part * kPart, kPart));
    largest_scale = std::max(largest_scale, parts[part].scale);
    largest_least = std::max(largest_least, parts[part].least);
  }
  const float scale = put_half(out, largest_scale / kMost),
              least = put_half(out + LargeBlock::kLeast4, largest_least / kMost);
  std::uint8_t* const packed = out + LargeBlock::kScales4;
  std::fill_n(packed, LargeBlock::kCodes4 - LargeBlock::kScales4, std::uint8_t{0});
  std::array<unsigned, kLarge> codes;
  for (int part = 0; part < kParts; ++part) {
    const Part values(x.data() + part * kPart, kPart);
    const auto [own, from] = six_bits_of(values, parts[part], scale, least);
    const float by = inverse(scale * static_cast<float>(own)),
                less = least * static_cast<float>(from);
    for (int i = 0; i < kPart; ++i)
      codes[part * kPart + i] = nearest_code(values[i] + less, by, 0, 15);
    if (part < 4) {
      packed[part] |= own;
      packed[part + 4] |= from;
    } else {
      packed[part + 4] |= (own & 15U) | (from & 15U) << 4;
      packed[part - 4] |= own >> 4 << 6;
      packed[part] |= from >> 4 << 6;
    }
  }
  out += LargeBlock::kCodes4;
  for (int i = 0; i < kLarge; i += 2 * kPart)
    for (int j = i; j < i + kPart; ++j)
      *out++ = static_cast<std::uint8_t>(codes[j] | codes[j + kPart] << 4);
}

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
void make_q6_k(LargeValues x, std::uint8_t* out) {
  constexpr int kEach = LargeBlock::kPart6, kParts = kLarge / kEach;
  std::array<float, kParts> scales;
  float most = 0;
  for (int part = 0; part < kParts; ++part) {
    scales[part] = scale_of_six_bits(x.subspan(part * kEach, kEach));
    if (std::abs(scales[part]) > std::abs(most)) most = scales[part];
  }
  const float scale = put_half(out + LargeBlock::kFactor6, most / -128);
  std::array<unsigned, kLarge> codes;
  for (int part = 0; part < kParts; ++part) {
    const int number =
        static_cast<int>(nearest_code(scales[part], inverse(scale), -128, 127)) - 128;
    out[LargeBlock::kScales6 + part] =
        static_cast<std::uint8_t>(static_cast<std::int8_t>(scale == 0 ? 0 : number));
    const float by = inverse(scale * static_cast<float>(scale == 0 ? 0 : number));
    for (int i = part * kEach; i < (part + 1) * kEach; ++i)
      codes[i] = nearest_code(x[i], by, -32, 31);
  }
  for (int i = 0; i < kLarge; i += 128)
    for (int j = i; j < i + 64; ++j)
      *out++ = static_cast<std::uint8_t>((codes[j] & 15U) | (codes[j + 64] & 15U) << 4);
  for (int i = 0; i < kLarge; i += 128)
    for (int j = i; j < i + 32; ++j)
      *out++ = static_cast<std::uint8_t>(codes[j] >> 4 | codes[j + 32] >> 4 << 2 |
                                         codes[j + 64] >> 4 << 4 | codes[j + 96] >> 4 << 6);
}

}  // namespace

void make_large_block(Quantization kind, std::span<const float, LargeBlock::kValues> values,
                      std::byte* record) {
  (kind == Quantization::q4_k ? make_q4_k : make_q6_k)(values,
                                                       reinterpret_cast<std::uint8_t*>(record));
}

}  // namespace axonn
