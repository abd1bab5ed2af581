#include "axonn/data/text/bpe/bpe_vocab.h"

#include <gmock/gmock.h>

#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/text/small_bpe.h"
#include "tests/data/text/tokenizer_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::HasSubstr;

namespace {

/// The error message of read_bpe_vocab() for the two files; empty if it accepts them.
std::string vocab_refusal(const std::string& vocab, const std::string& merges) {
  TempFolder folder;
  folder.file("vocab.json", vocab);
  folder.file("merges.txt", merges);
  try {
    read_bpe_vocab(folder.path());
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

}  // namespace

TEST(BpeVocab, BytesHaveTheCharactersOfGpt2) {
  EXPECT_EQ(bpe_character('A'), "A");
  EXPECT_EQ(bpe_character(0), "\u0100");
  EXPECT_EQ(bpe_character(' '), "\u0120");
  EXPECT_EQ(bpe_character('\n'), "\u010a");
  EXPECT_EQ(bpe_character(0x7f), "\u0121");
  EXPECT_EQ(bpe_character(0xa0), "\u0142");
  EXPECT_EQ(bpe_character(0xad), "\u0143");
  EXPECT_EQ(bpe_character(0xff), "\u00ff");
}

TEST(BpeVocab, AMalformedVocabularyIsRefusedWithFileAndReason) {
  const std::string vocab = small_vocab_json(), merges = small_merges_txt();
  ASSERT_EQ(vocab_refusal(vocab, merges), "");
  EXPECT_THAT(vocab_refusal("", merges),
              AllOf(HasSubstr("vocab.json, line 1"), HasSubstr("not JSON")));
  EXPECT_THAT(vocab_refusal(replaced(vocab, ", \"B\"", ",\n \"B"), merges),
              AllOf(HasSubstr("vocab.json, line 2"), HasSubstr("not JSON")));
  EXPECT_THAT(vocab_refusal(vocab + "x", merges), HasSubstr("not JSON"));
  EXPECT_THAT(vocab_refusal("[1, 2]", merges), HasSubstr("wanted an object"));
  EXPECT_THAT(vocab_refusal("7", merges), HasSubstr("wanted an object"));
  EXPECT_THAT(vocab_refusal("{}", merges), HasSubstr("is empty"));
  EXPECT_THAT(vocab_refusal(replaced(vocab, "\"A\": 65", "\"A\": {\"b\": 65}"), merges),
              HasSubstr("vocab.json: A: wanted a number from 0 to 2147483647, got an object"));
  EXPECT_THAT(vocab_refusal(replaced(vocab, "\"A\": 65", "\"A\": 6.5"), merges),
              HasSubstr("got 6.5"));
  EXPECT_THAT(vocab_refusal(replaced(vocab, "\"A\": 65", "\"A\": \"x\""), merges),
              HasSubstr("a string"));
  EXPECT_THAT(vocab_refusal(replaced(vocab, "\"A\": 65", "\"A\": -65"), merges), HasSubstr("-65"));
  EXPECT_THAT(vocab_refusal(replaced(vocab, "\"A\": 65", "\"A\": 4000000000"), merges),
              HasSubstr("4000000000"));
  EXPECT_THAT(vocab_refusal(replaced(vocab, "\"A\": 65", "\"A\": 1e999"), merges),
              HasSubstr("not JSON"));
  EXPECT_THAT(vocab_refusal(replaced(vocab, "\"A\": 65", "\"A\": 9000"), merges),
              HasSubstr("their ids must be below 2060"));
  EXPECT_THAT(vocab_refusal(replaced(vocab, "\"A\": 65", "\"A\": 66"), merges),
              AllOf(HasSubstr("'A'"), HasSubstr("'B'"), HasSubstr("same id 66")));
  EXPECT_THAT(vocab_refusal(replaced(vocab, "\"A\": 65", "\"B\": 65"), merges), HasSubstr("'B'"));
  EXPECT_THAT(vocab_refusal(replaced(vocab, "\"A\": 65", "\"AA\": 65"), merges),
              HasSubstr("byte 65"));
}

TEST(BpeVocab, AMalformedListOfMergesIsRefusedWithFileLineAndReason) {
  const std::string vocab = small_vocab_json(), merges = small_merges_txt();
  EXPECT_THAT(vocab_refusal(vocab, merges + "abc\n"),
              AllOf(HasSubstr("merges.txt, line 10"), HasSubstr("'abc'")));
  for (const char* bad : {" a\n", "a \n", "a b c\n", "a  b\n", "\nh e\n"})
    EXPECT_THAT(vocab_refusal(vocab, merges + bad), HasSubstr("merges.txt, line 10")) << bad;
  EXPECT_THAT(vocab_refusal(vocab, merges + "h e\n"),
              AllOf(HasSubstr("line 10"), HasSubstr("'h e' occurs twice")));
  EXPECT_THAT(vocab_refusal(vocab, merges + "zz a\n"), HasSubstr("'zz' is not in vocab.json"));
  EXPECT_THAT(vocab_refusal(vocab, merges + "a b\n"), HasSubstr("'ab' is not in vocab.json"));
  EXPECT_THAT(vocab_refusal(vocab, merges + std::string(100'000, 'x')), HasSubstr("line 10"));
  EXPECT_EQ(vocab_refusal(vocab, "h e\r\nl l\r\n"), "") << "Windows line ends, and no #version";
}

TEST(BpeVocab, AnyTruncationOfEitherFileIsReadOrRefusedButNeverCrashes) {
  const std::string vocab = small_vocab_json(), merges = small_merges_txt();
  for (std::size_t bytes = 0; bytes < vocab.size(); bytes += 7)
    EXPECT_NE(vocab_refusal(vocab.substr(0, bytes), merges), "") << bytes;
  for (std::size_t bytes = 0; bytes < merges.size(); ++bytes)
    vocab_refusal(vocab, merges.substr(0, bytes));
}

TEST(BpeVocab, AMissingFileIsNamed) {
  TempFolder folder;
  folder.file("vocab.json", small_vocab_json());
  EXPECT_THAT([&] { read_bpe_vocab(folder.path()); },
              testing::ThrowsMessage<UsageError>(HasSubstr(folder.path("merges.txt"))));
}

TEST(BpeVocab, TokensThatTheConfigNamesAreNoTextAndOneMayBegin) {
  TempFolder folder;
  small_bpe(folder);
  constexpr std::int32_t end = kSmallVocab;
  folder.file("vocab.json",
              replaced(small_vocab_json(), "\"A\": 65",
                       concat("\"A\": 65, \"</s>\": ", end, ", \"<pad>\": ", end + 1)));
  const auto with = [&](const std::string& config) {
    folder.file("tokenizer_config.json", config);
    return make_tokenizer(folder.path());
  };
  const std::string names = R"("bos_token": {"__type": "AddedToken", "content": "</s>",
    "lstrip": false, "normalized": true, "rstrip": false, "single_word": false},
    "eos_token": "</s>", "unk_token": "</s>", "pad_token": "<pad>")";
  const auto opt =
      with(R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, )" + names + "}");
  EXPECT_THAT(opt->begin_of_text(), testing::ElementsAre(end));
  EXPECT_EQ(opt->end_of_text(), end);
  EXPECT_THAT(opt->encode("A</s>A<pad>"), testing::ElementsAre(65, end, 65, end + 1));
  const auto without = with("{" + names + "}");
  EXPECT_THAT(without->begin_of_text(), testing::IsEmpty());
  EXPECT_NE(opt->fingerprint(), without->fingerprint());
  EXPECT_THAT([&] { with(R"({"eos_token": "<no>"})"); },
              testing::ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("no token '<no>'"), HasSubstr("eos_token"))));
  EXPECT_THAT([&] { with(R"({"add_bos_token": true, "bos_token": "<no>"})"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("bos_token")));
}

TEST(BpeVocab, ATokenizerWithAnotherPatternIsRefused) {
  TempFolder folder;
  small_bpe(folder);
  folder.file("tokenizer_config.json", R"({"tokenizer_class": "GPT2TokenizerFast"})");
  EXPECT_NO_THROW(read_bpe_vocab(folder.path()));
  folder.file("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_THAT([&] { read_bpe_vocab(folder.path()); },
              testing::ThrowsMessage<UsageError>(HasSubstr("Qwen2Tokenizer")));
  folder.file("tokenizer_config.json", "{");
  EXPECT_THROW(read_bpe_vocab(folder.path()), UsageError);
}
