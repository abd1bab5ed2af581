// Errors in tokenizer.json.
#include <random>

#include <gmock/gmock.h>

#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/text/tokenizer_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::HasSubstr;

namespace {

/// The error message of make_tokenizer() for the file; empty if it accepts it.
std::string refusal(const std::string& json) {
  try {
    const TempFolder folder;
    make_tokenizer(folder.file("tokenizer.json", json));
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string times(const std::string& unit, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += unit;
  return text;
}

}  // namespace

TEST(TokenizerJson, StepsThatMakeATextMuchLongerAreRefused) {
  const auto with = [](const std::string& steps) {
    return refusal(replaced(qwen_json(), R"({"type":"NFC"})",
                            R"({"type":"Sequence","normalizers":[)" + steps + "]}"));
  };
  const auto replacing = [](const std::string& from, const std::string& to) {
    return R"({"type":"Replace","pattern":{"String":")" + from + R"("},"content":")" + to + "\"}";
  };
  const std::string doubling = replacing("a", "aa");
  EXPECT_EQ(with(times(doubling + ",", 4) + doubling), "");
  EXPECT_THAT(with(times(doubling + ",", 5) + doubling),
              AllOf(HasSubstr("tokenizer.json: normalizer: "), HasSubstr("64 bytes of one byte")));
  EXPECT_THAT(with(replacing("a", std::string(5000, 'a'))), HasSubstr("at most 48"));
  EXPECT_THAT(with(R"({"type":"Prepend","prepend":")" + std::string(60, 'x') + "\"}"),
              HasSubstr("at most 48"));
  EXPECT_THAT(with(times(replacing("a", "b") + ",", 64) + replacing("a", "b")),
              HasSubstr("65 steps; at most 64"));
  EXPECT_THAT(with(replacing(std::string(257, 'a'), "b")),
              AllOf(HasSubstr("pattern.String"), HasSubstr("257 bytes; at most 256")));
}

TEST(TokenizerJson, AddedTokensHaveALimitedLength) {
  const auto with = [](std::size_t bytes) {
    return refusal(replaced(qwen_json(), "<tool_call>", std::string(bytes, '<')));
  };
  EXPECT_EQ(with(256), "");
  EXPECT_THAT(with(257), AllOf(HasSubstr("added_tokens[3].content"), HasSubstr("at most 256")));
  // U+1D160 becomes three times as long in Unicode's composed form.
  const std::string normalized =
      replaced(replaced(qwen_json(), "<tool_call>", times("\U0001d160", 60)),
               R"("normalized":false,"special":false)", R"("normalized":true,"special":false)");
  EXPECT_THAT(refusal(normalized), HasSubstr("720 bytes when normalized; at most 256"));
}

TEST(TokenizerJson, AnUnsupportedValueIsRefusedWithItsPlaceInTheFile) {
  const auto refuses = [](const std::string& json, const std::string& what, const std::string& by,
                          const std::string& says) {
    EXPECT_THAT(refusal(replaced(json, what, by)),
                AllOf(HasSubstr("tokenizer.json: "), HasSubstr(says)))
        << by;
  };
  const std::string gpt2 = gpt2_json(), llama2 = llama2_json(), llama3 = llama3_json(),
                    qwen = qwen_json();
  refuses(llama3, R"("type":"BPE")", R"("type":"WordPiece")", "model.type: 'WordPiece'");
  refuses(llama3, R"("dropout":null)", R"("dropout":0.1)", "model.dropout");
  refuses(llama2, R"("end_of_word_suffix":null)", R"("end_of_word_suffix":"</w>")",
          "model.end_of_word_suffix");
  refuses(llama2, R"({"type":"Prepend","prepend":"▁"})", R"({"type":"Nmt"})",
          "normalizer.normalizers[0].type: 'Nmt'");
  refuses(llama3, "\"Isolated\"", "\"Gone\"", "pre_tokenizer.pretokenizers[0].behavior: 'Gone'");
  refuses(llama3, R"("type":"Split")", R"("type":"UnicodeScripts")",
          "pretokenizers[0].type: 'UnicodeScripts'");
  refuses(llama3, R"(\\s+(?!\\S)|)", R"(\\w+|)", "pretokenizers[0].pattern.Regex");
  refuses(llama3, R"(\\s+(?!\\S)|)", R"((?<=a)b|)", "pretokenizers[0].pattern.Regex");
  refuses(llama3, R"(\\s+(?!\\S)|)", R"((|)", "cannot be compiled");
  refuses(llama3, R"(\\s+(?!\\S)|)", R"(a*|)", "matches the empty string");
  refuses(llama3, R"("type":"TemplateProcessing")", R"("type":"Other")",
          "post_processor.processors[1].type");
  refuses(llama2, R"({"type":"Fuse"})", R"({"type":"WordPiece"})", "decoder.decoders[2].type");
  refuses(llama2, R"({"type":"ByteFallback"})", R"({"type":"Fuse"})", "model.byte_fallback");
  refuses(llama2, R"("start":1)", R"("start":2)", "decoder.decoders[3].start");
  refuses(gpt2, R"("decoder":{"type":"ByteLevel")", R"("decoder":{"type":"Fuse")", "decoder");
  refuses(mistral3_json(), R"("replacement":"▁")", R"("replacement":"_")",
          "pre_tokenizer.replacement");
}

