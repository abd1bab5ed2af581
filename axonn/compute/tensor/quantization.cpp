#include "axonn/compute/tensor/quantization.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::int64_t kFourBitBlock = 64;
constexpr float kMostCode = 127;

/// The codes of a kind in the order of their values, and what lies halfway between two of them.
struct OrderedCodes {
  std::array<std::uint8_t, 16> codes;
  std::array<float, 15> thresholds;

  std::uint8_t nearest(float x) const {
    int below = 0;
    for (const float threshold : thresholds) below += x > threshold ? 1 : 0;
    return codes[below];
  }
};

template <typename Value>
OrderedCodes ordered(const std::array<std::uint8_t, 16>& codes, Value value) {
  OrderedCodes all{codes, {}};
  for (std::size_t i = 0; i + 1 < codes.size(); ++i)
    all.thresholds[i] = (value(codes[i]) + value(codes[i + 1])) / 2;
  return all;
}

const OrderedCodes& codes_of(Quantization kind) {
  static const OrderedCodes kNf4 =
      ordered({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, FourBitValues::nf4);
  // Code 8 is -0, but above 0: so the library has it.
  static const OrderedCodes kFp4 =
      ordered({11, 10, 13, 12, 15, 14, 9, 0, 8, 1, 6, 7, 4, 5, 2, 3}, FourBitValues::fp4);
  return kind == Quantization::nf4 ? kNf4 : kFp4;
}

/// Sizes of floats are in the order of their bits, which any processor compares in registers.
float largest_size(std::span<const float> values) {
  std::int32_t most = 0;
  for (const float value : values)
    most = std::max(most, std::bit_cast<std::int32_t>(value) & 0x7fffffff);
  const auto size = std::bit_cast<float>(most);
  if (!std::isfinite(size))
    refuse("a weight is ",
           *std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); }),
           ", which cannot be quantized");
  return size;
}

float as_code(float x) { return std::max(-kMostCode, std::min(kMostCode, x)); }

/// Rounds x of at most 127 to the nearest integer, ties to even: adding a number whose last bit is
/// worth 1 rounds.
std::int8_t round_even(float x) {
  constexpr float kWhole = 3 << 22;
  return static_cast<std::int8_t>(static_cast<std::int32_t>((x + kWhole) - kWhole));
}

/// Returns the factor. Of blocks that are not whole values are divided, not multiplied, as the
/// library does.
float quantize_four_bits(const OrderedCodes& to, std::span<const float> values,
                         std::uint8_t* codes) {
  constexpr float kLeast = 1e-38f;  // of smaller values the inverse is no larger
  const bool whole = std::ssize(values) == kFourBitBlock;
  const float most = largest_size(values), divisor = std::max(most, kLeast),
              inverse = 1.0f / divisor;
  for (std::size_t i = 0; i < values.size(); ++i)
    codes[i] = to.nearest(whole ? values[i] * inverse : values[i] / divisor);
  return most;
}

