#include <cstdlib>
#include <random>

#include <gmock/gmock.h>

#include "axonn/data/text/bpe/bpe_vocab.h"
#include "axonn/data/text/bpe/write_bpe.h"
#include "axonn/data/text/stream_decoder.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

#include "tests/data/text/naive_bpe.h"
#include "tests/data/text/small_bpe.h"
#include "tests/data/text/tokenizer_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& json) {
  const TempFolder folder;
  return make_tokenizer(folder.file("tokenizer.json", json));
}

/// Random text of the characters that naive_bpe.cpp supports.
std::string random_text(std::mt19937& engine, std::size_t most) {
  const std::vector<std::string> pieces{
      "hello", " world", " ",  "  ", "\n", "\r\n", "\t", "'s",     "'LL",   "'ſ", "12",
      "12345", "é",      "日", "本", "!",  "...",  "<",  "\u2003", "½",     "lo", "hel",
      "or",    "held",   "'",  "W",  "ld", "٣",    "😀",  "▁",      "\u0085"};
  std::string text;
  for (auto n = engine() % most; n > 0; --n) text += pieces[engine() % pieces.size()];
  return text;
}

}  // namespace

TEST(TokenizerJson, OfGpt2GivesTheTokensOfVocabAndMerges) {
  const TempFolder folder;
  const SmallVocab vocab = byte_level_vocab();
  std::string json = "{", merges = "#version: 0.2\n";
  for (std::size_t i = 0; i < vocab.tokens.size(); ++i)
    json += in_quotes(vocab.tokens[i]) + ": " + std::to_string(i) + ", ";
  folder.file("vocab.json",
              json + "\"<|endoftext|>\": " + std::to_string(vocab.tokens.size()) + "}");
  for (const auto& [left, right] : vocab.merges) merges += left + ' ' + right + '\n';
  folder.file("merges.txt", merges);
  const auto two_files = make_tokenizer(folder.path());
  folder.file("tokenizer.json", gpt2_json());
  const auto one_file = make_tokenizer(folder.path());
  EXPECT_THAT(two_files->name(), HasSubstr("gpt2"));
  EXPECT_THAT(one_file->name(), HasSubstr("tokenizer.json")) << "tokenizer.json is preferred";
  EXPECT_EQ(one_file->vocab_size(), two_files->vocab_size());
  EXPECT_EQ(one_file->end_of_text(), two_files->end_of_text());
  EXPECT_TRUE(one_file->begin_of_text().empty());
  std::mt19937 engine(1);
  for (int i = 0; i < 1000; ++i) {
    std::string text = random_text(engine, 20) + "<|endoftext|>" + random_text(engine, 5);
    if (i % 3 == 0) text[engine() % text.size()] = '\xff';
    ASSERT_EQ(one_file->encode(text), two_files->encode(text)) << testing::PrintToString(text);
    ASSERT_EQ(one_file->decode(one_file->encode(text)), text);
  }
}

TEST(TokenizerJson, WrittenForOtherProgramsGivesTheSameTokens) {
  const TempFolder small, folder;
  const std::string text = "hello\xff wor<|endoftext|>ld \u5317\u4eac\n\t caf\u00e9 it's 42";
  for (const bool bytes : {true, false}) {
    const BpeVocab vocab = bytes ? bytes_as_bpe() : read_bpe_vocab(small_bpe(small));
    folder.file("tokenizer.json", to_tokenizer_json(vocab));
    folder.file("tokenizer_config.json", to_tokenizer_config(vocab));
    const auto written = make_tokenizer(folder.path()),
               want = make_tokenizer(bytes ? "bytes" : small.path());
    EXPECT_EQ(written->encode(text), want->encode(text));
    EXPECT_EQ(written->decode(written->encode(text)), text);
    EXPECT_EQ(written->vocab_size(), want->vocab_size());
    EXPECT_EQ(written->end_of_text(), want->end_of_text());
    EXPECT_TRUE(written->begin_of_text().empty());
    EXPECT_EQ(written->name() == "bytes", bytes);
    if (bytes) {
      EXPECT_EQ(written->fingerprint(), want->fingerprint());
    }
  }
}

