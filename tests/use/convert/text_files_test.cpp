// What conversions write of a model's text: its chat template, the ends of an answer, padding.
#include "axonn/use/convert/text_files.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/run/config/resolve.h"
#include "axonn/use/convert/convert.h"

#include "tests/data/storage/plain_safetensors.h"
#include "tests/data/text/small_bpe.h"
#include "tests/support/model_folder.h"

using namespace axonn;
using namespace axonn::test;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

namespace {

/// A folder with a model, and a tokenizer with one added token, and what is converted from it.
class TextFiles : public testing::Test {
 protected:
  TextFiles() {
    const ModelConfig model = resolved({.family = ModelFamily::llama,
                                        .layers = 1,
                                        .hidden = 8,
                                        .heads = 2,
                                        .ffn = 16,
                                        .vocab = 300,
                                        .positions = 8,
                                        .tied = true},
                                       0, 0);
    fs::create_directory(in());
    write_model(in(), model, {});
    spill(in() + "/vocab.json", small_vocab_json());
    spill(in() + "/merges.txt", small_merges_txt());
    config_ = json::parse(to_hugging_face_config(model, {}));
    write_config({});
  }

  std::string in() const { return path_ / "in"; }

  void write_config(const json& more) {
    json all = config_;
    if (more.is_object()) all.update(more);
    spill(in() + "/config.json", all.dump());
  }

  /// Converts to a checkpoint and back; returns the new folder.
  std::string there_and_back() const {
    convert({.model = in(), .out = path_ / "checkpoint"});
    convert({.model = path_ / "checkpoint", .out = path_ / "out"});
    return path_ / "out";
  }

  static json read(const std::string& path) { return json::parse(slurp(path)); }

  /// The text files of `text` in a new folder.
  std::string written(const ModelText& text) {
    const std::string to = path_ / concat("written", ++count_);
    fs::create_directory(to);
    warnings_.clear();
    write_text_files(text, to, warnings_);
    return to;
  }

  TemporaryPath path_;
  json config_;
  std::vector<std::string> warnings_;
  int count_ = 0;
};

}  // namespace

TEST_F(TextFiles, StateAllEndsAndThePaddingTokenThatConfigJsonAloneHas) {
  write_config({{"eos_token_id", {7, kSmallEnd}}, {"pad_token_id", 9}});
  const std::string out = there_and_back();
  for (const char* file : {"/config.json", "/generation_config.json"}) {
    EXPECT_EQ(read(out + file).at("eos_token_id"), (json{7, kSmallEnd})) << file;
    EXPECT_EQ(read(out + file).at("pad_token_id"), 9) << file;
  }
}

TEST_F(TextFiles, StateASingleEndAsANumberAndKeepOtherKeysOfGeneration) {
  spill(in() + "/generation_config.json", R"({"temperature": 0.6, "top_p": 0.9})");
  write_config({{"eos_token_id", {7}}});
  const std::string out = there_and_back();
  EXPECT_EQ(read(out + "/config.json").at("eos_token_id"), 7);
  EXPECT_TRUE(read(out + "/config.json").at("pad_token_id").is_null());
  EXPECT_EQ(read(out + "/generation_config.json"),
            (json{{"temperature", 0.6}, {"top_p", 0.9}, {"eos_token_id", 7}}));
}

TEST_F(TextFiles, OfADamagedGenerationConfigAreRefusedByEveryConversion) {
  spill(in() + "/generation_config.json", "{");
  for (const ModelForm to : {ModelForm::checkpoint, ModelForm::hugging_face, ModelForm::gguf})
    EXPECT_THAT([&] { convert({.model = in(), .out = path_ / "out", .to = to}); },
                testing::ThrowsMessage<UsageError>(HasSubstr("generation_config.json")));
}

TEST_F(TextFiles, KeepTheTokensThatTheConfigOfVocabAndMergesNames) {
  spill(in() + "/tokenizer_config.json",
        R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true, "bos_token": "hell",
            "eos_token": "hell", "unk_token": "hell", "pad_token": "ld"})");
  const auto before = make_tokenizer(in()), after = make_tokenizer(there_and_back());
  ASSERT_THAT(before->begin_of_text(), testing::ElementsAre(258));
  EXPECT_EQ(after->begin_of_text(), before->begin_of_text());
  EXPECT_EQ(after->end_of_text(), 258);
  EXPECT_EQ(after->encode("oldhello<|endoftext|>"), before->encode("oldhello<|endoftext|>"));
}

