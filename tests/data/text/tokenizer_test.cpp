#include "axonn/data/text/tokenizer.h"

#include <cstdlib>
#include <random>
#include <thread>

#include <gmock/gmock.h>

#include "axonn/data/text/stream_decoder.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/text/small_bpe.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

std::string random_bytes(std::mt19937& engine, std::size_t most) {
  std::string text(engine() % (most + 1), ' ');
  for (char& c : text) c = static_cast<char>(engine());
  return text;
}

/// Pieces that are difficult for the pattern and for UTF-8, in random order.
std::string random_mixture(std::mt19937& engine) {
  const std::vector<std::string> pieces{"hello",    " world",
                                        "  ",       "\n",
                                        "\t ",      "'s",
                                        "'ll",      "12",
                                        "é",        "日本",
                                        "😀",        "\xff",
                                        "\xe6\x97", "\xf0\x9f",
                                        "\x80",     "<|endoftext|>",
                                        "<|end",    "...",
                                        "\u180e",   "\u2003",
                                        "lll",      std::string(1, '\0')};
  std::string text;
  for (auto n = engine() % 40; n > 0; --n) text += pieces[engine() % pieces.size()];
  return text;
}

}  // namespace

TEST(ByteTokenizer, HasOneTokenForEachByteAndNoEndOfText) {
  const auto bytes = make_tokenizer("bytes");
  EXPECT_EQ(bytes->vocab_size(), 256);
  EXPECT_FALSE(bytes->end_of_text());
  EXPECT_THAT(bytes->encode(std::string("A\xff\0", 3)), ElementsAre(65, 255, 0));
  EXPECT_EQ(bytes->decode(std::vector{65, 255, 0}), std::string("A\xff\0", 3));
}

TEST(BpeTokenizer, MergesByRankAsWorkedOutByHand) {
  TempFolder folder;
  const auto bpe = make_tokenizer(small_bpe(folder));
  EXPECT_EQ(bpe->vocab_size(), kSmallVocab);
  EXPECT_EQ(bpe->end_of_text(), kSmallEnd);
  EXPECT_THAT(bpe->encode("hello world"), ElementsAre(259, 262, 263));
  EXPECT_THAT(bpe->encode("helll"), ElementsAre(258, 'l'));  // the leftmost ll
  EXPECT_THAT(bpe->encode("ored"), ElementsAre(261, 'e', 'd'));
  EXPECT_THAT(bpe->encode("hell"), ElementsAre(258));
  EXPECT_THAT(bpe->encode("hel lo"), ElementsAre(256, 'l', ' ', 'l', 'o'));
  EXPECT_THAT(bpe->encode("\u00e9"), ElementsAre(0xc3, 0xa9));
  EXPECT_THAT(bpe->encode(""), IsEmpty());
}

TEST(BpeTokenizer, TheCharactersOfEndOfTextBecomeItsTokenAnywhere) {
  TempFolder folder;
  const auto bpe = make_tokenizer(small_bpe(folder));
  EXPECT_THAT(bpe->encode("<|endoftext|>hello<|endoftext|><|endoftext|>"),
              ElementsAre(kSmallEnd, 259, kSmallEnd, kSmallEnd));
  EXPECT_EQ(bpe->encode("<|endoftext").size(), 11u);
  EXPECT_EQ(bpe->decode(std::vector{kSmallEnd}), "<|endoftext|>");
}

TEST(BpeTokenizer, DecodingGivesBackAnyBytesAlsoFromTheWordCache) {
  TempFolder folder;
  std::mt19937 engine(1);
  for (const auto& tokenizer : {make_tokenizer("bytes"), make_tokenizer(small_bpe(folder))}) {
    for (int i = 0; i < 3000; ++i) {
      const std::string text = i % 2 ? random_bytes(engine, 64) : random_mixture(engine);
      const auto tokens = tokenizer->encode(text);
      ASSERT_EQ(tokenizer->decode(tokens), text) << testing::PrintToString(text);
      ASSERT_EQ(tokenizer->encode(text), tokens) << testing::PrintToString(text);
    }
  }
}

