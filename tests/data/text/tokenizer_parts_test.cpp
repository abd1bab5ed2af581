// Parts of tokenizer.json, one by one. The ids are those of the tokenizers library 0.23.3.
#include <gmock/gmock.h>

#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/text/tokenizer_files.h"
#include "tests/support/data_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

using Ids = std::vector<std::int32_t>;

std::shared_ptr<const Tokenizer> tokenizer_in(const std::string& json) {
  const TempFolder folder;
  return make_tokenizer(folder.file("tokenizer.json", json));
}

/// The file with another value of a member of its outermost object.
std::string with_part(const std::string& json, const std::string& key, const std::string& value) {
  const std::string name = '"' + key + "\":";
  const std::size_t begin = json.find(name) + name.size();
  std::size_t end = begin;
  for (int depth = 0; depth > 0 || (json[end] != ',' && json[end] != '}'); ++end)
    depth += (json[end] == '{') - (json[end] == '}');
  return json.substr(0, begin) + value + json.substr(end);
}

std::string sequence_of(const std::string& key, const std::string& steps) {
  return R"({"type":"Sequence",")" + key + "\":[" + steps + "]}";
}

std::string split_by(const std::string& pattern, const std::string& behavior, bool inverted,
                     const std::string& kind = "Regex") {
  return R"({"type":"Split","pattern":{")" + kind + "\":\"" + pattern + R"("},"behavior":")" +
         behavior + R"(","invert":)" + (inverted ? "true}" : "false}");
}

const std::string kBytes = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})",
                  kBytesOfGpt2 =
                      R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})",
                  kEachDigit = R"({"type":"Digits","individual_digits":true})",
                  kNumbers = R"({"type":"Digits","individual_digits":false})";

Ids cut_by(const std::string& steps, const std::string& text) {
  return tokenizer_in(with_part(gpt2_json(), "pre_tokenizer", sequence_of("pretokenizers", steps)))
      ->encode(text);
}

Ids normalized_by(const std::string& steps, const std::string& text) {
  return tokenizer_in(with_part(gpt2_json(), "normalizer", sequence_of("normalizers", steps)))
      ->encode(text);
}

std::string step(const std::string& type) { return R"({"type":")" + type + "\"}"; }

/// GPT-2's file with these added tokens, from token 272 on: the content and further members.
std::string with_added(const std::vector<std::pair<std::string, std::string>>& tokens) {
  std::string list;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    list += R"(,{"id":)" + std::to_string(272 + i) + R"(,"content":")" + tokens[i].first +
            R"(","special":true)" + tokens[i].second + "}";
  return replaced(gpt2_json(), R"("special":true})", R"("special":true})" + list);
}

/// A unigram model that cuts at U+2581.
std::string unigram_json(bool byte_fallback) {
  std::string pieces =
      R"(["<unk>",0.0],["▁",-2.5],["h",-3.0],["e",-3.25],["l",-3.5],["o",-3.75],["he",-4.0],)"
      R"(["ll",-5.5],["hell",-9.5],["▁hello",-8.0],["llo",-8.25],["..",-4.5],[".",-2.25],)"
      R"(["日本",-6.0],["</s>",0.0])";
  const SmallVocab vocab = llama2_vocab();
  for (int byte = 0; byte_fallback && byte < 256; ++byte)
    pieces += ",[\"" + vocab.tokens[3 + byte] + "\",-20.0]";
  std::string json = with_part(llama2_json(), "normalizer", "null");
  json = with_part(json, "pre_tokenizer",
                   R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always"})");
  json = with_part(json, "post_processor", "null");
  const std::size_t added = json.find("\"added_tokens\":[") + 16;
  json.erase(added, json.find("],\"normalizer\"") - added);
  return json.substr(0, json.find("\"model\":")) +
         R"("model":{"type":"Unigram","unk_id":0,"byte_fallback":)" +
         (byte_fallback ? "true" : "false") + R"(,"vocab":[)" + pieces + "]}}";
}

}  // namespace

