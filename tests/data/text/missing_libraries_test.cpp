// The sources that stand for ICU and SentencePiece in builds without them.
#include <gmock/gmock.h>

#include "axonn/data/text/characters.h"
#include "axonn/data/text/sentencepiece/sentencepiece_tokenizer.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(WithoutIcu, CharactersAreKnownForAscii) {
  EXPECT_THAT(characters_library(), AllOf(HasSubstr("none"), HasSubstr("chat templates")));
  EXPECT_EQ(upper_case("a1 Zz"), "A1 ZZ");
  EXPECT_EQ(lower_case("a1 Zz"), "a1 zz");
  EXPECT_TRUE(is_cased('q') && is_cased('Q') && !is_cased('@') && !is_cased('['));
  EXPECT_TRUE(is_printable('~') && !is_printable('\n') && !is_printable(0x7f));
  EXPECT_EQ(title_case_of('z'), U'Z');
  EXPECT_THAT([] { upper_case("stra\u00dfe"); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("beyond ASCII"), HasSubstr("libicu-dev"))));
}

TEST(WithoutSentencePiece, AModelIsRefusedWithItsFileThePackageAndTheOption) {
  EXPECT_THAT(sentencepiece_library(), AllOf(HasSubstr("none"), HasSubstr("tokenizer.model")));
  EXPECT_THAT([] { make_sentencepiece_tokenizer("a/tokenizer.model"); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("a/tokenizer.model: "),
                                              HasSubstr("libsentencepiece-dev"),
                                              HasSubstr("-DAXONN_SENTENCEPIECE=ON"))));
}
