// Which layers an adapter_config.json of PEFT adapts, with which rank and alpha.
#include "axonn/network/model/peft.h"

#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/peft_modules.h"
#include "axonn/network/nn/adapters/layer_adapters.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

namespace {

StoredAdapterConfig adapters_with(const std::string& more) {
  return parse_adapter_config(R"({"peft_type": "LORA", "r": 8, "lora_alpha": 32)" + more + "}",
                              "adapter_config.json");
}

/// The adapter of a module in a file with these keys, as "8/32"; "none".
std::string given(const std::string& more, const std::string& module) {
  const auto adapter = peft_adapter(adapters_with(more).layers, module);
  return adapter ? concat(adapter->rank, '/', adapter->alpha) : "none";
}

const std::string kLayer0 = "model.layers.0.", kLayer1 = "model.layers.1.";

std::vector<std::string> tensors_of(std::initializer_list<std::string> modules) {
  std::vector<std::string> names;
  for (const std::string& module : modules)
    for (const char* factor : {"A", "B"})
      names.push_back(concat("base_model.model.", module, ".lora_", factor, ".weight"));
  return names;
}

}  // namespace

// The expected values are those of PEFT 0.21's check_target_module_exists() and get_pattern_key().
TEST(PeftLayers, TargetsAreEndsOrARegularExpressionOfTheWholeName) {
  EXPECT_EQ(given("", kLayer0 + "self_attn.q_proj"), "8/32");
  const std::string ends = R"(, "target_modules": ["q_proj", "model.layers.1.mlp.up_proj"])";
  EXPECT_EQ(given(ends, kLayer0 + "self_attn.q_proj"), "8/32");
  EXPECT_EQ(given(ends, kLayer1 + "mlp.up_proj"), "8/32");
  EXPECT_EQ(given(ends, kLayer0 + "mlp.up_proj"), "none");
  EXPECT_EQ(given(ends, kLayer0 + "self_attn.qq_proj"), "none");
  const std::string regex = R"x(, "target_modules": ".*\\.0\\..*(q_proj|down_proj)")x";
  EXPECT_EQ(given(regex, kLayer0 + "mlp.down_proj"), "8/32");
  EXPECT_EQ(given(regex, kLayer1 + "mlp.down_proj"), "none");
  EXPECT_EQ(given(regex, kLayer0 + "mlp.down_proj_2"), "none");
  EXPECT_EQ(given(R"(, "target_modules": "All-Linear")", kLayer0 + "mlp.up_proj"), "8/32");
}

TEST(PeftLayers, ModulesAreExcludedByEndsOrARegularExpression) {
  const std::string targets = R"(, "target_modules": ["q_proj", "v_proj"], "exclude_modules": )";
  EXPECT_EQ(given(targets + R"(["layers.0.self_attn.q_proj"])", kLayer0 + "self_attn.q_proj"),
            "none");
  EXPECT_EQ(given(targets + R"(["layers.0.self_attn.q_proj"])", kLayer1 + "self_attn.q_proj"),
            "8/32");
  EXPECT_EQ(given(targets + R"(".*\\.1\\..*")", kLayer1 + "self_attn.q_proj"), "none");
  EXPECT_EQ(given(targets + R"("layers.1")", kLayer1 + "self_attn.q_proj"), "8/32");
}

TEST(PeftLayers, LayersToTransformCountForEndsAlone) {
  const std::string one =
      R"(, "target_modules": ["q_proj", "model.layers.0.mlp.up_proj"], "layers_to_transform": 1)";
  EXPECT_EQ(given(one, kLayer1 + "self_attn.q_proj"), "8/32");
  EXPECT_EQ(given(one, kLayer0 + "self_attn.q_proj"), "none");
  EXPECT_EQ(given(one, kLayer0 + "mlp.up_proj"), "8/32") << "a whole name";
  const std::string named =
      R"(, "target_modules": ["q_proj"], "layers_to_transform": [0, 2], "layers_pattern": )";
  EXPECT_EQ(given(named + R"("layers")", "model.layers.2.self_attn.q_proj"), "8/32");
  EXPECT_EQ(given(named + R"(["h", "layers"])", "layers.2.self_attn.q_proj"), "8/32");
  EXPECT_EQ(given(named + R"(["h"])", "model.layers.2.self_attn.q_proj"), "none");
  EXPECT_EQ(given(named + "[]", "model.layers.1.self_attn.q_proj"), "none");
}

