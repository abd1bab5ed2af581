// How a model reads and writes text: what its files say of it.
#include "axonn/data/text/model_text.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/data_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;

TEST(ModelText, HasTheEndsOfGenerationConfigAndOtherwiseThoseOfTheModelsConfig) {
  const TempFolder folder;
  const auto ends = [&](const std::string& generation, const std::string& config) {
    folder.file("generation_config.json", generation);
    folder.file("config.json", config);
    return read_model_text(folder.path()).ends;
  };
  EXPECT_THAT(read_model_text("bytes").ends, IsEmpty());
  EXPECT_THAT(ends("{}", "{}"), IsEmpty());
  EXPECT_THAT(ends(R"({"eos_token_id": 2})", R"({"eos_token_id": 7})"), ElementsAre(2));
  EXPECT_THAT(ends(R"({"eos_token_id": [128001, 128009]})", "{}"), ElementsAre(128001, 128009));
  EXPECT_THAT(ends(R"({"eos_token_id": null})", R"({"eos_token_id": [7, 8, 7]})"),
              ElementsAre(7, 8));
  EXPECT_THAT(ends(R"({"temperature": 0.6})", R"({"eos_token_id": 7})"), ElementsAre(7));
  EXPECT_THAT(ends("{}", R"({"eos_token_id": -1})"), IsEmpty()) << "stands for no token";
  const auto refused = [&](const std::string& generation, const std::string& config) {
    EXPECT_THAT([&] { ends(generation, config); },
                testing::ThrowsMessage<UsageError>(HasSubstr("config.json: eos_token_id")));
  };
  refused(R"({"eos_token_id": "</s>"})", "{}");
  refused("{}", R"({"eos_token_id": [1, "</s>"]})");
}

TEST(ModelText, NamesTheKeysOfGenerationConfigThatMayChangeAnswers) {
  const TempFolder folder;
  EXPECT_EQ(generation_note(folder.path()), "");
  folder.file("generation_config.json", R"({"eos_token_id": 2, "temperature": 0.6, "later": null,
                                            "begin_suppress_tokens": []})");
  EXPECT_EQ(generation_note(folder.path()), "");
  folder.file("generation_config.json", R"({"suppress_tokens": [7], "later": 1, "top_p": 0.9})");
  EXPECT_EQ(generation_note(folder.path()),
            folder.path() + "/generation_config.json: not followed: later, suppress_tokens");
}

TEST(ModelText, KeepsThePaddingTokenOfTheFirstFileThatStatesIt) {
  const TempFolder folder;
  folder.file("config.json", R"({"eos_token_id": 2, "pad_token_id": 5})");
  EXPECT_THAT(read_model_text(folder.path()).pad, Optional(5));
  folder.file("generation_config.json", R"({"eos_token_id": 3, "pad_token_id": 4})");
  EXPECT_THAT(read_model_text(folder.path()).pad, Optional(4));
}

TEST(ModelText, IsReadBackFromItsJson) {
  const ModelText text{.tokenizer = "some/folder",
                       .forms = {{"default", "", "{{ a }}\n"}, {"tool_use", "", "\"b\""}},
                       .arguments = R"({"thinking": false})",
                       .ends = {3, 2},
                       .pad = 0};
  const ModelText again = parse_model_text(to_json(text), "text.json");
  EXPECT_EQ(to_json(again), to_json(text));
  EXPECT_EQ(again.forms.back().text, "\"b\"");
  EXPECT_THAT(again.ends, ElementsAre(3, 2));
  EXPECT_THAT(again.pad, Optional(0));
  EXPECT_EQ(to_json(parse_model_text(to_json({}), "text.json")), to_json({}));
}

TEST(ModelText, OfAdaptersReplacesWhatTheyState) {
  const ModelText base{.tokenizer = "base", .forms = {{"default", "", "a"}}, .ends = {1}, .pad = 0};
  const ModelText same = with_adapters(base, {});
  EXPECT_EQ(to_json(same), to_json(base));
  const ModelText other =
      with_adapters(base, {.tokenizer = "gone", .forms = {{"default", "", "b"}}, .ends = {2}});
  EXPECT_EQ(other.tokenizer, "base") << "the adapters' is no longer there";
  EXPECT_EQ(other.forms.front().text, "b");
  EXPECT_THAT(other.ends, ElementsAre(2));
  EXPECT_THAT(other.pad, Optional(0));
}