TEST(TokenizerJson, OfLlama3GivesTokensWorkedOutByHand) {
  const auto llama = tokenizer_of(llama3_json());
  const SmallVocab vocab = byte_level_vocab();
  const int n = static_cast<int>(vocab.tokens.size());
  EXPECT_EQ(llama->vocab_size(), n + 5);
  EXPECT_EQ(llama->begin_of_text(), std::vector{n});
  EXPECT_EQ(llama->end_of_text(), n + 1);
  EXPECT_THAT(llama->encode("hello world"),
              ElementsAre(vocab.id_of("hello"), vocab.id_of("Ġworld")))
      << "ignore_merges: a word that is a token becomes that token";
  EXPECT_THAT(llama->encode("12345"), ElementsAre(vocab.id_of("12"), '3', '4', '5'));
  EXPECT_THAT(llama->encode("!\n"), ElementsAre(vocab.id_of("!Ċ")));
  EXPECT_THAT(llama->encode("l's"), ElementsAre('l', vocab.id_of("'s")));
  EXPECT_THAT(llama->encode("<|eot_id|>\n\n"), ElementsAre(n + 2, vocab.id_of("ĊĊ")));
  EXPECT_THAT(llama->encode_prompt("hello"), ElementsAre(n, vocab.id_of("hello")));
  EXPECT_EQ(llama->encode("<|eot_id|>", {.added_tokens = false}).size(), 10u)
      << "typing a marker must not end a turn";
  EXPECT_EQ(llama->added_token("<|eot_id|>"), n + 2);
  EXPECT_EQ(llama->added_token("<|eot"), std::nullopt);
  EXPECT_TRUE(llama->is_special(n + 2));
  EXPECT_FALSE(llama->is_special('l'));
  EXPECT_EQ(llama->decode(std::vector{n, 104, n + 2}), "<|begin_of_text|>h<|eot_id|>");
  EXPECT_EQ(llama->decode(std::vector{n, 104, n + 2}, {.skip_special = true}), "h");
}

TEST(TokenizerJson, WordsOfLlama3AndQwenMatchAPlainScanner) {
  const SmallVocab vocab = byte_level_vocab();
  const auto qwen = tokenizer_of(qwen_json());
  const auto llama =
      tokenizer_of(replaced(llama3_json(), R"("ignore_merges":true)", R"("ignore_merges":false)"));
  std::mt19937 engine(2);
  for (int i = 0; i < 4000; ++i) {
    const std::string text = random_text(engine, 16);
    std::vector<int> of_llama, of_qwen;
    for (const std::string& word : naive_words(text, 3))
      for (int token : naive_byte_level(word, vocab)) of_llama.push_back(token);
    for (const std::string& word : naive_words(text, 1))
      for (int token : naive_byte_level(word, vocab)) of_qwen.push_back(token);
    ASSERT_THAT(llama->encode(text), ElementsAreArray(of_llama)) << testing::PrintToString(text);
    ASSERT_THAT(qwen->encode(text), ElementsAreArray(of_qwen)) << testing::PrintToString(text);
    ASSERT_EQ(llama->decode(llama->encode(text)), text);
  }
}

TEST(TokenizerJson, OfQwenComposesCharactersButNotInvalidBytes) {
  const SmallVocab vocab = byte_level_vocab();
  const auto qwen = tokenizer_of(qwen_json());
  EXPECT_EQ(qwen->encode("e\u0301"), qwen->encode("\u00e9"));
  EXPECT_THAT(qwen->encode("e\u0301"), ElementsAre(vocab.id_of("Ã©")));
  EXPECT_EQ(qwen->decode(qwen->encode("e\u0301\xff\u0301z\xe6")), "\u00e9\xff\u0301z\xe6");
  EXPECT_EQ(qwen->decode(qwen->encode("\u1112\u1161\u11ab")), "\ud55c");
  const auto end = qwen->added_token("<|im_end|>");
  ASSERT_TRUE(end);
  EXPECT_THAT(qwen->encode("h<|im_end|>"), ElementsAre('h', *end));
  EXPECT_EQ(qwen->end_of_text(), qwen->added_token("<|endoftext|>"));
  EXPECT_TRUE(qwen->begin_of_text().empty());
  const auto call = qwen->added_token("<tool_call>");
  ASSERT_TRUE(call);
  EXPECT_FALSE(qwen->is_special(*call)) << "an added token need not be special";
  EXPECT_THAT(qwen->encode("<tool_call>"), ElementsAre(*call));
}

