#pragma once

#include <array>
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

/// f64, i64 and u8 are for metrics, positions and masks; models compute in f32, bf16 or f16.
enum class DType : std::uint8_t { f32, bf16, f16, f64, i32, i64, u8 };

constexpr std::int64_t bytes_of(DType dtype) {
  constexpr std::int64_t kBytes[] = {4, 2, 2, 8, 4, 8, 1};
  return kBytes[static_cast<int>(dtype)];
}

constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"f32", "bf16", "f16", "f64", "i32", "i64", "u8"};
  return kNames[static_cast<int>(dtype)];
}

/// Whether the type is bf16 or f16: stored in 16 bits, computed with in f32.
constexpr bool is_half(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

/// The upper 16 bits of an f32. It has no arithmetic: convert with get() and put().
struct bf16 {
  std::uint16_t bits;
};

/// IEEE 754 binary16: a sign, five bits of exponent with bias 15, ten of fraction. Its largest
/// value is 65504, its smallest 2^-24. Convert with get() and put().
struct f16 {
  std::uint16_t bits;
};

/// The bits of the f32 that equals an f16, of one word or of a vector of them. add(w, x) has the
/// bits of the sum of x and the f32 with the bits w.
template <typename Word, typename Add>
AXONN_DEVICE inline Word widened_f16(Word half, Add add) {
  constexpr std::uint32_t kExponent = 0x1fu << 23, kBias = 112u << 23, kOne = 1u << 23;
  const Word shifted = (half & 0x7fffu) << 13, exponent = shifted & kExponent;
  const Word usual = shifted + kBias;
  // A subnormal f16 is the fraction of a normal f32 with exponent -14, without the leading 1.
  const Word subnormal = add(usual + kOne, -0x1p-14f);
  const Word magnitude =
      exponent == 0u ? subnormal : (exponent == kExponent ? usual + kBias : usual);
  return magnitude | (half & 0x8000u) << 16;
}

/// The bits of the f16 nearest to an f32, ties to even. From 65520 on it is infinity; a NaN stays a
/// NaN. Arguments as of widened_f16().
template <typename Word, typename Add>
AXONN_DEVICE inline Word narrowed_f16(Word bits, Add add) {
  constexpr std::uint32_t kInfinity = 0x7f800000, kNormal = 113u << 23, kBeyond = 0x477ff000;
  const Word size = bits & 0x7fffffffu;
  const Word normal = (size + 0xfffu + (size >> 13 & 1u) - (112u << 23)) >> 13;
  // A float in [0.5, 1) is a multiple of 2^-24, the step of subnormals, so this sum rounds to one.
  const Word subnormal = add(size, 0.5f) & 0x7ffu;
  const Word nan = (size >> 13 & 0x3ffu) | 0x7e00u, infinite = (size & 0u) | 0x7c00u;
  const Word finite = size < kNormal ? subnormal : normal;
  return (size > kInfinity ? nan : (size >= kBeyond ? infinite : finite)) | (bits >> 16 & 0x8000u);
}

/// The `add` of one word.
struct AddToBits {
  AXONN_DEVICE std::uint32_t operator()(std::uint32_t word, float x) const {
    return std::bit_cast<std::uint32_t>(std::bit_cast<float>(word) + x);
  }
};

AXONN_DEVICE inline float get(float x) { return x; }
AXONN_DEVICE inline float get(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

AXONN_DEVICE inline float get(f16 x) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
#else
  return std::bit_cast<float>(widened_f16(std::uint32_t{x.bits}, AddToBits{}));
#endif
}

AXONN_DEVICE inline void put(float& to, float x) { to = x; }

/// Rounds to nearest, ties to even; a NaN stays a NaN.
AXONN_DEVICE inline void put(bf16& to, float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x),
                      rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16,
                      nan = (bits >> 16) | 0x40;
  to.bits = static_cast<std::uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
#endif
}

/// Rounds to nearest, ties to even; beyond 65504 to infinity; a NaN stays a NaN.
AXONN_DEVICE inline void put(f16& to, float x) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  to.bits = static_cast<std::uint16_t>(narrowed_f16(std::bit_cast<std::uint32_t>(x), AddToBits{}));
#endif
}

/// The value of x when it is stored as `dtype`: f32, bf16 or f16.
inline float stored_as(DType dtype, float x) {
  const auto stored = [x]<typename T>(T to) {
    put(to, x);
    return get(to);
  };
  return dtype == DType::bf16 ? stored(bf16{}) : dtype == DType::f16 ? stored(f16{}) : x;
}