TEST(TokenizerParts, DigitsStandAloneOrAsNumbers) {
  const std::string text = "hello  world12 1234's!\n\nhe  lo日本12";
  EXPECT_EQ(cut_by(kEachDigit + "," + kBytesOfGpt2, text),
            (Ids{259, 32,  262, 263, 49,  50,  32,  49,  50,  51,  52,  267, 33, 10,
                 10,  256, 32,  32,  108, 111, 230, 151, 165, 230, 156, 172, 49, 50}));
  EXPECT_EQ(cut_by(kNumbers + "," + kBytesOfGpt2, text),
            (Ids{259, 32, 262, 263, 266, 32,  266, 51,  52,  267, 33,  10, 10,
                 256, 32, 32,  108, 111, 230, 151, 165, 230, 156, 172, 266}));
  EXPECT_EQ(cut_by(kNumbers + "," + kBytesOfGpt2, "²½12"), (Ids{194, 178, 194, 189, 266}));
}

TEST(TokenizerParts, SeveralSplitsCutTheWordsOfTheOneBefore) {
  // DeepSeek's.
  const std::string steps =
      split_by(R"(\\p{N}{1,3})", "Isolated", false) + "," +
      split_by("[一-龥\u3040-ゟ゠-ヿ]+", "Isolated", false) + "," +
      split_by(R"([!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+)"
               R"(|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*)"
               R"(|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)",
               "Isolated", false) +
      "," + kBytes;
  EXPECT_EQ(cut_by(steps, "hello  world12 1234's!\n\nhe  lo日本12"),
            (Ids{259, 32, 262, 263, 266, 32,  266, 51,  52,  267, 33,  265,
                 256, 32, 32,  108, 111, 230, 151, 165, 230, 156, 172, 266}));
  EXPECT_EQ(cut_by(steps, "!he 日hello12!\n"), (Ids{33, 256, 32, 230, 151, 165, 259, 266, 269}));

  const auto tokenizer =
      tokenizer_in(with_part(gpt2_json(), "pre_tokenizer", sequence_of("pretokenizers", steps)));
  const std::string text = "hello world 12 日本 he";
  for (std::size_t wanted = 1; wanted < 14; ++wanted) {
    const std::size_t cut = tokenizer->cut(text, wanted);
    EXPECT_LT(cut, text.size()) << wanted;
    Ids tokens = tokenizer->encode(text.substr(0, cut));
    tokenizer->encode_into(text.substr(cut), tokens, {.continues = true});
    EXPECT_EQ(tokens, tokenizer->encode(text)) << cut;
  }
}

TEST(TokenizerParts, EveryBehaviorOfASplitGivesItsWords) {
  const std::string text = "he hello  world wwe";
  const Ids apart{104, 101, 32, 104, 101, 257, 111, 32, 32, 119, 261, 263, 32, 119, 119, 101},
      with_previous{256, 32, 256, 257, 111, 32, 32, 119, 261, 263, 32, 119, 119, 101},
      together{104, 101, 32, 104, 101, 257, 111, 32, 260, 261, 263, 260, 119, 101};
  const auto by = [&](const char* behavior, bool inverted) {
    return cut_by(split_by("[ew ]", behavior, inverted) + "," + kBytes, text);
  };
  EXPECT_EQ(by("Removed", false), (Ids{104, 104, 257, 111, 261, 263}));
  EXPECT_EQ(by("Removed", true), (Ids{101, 32, 101, 32, 32, 119, 32, 119, 119, 101}));
  EXPECT_EQ(by("Isolated", false), apart);
  EXPECT_EQ(by("Isolated", true), apart);
  EXPECT_EQ(by("MergedWithPrevious", false), with_previous);
  EXPECT_EQ(by("MergedWithPrevious", true), apart);
  EXPECT_EQ(by("MergedWithNext", false), apart);
  EXPECT_EQ(by("MergedWithNext", true), with_previous);
  EXPECT_EQ(by("Contiguous", false), together);
  EXPECT_EQ(by("Contiguous", true), together);
  EXPECT_EQ(cut_by(split_by("l", "MergedWithNext", false) + "," + kBytes, "llld"),
            (Ids{108, 108, 263}));
  EXPECT_EQ(cut_by(split_by(".", "Isolated", false, "String") + "," + kBytes, "he.ll.o"),
            (Ids{256, 46, 257, 46, 111}));
}

