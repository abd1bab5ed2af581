#include "axonn/data/storage/gguf_quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/data/storage/gguf_blocks.h"

namespace axonn {

namespace {

constexpr int kSmall = 32;  // values of a block of MXFP4

void put_byte(std::byte*& out, unsigned value) { *out++ = static_cast<std::byte>(value); }

/// A power of two as scale, and codes of the doubled values 0 1 2 3 4 6 8 12.
void make_mxfp4(std::span<const float, kSmall> x, std::byte* out) {
  constexpr std::array<float, 16> kValues = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};
  float most = 0;
  for (const float value : x) most = std::max(most, std::abs(value));
  const int exponent = most > 0 ? static_cast<int>(std::floor(std::log2(most))) - 2 + 127 : 0;
  const float scale = std::ldexp(1.0F, exponent - 128);
  std::array<unsigned, kSmall> codes;
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
  for (int i = 0; i < kSmall / 2; ++i) put_byte(out, codes[i] | codes[i + kSmall / 2] << 4);
}

void make_all_mxfp4(std::span<const float> values, std::span<std::byte> blocks) {
  constexpr int kBytes = 1 + kSmall / 2;
  std::byte* out = blocks.data();
  for (std::size_t at = 0; at < values.size(); at += kSmall, out += kBytes)
    make_mxfp4(values.subspan(at).first<kSmall>(), out);
}

template <Quantization kind>
void make_records(std::span<const float> values, std::span<std::byte> blocks) {
  quantize_records({kind, QuantizedForm::most_unit(kind)}, values, blocks);
}

}  // namespace

QuantizeGguf find_gguf_quantizer(std::uint32_t number) {
  constexpr std::uint32_t kMxfp4 = 39;
  if (number == kMxfp4) return make_all_mxfp4;
  QuantizeGguf make = nullptr;
  if (const GgufBlocks* const blocks = find_gguf_blocks(number);
      blocks && blocks->kind != Quantization::none && !is_only_read(blocks->kind))
    with_quantization(blocks->kind, [&](auto kind) { make = make_records<kind()>; });
  return make;
}

}  // namespace axonn