TEST(TokenizerJson, AKeyThatNobodyKnowsIsRefusedInEveryObjectUnlessItSaysNothing) {
  const std::string llama2 = llama2_json(), llama3 = llama3_json(), qwen = qwen_json();
  const auto refuses = [&](const std::string& json, const std::string& before,
                           const std::string& where) {
    const auto with = [&](const std::string& value) {
      return refusal(replaced(json, before, concat(R"("later":)", value, ",", before)));
    };
    EXPECT_THAT(with("1"), AllOf(HasSubstr("tokenizer.json: not supported: " + where + "; "),
                                 HasSubstr("Remove them")));
    EXPECT_THAT(with("null"), "") << where;
    EXPECT_THAT(with("false"), "") << where;
  };
  refuses(llama2, R"("version":)", "later");
  refuses(llama2, R"("type":"BPE")", "model.later");
  refuses(qwen, R"("type":"NFC")", "normalizer.later");
  refuses(llama2, R"("type":"Prepend")", "normalizer.normalizers[0].later");
  refuses(llama2, R"("String":" ")", "normalizer.normalizers[1].pattern.later");
  refuses(llama3, R"("type":"Split")", "pre_tokenizer.pretokenizers[0].later");
  refuses(llama3, R"("type":"TemplateProcessing")", "post_processor.processors[1].later");
  refuses(llama2, R"("type":"Fuse")", "decoder.decoders[2].later");
  refuses(llama2, R"("type":"Strip")", "decoder.decoders[3].later");
  refuses(llama2, R"("id":1,"content":"<s>")", "added_tokens[1].later");
  EXPECT_EQ(refusal(replaced(llama2, R"("truncation":null)", R"("truncation":{"max_length":9})")),
            "");
  EXPECT_EQ(refusal(replaced(llama2, R"("padding":null)", R"("padding":{"pad_id":0})")), "");
}

TEST(TokenizerJson, AKeyThatNobodyKnowsInTokenizerConfigIsNotedOrRefused) {
  const TempFolder folder;
  const auto notes = [&](const std::string& json, const std::string& config) {
    folder.file("tokenizer.json", json);
    folder.file("tokenizer_config.json", config);
    return make_tokenizer(folder.path())->notes();
  };
  EXPECT_THAT(notes(llama3_json(),
                    R"({"model_max_length": 9, "image_token": "<s>", "later": false, "padding": 1,
                        "eos_token": {"__type": "AddedToken", "content": "<|eot_id|>"}})"),
              testing::IsEmpty());
  EXPECT_THAT(
      notes(llama3_json(), R"({"later": 1, "more": {"a": 2}, "legacy": true})"),
      testing::ElementsAre(folder.path() + "/tokenizer_config.json: not followed: later, more"));
  EXPECT_THAT(notes(llama2_json(), R"({"add_prefix_space": true})"), testing::IsEmpty());
  const auto refuses = [&](const std::string& config, const std::string& says) {
    EXPECT_THAT([&] { notes(gpt2_json(), config); },
                testing::ThrowsMessage<UsageError>(HasSubstr(says)));
  };
  refuses(R"({"do_lower_case": true})", "tokenizer_config.json: do_lower_case is not supported");
  refuses(R"({"add_prefix_space": true})",
          "pre_tokenizer: add_prefix_space is false, but tokenizer_config.json has the other");
}

