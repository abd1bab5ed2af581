#include "axonn/compute/tensor/large_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace axonn {

namespace {

constexpr int kLarge = LargeBlock::kValues, kPart = 32;  // values with one least value

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

/// The scale and the least value, at most 0, with the least squared error of the codes from 0 to
/// `last` that are nearest with scale and least value `of`; and that error.
ScaledPart fit_part(Part x, float last, const ScaledPart& of, double& squares) {
  double sum_c = 0, sum_cc = 0, sum_x = 0, sum_cx = 0;
  std::array<double, kPart> codes;
  const float by = inverse(of.scale);
  for (int i = 0; i < kPart; ++i) {
    codes[i] = nearest_code(x[i] + of.least, by, 0, last);
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
ScaledPart part_above_least(Part x, float last) {
  constexpr int kTries = 31, kRepeats = 4;
  const auto [low, high] = std::ranges::minmax(x);
  const float least = std::min(low, 0.0F);
  if (high <= least) return {0, -least};
  ScaledPart best{(high - least) / last, -least};
  double fewest = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const float codes = last - 1.5F + 0.1F * static_cast<float>(attempt);
    ScaledPart part{(high - least) / codes, -least};
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      double squares = 0;
      part = fit_part(x, last, part, squares);
      if (squares >= fewest || part.scale <= 0) break;
      fewest = squares;
      best = part;
    }
  }
  return best;
}

/// The 6 bits of a part's scale and of its least value with the least squared error: the nearest,
/// or neighbours, since one can make up for the other's rounding.
std::pair<unsigned, unsigned> six_bits_of(Part x, float last, const ScaledPart& part,
                                          const ScaledPart& factors) {
  constexpr int kMost = 63;
  const auto& [scale, least] = factors;
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
        const auto code = static_cast<float>(nearest_code(value + less, by, 0, last));
        const double off = double{each} * code - less - value;
        squares += off * off;
      }
      if (squares >= fewest) continue;
      fewest = squares;
      best = {static_cast<unsigned>(s), static_cast<unsigned>(l)};
    }
  return best;
}

/// 8 parts with scales and least values of 6 bits, times two in f16; codes of 4 or 5 bits.
template <Quantization kind>
void make_above_least(LargeValues x, std::uint8_t* out) {
  constexpr LargeBlock kAt = LargeBlock::of(kind);
  constexpr int kParts = kLarge / kPart, kMost = 63;
  constexpr float kLast = kind == Quantization::q5_k ? 31 : 15;
  std::array<ScaledPart, kParts> parts;
  float largest_scale = 0, largest_least = 0;
  for (int part = 0; part < kParts; ++part) {
    parts[part] = part_above_least(Part(x.data() + part * kPart, kPart), kLast);
    largest_scale = std::max(largest_scale, parts[part].scale);
    largest_least = std::max(largest_least, parts[part].least);
  }
  const ScaledPart factors{put_half(out + kAt.factor, largest_scale / kMost),
                           put_half(out + kAt.least, largest_least / kMost)};
  std::uint8_t* const packed = out + kAt.scales;
  std::fill(packed, out + kAt.low, std::uint8_t{0});
  std::array<unsigned, kLarge> codes;
  for (int part = 0; part < kParts; ++part) {
    const Part values(x.data() + part * kPart, kPart);
    const auto [own, from] = six_bits_of(values, kLast, parts[part], factors);
    const float by = inverse(factors.scale * static_cast<float>(own)),
                less = factors.least * static_cast<float>(from);
    for (int i = 0; i < kPart; ++i)
      codes[part * kPart + i] = nearest_code(values[i] + less, by, 0, kLast);
    if (part < 4) {
      packed[part] |= own;
      packed[part + 4] |= from;
    } else {
      packed[part + 4] |= (own & 15U) | (from & 15U) << 4;
      packed[part - 4] |= own >> 4 << 6;
      packed[part] |= from >> 4 << 6;
    }
  }
  if constexpr (kind == Quantization::q5_k)
    for (int i = 0; i < kLarge; ++i) out[kAt.high + i % 32] |= codes[i] >> 4 << i / 32;
  out += kAt.low;
  for (int i = 0; i < kLarge; i += 2 * kPart)
    for (int j = i; j < i + kPart; ++j)
      *out++ = static_cast<std::uint8_t>((codes[j] & 15U) | (codes[j + kPart] & 15U) << 4);
}