TEST(TokenizerJson, APromptThatHasABeginOfTextGetsNoSecondOne) {
  const auto llama = tokenizer_of(llama2_json());
  EXPECT_EQ(llama->encode_prompt("<s>hello"), llama->encode_prompt("hello"));
  EXPECT_THAT(llama->encode_prompt("<s>"), ElementsAre(1));
  EXPECT_THAT(llama->encode_prompt(""), ElementsAre(1));
}

TEST(TokenizerJson, AnAddedTokenThatIsNormalizedIsDecodedWithItsSpace) {
  const std::string id = std::to_string(llama2_vocab().tokens.size());
  const auto llama = tokenizer_of(
      replaced(llama2_json(), "\"added_tokens\":[",
               "\"added_tokens\":[{\"id\":" + id +
                   R"(,"content":"<x1>","single_word":false,"lstrip":false,"rstrip":false,)"
                   R"("normalized":true,"special":false},)"));
  const auto token = llama->added_token("<x1>");
  ASSERT_TRUE(token);
  EXPECT_THAT(llama->encode("a <x1> a"), testing::Contains(*token));
  for (const char* text : {"a <x1> a", "<x1>", "<x1>a", "a<x1>"})
    EXPECT_EQ(llama->decode(llama->encode(text)), text);
}

TEST(TokenizerJson, OfLlama2GivesTokensWorkedOutByHand) {
  const auto llama = tokenizer_of(llama2_json());
  const SmallVocab vocab = llama2_vocab();
  const auto id = [&](const char* token) { return vocab.id_of(token); };
  EXPECT_EQ(llama->begin_of_text(), std::vector<std::int32_t>{1});
  EXPECT_EQ(llama->end_of_text(), 2);
  EXPECT_THAT(llama->encode("hello world"), ElementsAre(id("▁hello"), id("▁wor"), id("ld")));
  EXPECT_THAT(llama->encode("a"), ElementsAre(id("▁"), id("<0x61>")));
  EXPECT_THAT(llama->encode("日"), ElementsAre(id("▁"), id("<0xE6>"), id("<0x97>"), id("<0xA5>")));
  EXPECT_THAT(llama->encode("\xff"), ElementsAre(id("▁"), id("<0xFF>")));
  EXPECT_THAT(llama->encode("   hello"), ElementsAre(id("▁▁"), id("▁"), id("▁hello")));
  EXPECT_THAT(llama->encode("hello</s>hello"), ElementsAre(id("▁hello"), 2, id("▁hello")))
      << "the normalizer puts a space after an added token";
  EXPECT_THAT(llama->encode("hello", {.continues = true}),
              ElementsAre(id("h"), id("el"), id("lo")));
  EXPECT_THAT(llama->encode(" hello", {.continues = true}), ElementsAre(id("▁hello")));
  EXPECT_THAT(llama->encode(""), IsEmpty());
}

TEST(TokenizerJson, OfLlama2RemovesTheSpaceThatItPutBeforeAText) {
  const auto llama = tokenizer_of(llama2_json());
  for (const std::string text : {"hello", " hello", "  h", "é\n日\xff", "", " "})
    EXPECT_EQ(llama->decode(llama->encode(text)), text) << testing::PrintToString(text);
  const auto tokens = llama->encode_prompt("hello");
  EXPECT_EQ(llama->decode(tokens), "<s> hello") << "only a space at the front is removed";
  EXPECT_EQ(llama->decode(tokens, {.skip_special = true}), "hello");
  EXPECT_EQ(llama->decode(llama->encode("hello"), {.continues = true}), " hello");

  StreamDecoder decoder(*llama, {.skip_special = true});
  std::string shown;
  for (std::int32_t token : llama->encode_prompt("hello 日")) shown += decoder.push(token);
  EXPECT_EQ(shown + decoder.finish(), "hello 日");
}