TEST(TokenizerJson, ADecoderWhoseOrderChangesItsMeaningIsRefused) {
  const std::string json = llama2_json(), bytes = R"({"type":"ByteFallback"},)",
                    fuse = R"({"type":"Fuse"},)";
  const std::string strip = R"({"type":"Strip","content":" ","start":1,"stop":0})";
  EXPECT_THAT(refusal(replaced(json, R"("decoders":[)", R"("decoders":[)" + strip + ",")),
              HasSubstr("decoder.decoders[1]: Replace after Strip is not supported"));
  EXPECT_THAT(refusal(replaced(json, bytes + fuse, fuse + bytes)),
              HasSubstr("ByteFallback after Fuse"));
}

TEST(TokenizerJson, AMalformedFileIsRefusedWithItsPlace) {
  const std::string json = llama2_json();
  const auto refuses = [&](const std::string& what, const std::string& by,
                           const std::string& says) {
    EXPECT_THAT(refusal(replaced(json, what, by)), HasSubstr(says)) << by;
  };
  EXPECT_THAT(refusal(""), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("wanted an object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("model"));
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("nest deeper"));
  EXPECT_THAT(refusal(R"({"model":{"vocab":)" + std::string(100'000, '{')),
              HasSubstr("nest deeper"));
  refuses("\"model\":{", "\"model\":7,\"x\":{", "model: wanted an object");
  refuses("\"version\"", "\"model\"", "'model' occurs twice");
  refuses("\"vocab\":{", "\"vocab\":7,\"x\":{", "model.vocab: wanted an object");
  refuses("\"merges\":[", "\"merges\":7,\"x\":[", "model.merges: wanted an array");
  refuses("\"<unk>\":0", "\"<unk>\":\"0\"",
          "model.vocab.<unk>: wanted a number from 0 to 2147483647, got a string");
  refuses("\"<unk>\":0", "\"<unk>\":[0]",
          "model.vocab.<unk>: wanted a number from 0 to 2147483647, got an array");
  refuses("\"<unk>\":0", "\"<unk>\":-1", "from 0 to 2147483647, got -1");
  refuses("\"<unk>\":0", "\"<unk>\":1e3", "from 0 to 2147483647, got 1000.0");
  refuses("\"<unk>\":0", "\"<unk>\":99999999", "16,777,216");
  refuses("\"▁\":259", "\"▁\":260", "have the same id 260");
  refuses("\"<0x00>\":3", "\"<0x00>\":9999999", "their ids must be");
  refuses("\"<s>\":1", "\"<unk>\":1", "occurs twice");
  refuses("[{\"id\":0,", "[{\"id\":5,", "added_tokens[0].id: 5, but '<unk>' is token 0");
  refuses("[{\"id\":0,", "[{\"id\":1e9,", "added_tokens[0].id");
  refuses("\"content\":\"<unk>\"", "\"content\":\"<s>\"", "added_tokens[0].id");
  refuses("\"content\":\"<unk>\"", "\"content\":[]", "added_tokens[0].content: wanted a string");
  refuses("[\"▁ h\"", "[\"▁h\"", "model.merges[0]: wanted two tokens");
  refuses("[\"▁ h\"", "[7", "model.merges[0]: wanted");
  refuses("[\"▁ h\"", "[[\"▁\"]", "model.merges[0]: wanted two tokens, got 1");
  refuses("[\"▁ h\"", "[[[\"▁\"]]", "model.merges[0]: wanted two tokens, got 1");
  refuses("[\"▁ h\"", "[\"▁ q\"", "model.merges[0]: 'q' is not in model.vocab");
  refuses("[\"▁ h\"", "[\"r d\"", "model.merges[0]: 'rd' is not in model.vocab");
  refuses("[\"▁ h\",", "[\"▁ h\",\"▁ h\",", "model.merges[1]: '▁ h' occurs twice");
  refuses("\"ids\":[1]", "\"ids\":[77777]", "77777");
  refuses("\"ids\":[1]", "\"ids\":[]", "post_processor.special_tokens.<s>.ids");
  refuses("\"unk_token\":\"<unk>\"", "\"unk_token\":{}", "");
}

TEST(TokenizerJson, AnyTruncationAndAnyChangedByteIsReadOrRefusedButNeverCrashes) {
  std::mt19937 engine(6);
  for (const std::string& json : {llama3_json(), llama2_json()}) {
    for (std::size_t bytes = 0; bytes < json.size(); bytes += 61)
      EXPECT_NE(refusal(json.substr(0, bytes)), "") << bytes;
    for (int i = 0; i < 150; ++i) {
      std::string damaged = json;
      damaged[engine() % json.size()] = static_cast<char>(engine());
      refusal(damaged);
    }
  }
}
