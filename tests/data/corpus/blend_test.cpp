#include <cmath>

#include <gmock/gmock.h>

#include "axonn/data/corpus/corpus.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/data_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::HasSubstr;

TEST(Blend, CountsTheEarlierDrawsOfEachSourceAlsoAcrossPeriods) {
  const Blend blend(std::vector{5.0, 0.01, 2.0, 3.3});
  std::vector<std::int64_t> drawn(4);
  for (std::int64_t n = 0; n < 3 * Blend::kPeriod + 100; ++n) {
    const auto [source, earlier] = blend.draw(n);
    ASSERT_EQ(earlier, drawn[source]++) << "draw " << n;
  }
}

TEST(Blend, NoSourceIsEverMoreThanAFewDrawsFromItsShare) {
  const std::vector<double> weights{0.5, 0.3, 0.15, 0.05};
  const Blend blend(weights);
  std::vector<std::int64_t> drawn(4);
  for (std::int64_t n = 0; n < Blend::kPeriod; ++n) {
    ++drawn[blend.draw(n).source];
    for (int s = 0; s < 4; ++s)  // a greedy choice among S sources is off by less than S
      ASSERT_LT(std::abs(static_cast<double>(drawn[s]) - weights[s] * static_cast<double>(n + 1)),
                4)
          << "source " << s << " after draw " << n;
  }
}

TEST(Blend, HasTheFirstDrawsOfMegatronsBlend) {
  // By hand: the largest of weight * max(n, 1) - drawn, the first of several.
  const Blend blend(std::vector{3.0, 1.0});
  std::vector<int> first;
  for (int n = 0; n < 8; ++n) first.push_back(blend.draw(n).source);
  EXPECT_THAT(first, testing::ElementsAre(0, 1, 0, 0, 0, 1, 0, 0));
}

TEST(Blend, OfOneSourceDrawsItInOrder) {
  const Blend blend(std::vector{0.25});
  for (std::int64_t n : {0L, 1L, 70'000L, 1L << 40}) EXPECT_EQ(blend.draw(n).earlier, n);
}

TEST(Blend, RefusesInvalidWeights) {
  for (double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_THROW(Blend(std::vector{1.0, bad}), UsageError) << bad;
  EXPECT_THROW(Blend(std::vector{1e308, 1e308}), UsageError);
  EXPECT_THAT(
      [] {
        Blend(std::vector{1.0, 1e-6});
      },
      testing::ThrowsMessage<UsageError>(HasSubstr("too small a share")));
}

TEST(ParseBlend, AcceptsWeightsAndPathsInOneStringOrSeveral) {
  for (const auto& entries :
       {std::vector<std::string>{"0.3 a  0.7 b"}, {"0.3 a", "0.7 b"}, {"0.3", "a", "0.7", "b"}}) {
    const std::vector<WeightedPaths> blend = parse_blend(entries);
    ASSERT_EQ(blend.size(), 2u);
    EXPECT_EQ(blend[0].weight, 0.3);
    EXPECT_THAT(blend[0].paths, testing::ElementsAre("a"));
    EXPECT_EQ(blend[1].weight, 0.7);
    EXPECT_THAT(blend[1].paths, testing::ElementsAre("b"));
  }
}

TEST(ParseBlend, PathsWithoutWeightsAreShardsAndAnExistingPathMayHaveSpacesOrBeANumber) {
  TempFolder folder;
  const std::string spaced = folder.file("two words.bin", "x");
  const std::vector<WeightedPaths> blend = parse_blend({spaced, "b c"});
  ASSERT_EQ(blend.size(), 1u);
  EXPECT_EQ(blend[0].weight, 1);
  EXPECT_THAT(blend[0].paths, testing::ElementsAre(spaced, "b", "c"));
  folder.file("two words.idx", "x");
  EXPECT_EQ(parse_blend({folder.path("two words")})[0].paths.size(), 1u);
}

TEST(ParseBlend, TheErrorNamesTheMissingPart) {
  const auto refused = [](const std::string& entry, const char* why) {
    EXPECT_THAT([&] { parse_blend({entry}); }, testing::ThrowsMessage<UsageError>(HasSubstr(why)));
  };
  refused("", "data.tokens is empty");
  refused("0.3 a 0.7", "no path after the weight 0.7");
  refused("0.3 a b 0.7", "expected a weight before b");
  refused("0.3 a -1 b", "-1 is not a positive number");
  refused("0.3 a nan b", "nan is not a positive number");
  EXPECT_NO_THROW(parse_blend({std::string(5000, 'x')})) << "longer than a file name can be";
}
