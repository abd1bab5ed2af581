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

TEST(DType, NamesAndSizesMatchTheTypes) {
  EXPECT_EQ(bytes_of(dtype_of<float>), 4);
  EXPECT_EQ(bytes_of(dtype_of<bf16>), 2);
  EXPECT_EQ(bytes_of(dtype_of<double>), 8);
  EXPECT_EQ(bytes_of(dtype_of<std::int32_t>), 4);
  EXPECT_EQ(bytes_of(dtype_of<std::int64_t>), 8);
  EXPECT_EQ(bytes_of(dtype_of<std::uint8_t>), 1);
  EXPECT_EQ(name_of(dtype_of<bf16>), "bf16");
  EXPECT_EQ(name_of(dtype_of<std::uint8_t>), "u8");
}
