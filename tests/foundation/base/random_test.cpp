#include "axonn/foundation/base/random.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>

using namespace axonn;

TEST(Random, IsAPureFunctionOfSeedNameAndIndex) {
  const Random a(1, "wte"), same(1, "wte"), other_seed(2, "wte"), other_name(1, "wpe");
  EXPECT_EQ(a.bits(7), same.bits(7));
  EXPECT_NE(a.bits(7), a.bits(8));
  EXPECT_NE(a.bits(7), other_seed.bits(7));
  EXPECT_NE(a.bits(7), other_name.bits(7));
}

TEST(Random, NormalHasMeanZeroVarianceOneAndTheKurtosisOfANormal) {
  const Random random(3, "normal");
  const int count = 200'000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < count; ++i) {
    const double x = random.normal(i);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  // Standard error of the mean. The variance of x^2 is 2, that of x^4 is 96.
  const double sigma = 1 / std::sqrt(count);
  EXPECT_NEAR(sum / count, 0, 5 * sigma);
  EXPECT_NEAR(squares / count, 1, 5 * sigma * std::sqrt(2));
  EXPECT_NEAR(fourth / count, 3, 5 * sigma * std::sqrt(96));
}

TEST(Random, BelowStaysBelowTheBoundAndReachesEveryValueAboutEquallyOften) {
  const Random random(4, "below");
  std::vector<int> seen(7);
  for (int i = 0; i < 70'000; ++i) ++seen.at(random.below(i, 7));
  for (int n : seen) EXPECT_NEAR(n, 10'000, 5 * 93);  // sqrt(70000 * 1/7 * 6/7) = 93
}

TEST(Permute, IsAPermutationForEverySizeAndDependsOnTheKey) {
  for (std::uint64_t count : {1, 2, 3, 5, 16, 17, 100, 1000}) {
    std::vector<bool> hit(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto p = permute(i, count, 9);
      ASSERT_LT(p, count);
      EXPECT_FALSE(hit[p]) << p << " of " << count << " is hit twice";
      hit[p] = true;
    }
  }
  int moved = 0;
  for (int i = 0; i < 1000; ++i) moved += permute(i, 1000, 1) != permute(i, 1000, 2);
  EXPECT_GT(moved, 980);
}
