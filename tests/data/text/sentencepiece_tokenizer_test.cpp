#include "axonn/data/text/sentencepiece/sentencepiece_tokenizer.h"

#include <random>

#include <gmock/gmock.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/data_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

namespace {

/// Trains a model on generated text, and returns its path.
std::string train(const TempFolder& folder, const std::string& options) {
  const std::string text = folder.file("text", synthetic_text(60'000, 1)),
                    arguments = concat("--input=", text, " --model_prefix=", folder.path("m"),
                                       " --minloglevel=3 --hard_vocab_limit=false ", options);
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments);
  AXONN_CHECK(status.ok(), status.ToString());
  return folder.path("m.model");
}

constexpr const char* kLlama2 =
    "--vocab_size=600 --model_type=bpe --byte_fallback=true --normalization_rule_name=identity "
    "--remove_extra_whitespaces=false --split_digits=true --allow_whitespace_only_pieces=true";

std::string random_text(std::mt19937& engine) {
  const std::vector<std::string> pieces{" the", " city", "of",      "  ",  " ", "\n",
                                        "12 7", "é",     "日本",    ".",   ",", " a,",
                                        "\t",   " x",    "the\nof", "\n\n"};
  std::string text;
  for (auto n = engine() % 20; n > 0; --n) text += pieces[engine() % pieces.size()];
  return text;
}

void expect_the_librarys_tokens(const std::string& path) {
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.Load(path).ok());
  const auto tokenizer = make_sentencepiece_tokenizer(path);
  EXPECT_EQ(tokenizer->vocab_size(), library.GetPieceSize());
  std::mt19937 engine(1);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = random_text(engine);
    ASSERT_THAT(tokenizer->encode(text), ElementsAreArray(library.EncodeAsIds(text)))
        << testing::PrintToString(text);
    std::string words = synthetic_text(300, i);
    ASSERT_THAT(tokenizer->encode(words), ElementsAreArray(library.EncodeAsIds(words)));
  }
}

}  // namespace

TEST(SentencePieceTokenizer, GivesTheLibrarysTokensAlsoFromTheWordCache) {
  const TempFolder bpe, unigram;
  expect_the_librarys_tokens(train(bpe, kLlama2));
  expect_the_librarys_tokens(train(unigram, "--vocab_size=400 --model_type=unigram"));
}

TEST(SentencePieceTokenizer, DecodingGivesBackAnyBytes) {
  const TempFolder folder;
  const auto tokenizer = make_sentencepiece_tokenizer(train(folder, kLlama2));
  std::mt19937 engine(2);
  for (int i = 0; i < 1000; ++i) {
    std::string text = random_text(engine);
    if (i % 2 && !text.empty()) text[engine() % text.size()] = static_cast<char>(engine());
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << testing::PrintToString(text);
  }
}

TEST(SentencePieceTokenizer, NeverCutsNextToAnAddedToken) {
  const TempFolder folder;
  const auto tokenizer = make_sentencepiece_tokenizer(train(folder, kLlama2));
  ASSERT_TRUE(tokenizer->added_token("<s>"));
  const std::string text = "it was <s> and <s> it is";
  EXPECT_EQ(tokenizer->cut(text, 5), text.find(" is"));
  EXPECT_EQ(tokenizer->cut("日<s>本", 1), 3u);
  EXPECT_EQ(tokenizer->cut("日<s>本", 4), 9u);
}

TEST(SentencePieceTokenizer, TextsOfEveryScriptAreCutAndGiveTheTokensOfTheWhole) {
  const TempFolder folder;
  const std::string path = train(folder, kLlama2);
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.Load(path).ok());
  const auto tokenizer = make_sentencepiece_tokenizer(path);
  for (const std::string& sentence : std::vector<std::string>{
           "人人生而自由，在尊嚴和權利上一律平等。",
           "すべての人間は、生まれながらにして自由であり、", "มนุษย์ทั้งหลายเกิดมามีอิสระ",
           "يولد جميع الناس أحرارا ", "the é ö  日 本\n\n the  é"}) {
    const std::string text = sentence + sentence + sentence;
    const auto whole = tokenizer->encode(text);
    ASSERT_THAT(whole, ElementsAreArray(library.EncodeAsIds(text)));
    for (std::size_t wanted = 1; wanted < 2 * sentence.size(); ++wanted) {
      const std::size_t cut = tokenizer->cut(text, wanted);
      ASSERT_LT(cut, wanted + sentence.size()) << sentence;
      auto tokens = tokenizer->encode(text.substr(0, cut));
      tokenizer->encode_into(text.substr(cut), tokens, {.continues = true});
      ASSERT_EQ(tokens, whole) << sentence << " at " << cut;
    }
  }
}

