#include "axonn/use/rewards/verifiers.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;
using testing::Optional;
using testing::ThrowsMessage;

TEST(LastNumber, IsAFractionInLowestTerms) {
  EXPECT_THAT(last_number("the 3 apples are 12"), Optional(std::string("12/1")));
  EXPECT_THAT(last_number("#### 1,234"), Optional(std::string("1234/1")));
  EXPECT_THAT(last_number("x = -0.50."), Optional(std::string("-1/2")));
  EXPECT_THAT(last_number("6/8"), Optional(std::string("3/4")));
  EXPECT_THAT(last_number("about 12.5 %"), Optional(std::string("1/8")));
  EXPECT_THAT(last_number("7-3"), Optional(std::string("3/1"))) << "a difference";
  EXPECT_THAT(last_number("in 2024, 5"), Optional(std::string("5/1")));
  EXPECT_THAT(last_number(".25"), Optional(std::string("1/4")));
  EXPECT_THAT(last_number("5/0"), Optional(std::string("0/1")));
  EXPECT_EQ(last_number("none"), std::nullopt);
  EXPECT_EQ(last_number("1234567890123456789012"), std::nullopt);
}

TEST(Verifiers, CompareWithWhatIsWanted) {
  EXPECT_EQ(make_verifier("exact")(" blue\n", "blue"), 1);
  EXPECT_EQ(make_verifier("exact")("blues", "blue"), 0);
  EXPECT_EQ(make_verifier("number")("so it is 0.5", "#### 1/2"), 1);
  EXPECT_EQ(make_verifier("number")("so it is 0.51", "1/2"), 0);
  EXPECT_EQ(make_verifier("number")("none", "1/2"), 0);
  EXPECT_EQ(make_verifier("number")("yes", "yes"), 1) << "nothing to compare but the text";
  EXPECT_EQ(make_verifier("format")("<think>a\nb</think> 3", ""), 1);
  EXPECT_EQ(make_verifier("format")("<think>a<think>b</think>", ""), 0);
  EXPECT_EQ(make_verifier("format")("a <think>b</think>", ""), 0);
  EXPECT_EQ(make_verifier("format")("<think>a", ""), 0);
  EXPECT_THAT([] { make_verifier("nice"); },
              ThrowsMessage<UsageError>(HasSubstr("there is no reward \"nice\"")));
}

TEST(WantedOfLine, IsUnderTheKeysOfPublishedData) {
  EXPECT_THAT(wanted_of_line(R"({"prompt": "a", "answer": "#### 18"})"),
              Optional(std::string("#### 18")));
  EXPECT_THAT(wanted_of_line(R"({"solution": 18})"), Optional(std::string("18")));
  EXPECT_THAT(wanted_of_line(R"({"reward_model": {"style": "rule", "ground_truth": "4"}})"),
              Optional(std::string("4")));
  EXPECT_EQ(wanted_of_line(R"({"prompt": "a"})"), std::nullopt);
}
