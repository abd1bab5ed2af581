#include "axonn/network/nn/attention/rope.h"

#include <cmath>
#include <numbers>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::DoubleNear;

TEST(RopeFrequencies, AreThetaToMinusTwoIOverD) {
  EXPECT_THAT(rope_frequencies(8, 10000, {}),
              testing::ElementsAre(1, DoubleNear(0.1, 1e-15), DoubleNear(0.01, 1e-16),
                                   DoubleNear(0.001, 1e-17)));
  EXPECT_THAT(rope_frequencies(2, 500000, {}), testing::ElementsAre(1));
  EXPECT_THROW(rope_frequencies(3, 10000, {}), Error);
}

TEST(RopeFrequencies, OfLlama31MatchACalculationByHand) {
  // Heads of 128, theta 500,000. Pair 0 rotates 1304 times in 8192 positions, more than 4:
  // unchanged. Pair 63 rotates 0.0032 times, fewer than 1: an eighth. Pairs 29 to 34 are in
  // between. Pair 29 rotates 8192 / (2 pi) * 500000^(-58/128) = 3.41086 times, s = (3.41086 - 1) /
  // 3 = 0.803621, so its frequency is multiplied by 0.196379 / 8 + 0.803621 = 0.828168.
  const auto plain = rope_frequencies(128, 500000, {});
  const auto scaled = rope_frequencies(128, 500000, {.kind = RopeScalingKind::llama3});
  for (int i = 0; i <= 28; ++i) EXPECT_EQ(scaled[i], plain[i]) << i;
  for (int i = 35; i < 64; ++i) EXPECT_EQ(scaled[i], plain[i] / 8) << i;
  EXPECT_NEAR(scaled[29] / plain[29], 0.828168, 1e-6);
  for (int i = 29; i <= 34; ++i) {
    EXPECT_LT(scaled[i], plain[i]) << i;
    EXPECT_GT(scaled[i], plain[i] / 8) << i;
  }
}

TEST(RopeFrequencies, AreContinuousAtTheEndsOfTheScaledRange) {
  // A wavelength just inside the range has the same scale as one just outside.
  const RopeScaling scaling{.kind = RopeScalingKind::llama3,
                            .factor = 4,
                            .original_positions = 100,
                            .low_freq_factor = 1,
                            .high_freq_factor = 3};
  const auto at = [&](double turns) {  // rotations of the second pair in 100 positions
    const double frequency = turns * 2 * std::numbers::pi / 100;
    return rope_frequencies(4, std::pow(frequency, -2.0), scaling)[1] / frequency;
  };
  EXPECT_NEAR(at(3 + 1e-9), 1, 1e-8);
  EXPECT_NEAR(at(3 - 1e-9), 1, 1e-8);
  EXPECT_NEAR(at(2), 0.625, 1e-9) << "halfway between 1 and a quarter";
  EXPECT_NEAR(at(1 + 1e-9), 0.25, 1e-8);
  EXPECT_NEAR(at(1 - 1e-9), 0.25, 1e-8);
}

TEST(RopeFrequencies, OfYarnMatchACalculationByHand) {
  // Heads of 128, theta 500,000, 8192 positions, as in OLMo 3. Pair i turns
  // 8192 / (2 pi) · 500000^(-i/64) times: 32 times at i = 18.08, once at 34.98.
  RopeScaling scaling{.kind = RopeScalingKind::yarn, .factor = 8, .original_positions = 8192};
  const auto plain = rope_frequencies(128, 500000, {}),
             scaled = rope_frequencies(128, 500000, scaling);
  for (int i = 0; i <= 18; ++i) EXPECT_EQ(scaled[i], plain[i]) << i;
  for (int i = 35; i < 64; ++i) EXPECT_EQ(scaled[i], plain[i] / 8) << i;
  for (int i = 19; i < 35; ++i)  // from 18 to 35
    EXPECT_NEAR(scaled[i] / plain[i], 1 - (i - 18) / 17.0 * 7 / 8, 1e-12) << i;
  scaling.truncate = false;
  const auto exact = rope_frequencies(128, 500000, scaling);
  EXPECT_NEAR(exact[27] / plain[27], 1 - (27 - 18.0811) / (34.9841 - 18.0811) * 7 / 8, 1e-4);
}

TEST(RopeFrequencies, OfLongropeAreDividedByTheFactorsOfTheLength) {
  const RopeScaling scaling{.kind = RopeScalingKind::longrope,
                            .factor = 16,
                            .original_positions = 256,
                            .short_factors = {1, 2},
                            .long_factors = {4, 8}};
  EXPECT_EQ(rope_frequencies(4, 100, scaling), (std::vector{1.0, 0.05}));
  EXPECT_EQ(long_rope_frequencies(4, 100, scaling), (std::vector{0.25, 0.0125}));
  EXPECT_NEAR(rope_magnitude(scaling), std::sqrt(1.5), 1e-15) << "16 is the root of 256";
}

TEST(RopeMagnitude, IsTheOneThatIsGivenOrGrowsWithTheLogarithmOfTheFactor) {
  EXPECT_EQ(rope_magnitude({}), 1);
  EXPECT_EQ(rope_magnitude({.kind = RopeScalingKind::llama3}), 1);
  RopeScaling scaling{.kind = RopeScalingKind::yarn, .factor = 8};
  EXPECT_NEAR(rope_magnitude(scaling), 1.2079441541679836, 1e-15) << "as OLMo 3's config.json has";
  scaling.attention_factor = 1.5;
  EXPECT_EQ(rope_magnitude(scaling), 1.5);
  scaling = {.kind = RopeScalingKind::yarn, .factor = 0.5};
  EXPECT_EQ(rope_magnitude(scaling), 1);
}
