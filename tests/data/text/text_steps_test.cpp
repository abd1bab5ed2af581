#include "axonn/data/text/text_steps.h"

#include <vector>

#include <gmock/gmock.h>

using namespace axonn;

namespace {

using Kind = TextStep::Kind;

std::string applied(const std::vector<TextStep>& steps, std::string_view text,
                    Before before = Before::nothing) {
  TextBuffers buffers;
  return std::string(apply_steps(steps, text, before, buffers));
}

}  // namespace

TEST(TextSteps, AreAppliedInOrderWithTheTextInEitherBuffer) {
  const std::vector<TextStep> steps{{Kind::nfc},
                                    {Kind::prepend, {}, "__"},
                                    {Kind::replace, "_", "- "},
                                    {Kind::replace, " ", "="},
                                    {Kind::prepend_missing, {}, "-"}};
  EXPECT_EQ(applied(steps, "a_e\u0301"), "-=-=a-=\u00e9");
}

TEST(TextSteps, PrependOnlyInTheRightPlaces) {
  const auto of = [](Kind kind, Before before, std::string_view text) {
    return applied({{kind, {}, "_"}}, text, before);
  };
  EXPECT_EQ(of(Kind::prepend, Before::nothing, "_a"), "__a");
  EXPECT_EQ(of(Kind::prepend_missing, Before::nothing, "_a"), "_a");
  EXPECT_EQ(of(Kind::prepend_missing, Before::added_token, "a"), "_a");
  EXPECT_EQ(of(Kind::prepend_first, Before::nothing, "a"), "_a");
  EXPECT_EQ(of(Kind::prepend_first, Before::added_token, "a"), "a");
  for (Kind kind : {Kind::prepend, Kind::prepend_missing, Kind::prepend_first}) {
    EXPECT_EQ(of(kind, Before::text, "a"), "a");
    EXPECT_EQ(of(kind, Before::nothing, ""), "");
  }
}

TEST(TextSteps, TheComposedFormOfALongTextDoesNotDependOnWhereItIsDivided) {
  // Each of these characters is made of three.
  std::string text, want;
  for (int i = 0; i < 400'000; ++i) {
    text += "o\u0302\u0323";
    want += "\u1ed9";
  }
  EXPECT_TRUE(applied({{Kind::nfc}}, text) == want);
  EXPECT_TRUE(applied({{Kind::nfc}}, "x" + text) == "x" + want);
  EXPECT_TRUE(applied({{Kind::nfc}}, "xy" + text) == "xy" + want);
}

TEST(TextSteps, TheComposedFormKeepsBytesThatAreNotUtf8) {
  EXPECT_EQ(applied({{Kind::nfc}}, "o\u0302\u0323\xff\u0308.\xe6"), "\u1ed9\xff\u0308.\xe6");
  EXPECT_EQ(applied({{Kind::nfc}}, "\u2126"), "\u03a9");
  EXPECT_EQ(applied({{Kind::nfc}}, "plain ÄÖ\xff"), "plain ÄÖ\xff");
}