/// The scale with the least squared error of codes from -below to below - 1.
float scale_of_codes(std::span<const float> x, float below) {
  float most = 0;
  for (const float value : x)
    if (std::abs(value) > std::abs(most)) most = value;
  if (most == 0) return 0;
  float best = 0;
  double gained = 0;
  for (int attempt = -12; attempt <= 12; ++attempt) {
    const float by = (0.1F * static_cast<float>(attempt) - below) / most;
    double sum_cc = 0, sum_cx = 0;
    for (const float value : x) {
      const double code = static_cast<double>(nearest_code(value, by, -below, below - 1)) - below;
      sum_cc += code * code;
      sum_cx += code * value;
    }
    if (sum_cc <= 0 || sum_cx * sum_cx <= gained * sum_cc) continue;
    gained = sum_cx * sum_cx / sum_cc;
    best = static_cast<float>(sum_cx / sum_cc);
  }
  return best;
}

/// The codes, counted from -below, of 16 parts with scales of so many numbers on each side of 0,
/// times one in f16, which is stored. Calls put_scale(part, number).
std::array<unsigned, kLarge> codes_around_zero(LargeValues x, float below, float numbers,
                                               std::uint8_t* factor, const auto& put_scale) {
  constexpr int kEach = 16, kParts = kLarge / kEach;
  std::array<float, kParts> scales;
  float most = 0;
  for (int part = 0; part < kParts; ++part) {
    scales[part] = scale_of_codes(x.subspan(part * kEach, kEach), below);
    if (std::abs(scales[part]) > std::abs(most)) most = scales[part];
  }
  const float scale = put_half(factor, most / -numbers);
  std::array<unsigned, kLarge> codes;
  for (int part = 0; part < kParts; ++part) {
    const float number = scale == 0 ? 0
                                    : static_cast<float>(nearest_code(scales[part], inverse(scale),
                                                                      -numbers, numbers - 1)) -
                                          numbers;
    put_scale(part, static_cast<int>(number));
    const float by = inverse(scale * number);
    for (int i = part * kEach; i < (part + 1) * kEach; ++i)
      codes[i] = nearest_code(x[i], by, -below, below - 1);
  }
  return codes;
}

/// Scales of 8 bits, codes of 6 bits.
void make_q6_k(LargeValues x, std::uint8_t* out) {
  constexpr LargeBlock kAt = LargeBlock::of(Quantization::q6_k);
  const std::array<unsigned, kLarge> codes =
      codes_around_zero(x, 32, 128, out + kAt.factor, [&](int part, int number) {
        out[kAt.scales + part] = static_cast<std::uint8_t>(static_cast<std::int8_t>(number));
      });
  for (int i = 0; i < kLarge; i += 128)
    for (int j = i; j < i + 64; ++j)
      *out++ = static_cast<std::uint8_t>((codes[j] & 15U) | (codes[j + 64] & 15U) << 4);
  for (int i = 0; i < kLarge; i += 128)
    for (int j = i; j < i + 32; ++j)
      *out++ = static_cast<std::uint8_t>(codes[j] >> 4 | codes[j + 32] >> 4 << 2 |
                                         codes[j + 64] >> 4 << 4 | codes[j + 96] >> 4 << 6);
}

/// Scales of 6 bits, codes of 3 bits.
void make_q3_k(LargeValues x, std::uint8_t* out) {
  constexpr LargeBlock kAt = LargeBlock::of(Quantization::q3_k);
  std::uint8_t* const scales = out + kAt.scales;
  std::fill(out, out + kAt.factor, std::uint8_t{0});
  const std::array<unsigned, kLarge> codes =
      codes_around_zero(x, 4, 32, out + kAt.factor, [&](int part, int number) {
        const auto six = static_cast<unsigned>(number + 32);
        scales[part % 8] |= (six & 15U) << part / 8 * 4;
        scales[8 + part % 4] |= six >> 4 << part / 4 * 2;
      });
  for (int i = 0; i < kLarge; ++i) {
    out[kAt.low + i / 128 * 32 + i % 32] |= (codes[i] & 3U) << i % 128 / 32 * 2;
    out[kAt.high + i % 32] |= codes[i] >> 2 << i / 32;
  }
}

}  // namespace

void make_large_block(Quantization kind, std::span<const float, LargeBlock::kValues> values,
                      std::byte* record) {
  const auto make = kind == Quantization::q3_k   ? make_q3_k
                    : kind == Quantization::q4_k ? make_above_least<Quantization::q4_k>
                    : kind == Quantization::q5_k ? make_above_least<Quantization::q5_k>
                                                 : make_q6_k;
  make(values, reinterpret_cast<std::uint8_t*>(record));
}

}  // namespace axonn
