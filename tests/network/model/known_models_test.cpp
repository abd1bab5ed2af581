#include "axonn/network/model/known_models.h"

#include <array>
#include <map>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/counts.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

std::int64_t parameters(const std::string& name) {
  return parameter_count(resolved(known_model(name), 0, 2048));
}

}  // namespace

TEST(KnownModel, HasAsManyParametersAsItsMakersPublished) {
  // From the sizes of the safetensors files; for GPT-2 and Llama, from the released checkpoints.
  const std::map<std::string, std::int64_t> published = {
      {"gpt2-124m", 124'439'808},
      {"gpt2-355m", 354'823'168},
      {"gpt2-774m", 774'030'080},
      {"gpt2-1.5b", 1'557'611'200},
      {"tinyllama-1.1b", 1'100'048'384},
      {"llama-2-7b", 6'738'415'616},
      {"llama-2-13b", 13'015'864'320},
      {"llama-2-70b", 68'976'648'192},
      {"llama-3-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496},
      {"llama-3.1-8b", 8'030'261'248},
      {"llama-3.1-70b", 70'553'706'496},
      {"llama-3.1-405b", 405'853'388'800},
      {"llama-3.2-1b", 1'235'814'400},
      {"llama-3.2-3b", 3'212'749'824},
      {"llama-3.3-70b", 70'553'706'496},
      {"mistral-7b-v0.1", 7'241'732'096},
      {"mistral-7b-v0.3", 7'248'023'552},
      {"qwen2-0.5b", 494'032'768},
      {"qwen2-1.5b", 1'543'714'304},
      {"qwen2-7b", 7'615'616'512},
      {"qwen2-72b", 72'706'203'648},
      {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-3b", 3'085'938'688},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen2.5-14b", 14'770'033'664},
      {"qwen2.5-32b", 32'763'876'352},
      {"qwen2.5-72b", 72'706'203'648},
      {"qwen3-0.6b", 596'049'920},
      {"qwen3-1.7b", 1'720'574'976},
      {"qwen3-4b", 4'022'468'096},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-14b", 14'768'307'200},
      {"qwen3-32b", 32'762'123'264},
      {"mixtral-8x7b", 46'702'792'704},
      {"mixtral-8x22b", 140'630'071'296},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560},
      {"olmoe-1b-7b", 6'919'161'856},
      {"smollm3-3b", 3'075'098'624},
      {"olmo-2-1b", 1'484'916'736},
      {"olmo-2-7b", 7'298'617'344},
      {"olmo-2-13b", 13'716'198'400},
      {"olmo-2-32b", 32'234'279'936},
      {"olmo-3-7b", 7'298'011'136},
      {"olmo-3-32b", 32'233'522'176},
      {"ministral-8b-2410", 8'019'808'256},
      {"phi-3-mini-4k", 3'821'079'552},
      {"phi-3-medium-4k", 13'960'238'080},
      {"phi-4", 14'659'507'200},
      {"seed-oss-36b", 36'151'104'512},
      // Computed by hand from the published sizes.
      {"apertus-8b", 8'053'338'176},
      {"apertus-70b", 70'599'864'480}};
  for (const auto& [name, count] : published) EXPECT_EQ(parameters(name), count) << name;
}

TEST(KnownModel, OfOptHasTheParametersOfItsSizes) {
  // Of all but the last, those that its makers published.
  const std::map<std::string, std::int64_t> wanted = {
      {"opt-125m", 125'239'296},   {"opt-1.3b", 1'315'758'080}, {"opt-2.7b", 2'651'596'800},
      {"opt-6.7b", 6'658'473'984}, {"opt-13b", 12'853'473'280}, {"opt-30b", 29'974'540'288},
      {"opt-66b", 65'719'701'504}};
  for (const auto& [name, count] : wanted) EXPECT_EQ(parameters(name), count) << name;
}

/// The text models alone; one in the last digit that the model cards have.
TEST(KnownModel, Of2025HasAsManyParametersAsItsCardSays) {
  const std::map<std::string, std::array<double, 2>> billions = {
      {"gemma-2-2b", {2.61, 0.01}},          {"gemma-2-9b", {9.24, 0.01}},
      {"gemma-2-27b", {27.23, 0.01}},        {"gemma-3-270m", {0.268, 0.001}},
      {"gemma-3-1b", {1.0, 0.01}},           {"gemma-3-4b", {3.88, 0.01}},
      {"gemma-3-12b", {11.77, 0.01}},        {"gemma-3-27b", {27.0, 0.1}},
      {"granite-3.1-2b", {2.53, 0.01}},      {"granite-3.1-8b", {8.17, 0.01}},
      {"glm-4-9b-0414", {9.4, 0.1}},         {"glm-4-32b-0414", {32.6, 0.1}},
      {"exaone-4.0-1.2b", {1.28, 0.01}},     {"exaone-4.0-32b", {32.0, 0.1}},
      {"ernie-4.5-0.3b", {0.36, 0.01}},      {"ministral-3-3b", {3.4, 0.1}},
      {"ministral-3-8b", {8.4, 0.1}},        {"ministral-3-14b", {13.5, 0.1}},
      {"command-r7b-12-2024", {8.03, 0.01}}, {"starcoder2-3b", {3.03, 0.01}},
      {"starcoder2-7b", {7.17, 0.01}},       {"starcoder2-15b", {15.96, 0.01}},
      {"minimax-m2", {228.7, 0.1}},          {"gpt-oss-20b", {20.9, 0.05}},
      {"gpt-oss-120b", {116.8, 0.1}},        {"deepseek-v2-lite", {15.7, 0.05}},
      {"deepseek-v2", {235.7, 0.1}},         {"deepseek-v3", {671.0, 0.1}},
      {"moonlight-16b-a3b", {15.96, 0.05}}};
  for (const auto& [name, card] : billions)
    EXPECT_NEAR(static_cast<double>(parameters(name)) / 1e9, card[0], card[1]) << name;
}

TEST(KnownModel, WithExpertsUsesAsManyParametersForATokenAsItsMakersPublished) {
  const std::map<std::string, double> billions = {{"mixtral-8x7b", 12.9},
                                                  {"mixtral-8x22b", 39.2},
                                                  {"qwen3-30b-a3b", 3.3},
                                                  {"qwen3-235b-a22b", 22.2},
                                                  {"olmoe-1b-7b", 1.3}};
  for (const auto& [name, count] : billions)  // published with one decimal, rounded or cut
    EXPECT_NEAR(static_cast<double>(active_parameter_count(resolved(known_model(name), 0, 0))),
                count * 1e9, 0.1e9)
        << name;
  const ModelConfig dense = resolved(known_model("llama-3-8b"), 0, 0);
  EXPECT_EQ(active_parameter_count(dense), parameter_count(dense));
  EXPECT_EQ(parameters_text(dense), "8,030,261,248 parameters");
  EXPECT_EQ(parameters_text(resolved(known_model("mixtral-8x7b"), 0, 0)),
            "46,702,792,704 parameters, 12,879,925,248 active");
}

TEST(KnownModel, OfAPaperHasTheSizeInItsName) {
  // Names are rounded: 20B has 19.97 billion, 160B 152.9; GPT-3 "760M" has 760 million, "350M" 356.
  ASSERT_GE(model_names().size(), 50u);
  for (const std::string_view name : model_names().subspan(1)) {
    const bool paper = name.starts_with("gpt-") || name.starts_with("gpt3-");
    if (!paper || name.starts_with("gpt-oss")) continue;
    const std::string size(name.substr(name.find('-') + 1));
    const double said = std::stod(size) * (size.ends_with('b') ? 1e9 : 1e6);
    EXPECT_NEAR(static_cast<double>(parameters(std::string(name))), said, 0.07 * said) << name;
  }
}

TEST(KnownModel, IsValidAndHasItsName) {
  EXPECT_GE(model_names().size(), 50u);
  for (const std::string_view name : model_names().subspan(1)) {
    const ModelConfig model = known_model(name);
    EXPECT_NO_THROW(validate(model)) << name;
    EXPECT_EQ(model.name, name);
    EXPECT_EQ(model.hidden % 64, 0) << name;
  }
}

TEST(KnownModel, HasTheOptionsOfItsVersion) {
  EXPECT_EQ(known_model("llama-3-8b").rope.kind, RopeScalingKind::none);
  EXPECT_EQ(known_model("llama-3.1-8b").rope.kind, RopeScalingKind::llama3);
  EXPECT_EQ(known_model("llama-3.1-8b").rope.factor, 8);
  EXPECT_EQ(known_model("llama-3.2-1b").rope.factor, 32);
  EXPECT_EQ(known_model("mistral-7b-v0.1").window, 4096);
  EXPECT_EQ(known_model("mistral-7b-v0.3").window, 0);
  EXPECT_TRUE(known_model("qwen2.5-7b").qkv_bias);
  EXPECT_EQ(known_model("qwen3-8b").qk_norm, QkNormKind::head);
  EXPECT_FALSE(known_model("qwen3-8b").qkv_bias);
  EXPECT_EQ(known_model("qwen2-72b").norm_eps, 1e-5);
  EXPECT_EQ(known_model("apertus-70b").activation, MlpKind::xielu);
  EXPECT_EQ(known_model("apertus-70b").rope.factor, 8);
}

TEST(KnownModel, SuggestsASimilarNameOrListsAll) {
  EXPECT_THAT([] { known_model("llama3.1-8b"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("did you mean 'llama-3.1-8b'?")));
  EXPECT_THAT([] { known_model("something else"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("gpt-5b, gpt-10b")));
}

TEST(KnownModel, IsChosenByAConfigurationKeyThatRefusesWrongNames) {
  ModelConfig model;
  OptionList list;
  list_options(model, list);
  Origins origins;
  read_toml_text(list, "[model]\nname = \"qwen3-4b\"\n", "a.toml", origins);
  EXPECT_EQ(model.name, "qwen3-4b");
  EXPECT_THAT(
      [&] { read_toml_text(list, "[model]\nname = \"qwen3-4c\"\n", "a.toml", origins); },
      testing::ThrowsMessage<UsageError>(HasSubstr("(a.toml:2:1); did you mean 'qwen3-4b'")));
  read_toml_text(list, "[model]\nname = \"none\"\n", "a.toml", origins);
  EXPECT_EQ(model.name, "");
}
