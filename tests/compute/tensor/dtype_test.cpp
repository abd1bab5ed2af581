#include "axonn/compute/tensor/dtype.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/foundation/base/random.h"

using namespace axonn;

namespace {

std::uint16_t rounded(float x) {
  bf16 y{};
  put(y, x);
  return y.bits;
}

float value(std::uint32_t bits) { return get(bf16{static_cast<std::uint16_t>(bits)}); }

std::uint16_t to_f16(float x) {
  f16 y{};
  put(y, x);
  return y.bits;
}

float of_f16(std::uint32_t bits) { return get(f16{static_cast<std::uint16_t>(bits)}); }

}  // namespace

TEST(Bf16, EveryValueSurvivesConversionToF32AndBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float x = value(bits);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(value(rounded(x))));
      EXPECT_EQ(rounded(x) & 0x8000, bits & 0x8000) << "the sign of a NaN";
    } else {
      ASSERT_EQ(rounded(x), bits);
    }
  }
}

TEST(Bf16, RoundsToTheNearestValueAndTiesToEven) {
  // All pairs of neighbours a < a + 1 with a finite and not negative; the last a + 1 is infinity,
  // which counts as 2^128.
  for (std::uint32_t a = 0; a < 0x7f80; ++a) {
    const std::uint32_t half = (a << 16) + 0x8000;
    ASSERT_EQ(rounded(std::bit_cast<float>(half - 1)), a);
    ASSERT_EQ(rounded(std::bit_cast<float>(half)), a % 2 == 0 ? a : a + 1);
    ASSERT_EQ(rounded(std::bit_cast<float>(half + 1)), a + 1);
    ASSERT_EQ(rounded(-std::bit_cast<float>(half + 1)), (a + 1) | 0x8000);
  }
}

TEST(Bf16, RoundsWithARelativeErrorOfAtMostTwoToTheMinusEight) {
  // With eight significant bits, the largest relative error is half a unit in the last place, just
  // above a power of two.
  const Random random(1, "bf16");
  for (int i = 0; i < 100'000; ++i) {
    const auto x = static_cast<float>(random.normal(i));
    EXPECT_LE(std::abs(value(rounded(x)) - x), std::abs(x) / 256);
  }
}

TEST(Bf16, KeepsInfinityAndOverflowsToIt) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(value(rounded(kInfinity)), kInfinity);
  EXPECT_EQ(value(rounded(-kInfinity)), -kInfinity);
  EXPECT_EQ(value(rounded(std::numeric_limits<float>::max())), kInfinity);
}

TEST(Bf16, KeepsANanWhosePayloadLiesInTheLowerHalf) {
  for (std::uint32_t bits : {0x7f800001u, 0x7f80ffffu, 0xff800001u, 0x7fffffffu, 0xffffffffu})
    EXPECT_TRUE(std::isnan(value(rounded(std::bit_cast<float>(bits))))) << std::hex << bits;
}

TEST(F16, EveryValueIsItsSignTimesFractionTimesPowerOfTwo) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31),
              fraction = static_cast<int>(bits & 1023);
    const float sign = bits >> 15 ? -1.0f : 1.0f, got = of_f16(bits);
    if (exponent == 31 && fraction > 0) {
      EXPECT_TRUE(std::isnan(got));
      EXPECT_EQ(to_f16(got) & 0x8000, bits & 0x8000) << "the sign of a NaN";
      EXPECT_TRUE(std::isnan(of_f16(to_f16(got))));
      continue;
    }
    const float want = exponent == 31 ? std::numeric_limits<float>::infinity()
                       : exponent == 0
                           ? std::ldexp(static_cast<float>(fraction), -24)
                           : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
    ASSERT_EQ(got, sign * want) << bits;
    ASSERT_EQ(std::signbit(got), sign < 0) << bits;
    ASSERT_EQ(to_f16(got), bits);
  }
}

TEST(F16, RoundsToTheNearestValueAndTiesToEven) {
  // All pairs of neighbours a < a + 1 with a finite and not negative, subnormal or not; the last
  // a + 1 is infinity, which counts as 2^16.
  for (std::uint32_t a = 0; a < 0x7c00; ++a) {
    const float above = a == 0x7bff ? 65536.0f : of_f16(a + 1), half = (of_f16(a) + above) / 2;
    ASSERT_EQ(to_f16(std::nextafter(half, 0.0f)), a);
    ASSERT_EQ(to_f16(half), a % 2 == 0 ? a : a + 1);
    ASSERT_EQ(to_f16(std::nextafter(half, 1e9f)), a + 1);
    ASSERT_EQ(to_f16(-std::nextafter(half, 1e9f)), (a + 1) | 0x8000);
  }
}

TEST(F16, KeepsInfinityAndOverflowsToItFrom65520On) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(of_f16(to_f16(kInfinity)), kInfinity);
  EXPECT_EQ(of_f16(to_f16(-kInfinity)), -kInfinity);
  EXPECT_EQ(of_f16(to_f16(std::numeric_limits<float>::max())), kInfinity);
  EXPECT_EQ(of_f16(to_f16(65520.0f)), kInfinity);
  EXPECT_EQ(of_f16(to_f16(std::nextafter(65520.0f, 0.0f))), 65504.0f);
}

TEST(F16, KeepsANanWhosePayloadLiesInTheLowerBits) {
  for (std::uint32_t bits : {0x7f800001u, 0x7f801fffu, 0xff800001u, 0x7fffffffu, 0xffffffffu})
    EXPECT_TRUE(std::isnan(of_f16(to_f16(std::bit_cast<float>(bits))))) << std::hex << bits;
}

TEST(DType, AHalfIsStoredAndReadByItsType) {
  EXPECT_EQ(stored_as(DType::f32, 1.0001f), 1.0001f);
  EXPECT_EQ(stored_as(DType::bf16, 1 + 0x1p-7f + 0x1p-9f), 1 + 0x1p-7f);
  EXPECT_EQ(stored_as(DType::f16, 1 + 0x1p-10f + 0x1p-12f), 1 + 0x1p-10f);
  const std::uint16_t halves[] = {rounded(2.5f), to_f16(2.5f)};
  EXPECT_EQ(float_at(halves, DType::bf16, 0), 2.5f);
  EXPECT_EQ(float_at(halves, DType::f16, 1), 2.5f);
  EXPECT_TRUE(is_half(DType::bf16) && is_half(DType::f16) && !is_half(DType::f32));
}

TEST(DType, NamesAndSizesMatchTheTypes) {
  EXPECT_EQ(bytes_of(dtype_of<float>), 4);
  EXPECT_EQ(bytes_of(dtype_of<bf16>), 2);
  EXPECT_EQ(bytes_of(dtype_of<f16>), 2);
  EXPECT_EQ(bytes_of(dtype_of<double>), 8);
  EXPECT_EQ(bytes_of(dtype_of<std::int32_t>), 4);
  EXPECT_EQ(bytes_of(dtype_of<std::int64_t>), 8);
  EXPECT_EQ(bytes_of(dtype_of<std::uint8_t>), 1);
  EXPECT_EQ(name_of(dtype_of<bf16>), "bf16");
  EXPECT_EQ(name_of(dtype_of<f16>), "f16");
  EXPECT_EQ(name_of(dtype_of<std::uint8_t>), "u8");
}