TEST(BpeTokenizer, VeryLongWordsOfEveryKindDoNotTakeQuadraticTime) {
  TempFolder folder;
  const auto bpe = make_tokenizer(small_bpe(folder));
  for (std::string unit : {"l", " ", "7", ".", "\n", "\xff", "é", "<"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    EXPECT_EQ(bpe->decode(bpe->encode("a" + text + "b")), "a" + text + "b") << unit;
  }
}

TEST(BpeTokenizer, ManyThreadsAtOnceGetTheSameTokens) {
  TempFolder folder;
  const auto bpe = make_tokenizer(small_bpe(folder));
  std::mt19937 engine(2);
  std::string text;
  for (int i = 0; i < 200; ++i) text += random_mixture(engine);
  const auto want = bpe->encode(text);
  std::vector<std::vector<std::int32_t>> got(8);
  {
    std::vector<std::jthread> threads;
    for (auto& tokens : got) threads.emplace_back([&] { tokens = bpe->encode(text); });
  }
  for (const auto& tokens : got) EXPECT_EQ(tokens, want);
}

TEST(BpeTokenizer, EqualFilesHaveTheSameFingerprintAndOtherFilesAnother) {
  TempFolder a, b, c;
  small_bpe(c);
  c.file("merges.txt", "#version: 0.2\nh e\n");
  const auto of = [](const std::string& folder) { return make_tokenizer(folder)->fingerprint(); };
  EXPECT_EQ(of(small_bpe(a)), of(small_bpe(b)));
  EXPECT_NE(of(a.path()), of(c.path()));
}

TEST(Tokenizer, RefusesToDecodeATokenOutsideTheVocabulary) {
  const auto bytes = make_tokenizer("bytes");
  for (std::int32_t token : {-1, 256, 1 << 30})
    EXPECT_THAT(
        [&] {
          bytes->decode(std::vector{65, token});
        },
        testing::ThrowsMessage<Error>(HasSubstr("token " + std::to_string(token))));
}

TEST(Tokenizer, AMissingFolderIsNamed) {
  EXPECT_THAT([] { make_tokenizer("/no/such/folder"); },
              testing::ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("/no/such/folder"), HasSubstr("vocab.json"))));
  EXPECT_THROW(make_tokenizer(""), UsageError);
}

TEST(StreamDecoder, HoldsBackACharacterUntilItIsCompleteAndLosesNoByte) {
  const auto bytes = make_tokenizer("bytes");
  StreamDecoder decoder(*bytes);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xc3), "");
  EXPECT_EQ(decoder.push(0xa9), "é");
  EXPECT_EQ(decoder.push(0xf0), "");
  EXPECT_EQ(decoder.push('b'),
            "\xf0"
            "b");
  EXPECT_EQ(decoder.push(0xe6), "");
  EXPECT_EQ(decoder.finish(), "\xe6");
  EXPECT_EQ(decoder.finish(), "");

  std::mt19937 engine(3);
  for (int i = 0; i < 500; ++i) {
    const std::string text = random_mixture(engine) + random_bytes(engine, 16);
    std::string got;
    for (std::int32_t token : bytes->encode(text)) got += decoder.push(token);
    EXPECT_EQ(got + decoder.finish(), text);
  }
}

TEST(Tokenizer, ShowsTheSpecialTokensThatAreAskedFor) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer(small_bpe(folder));
  const std::vector<std::int32_t> tokens{259, kSmallEnd};
  EXPECT_EQ(tokenizer->decode(tokens, {.skip_special = true}), "hello");
  EXPECT_EQ(tokenizer->decode(tokens, {.skip_special = true, .shown = {kSmallEnd}}),
            "hello<|endoftext|>");
}

TEST(Gpt2Tokenizer, GivesGpt2sTokens) {
  const char* folder = std::getenv("AXONN_GPT2_DIR");
  if (!folder) GTEST_SKIP() << "set AXONN_GPT2_DIR to a folder with GPT-2's two files";
  const auto gpt2 = make_tokenizer(folder);
  EXPECT_EQ(gpt2->vocab_size(), 50257);
  EXPECT_EQ(gpt2->end_of_text(), 50256);
  EXPECT_THAT(gpt2->encode("Hello world"), ElementsAre(15496, 995));
  EXPECT_THAT(gpt2->encode("Hello, I'm a language model,"),
              ElementsAre(15496, 11, 314, 1101, 257, 3303, 2746, 11));
  EXPECT_THAT(gpt2->encode("\n\n"), ElementsAre(628));
  EXPECT_THAT(gpt2->encode(" <|endoftext|>\n"), ElementsAre(220, 50256, 198));
  std::mt19937 engine(4);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = i % 2 ? random_bytes(engine, 64) : random_mixture(engine);
    ASSERT_EQ(gpt2->decode(gpt2->encode(text)), text) << testing::PrintToString(text);
  }
}

TEST(Tokenizer, ItsFolderIsFoundFromAnyOfItsFiles) {
  const TempFolder folder;
  const std::string file = folder.file("tokenizer.json", "{}");
  EXPECT_EQ(tokenizer_folder(folder.path()), folder.path());
  EXPECT_EQ(tokenizer_folder(file), folder.path());
  EXPECT_EQ(tokenizer_folder("tokenizer.json"), ".");
}