TEST(TokenizerParts, StepsBehindByteLevelSeeBytesAsCharacters) {
  // Falcon's.
  EXPECT_EQ(cut_by(R"({"type":"Punctuation","behavior":"Contiguous"},)" + kBytes + "," + kNumbers +
                       "," + split_by("[0-9][0-9]", "Isolated", false),
                   "!'s 12345²!\n"),
            (Ids{33, 39, 115, 32, 266, 51, 52, 53, 194, 178, 33, 10}));
  EXPECT_EQ(cut_by(kEachDigit + R"(,{"type":"ByteLevel","add_prefix_space":true,)"
                                R"("use_regex":false})",
                   "world12 world"),
            (Ids{262, 263, 32, 49, 32, 50, 262, 263}))
      << "each word gets a space";
}

TEST(TokenizerParts, WordsBetweenWhiteSpaceGetAMark) {
  const std::string json =
      with_part(with_part(llama2_json(), "normalizer", "null"), "pre_tokenizer",
                sequence_of("pretokenizers",
                            R"({"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"▁",)"
                            R"("prepend_scheme":"always","split":true})"));
  EXPECT_THAT(tokenizer_in(json)->encode("hello  wor\nhello"), ElementsAre(277, 281, 277));
}

TEST(TokenizerParts, ASplitThatLooksForWhatTheNormalizerReplacedCutsNothing) {
  // Gemma's. Were the text cut before each mark, a run of marks would not be one token.
  const std::string json =
      with_part(with_part(llama2_json(), "normalizer",
                          R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})"),
                "pre_tokenizer", split_by(" ", "MergedWithPrevious", false, "String"));
  const auto gemma = tokenizer_in(json);
  EXPECT_EQ(gemma->encode("hello   hello wor"), (Ids{260, 274, 275, 278, 277, 281}));
  EXPECT_LT(gemma->cut("hello hello hello", 2), 8u) << "long texts are cut";
}

TEST(TokenizerParts, NormalFormsAreThoseOfTheLibrary) {
  EXPECT_EQ(normalized_by(step("NFKC"), "ﬁ hell①² ｶﾞ"),
            (Ids{102, 105, 32, 258, 266, 32, 227, 130, 172}));
  EXPECT_EQ(normalized_by(step("NFKC"), "e\u0301\u1100\u1161"), (Ids{268, 234, 176, 128}));
  EXPECT_EQ(normalized_by(step("NFKD"), "ﬁé각²"),
            (Ids{102, 105, 101, 204, 129, 225, 132, 128, 225, 133, 161, 225, 134, 168, 50}));
  EXPECT_EQ(normalized_by(step("NFD"), "é각ﬁ\u0344"),
            (Ids{101, 204, 129, 225, 132, 128, 225, 133, 161, 225, 134, 168, 239, 172, 129, 204,
                 136, 204, 129}));
}

TEST(TokenizerParts, LettersAreMadeSmallAndMarksAndWhiteSpaceRemoved) {
  EXPECT_EQ(
      normalized_by(step("Lowercase") + "," + step("StripAccents"), "HELLO İ WORLDe\u0301 ΑΣ"),
      (Ids{259, 32, 105, 262, 263, 101, 32, 206, 177, 207, 131}));
  EXPECT_EQ(normalized_by(step("NFD") + "," + step("StripAccents"), "éà हिन्दी"),
            (Ids{101, 97, 32, 224, 164, 185, 224, 164, 168, 224, 164, 166}));
  const auto strip = [](const char* left, const char* right) {
    return std::string(R"({"type":"Strip","strip_left":)") + left + R"(,"strip_right":)" + right +
           "}";
  };
  EXPECT_EQ(normalized_by(strip("true", "false"), "\u3000 \nhello  "), (Ids{259, 264}));
  EXPECT_EQ(normalized_by(strip("false", "true"), " hello \n"), (Ids{32, 259}));
  EXPECT_EQ(normalized_by(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})",
                          "hello   world  "),
            (Ids{259, 262, 263, 32}));
}

TEST(TokenizerParts, AddedTokensTakeTheWhiteSpaceBesideThem) {
  const auto left = tokenizer_in(with_added({{"<x>", R"(,"lstrip":true)"}}));
  EXPECT_EQ(left->encode("he \u00a0<x> \nhe"), (Ids{256, 272, 32, 10, 256}));
  EXPECT_EQ(left->encode("he <x> <x>h"), (Ids{256, 272, 272, 104}));
  const auto right = tokenizer_in(with_added({{"<x>", R"(,"rstrip":true)"}}));
  EXPECT_EQ(right->encode("he \u00a0<x> \nhe"), (Ids{256, 32, 194, 160, 272, 256}));
  EXPECT_EQ(right->cut("he <x>  he he", 7), 10u) << "white space may belong to a token";
  const auto both = tokenizer_in(with_added({{"<x>", R"(,"rstrip":true)"}, {" ", ""}}));
  EXPECT_EQ(both->encode("h<x> \n h"), (Ids{104, 272, 273, 10, 273, 104}))
      << "the library gives the space to the token, and a token of its own";
}

