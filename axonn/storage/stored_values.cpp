#include "axonn/storage/stored_values.h"

#include <bit>
#include <cstring>

#include "axonn/tensor/dtype.h"

namespace axonn {

namespace {

/// IEEE 754 binary16: a sign bit, five bits of exponent with bias 15, ten bits of fraction.
float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000) << 16,
                      exponent = half >> 10 & 0x1f, fraction = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent > 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // subnormal, exact
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  const std::uint32_t rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return sign | 0x7e00 | (rest >> 13 & 0x3ff);  // NaN
  if (rest >= 0x477ff000) return sign | 0x7c00;                        // rounds beyond 65,504
  if (rest >= 0x38800000) {                                            // normal: 2^-14 and above
    const std::uint32_t rounded = rest + 0xfff + (rest >> 13 & 1);
    return static_cast<std::uint16_t>(sign | (rounded - (112u << 23)) >> 13);
  }
  // A float in [0.5, 1) is a multiple of 2^-24, so this addition rounds to one.
  const float shifted = std::bit_cast<float>(rest) + 0x1p-1f;
  return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) & 0x7ff);
}

template <typename T, typename F>
void each(std::span<const std::byte> bytes, std::span<float> out, const F& f) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = f(stored);
  }
}

template <typename T, typename F>
void each(std::span<const float> values, std::span<std::byte> out, const F& f) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T stored = f(values[i]);
    std::memcpy(out.data() + i * sizeof(T), &stored, sizeof(T));
  }
}

void check(StoredType type, std::size_t bytes, std::size_t count) {
  AXONN_CHECK(is_float(type) && bytes == count * static_cast<std::size_t>(bytes_of(type)), bytes,
              " bytes of ", name_of(type), " for ", count, " floats; wanted F16, BF16 or F32");
}

}  // namespace

bool is_float(StoredType type) {
  return type == StoredType::f16 || type == StoredType::bf16 || type == StoredType::f32;
}

void to_floats(StoredType type, std::span<const std::byte> bytes, std::span<float> out) {
  check(type, bytes.size(), out.size());
  if (type == StoredType::f32)
    std::memcpy(out.data(), bytes.data(), bytes.size());
  else if (type == StoredType::bf16)
    each<std::uint16_t>(bytes, out, [](std::uint16_t bits) { return get(bf16{bits}); });
  else
    each<std::uint16_t>(bytes, out, half_to_float);
}

void from_floats(StoredType type, std::span<const float> values, std::span<std::byte> out) {
  check(type, out.size(), values.size());
  if (type == StoredType::f32)
    std::memcpy(out.data(), values.data(), out.size());
  else if (type == StoredType::bf16)
    each<std::uint16_t>(values, out, [](float value) {
      bf16 to;
      put(to, value);
      return to.bits;
    });
  else
    each<std::uint16_t>(values, out, float_to_half);
}

}  // namespace axonn