TEST(SentencePieceTokenizer, PiecesGiveTheTokensOfTheWhole) {
  const TempFolder folder;
  const auto tokenizer = make_sentencepiece_tokenizer(train(folder, kLlama2));
  std::mt19937 engine(3);
  for (int i = 0; i < 500; ++i) {
    const std::string text = "it was" + random_text(engine) + " and it is so";
    const std::size_t cut = tokenizer->cut(text, engine() % text.size());
    auto tokens = tokenizer->encode(text.substr(0, cut));
    tokenizer->encode_into(text.substr(cut), tokens, {.continues = true});
    ASSERT_EQ(tokens, tokenizer->encode(text)) << testing::PrintToString(text) << " at " << cut;
  }
}

TEST(SentencePieceTokenizer, ControlPiecesAreAddedTokensNotText) {
  const TempFolder folder;
  const auto tokenizer = make_tokenizer(train(folder, kLlama2));
  EXPECT_EQ(tokenizer->begin_of_text(), std::vector<std::int32_t>{1});
  EXPECT_EQ(tokenizer->end_of_text(), 2);
  EXPECT_EQ(tokenizer->added_token("</s>"), 2);
  EXPECT_TRUE(tokenizer->is_special(2));
  EXPECT_EQ(tokenizer->encode("the</s>").back(), 2);
  EXPECT_NE(tokenizer->encode("the</s>", {.added_tokens = false}).back(), 2);
  EXPECT_EQ(tokenizer->encode_prompt("the").front(), 1);
  folder.file("tokenizer_config.json", R"({"add_bos_token": false})");
  EXPECT_TRUE(make_tokenizer(folder.path("m.model"))->begin_of_text().empty());
}

namespace {

/// A field of a protobuf: a message or string.
std::string field(int number, const std::string& content) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  for (std::size_t rest = content.size(); rest > 0 || out.size() == 1; rest >>= 7)
    out += static_cast<char>((rest & 0x7f) | (rest >= 0x80 ? 0x80 : 0));
  return out + content;
}

/// A little-endian number of 32 bits.
std::string number(std::uint32_t value) {
  return {static_cast<char>(value), static_cast<char>(value >> 8), static_cast<char>(value >> 16),
          static_cast<char>(value >> 24)};
}

}  // namespace

TEST(SentencePieceTokenizer, APieceOrMapThatTheLibraryCannotReadSafelyIsRefused) {
  const TempFolder folder;
  const std::string model = read_file(train(folder, kLlama2));
  const auto refusal = [&](const std::string& more) -> std::string {
    try {
      make_tokenizer(folder.file("more.model", model + more));
      return {};
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  const auto map = [&](std::uint32_t unit, const std::string& replacements) {
    std::string units = number(unit);
    units.resize(1024, '\0');
    return refusal(field(3, field(2, number(1024) + units + replacements)));
  };
  const auto piece = [&](std::size_t bytes) {
    return refusal(field(1, field(1, std::string(bytes, 'q'))));
  };
  EXPECT_EQ(piece(1024), "");
  EXPECT_THAT(piece(1025), HasSubstr("more.model: piece "));
  EXPECT_THAT(piece(3'000'000), HasSubstr("has 3000000 bytes; at most 1024"));
  EXPECT_THAT(refusal("\x0b"), HasSubstr("field 1 of the protobuf has the type 3"));
  EXPECT_THAT(refusal("\x0a\x7f"), HasSubstr("ends within a field (wanted 127 bytes, got 0)"));
  EXPECT_THAT(refusal(std::string(11, '\xff')), HasSubstr("more than 10 bytes"));

  const std::string x("x\0", 2);
  EXPECT_EQ(map(0, x), "");
  EXPECT_THAT(map(1 << 19, x), HasSubstr("unit 0 leads to unit 512 of 256"));
  EXPECT_THAT(map(1 << 8 | 1 << 10, std::string(65, 'y') + x), HasSubstr("becomes 66 bytes"));
  EXPECT_THAT(map(1 << 8, x), HasSubstr("points outside of the replacements"));
  EXPECT_THAT(map(0, "x"), HasSubstr("the last replacement has no end"));
  EXPECT_THAT(refusal(field(3, field(2, number(1 << 30) + x))), HasSubstr("cannot hold a trie"));
}

TEST(SentencePieceTokenizer, AFileThatIsNotAModelIsRefused) {
  const TempFolder folder;
  const std::string model = read_file(train(folder, kLlama2));
  std::mt19937 engine(4);
  for (const std::string& content :
       {std::string("no model"), std::string(), std::string(1000, '\xff')})
    EXPECT_THAT([&] { make_tokenizer(folder.file("bad.model", content)); },
                testing::ThrowsMessage<UsageError>(HasSubstr("bad.model")));
  for (std::size_t bytes = 1; bytes < model.size(); bytes += model.size() / 40) {
    try {
      make_tokenizer(folder.file("cut.model", model.substr(0, bytes)));
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("cut.model"));
    }
  }
}