TEST(TokenizerParts, AnAddedTokenThatIsASingleWordIsNoPartOfOne) {
  const auto single = tokenizer_in(with_added({{"<x>", R"(,"single_word":true)"}}));
  EXPECT_EQ(single->encode("he <x> he"), (Ids{256, 32, 272, 32, 256}));
  EXPECT_EQ(single->encode(".<x>."), (Ids{46, 272, 46}));
  EXPECT_EQ(single->encode("a<x>"), (Ids{97, 60, 120, 62}));
  EXPECT_EQ(single->encode("é<x>"), (Ids{268, 60, 120, 62}));
  EXPECT_EQ(single->encode("<x>he"), (Ids{60, 120, 62, 256}));
  EXPECT_EQ(single->encode("_<x>"), (Ids{95, 60, 120, 62}));
  EXPECT_EQ(single->encode("Ⓐ<x>"), (Ids{226, 146, 182, 60, 120, 62}));
}

TEST(TokenizerParts, IdsMayHaveHoles) {
  std::string json = replaced(gpt2_json(), R"("Ġworld":270)", R"("Ġworld":300)");
  const auto tokenizer = tokenizer_in(json);
  EXPECT_EQ(tokenizer->vocab_size(), 301);
  EXPECT_EQ(tokenizer->encode("hello world<|endoftext|>"), (Ids{259, 262, 263, 271}));
  EXPECT_EQ(tokenizer->decode(Ids{104, 290, 300, 101}), "h worlde") << "290 shows nothing";
  json = replaced(json, R"("id":271)", R"("id":400)");
  EXPECT_THAT([&] { tokenizer_in(json); },
              testing::ThrowsMessage<UsageError>(HasSubstr(
                  "added_tokens[0].id: 400, but the tokenizers library makes '<|endoftext|>' "
                  "token 271")));
  json = replaced(json, R"("Ġworld":300)", R"("Ġworld":300,"<|endoftext|>":400)");
  EXPECT_EQ(tokenizer_in(json)->encode("hello<|endoftext|>"), (Ids{259, 400}));
}

TEST(TokenizerParts, ByteLevelNeedsNoTokenOfEachByte) {
  std::string json = replaced(gpt2_json(), R"("Ã":195,)", "");
  json = replaced(replaced(json, R"(,"Ã©":268)", ""), R"("Ã ©",)", "");
  json = replaced(json, R"("Ġworld":270)", R"("Ġworld":270,"<|endoftext|>":271)");
  EXPECT_EQ(tokenizer_in(json)->encode("oÃÀé"), (Ids{111, 131, 128, 169}));
  EXPECT_THAT(tokenizer_in(json)->notes(),
              ElementsAre(HasSubstr("model: the vocabulary lacks some characters")));
  json = replaced(json, R"("unk_token":null)", R"("unk_token":"h")");
  EXPECT_EQ(tokenizer_in(json)->encode("oÃÀé"), (Ids{111, 104, 131, 104, 128, 104, 169}));
  EXPECT_EQ(tokenizer_in(json)->encode("heéllo"), (Ids{256, 104, 169, 257, 111}));
}

TEST(TokenizerParts, ACharacterOfWhichAByteHasNoTokenIsUnknown) {
  std::string json = replaced(llama2_json(), R"("<0xE6>":233,)", "");
  EXPECT_EQ(tokenizer_in(json)->encode("h日日ah"), (Ids{273, 100, 0, 260}))
      << "the library writes the unknown token behind the byte";
  EXPECT_EQ(tokenizer_in(json)->encode("日aé"), (Ids{259, 100, 0, 267}));
  json = replaced(json, R"("unk_token":"<unk>")", R"("unk_token":null)");
  EXPECT_EQ(tokenizer_in(json)->encode("h日日ah"), (Ids{273, 100, 260}));
}

