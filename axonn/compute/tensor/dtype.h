#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#if defined(__CUDACC__) || defined(__HIPCC__)
#define AXONN_DEVICE __host__ __device__
#else
#define AXONN_DEVICE
#endif

/// 1 in code for a GPU, which may use its instructions, although their results differ from a CPU's
/// by a few units in the last place. 0 in all code of the host, and so if a CPU emulates the GPU.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define AXONN_GPU_CODE 1
#else
#define AXONN_GPU_CODE 0
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
#ifdef __CUDA_ARCH__
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x),
                      rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16,
                      nan = (bits >> 16) | 0x40;
  to.bits = static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
#endif
}

/// Two elements in a word, rounded as by put(): the first in its lower half.
AXONN_DEVICE inline std::uint32_t rounded(float first, float second) {
#ifdef __CUDA_ARCH__
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  return word;
#else
  bf16 low, high;
  put(low, first);
  put(high, second);
  return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
#endif
}

/// Stores two adjacent elements.
AXONN_DEVICE inline void put_two(float* to, float first, float second) {
  to[0] = first;
  to[1] = second;
}
AXONN_DEVICE inline void put_two(bf16* to, float first, float second) {
  const std::uint32_t both = rounded(first, second);
  to[0].bits = static_cast<std::uint16_t>(both);
  to[1].bits = static_cast<std::uint16_t>(both >> 16);
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
