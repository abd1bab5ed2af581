#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define AXONN_DEVICE __host__ __device__
#else
#define AXONN_DEVICE
#endif

namespace axonn {

/// f64, i64 and u8 are for metrics, positions and masks; models compute in f32 or bf16.
enum class DType : std::uint8_t { f32, bf16, f64, i32, i64, u8 };

constexpr std::int64_t bytes_of(DType dtype) {
  constexpr std::int64_t kBytes[] = {4, 2, 8, 4, 8, 1};
  return kBytes[static_cast<int>(dtype)];
}

constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "f64", "i32", "i64", "u8"};
  return kNames[static_cast<int>(dtype)];
}

/// The upper 16 bits of an f32. It has no arithmetic: convert with get() and put().
struct bf16 {
  std::uint16_t bits;
};

AXONN_DEVICE inline float get(float x) { return x; }
AXONN_DEVICE inline float get(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

AXONN_DEVICE inline void put(float& to, float x) { to = x; }

/// Rounds to nearest, ties to even; a NaN stays a NaN.
AXONN_DEVICE inline void put(bf16& to, float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x),
                      rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16,
                      nan = (bits >> 16) | 0x40;
  to.bits = static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

template <typename T>
constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for this type");
  return DType::u8;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

}  // namespace axonn