TEST(TokenizerJson, OfLlama2GivesThePlainAlgorithmsTokensAlsoWhenTheTextIsCut) {
  const auto llama = tokenizer_of(llama2_json());
  const SmallVocab vocab = llama2_vocab();
  std::mt19937 engine(3);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_text(engine, 16);
    ASSERT_THAT(llama->encode(text), ElementsAreArray(naive_llama2(text, vocab)))
        << testing::PrintToString(text);
    if (text.find("▁") == text.npos) {
      ASSERT_EQ(llama->decode(llama->encode(text)), text);
    }
  }
}

TEST(TokenizerJson, AMergeOverASpaceKeepsTheTextOneWord) {
  // "lo▁" has the mark behind another character, so text must not be cut before marks.
  std::string json = replaced(llama2_json(), "\"merges\":[", "\"merges\":[\"lo ▁\",");
  const int id = static_cast<int>(llama2_vocab().tokens.size());
  json = replaced(json, "},\"merges\"", ",\"lo▁\":" + std::to_string(id) + "},\"merges\"");
  const auto llama = tokenizer_of(json);
  const auto tokens = llama->encode("hello hello");
  EXPECT_EQ(std::ranges::count(tokens, id), 0) << "the merge of l and o comes later";
  EXPECT_EQ(llama->decode(tokens), "hello hello");
  EXPECT_THAT(llama->encode("lo lo"), testing::Contains(id));
  EXPECT_EQ(llama->cut("hello lo", 5), 6u) << "nor may it be cut between o and the space";
}

TEST(TokenizerJson, OfMistralPutsASpaceBeforeTheTextButNotAfterAddedTokens) {
  const auto mistral = tokenizer_of(mistral3_json());
  const SmallVocab vocab = llama2_vocab();
  EXPECT_THAT(mistral->encode("hello</s>hello"),
              ElementsAre(vocab.id_of("▁hello"), 2, vocab.id_of("h"), vocab.id_of("el"),
                          vocab.id_of("lo")));
  EXPECT_THAT(mistral->encode(" hello"), ElementsAre(vocab.id_of("▁hello")));
  std::mt19937 engine(4);
  for (int i = 0; i < 500; ++i) {
    const std::string text = "." + random_text(engine, 16);
    ASSERT_THAT(mistral->encode(text), ElementsAreArray(naive_llama2(text, vocab)))
        << testing::PrintToString(text);
  }
  const auto split = tokenizer_of(replaced(mistral3_json(), "\"split\":false", "\"split\":true"));
  EXPECT_THAT(split->encode(".   ."), testing::Not(testing::Contains(vocab.id_of("▁▁"))))
      << "each mark begins a word";
}

TEST(TokenizerJson, UnknownCharactersBecomeTheUnknownTokenFusedOrNot) {
  std::string json = replaced(llama2_json(), R"("byte_fallback":true)", R"("byte_fallback":false)");
  EXPECT_THAT(tokenizer_of(json)->encode(".日本."),
              ElementsAre(llama2_vocab().id_of("▁"), llama2_vocab().id_of("."), 0,
                          llama2_vocab().id_of(".")));
  json = replaced(json, R"("fuse_unk":true)", R"("fuse_unk":false)");
  EXPECT_EQ(tokenizer_of(json)->encode(".日本.").size(), 5u);
}

TEST(TokenizerJson, NormalizedAddedTokensAreSearchedForInNormalizedText) {
  // As in older files of Llama 2: the token's own text is normalized to "▁</s>".
  std::string json = llama2_json();
  json = replaced(json,
                  R"("content":"</s>","single_word":false,"lstrip":false,"rstrip":false,)"
                  R"("normalized":false)",
                  R"("content":"</s>","single_word":false,"lstrip":false,"rstrip":false,)"
                  R"("normalized":true)");
  const auto llama = tokenizer_of(json);
  EXPECT_THAT(llama->encode("hello </s>"), ElementsAre(llama2_vocab().id_of("▁hello"), 2));
  EXPECT_THAT(llama->encode("hello</s>"), testing::Not(testing::Contains(2)));
}

