#include "axonn/data/text/stream_decoder.h"

#include <gmock/gmock.h>

#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// Returns the text shown after each byte; the last entry is from finish().
std::vector<std::string> shown(const std::string& text, const std::vector<std::string>& stops) {
  const auto tokenizer = make_tokenizer("bytes");
  StreamDecoder generated(*tokenizer, {}, stops);
  std::vector<std::string> pieces;
  for (const char c : text) pieces.push_back(generated.push(static_cast<unsigned char>(c)));
  pieces.push_back(generated.finish());
  return pieces;
}

}  // namespace

TEST(StreamDecoder, HoldsBackTheBeginningOfAStopUntilItIsNone) {
  EXPECT_THAT(shown("abcx", {"abcd"}), testing::ElementsAre("", "", "", "abcx", ""));
  EXPECT_THAT(shown("aab", {"ab!"}), testing::ElementsAre("", "a", "", "ab"));
  EXPECT_THAT(shown("xyz", {}), testing::ElementsAre("x", "y", "z", ""));
}

TEST(StreamDecoder, ShowsNothingOfAStopOrAfterIt) {
  EXPECT_THAT(shown("1\n\n2", {"\n\n"}), testing::ElementsAre("1", "", "", "", ""));
  EXPECT_THAT(shown("abab!c", {"ab!"}), testing::ElementsAre("", "", "ab", "", "", "", ""));
  EXPECT_THAT(shown("xabcy", {"bc", "abc"}), testing::ElementsAre("x", "", "", "", "", ""));
}

TEST(StreamDecoder, HoldsBackIncompleteCharacters) {
  EXPECT_THAT(shown("\xc3\xa9", {}), testing::ElementsAre("", "\xc3\xa9", ""));
}

TEST(StreamDecoder, RejectsAnEmptyStop) {
  EXPECT_THAT([] { shown("", {""}); }, ThrowsMessage<UsageError>(HasSubstr("is empty")));
}