float quantize_int8(std::span<const float> values, std::uint8_t* codes) {
  const float most = largest_size(values), scale = most == 0 ? 0.0f : kMostCode / most;
  for (std::size_t i = 0; i < values.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(round_even(as_code(values[i] * scale)));
  return most;
}

[[noreturn]] void refuse_factor(Quantization kind, float most) {
  refuse("a weight is ", most, ", of which ", name_of(kind), " has no factor in f16");
}

/// A factor as f16 holds it.
float stored_factor(Quantization kind, float most, float factor) {
  f16 half;
  put(half, factor);
  if (!std::isfinite(get(half))) refuse_factor(kind, most);
  return get(half);
}

float quantize_q8_0(std::span<const float> values, std::uint8_t* codes) {
  const float most = largest_size(values);
  const float factor = q8_0_codes(values.data(), static_cast<int>(values.size()), codes);
  return stored_factor(Quantization::q8_0, most, factor);
}

/// Of q4_0 and q5_0, whose codes begin at 8 or 16 below 0: the first value of the largest size has
/// code 0.
float quantize_below_zero(Quantization kind, std::span<const float> values, std::uint8_t* codes) {
  const float below = kind == Quantization::q4_0 ? 8 : 16, last = 2 * below - 1;
  const float size = largest_size(values);
  const float most = *std::ranges::find(values, size, [](float x) { return std::abs(x); }),
              factor = most / -below, inverse = factor == 0 ? 0.0f : 1.0f / factor;
  for (std::size_t i = 0; i < values.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(
        std::min(static_cast<float>(double{values[i]} * inverse + (below + 0.5)), last));
  return stored_factor(kind, most, factor);
}

/// Of q4_1 and q5_1, whose codes are counted from the least value.
BlockFactors quantize_above_least(Quantization kind, std::span<const float> values,
                                  std::uint8_t* codes) {
  const float last = kind == Quantization::q4_1 ? 15 : 31, most = largest_size(values);
  const auto [low, high] = std::ranges::minmax(values);
  const float factor = (high - low) / last, inverse = factor == 0 ? 0.0f : 1.0f / factor;
  for (std::size_t i = 0; i < values.size(); ++i)
    codes[i] = static_cast<std::uint8_t>(
        std::min(static_cast<float>(double{values[i] - low} * inverse) + 0.5f, last));
  return {stored_factor(kind, most, factor), stored_factor(kind, most, low)};
}

/// Of mxfp4: the largest size has an exponent of 2 in codes, and each value takes the code whose
/// value is nearest, of two the first one, as the package gguf does.
float quantize_mxfp4(std::span<const float> values, std::uint8_t* codes) {
  constexpr int kBias = 127, kMostExponent = 2;
  const float most = largest_size(values);
  const int exponent = most > 0 ? std::ilogb(most) - kMostExponent + kBias : 0;
  const float factor = power_of_two(static_cast<std::uint8_t>(std::max(exponent, 0)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    codes[i] = 0;
    const auto off = [&](unsigned code) {
      return std::abs(FourBitValues::mxfp4(code) * factor - values[i]);
    };
    for (unsigned code = 1; code < 16; ++code)
      if (off(code) < off(codes[i])) codes[i] = static_cast<std::uint8_t>(code);
  }
  return factor;
}

void check_made(Quantization kind) {
  if (is_only_read(kind))
    refuse("blocks of ", name_of(kind), " are read from GGUF files, and not made; ",
           kMadeInsteadOfRead);
}

/// Calls f(i) for so many blocks, by several threads if there are enough. Throws what f does.
void for_blocks(std::int64_t count, std::int64_t enough, const auto& f) {
  std::exception_ptr failure;  // an exception must not leave the parallel region
#pragma omp parallel for if (count > enough)
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      f(i);
    } catch (const UsageError&) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

std::int64_t block_of(Quantization kind, std::int64_t cols) {
  if (kind == Quantization::int8) return cols;
  return QuantizedForm::most_unit(kind);
}

BlockFactors quantize_block(Quantization kind, std::span<const float> values, std::uint8_t* codes) {
  if (kind == Quantization::int8) return {quantize_int8(values, codes)};
  if (kind == Quantization::q8_0) return {quantize_q8_0(values, codes)};
  if (kind == Quantization::mxfp4) return {quantize_mxfp4(values, codes)};
  if (has_least_values(kind)) return quantize_above_least(kind, values, codes);
  if (is_of_ggml(kind)) return {quantize_below_zero(kind, values, codes)};
  return {quantize_four_bits(codes_of(kind), values, codes)};
}

void quantize(Quantization kind, std::int64_t block, std::span<const float> values,
              QuantizedValues& out) {
  check_made(kind);
  out.codes.resize(values.size());
  out.factors.resize((std::ssize(values) + block - 1) / block);
  out.least.resize(has_least_values(kind) ? out.factors.size() : 0);
  constexpr std::int64_t kParallelValues = 1 << 15;
  for_blocks(std::ssize(out.factors), kParallelValues / block, [&](std::int64_t i) {
    const std::int64_t first = i * block;
    const auto part = values.subspan(first, std::min(block, std::ssize(values) - first));
    const BlockFactors of = quantize_block(kind, part, out.codes.data() + first);
    out.factors[i] = of.factor;
    if (!out.least.empty()) out.least[i] = of.least;
  });
}

float QuantizedValues::value(Quantization kind, std::int64_t i, std::int64_t block) const {
  return dequantized(kind, codes[i], of_block(i / block));
}

void write_record(const QuantizedForm& form, std::span<const std::uint8_t> codes,
                  const BlockFactors& factors, std::byte* out) {
  if (form.kind == Quantization::mxfp4) {
    *out = std::byte(std::bit_cast<std::uint32_t>(factors.factor) >> 23);
  } else if (is_of_ggml(form.kind)) {
    f16 halves[2];
    put(halves[0], factors.factor);
    put(halves[1], factors.least);
    std::memcpy(out, halves, form.factor_bytes());
  } else {
    std::memcpy(out, &factors.factor, sizeof factors.factor);
  }
  out += form.factor_bytes();
  std::byte* const end = out + form.record_bytes() - form.factor_bytes();
  if (form.half_bytes()) {
    const std::size_t half = form.unit / 2, fifth = form.fifth_bytes();
    std::fill_n(out, fifth, std::byte{});
    if (fifth > 0)
      for (std::size_t i = 0; i < codes.size(); ++i)
        out[i / 8] |= std::byte(codes[i] >> 4 << i % 8);
    out += fifth;
    for (std::size_t i = 0; i < std::min(half, codes.size()); ++i)
      *out++ = std::byte((codes[i] & 15) | (half + i < codes.size() ? codes[half + i] << 4 : 0));
  } else {
    std::memcpy(out, codes.data(), codes.size());
    out += codes.size();
  }
  std::fill(out, end, std::byte{});
}

void read_records(const QuantizedForm& form, std::span<const std::byte> records,
                  QuantizedValues& out) {
  const std::int64_t bytes = form.record_bytes(), count = std::ssize(records) / bytes;
  out.factors.resize(count);
  out.least.resize(has_least_values(form.kind) ? count : 0);
  out.codes.resize(count * form.unit);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* const record = reinterpret_cast<const std::uint8_t*>(records.data() + i * bytes);
    with_quantization(form.kind, [&](auto kind) {
      const BlockFactors of = record_factors<kind()>(record);
      out.factors[i] = of.factor;
      if (has_least_values(kind())) out.least[i] = of.least;
    });
    for (std::int64_t c = 0; c < form.unit; ++c)
      out.codes[i * form.unit + c] =
          static_cast<std::uint8_t>(form.code(record + form.factor_bytes(), c));
  }
}

void quantize_records(const QuantizedForm& form, std::span<const float> values,
                      std::span<std::byte> records) {
  check_made(form.kind);
  const std::int64_t unit = form.unit, count = std::ssize(values) / unit,
                     bytes = form.record_bytes();
  if (!has_large_blocks(form.kind)) {
    QuantizedValues all;
    quantize(form.kind, unit, values, all);
    for (std::int64_t i = 0; i < count; ++i)
      write_record(form, std::span(all.codes).subspan(i * unit, unit), all.of_block(i),
                   records.data() + i * bytes);
    return;
  }
  for_blocks(count, 1, [&](std::int64_t i) {
    const std::span<const float, LargeBlock::kValues> block(values.data() + i * unit, unit);
    const float most = largest_size(block);
    make_large_block(form.kind, block, records.data() + i * bytes);
    if (!has_finite_factors(form, records.subspan(i * bytes, bytes)))
      refuse_factor(form.kind, most);
  });
}

void read_values(const QuantizedForm& form, std::span<const std::byte> records, std::int64_t first,
                 std::span<float> values) {
  const std::int64_t bytes = form.record_bytes();
  const auto* const all = reinterpret_cast<const std::uint8_t*>(records.data());
  with_quantization(form.kind, [&](auto kind) {
    for (std::int64_t i = 0; i < std::ssize(values); ++i)
      values[i] = record_value<kind()>(form, all + (first + i) / form.unit * bytes,
                                       static_cast<int>((first + i) % form.unit));
  });
}

bool has_finite_factors(const QuantizedForm& form, std::span<const std::byte> records) {
  constexpr std::byte kInfinite{0x7c};  // the exponent in the second byte of an f16
  if (form.kind == Quantization::mxfp4) {
    for (std::int64_t at = 0; at < std::ssize(records); at += form.record_bytes())
      if (records[at] == std::byte{255}) return false;
    return true;
  }
  const bool is_large = has_large_blocks(form.kind);
  const LargeBlock large = LargeBlock::of(form.kind);
  const std::int64_t first = is_large ? large.factor : 0, other = !has_least_values(form.kind)
                                                                      ? first
                                                                  : is_large ? large.least
                                                                             : 2;
  for (std::int64_t at = 0; at < std::ssize(records); at += form.record_bytes())
    for (const std::int64_t factor : {first, other})
      if ((records[at + factor + 1] & kInfinite) == kInfinite) return false;
  return true;
}

}  // namespace axonn