TEST(TokenizerJson, TokenizerConfigNamesTheTokensThatBeginAndEndAText) {
  const TempFolder folder;
  folder.file("tokenizer.json", llama3_json());
  const int n = static_cast<int>(byte_level_vocab().tokens.size());
  const auto ends = [&](const std::string& config) {
    folder.file("tokenizer_config.json", config);
    const auto tokenizer = make_tokenizer(folder.path());
    const auto& begin = tokenizer->begin_of_text();
    return std::pair(begin.empty() ? -1 : begin.front(), tokenizer->end_of_text().value_or(-1));
  };
  EXPECT_EQ(ends(R"({"eos_token": "<|eot_id|>"})"), std::pair(n, n + 2));
  EXPECT_EQ(ends(R"({"eos_token": {"content": "<|eot_id|>"}})"), std::pair(n, n + 2));
  EXPECT_EQ(ends(R"({"add_bos_token": false})"), std::pair(-1, n + 1));
  EXPECT_THAT([&] { ends(R"({"eos_token": "<none>"})"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("'<none>'")));
  EXPECT_THAT([&] { ends(R"({"eos_token": 7})"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("eos_token")));
  folder.file("tokenizer.json", qwen_json());
  EXPECT_EQ(ends(R"({"add_bos_token": true, "bos_token": "<|im_start|>"})"), std::pair(n + 1, n));
}

TEST(TokenizerJson, NeverCutsAfterAnAddedToken) {
  // Llama 2 puts a space after it, but none before a piece that follows other text.
  for (const std::string& json : {llama2_json(), mistral3_json()}) {
    const auto tokenizer = tokenizer_of(json);
    const std::string text = "it was <s>and <s> it is";
    EXPECT_EQ(tokenizer->cut(text, 8), text.find("nd"));
    EXPECT_EQ(tokenizer->cut(text, 15), text.find("it is"));
  }
}

TEST(TokenizerJson, PiecesGiveTheTokensOfTheWhole) {
  std::mt19937 engine(5);
  for (const std::string& json :
       {gpt2_json(), llama3_json(), qwen_json(), llama2_json(), mistral3_json()}) {
    const auto tokenizer = tokenizer_of(json);
    int cuts = 0;
    for (int i = 0; i < 1000; ++i) {
      const std::string text = "he said" + random_text(engine, 24) + "and he 's lo!\nwe";
      const std::size_t cut = tokenizer->cut(text, engine() % text.size());
      cuts += cut < text.size();
      auto tokens = tokenizer->encode(text.substr(0, cut));
      tokenizer->encode_into(text.substr(cut), tokens, {.continues = true});
      ASSERT_EQ(tokens, tokenizer->encode(text)) << testing::PrintToString(text) << " at " << cut;
    }
    EXPECT_GT(cuts, 500);
  }
}

TEST(TokenizerJson, TextsOfEveryScriptAreCutAndGiveTheTokensOfTheWhole) {
  // "All human beings are born free", as in the Universal Declaration of Human Rights.
  const std::vector<std::string> texts{
      "人人生而自由，在尊嚴和權利上一律平等。他們賦有理性和良心，",
      "すべての人間は、生まれながらにして自由であり、かつ、",
      "모든인간은태어날때부터자유로우며，그존엄과권리에있어동등하다。",
      "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์",
      "សម្រាប់មនុស្សទាំងអស់កើតមកមានសេរីភាព",
      "يولد جميع الناس أحرارا متساوين في الكرامة ",
      "सभी मनुष्यों को गौरव और अधिकारों के मामले में ",
      "all human beings are born free and equal ",
      "e\u0301e\u0301 日\u3099本、 \u1112\u1161\u11ab。 \n"};
  for (const std::string& json :
       {gpt2_json(), llama3_json(), qwen_json(), llama2_json(), mistral3_json()}) {
    const auto tokenizer = tokenizer_of(json);
    for (const std::string& sentence : texts) {
      const std::string text = sentence + sentence + sentence;
      const auto whole = tokenizer->encode(text);
      for (std::size_t wanted = 1; wanted < 2 * sentence.size(); ++wanted) {
        const std::size_t cut = tokenizer->cut(text, wanted);
        ASSERT_LT(cut, wanted + sentence.size()) << sentence;
        auto tokens = tokenizer->encode(text.substr(0, cut));
        tokenizer->encode_into(text.substr(cut), tokens, {.continues = true});
        ASSERT_EQ(tokens, whole) << sentence << " at " << cut;
      }
    }
  }
}

TEST(TokenizerJson, PiecesGiveTheTokensOfTheWholeWithUnusualNormalizersAndTokens) {
  const auto steps = [](const std::string& list) {
    return R"({"type":"Sequence","normalizers":[)" + list + "]}";
  };
  const auto replacing = [](const std::string& from, const std::string& to) {
    return R"({"type":"Replace","pattern":{"String":")" + from + R"("},"content":")" + to + "\"}";
  };
  const std::string qwen = qwen_json(), nfc = R"({"type":"NFC"})";
  std::vector<std::string> files;
  for (const std::string& list :
       {replacing("、 ", "x"), replacing("!", ""), replacing(" ", "lo "), replacing("d w", "ll"),
        nfc + "," + replacing("!", "日 本"), replacing("!", "e") + "," + nfc,
        replacing("日", "\u0301") + "," + nfc})
    files.push_back(replaced(qwen, nfc, steps(list)));
  for (const char* token : {"\\n", "\\n\\n", " ", "d ", "日", "、日"})
    for (const char* normalized : {"false", "true"})
      files.push_back(replaced(replaced(qwen, "<tool_call>", token),
                               R"("normalized":false,"special":false)",
                               concat(R"("normalized":)", normalized, R"(,"special":false)")));
  files.push_back(replaced(llama2_json(), R"("byte_fallback":true)", R"("byte_fallback":false)"));
  files.push_back(replaced(mistral3_json(), "\"split\":false", "\"split\":true"));
  const std::vector<std::string> pieces{"hello", " world", " ", "\n",   "!", "、",  "日",
                                        "e",     "\u0301", "d", "</s>", "é", "\xe6"};
  std::mt19937 engine(8);
  for (const std::string& json : files) {
    const auto tokenizer = tokenizer_of(json);
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (int n = 0; n < 14; ++n) text += pieces[engine() % pieces.size()];
      const std::size_t cut = tokenizer->cut(text, engine() % text.size());
      auto tokens = tokenizer->encode(text.substr(0, cut));
      tokenizer->encode_into(text.substr(cut), tokens, {.continues = true});
      ASSERT_EQ(tokens, tokenizer->encode(text))
          << testing::PrintToString(text) << " at " << cut << json.substr(0, 1500);
    }
  }
}