TEST(TokenizerParts, UnigramTakesThePiecesWithTheBestSum) {
  const auto plain = tokenizer_in(unigram_json(false)), bytes = tokenizer_in(unigram_json(true));
  EXPECT_EQ(plain->encode("hello hell"), (Ids{9, 1, 8}));
  EXPECT_EQ(plain->encode("日本xyz.....h"), (Ids{1, 13, 0, 12, 11, 11, 2}));
  EXPECT_EQ(plain->encode("  é"), (Ids{1, 1, 0}));
  EXPECT_EQ(bytes->encode("日本xyz.....h"), (Ids{1, 13, 135, 136, 137, 12, 11, 11, 2}));
  EXPECT_EQ(bytes->encode("  é"), (Ids{1, 1, 210, 184}));
  EXPECT_EQ(bytes->decode(bytes->encode("hello é\xff")), "hello é\xff");
}

TEST(TokenizerParts, AStripBeforeFuseTakesSpacesFromEachToken) {
  const std::string strip = R"({"type":"Strip","content":" ","start":1,"stop":0})";
  std::string json = replaced(llama2_json(), "," + strip, "");
  json = replaced(json, R"({"type":"Fuse"})", strip + R"(,{"type":"Fuse"})");
  const auto tokenizer = tokenizer_in(json);
  const Ids ids{277, 281, 282, 259, 273};
  EXPECT_EQ(tokenizer->encode("hello world  h"), ids);
  EXPECT_EQ(tokenizer->decode(ids), "helloworldh");
}

TEST(TokenizerParts, TokensBehindATextAreItsEnd) {
  std::string json = replaced(
      llama2_json(), R"({"Sequence":{"id":"A","type_id":0}}],"pair")",
      R"({"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],"pair")");
  json = replaced(json, R"("special_tokens":{)",
                  R"("special_tokens":{"</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]},)");
  EXPECT_EQ(tokenizer_in(json)->begin_of_text(), Ids{1});
  EXPECT_EQ(tokenizer_in(json)->end_of_text(), 2);
  const auto roberta = tokenizer_in(with_part(
      llama2_json(), "post_processor",
      R"({"type":"RobertaProcessing","sep":["ld",282],"cls":["<s>",1],"trim_offsets":true})"));
  EXPECT_EQ(roberta->begin_of_text(), Ids{1});
  EXPECT_EQ(roberta->end_of_text(), 282);
}

TEST(TokenizerParts, SeveralTokensBeforeATextAreItsBegin) {
  std::string json = replaced(llama2_json(), R"("single":[)",
                              R"("single":[{"SpecialToken":{"id":"</s>","type_id":0}},)");
  json = replaced(json, R"("special_tokens":{)",
                  R"("special_tokens":{"</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]},)");
  const auto tokenizer = tokenizer_in(json);
  EXPECT_EQ(tokenizer->begin_of_text(), (Ids{2, 1}));
  const Ids hello = tokenizer->encode("hello");
  Ids prompt{2, 1};
  prompt.insert(prompt.end(), hello.begin(), hello.end());
  EXPECT_EQ(tokenizer->encode_prompt("hello"), prompt);
  EXPECT_EQ(tokenizer->encode_prompt("</s><s>"), (Ids{2, 1})) << "they are there";
  EXPECT_EQ(tokenizer->encode_prompt("<s>").size(), 3) << "one of them is there";
  EXPECT_NE(tokenizer->fingerprint(), tokenizer_in(llama2_json())->fingerprint());
  EXPECT_NE(tokenizer_in(llama2_json())->fingerprint(), 0);
}

TEST(TokenizerParts, DropoutOfZeroIsNone) {
  EXPECT_EQ(
      tokenizer_in(replaced(gpt2_json(), R"("dropout":null)", R"("dropout":0.0)"))->encode("hello"),
      (Ids{259}));
}

TEST(TokenizerParts, AModelMayLackRowsOfAddedTokensOnly) {
  const auto tokenizer = tokenizer_in(with_added({{"<x>", ""}}));
  EXPECT_EQ(tokenizer->vocab_size(), 273);
  EXPECT_EQ(tokenizer->needed_rows(), 271) << "<|endoftext|> and <x> are added";
  check_rows(*tokenizer, 271);
  EXPECT_THAT([&] { check_rows(*tokenizer, 270); },
              testing::ThrowsMessage<UsageError>(
                  HasSubstr("has 271 tokens besides those that were added to it, but the model's "
                            "vocabulary has only 270")));
}
