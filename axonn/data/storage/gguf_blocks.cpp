#include "axonn/data/storage/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "axonn/compute/tensor/quantization.h"

namespace axonn {

namespace {

using GgufBlock = const std::byte*;

constexpr std::int64_t kSmallBlock = 32, kLargeBlock = 256;  // values of a block

unsigned byte_at(GgufBlock block, std::int64_t i) { return std::to_integer<unsigned>(block[i]); }

unsigned word_at(GgufBlock block, std::int64_t i) {
  return byte_at(block, i) | byte_at(block, i + 1) << 8;
}

float half_at(GgufBlock block, std::int64_t i) {
  return get(f16{static_cast<std::uint16_t>(word_at(block, i))});
}

float product(float a, float b) { return a * b; }

/// a · b ± c, rounded twice, which a fused operation would not be.
float product_plus(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) * b) + c;
}

void read_f32(GgufBlock block, float* out) {
  *out = std::bit_cast<float>(word_at(block, 0) | word_at(block, 2) << 16);
}

void read_f16(GgufBlock block, float* out) { *out = half_at(block, 0); }

void read_bf16(GgufBlock block, float* out) {
  *out = get(bf16{static_cast<std::uint16_t>(word_at(block, 0))});
}

/// The codes of 4 bits from byte `first` on: the lower halves of 16 bytes, then the higher ones.
unsigned half_byte(GgufBlock block, std::int64_t first, int i) {
  const unsigned both = byte_at(block, first + i % 16);
  return i < 16 ? both & 15 : both >> 4;
}

/// A scale of 8 bits with a bias of 128; codes as in MXFP4 with doubled values.
void read_mxfp4(GgufBlock block, float* out) {
  constexpr std::array<float, 16> kValues = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};
  const int exponent = static_cast<int>(byte_at(block, 0)) - 128;
  for (int i = 0; i < kSmallBlock; ++i)
    out[i] = std::ldexp(kValues[half_byte(block, 1, i)], exponent);
}

constexpr std::array<float, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

void read_iq4_nl(GgufBlock block, float* out) {
  const float scale = half_at(block, 0);
  for (int i = 0; i < kSmallBlock; ++i) out[i] = product(scale, kNonLinear[half_byte(block, 2, i)]);
}

/// 8 sub-blocks with scales of 6 bits: 4 in scales_l, 2 in scales_h.
void read_iq4_xs(GgufBlock block, float* out) {
  const float scale = half_at(block, 0);
  for (int sub = 0; sub < 8; ++sub) {
    const unsigned low = byte_at(block, 4 + sub / 2) >> 4 * (sub % 2) & 15,
                   high = word_at(block, 2) >> 2 * sub & 3;
    const float own = product(scale, static_cast<float>(static_cast<int>(low | high << 4) - 32));
    for (int i = 0; i < kSmallBlock; ++i)
      out[sub * kSmallBlock + i] = product(own, kNonLinear[half_byte(block, 8 + 16 * sub, i)]);
  }
}

/// Two bits of value i of 256 from byte `first` on: a byte has those of values 32 apart.
unsigned two_bits(GgufBlock block, std::int64_t first, int i) {
  return byte_at(block, first + i / 128 * 32 + i % 32) >> 2 * (i % 128 / 32) & 3;
}

/// 16 sub-blocks, each with a scale and a least value of 4 bits.
void read_q2_k(GgufBlock block, float* out) {
  const float scale = half_at(block, 80), least = half_at(block, 82);
  for (int i = 0; i < kLargeBlock; ++i) {
    const unsigned both = byte_at(block, i / 16);
    out[i] = product_plus(product(scale, static_cast<float>(both & 15)),
                          static_cast<float>(two_bits(block, 16, i)),
                          -product(least, static_cast<float>(both >> 4)));
  }
}

template <Quantization kind>
void read_record(GgufBlock block, float* out) {
  constexpr QuantizedForm kForm{kind, QuantizedForm::most_unit(kind)};
  const auto* const record = reinterpret_cast<const std::uint8_t*>(block);
  for (int i = 0; i < kForm.unit; ++i) out[i] = record_value<kind>(kForm, record, i);
}

/// The type whose blocks are records of a kind.
template <Quantization kind>
constexpr GgufBlocks records_of(std::uint32_t number, std::string_view name) {
  constexpr QuantizedForm kForm{kind, QuantizedForm::most_unit(kind)};
  return {number, name, kForm.unit, kForm.record_bytes(), read_record<kind>, kind};
}

constexpr std::array kGgufBlockTypes = {
    GgufBlocks{0, "F32", 1, 4, read_f32},
    GgufBlocks{1, "F16", 1, 2, read_f16},
    records_of<Quantization::q4_0>(2, "Q4_0"),
    records_of<Quantization::q4_1>(3, "Q4_1"),
    records_of<Quantization::q5_0>(6, "Q5_0"),
    records_of<Quantization::q5_1>(7, "Q5_1"),
    records_of<Quantization::q8_0>(8, "Q8_0"),
    GgufBlocks{10, "Q2_K", kLargeBlock, 84, read_q2_k},
    records_of<Quantization::q3_k>(11, "Q3_K"),
    records_of<Quantization::q4_k>(12, "Q4_K"),
    records_of<Quantization::q5_k>(13, "Q5_K"),
    records_of<Quantization::q6_k>(14, "Q6_K"),
    GgufBlocks{20, "IQ4_NL", kSmallBlock, 18, read_iq4_nl},
    GgufBlocks{23, "IQ4_XS", kLargeBlock, 136, read_iq4_xs},
    GgufBlocks{30, "BF16", 1, 2, read_bf16},
    GgufBlocks{39, "MXFP4", kSmallBlock, 17, read_mxfp4},
};

}  // namespace

std::span<const GgufBlocks> gguf_block_types() { return kGgufBlockTypes; }

const GgufBlocks* find_gguf_blocks(std::uint32_t number) {
  const auto found = std::ranges::find(kGgufBlockTypes, number, &GgufBlocks::number);
  return found == kGgufBlockTypes.end() ? nullptr : &*found;
}

std::string gguf_block_names() {
  std::string names;
  for (const GgufBlocks& type : kGgufBlockTypes) {
    if (!names.empty()) names += ", ";
    names += type.name;
  }
  return names;
}

}  // namespace axonn