TEST(PeftLayers, TheFirstPatternInTheFileThatMatchesTheEndGivesRankAndAlpha) {
  const std::string patterns =
      R"(, "rank_pattern": {"q_proj": 2, "layers.0.self_attn.q_proj": 3, "[kv]_proj": 5},)"
      R"( "alpha_pattern": {"layers.1.self_attn.q_proj": 7, "q_proj": 9.5, "proj": 1})";
  EXPECT_EQ(given(patterns, kLayer0 + "self_attn.q_proj"), "2/9.5");
  EXPECT_EQ(given(patterns, kLayer1 + "self_attn.q_proj"), "2/7");
  EXPECT_EQ(given(patterns, kLayer1 + "self_attn.v_proj"), "5/32");
  EXPECT_EQ(given(patterns + R"(, "use_rslora": true)", "layers.0.self_attn.o_proj"),
            concat("8/", 32 * std::sqrt(8.0)));
}

TEST(PeftLayers, ARegularExpressionThatIsNoneOrTakesForeverIsRefused) {
  EXPECT_THAT([] { given(R"(, "target_modules": "(")", kLayer0 + "q"); },
              ThrowsMessage<UsageError>(HasSubstr("'(' is no regular expression")));
  EXPECT_THAT([] { given(R"(, "target_modules": "((a|a)*)*\\d")", std::string(60, 'a')); },
              ThrowsMessage<UsageError>(HasSubstr("cannot be matched")));
  EXPECT_THAT([] { adapters_with(R"(, "target_modules": "a", "layers_to_transform": [1])"); },
              ThrowsMessage<UsageError>(HasSubstr("layers_to_transform wants target_modules")));
}

TEST(PeftLayers, TheTensorsSayWhichBlocksAreAdapted) {
  const auto config = adapters_with(R"(, "target_modules": ["q_proj", "v_proj"],
      "rank_pattern": {"v_proj": 2, "layers.1.self_attn.q_proj": 3},
      "alpha_pattern": {"q_proj": 4})");
  LoraConfig lora =
      stored_adapters(config,
                      tensors_of({kLayer0 + "self_attn.q_proj", kLayer0 + "self_attn.v_proj",
                                  kLayer1 + "self_attn.q_proj", kLayer1 + "self_attn.v_proj"}),
                      "folder");
  EXPECT_THAT(lora.targets, ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(lora.layers, ElementsAre(0, 1));
  EXPECT_THAT(lora.rank_pattern, ElementsAre("layers.1.self_attn.q_proj 3", "self_attn.v_proj 2"));
  EXPECT_THAT(lora.alpha_pattern, ElementsAre("self_attn.q_proj 4"));
  lora = stored_adapters(
      config, tensors_of({kLayer0 + "self_attn.q_proj", kLayer1 + "self_attn.v_proj"}), "folder");
  EXPECT_THAT(lora.targets, ElementsAre("layers.0.self_attn.q_proj", "layers.1.self_attn.v_proj"));
  EXPECT_THAT(lora.layers, IsEmpty());
  EXPECT_EQ(layer_adapter(lora, kLayer0 + "self_attn.q_proj"), (LayerAdapter{8, 4}));
  EXPECT_EQ(layer_adapter(lora, kLayer1 + "self_attn.v_proj"), (LayerAdapter{2, 32}));
  EXPECT_EQ(layer_adapter(lora, kLayer1 + "self_attn.q_proj"), std::nullopt);
}

TEST(PeftLayers, TensorsThatPeftWouldNotReadAreRefused) {
  const auto config =
      adapters_with(R"(, "target_modules": ["q_proj"], "layers_to_transform": [1])");
  EXPECT_THAT([&] { stored_adapters(config, tensors_of({kLayer0 + "self_attn.q_proj"}), "f"); },
              ThrowsMessage<UsageError>(HasSubstr("model.layers.0.self_attn.q_proj', which its")));
  EXPECT_THAT([&] { stored_adapters(config, {}, "f"); },
              ThrowsMessage<UsageError>(HasSubstr("f has no tensors of adapters")));
  EXPECT_THAT([] { stored_adapters(adapters_with(""), tensors_of({"lm_head"}), "f"); },
              ThrowsMessage<UsageError>(HasSubstr("adapters of 'lm_head', which its")));
}

TEST(PeftLayers, WhatIsWrittenReadsBack) {
  ModelConfig model;
  model.lora = {.rank = 4,
                .alpha = 8,
                .targets = {"q_proj", "layers.1.mlp.up_proj"},
                .rank_pattern = {"layers.0.self_attn.q_proj 2", "q_proj 16"},
                .alpha_pattern = {"up_proj 0.3"}};
  const std::vector<std::string> modules = {kLayer0 + "self_attn.q_proj",
                                            kLayer1 + "self_attn.q_proj", kLayer1 + "mlp.up_proj"};
  std::vector<AdaptedModule> adapted;
  for (const std::string& module : modules)
    adapted.push_back({module, *layer_adapter(model.lora, module)});
  ModelConfig named = model;
  name_layers(named.lora, adapted);
  const auto read = parse_adapter_config(to_adapter_config(named, "base"), "a");
  for (const std::string& module : modules)
    EXPECT_EQ(peft_adapter(read.layers, module), layer_adapter(model.lora, module)) << module;
  EXPECT_EQ(peft_adapter(read.layers, kLayer0 + "mlp.up_proj"), std::nullopt);
}

TEST(PeftFormat, AdaptersThatPeftWouldTakeForOthersAreNotWritten) {
  ModelConfig model{.family = ModelFamily::llama, .layers = 2, .hidden = 32, .heads = 4};
  model.experts = 4;
  const std::vector<AdaptedModule> attention = {{kLayer0 + "self_attn.q_proj", {8, 16}}};
  check_written_adapters(model, attention);
  const std::vector<AdaptedModule> shared = {{kLayer1 + "mlp.shared_experts.up_proj", {8, 16}}};
  EXPECT_THAT([&] { check_written_adapters(model, shared); },
              ThrowsMessage<UsageError>(HasSubstr("gives those of 'up_proj' to the experts")));
  model.experts = 0;
  check_written_adapters(model, shared);
}

TEST(PeftFormat, ModulesHaveTheNamesOfFiles) {
  ModelConfig model{.family = ModelFamily::llama, .layers = 2, .hidden = 32, .heads = 4};
  model.norm = NormKind::layer;
  model.activation = MlpKind::gelu;
  const TensorNames names = adapter_names(model);  // of StarCoder2
  EXPECT_EQ(names.of(kLayer0 + "self_attn.q_proj.lora_A.weight").names.front(),
            "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(names.of(kLayer0 + "mlp.up_proj.lora_B.weight").names.front(),
            "base_model.model.model.layers.0.mlp.c_fc.lora_B.weight");
}

TEST(PeftFormat, AnAdapterOfAJoinedModuleIsOfEachOfItsProducts) {
  ModelConfig model{.family = ModelFamily::llama, .layers = 2, .hidden = 32, .heads = 4};
  model.type = "phi3";
  model.vocab = 31;
  model = resolved(model, 0, 0);
  const LoraConfig stored{.rank = 4, .alpha = 8, .targets = {"qkv_proj", "o_proj"}};
  const LoraConfig lora = adapters_in_model(model, stored);
  for (const char* const product : {"q_proj", "k_proj", "v_proj", "o_proj"})
    EXPECT_EQ(layer_adapter(lora, kLayer1 + "self_attn." + product), (LayerAdapter{4, 8}))
        << product;
  EXPECT_EQ(layer_adapter(lora, kLayer1 + "mlp.up_proj"), std::nullopt);
  const LoraConfig plain{.rank = 4, .alpha = 8, .targets = {"o_proj"}};
  EXPECT_EQ(adapters_in_model(model, plain), plain);
}