/// Element i of an array of f32, bf16 or f16.
inline float float_at(const void* values, DType dtype, std::int64_t i) {
  if (dtype == DType::bf16) return get(static_cast<const bf16*>(values)[i]);
  if (dtype == DType::f16) return get(static_cast<const f16*>(values)[i]);
  return static_cast<const float*>(values)[i];
}

/// Two elements in a word, rounded as by put() to bf16: the first in its lower half.
AXONN_DEVICE inline std::uint32_t rounded(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
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
AXONN_DEVICE inline void put_two(f16* to, float first, float second) {
  put(to[0], first);
  put(to[1], second);
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
inline constexpr DType dtype_of<f16> = DType::f16;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

/// How frozen weights are kept: in the compute type, or as codes and a factor for each block of a
/// matrix (out, in).
///
///   nf4   64 values after one another, row after row: f32 absmax, codes of 4 bits of 16 values
///         that follow a normal distribution
///   fp4   the same with the values of a float of 4 bits
///   int8  a row: f32 absmax, value = code · absmax / 127
///   q8_0  32 values of a row: f16 factor, value = factor · code
///   q4_0  32 values of a row: f16 factor, value = factor · (code - 8), codes of 4 bits
///   q5_0  the same with value = factor · (code - 16), codes of 5 bits
///   q4_1  32 values of a row: f16 factor, f16 least value; value = factor · code + least, codes of
///         4 bits
///   q5_1  the same with codes of 5 bits
///   iq4_nl  as q4_0 with 16 values that are closer to each other around 0
///   mxfp4  32 values of a row: a factor 2^(e - 127) of 8 bits, codes of 4 bits: a sign, and one of
///         0, 1/2, 1, 3/2, 2, 3, 4 and 6
///   q2_k  256 values of a row: two f16 factors, and two numbers of 4 bits for each 16 values, a
///         scale s and a least value m; value = factor · s · code - factor' · m, codes of 2 bits
///   q3_k  256 values of a row: f16 factor, and a scale s of 6 bits for each 16 values; value =
///         factor · (s - 32) · (code - 4), codes of 3 bits
///   q4_k  as q2_k with two numbers of 6 bits for each 32 values, and codes of 4 bits
///   q5_k  the same with codes of 5 bits
///   q6_k  256 values of a row: f16 factor, and a scale s of 8 bits for each 16 values; value =
///         factor · s · (code - 32), codes of 6 bits
///   iq4_xs  256 values of a row: f16 factor, and a scale s of 6 bits for each 32 values; value =
///         factor · (s - 32) · one of the values of iq4_nl
///
/// Sources: Dettmers et al., "QLoRA: efficient finetuning of quantized LLMs", 2023, and
/// bitsandbytes 0.50 (nf4, fp4); Dettmers et al., "LLM.int8()", 2022; ggml (q8_0 to iq4_xs); Open
/// Compute Project, "OCP Microscaling Formats (MX) specification 1.0", 2023 (mxfp4).
///
/// `file` stands for the kinds that the matrices of a GGUF file have, one for each.
enum class Quantization : std::uint8_t {
  none,
  nf4,
  fp4,
  int8,
  q8_0,
  q4_0,
  q5_0,
  q4_1,
  q5_1,
  iq4_nl,
  mxfp4,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_xs,
  file
};

inline constexpr std::array<std::string_view, 18> kQuantizations = {
    "none",   "nf4",   "fp4",  "int8", "q8_0", "q4_0", "q5_0", "q4_1",   "q5_1",
    "iq4_nl", "mxfp4", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs", "file"};

/// The kinds of codes.
inline constexpr std::array kCodes{
    Quantization::nf4,    Quantization::fp4,   Quantization::int8, Quantization::q8_0,
    Quantization::q4_0,   Quantization::q5_0,  Quantization::q4_1, Quantization::q5_1,
    Quantization::iq4_nl, Quantization::mxfp4, Quantization::q2_k, Quantization::q3_k,
    Quantization::q4_k,   Quantization::q5_k,  Quantization::q6_k, Quantization::iq4_xs};

constexpr std::string_view name_of(Quantization kind) {
  return kQuantizations[static_cast<int>(kind)];
}

/// Whether blocks have 256 values and scales of their parts (compute/tensor/large_blocks.h).
AXONN_DEVICE constexpr bool has_large_blocks(Quantization kind) {
  return kind >= Quantization::q2_k && kind <= Quantization::iq4_xs;
}
/// Whether blocks are those of ggml, to the byte: of values of one row, with factors in f16, or of
/// mxfp4 in 8 bits.
AXONN_DEVICE constexpr bool is_of_ggml(Quantization kind) {
  return kind >= Quantization::q8_0 && kind <= Quantization::iq4_xs;
}
/// Whether values are counted from a least value of their block, or of their part of it.
AXONN_DEVICE constexpr bool has_least_values(Quantization kind) {
  return kind == Quantization::q4_1 || kind == Quantization::q5_1 || kind == Quantization::q2_k ||
         kind == Quantization::q4_k || kind == Quantization::q5_k;
}
/// Whether its blocks are taken from GGUF files alone, and never made of values.
constexpr bool is_only_read(Quantization kind) {
  return kind == Quantization::q2_k || kind == Quantization::iq4_nl || kind == Quantization::iq4_xs;
}
/// Whether its codes are multiplied as integers where that is asked for
/// (Backend::set_integer_products()).
constexpr bool has_integer_products(Quantization kind) {
  return (kind >= Quantization::q8_0 && kind <= Quantization::q5_0) ||
         (kind >= Quantization::q3_k && kind <= Quantization::q6_k);
}

/// Values in memory: records of `unit` values, each a factor, a least value if there is one, and
/// then the codes. A unit is a whole block, or a part of it where a grid cuts blocks; then each
/// part has the block's factors. Records of large blocks are whole, and as large_blocks.h says.
struct QuantizedForm {
  Quantization kind = Quantization::none;
  std::int64_t unit = 1;  ///< a power of two, at least 2, and at most most_unit(kind)

  /// The largest and the least unit of a kind.
  AXONN_DEVICE static constexpr std::int64_t most_unit(Quantization kind) {
    return has_large_blocks(kind) ? 256 : is_of_ggml(kind) ? 32 : 64;
  }
  static constexpr std::int64_t least_unit(Quantization kind) {
    return has_large_blocks(kind) ? most_unit(kind) : 2;
  }
  /// Whole records of any unit of a kind: matrices begin at multiples of so many values.
  AXONN_DEVICE static constexpr std::int64_t aligned(Quantization kind) {
    return has_large_blocks(kind) ? most_unit(kind) : 64;
  }
  /// Of the factor and the least value; not of large blocks.
  AXONN_DEVICE constexpr std::int64_t factor_bytes() const {
    if (kind == Quantization::mxfp4) return 1;
    return is_of_ggml(kind) && !has_least_values(kind) ? 2 : 4;
  }
  /// Whether four bits of a code are half a byte: of code i of a record the lower half, and of code
  /// unit / 2 + i the higher one.
  AXONN_DEVICE constexpr bool half_bytes() const {
    return kind == Quantization::nf4 || kind == Quantization::fp4 ||
           (kind >= Quantization::q4_0 && kind <= Quantization::mxfp4);
  }
  /// Bytes between the factors and the halves with the fifth bits of codes, eight a byte.
  AXONN_DEVICE constexpr std::int64_t fifth_bytes() const {
    return kind == Quantization::q5_0 || kind == Quantization::q5_1 ? (unit + 7) / 8 : 0;
  }
  /// Code i of a record whose codes begin there; not of large blocks.
  AXONN_DEVICE constexpr unsigned code(const std::uint8_t* codes, std::int64_t i) const {
    if (!half_bytes()) return codes[i];
    const std::uint8_t* const halves = codes + fifth_bytes();
    const unsigned low =
        i < unit / 2 ? halves[i] & 15U : static_cast<unsigned>(halves[i - unit / 2] >> 4);
    return fifth_bytes() == 0 ? low : low | (codes[i / 8] >> i % 8 & 1U) << 4;
  }
  AXONN_DEVICE constexpr std::int64_t record_bytes() const {
    if (kind == Quantization::q2_k) return 84;
    if (kind == Quantization::q3_k) return 110;
    if (kind == Quantization::q4_k) return 144;
    if (kind == Quantization::q5_k) return 176;
    if (kind == Quantization::q6_k) return 210;
    if (kind == Quantization::iq4_xs) return 136;
    return factor_bytes() + fifth_bytes() + (half_bytes() ? unit / 2 : unit);
  }
  /// Bytes of so many values, a multiple of the unit.
  std::int64_t bytes(std::int64_t count) const { return count / unit * record_bytes(); }
};

}  // namespace axonn
