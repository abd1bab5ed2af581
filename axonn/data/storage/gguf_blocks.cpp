#include "axonn/data/storage/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <bit>

#include "axonn/compute/tensor/quantization.h"

namespace axonn {

namespace {

using GgufBlock = const std::byte*;

unsigned byte_at(GgufBlock block, std::int64_t i) { return std::to_integer<unsigned>(block[i]); }

unsigned word_at(GgufBlock block, std::int64_t i) {
  return byte_at(block, i) | byte_at(block, i + 1) << 8;
}

float half_at(GgufBlock block, std::int64_t i) {
  return get(f16{static_cast<std::uint16_t>(word_at(block, i))});
}

void read_f32(GgufBlock block, float* out) {
  *out = std::bit_cast<float>(word_at(block, 0) | word_at(block, 2) << 16);
}

void read_f16(GgufBlock block, float* out) { *out = half_at(block, 0); }

void read_bf16(GgufBlock block, float* out) {
  *out = get(bf16{static_cast<std::uint16_t>(word_at(block, 0))});
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
    GgufBlocks{0, "F32", 1, 4, read_f32},           GgufBlocks{1, "F16", 1, 2, read_f16},
    records_of<Quantization::q4_0>(2, "Q4_0"),      records_of<Quantization::q4_1>(3, "Q4_1"),
    records_of<Quantization::q5_0>(6, "Q5_0"),      records_of<Quantization::q5_1>(7, "Q5_1"),
    records_of<Quantization::q8_0>(8, "Q8_0"),      records_of<Quantization::q2_k>(10, "Q2_K"),
    records_of<Quantization::q3_k>(11, "Q3_K"),     records_of<Quantization::q4_k>(12, "Q4_K"),
    records_of<Quantization::q5_k>(13, "Q5_K"),     records_of<Quantization::q6_k>(14, "Q6_K"),
    records_of<Quantization::iq4_nl>(20, "IQ4_NL"), records_of<Quantization::iq4_xs>(23, "IQ4_XS"),
    GgufBlocks{30, "BF16", 1, 2, read_bf16},        records_of<Quantization::mxfp4>(39, "MXFP4"),
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