TEST(TokenizerJson, VeryLongWordsOfEveryKindDoNotTakeQuadraticTime) {
  for (const std::string& json : {llama3_json(), qwen_json(), llama2_json()}) {
    const auto tokenizer = tokenizer_of(json);
    for (const std::string unit :
         {"l", " ", "7", ".", "\n", "a\n", "\u2003", "\xff", "é", "<|", "e\u0301"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      const std::string back = tokenizer->decode(tokenizer->encode("a" + text + "b"));
      if (unit != "e\u0301") {
        EXPECT_TRUE(back == "a" + text + "b") << unit;
      }
    }
  }
}

TEST(TokenizerJson, OfThePublishedGpt2GivesTheTokensOfVocabAndMerges) {
  const char* folder = std::getenv("AXONN_GPT2_DIR");
  if (!folder) GTEST_SKIP() << "set AXONN_GPT2_DIR to a folder with GPT-2's two files";
  const TextFile vocab(std::string(folder) + "/vocab.json"),
      merges(std::string(folder) + "/merges.txt");
  std::string list;
  for (std::string_view rest = merges.text().substr(merges.text().find('\n') + 1); !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string line;
    for (char c : rest.substr(0, end))
      line += c == '"' || c == '\\' ? std::string{'\\', c} : std::string{c};
    if (!line.empty()) list += (list.empty() ? "\"" : ",\"") + line + '"';
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::string json = gpt2_json();
  const std::size_t tables = json.find("\"vocab\":");
  json = replaced(json.substr(0, tables),
                  "\"id\":" + std::to_string(byte_level_vocab().tokens.size()), "\"id\":50256") +
         "\"vocab\":" + std::string(vocab.text()) + ",\"merges\":[" + list + "]}}";
  const auto one = tokenizer_of(json), two = make_tokenizer(folder);
  EXPECT_EQ(one->vocab_size(), 50257);
  std::mt19937 engine(7);
  for (int i = 0; i < 500; ++i) {
    const std::string text = random_text(engine, 60);
    ASSERT_EQ(one->encode(text), two->encode(text)) << testing::PrintToString(text);
  }
}