TEST_F(TextFiles, CarryTemplatesWithNames) {
  const std::string named = concat('/', kNamedTemplates, "/tool_use.jinja");
  fs::create_directory(in() + '/' + kNamedTemplates);
  spill(in() + named, "{{ tools }}");
  spill(in() + "/chat_template.jinja", "{{ messages }}");
  const std::string out = there_and_back();
  EXPECT_EQ(slurp(out + named), "{{ tools }}");
  EXPECT_EQ(slurp(out + "/chat_template.jinja"), "{{ messages }}");
  const GgufKeys keys = gguf_text_keys({.tokenizer = in()}, 300, warnings_);
  const auto value = [&](const std::string& name) {
    const auto found = std::ranges::find(keys, name, [](const auto& key) { return key.first; });
    return found == keys.end() ? std::string() : std::get<std::string>(found->second);
  };
  EXPECT_EQ(value("tokenizer.chat_template"), "{{ messages }}");
  EXPECT_EQ(value("tokenizer.chat_template.tool_use"), "{{ tools }}");
}

TEST_F(TextFiles, OfAModelsOwnTemplateReplaceThoseOfItsTokenizer) {
  fs::create_directory(in() + '/' + kNamedTemplates);
  spill(in() + concat('/', kNamedTemplates, "/rag.jinja"), "old");
  spill(in() + "/tokenizer_config.json",
        R"({"eos_token": "<|endoftext|>", "chat_template": "old"})");
  const std::string out =
      written({.tokenizer = in(), .forms = {{"default", "", "new"}, {"tool_use", "", "tools"}}});
  EXPECT_EQ(slurp(out + "/chat_template.jinja"), "new");
  EXPECT_EQ(slurp(out + concat('/', kNamedTemplates, "/tool_use.jinja")), "tools");
  EXPECT_FALSE(fs::exists(out + concat('/', kNamedTemplates, "/rag.jinja")));
  EXPECT_EQ(read(out + "/tokenizer_config.json"), (json{{"eos_token", "<|endoftext|>"}}));
  EXPECT_THAT(
      [&] {
        written({.forms = {{"default", "", ""}, {"../x", "", ""}}});
      },
      testing::ThrowsMessage<UsageError>(HasSubstr("a name that no file can have")));
}

TEST_F(TextFiles, HaveTheTemplatesArgumentsAsDefaultsThatCallersCanChange) {
  const std::string out = written({.tokenizer = "bytes",
                                   .forms = {{"default", "", "\n{{ a }}|{{ b }}|{{ c }}"}},
                                   .arguments = R"({"a": false, "b": [1, null], "c": "x\"y"})"});
  const auto rendered = [&](const std::string& arguments) {
    const ChatTemplate chat(make_tokenizer("bytes"),
                            find_chat_format(out + "/chat_template.jinja", "bytes"),
                            parse_chat_arguments(arguments, ""));
    return chat.text(Conversation(std::vector<Message>{{"user", "Hi"}}), false).bytes();
  };
  EXPECT_EQ(rendered(""), "\nFalse|[1, None]|x\"y");
  EXPECT_EQ(rendered(R"({"a": true})"), "\nTrue|[1, None]|x\"y");
}

TEST_F(TextFiles, WarnOfAnEndThatIsNoToken) {
  const std::string turns = "{% for m in messages %}{{ m.content }}<end>{% endfor %}";
  written({.tokenizer = in(), .forms = {{"default", "", turns}}});
  EXPECT_THAT(warnings_, testing::ElementsAre(HasSubstr("\"<end>\", which is no token of")));
  written({.tokenizer = in()});
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(TextFiles, OfTheTokenizerBytesGiveTheKeysOfGgufThatBytesGives) {
  const std::string folder = written({.tokenizer = "bytes"});
  const auto keys = [&](const std::string& tokenizer) {
    std::string all;
    for (const auto& [name, value] : gguf_text_keys({.tokenizer = tokenizer}, 256, warnings_))
      all += concat(name, ' ', value.index(), '\n');
    return all;
  };
  EXPECT_THAT(keys("bytes"), AllOf(HasSubstr("bos_token_id"), HasSubstr("eos_token_id")));
  EXPECT_EQ(keys(folder), keys("bytes"));
  EXPECT_EQ(keys(folder + "/tokenizer.json"), keys("bytes"));
}
