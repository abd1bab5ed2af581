#include "axonn/network/model/config.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/counts.h"
#include "axonn/ranks/comm/self.h"

#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

ModelConfig llama31_8b() {
  return {.family = ModelFamily::llama,
          .layers = 32,
          .hidden = 4096,
          .heads = 32,
          .kv_heads = 8,
          .ffn = 14336,
          .vocab = 128256,
          .tied = false};
}

ModelConfig with(void (*change)(ModelConfig&)) {
  ModelConfig config = tiny_llama();
  change(config);
  return config;
}

/// A model that only declares parameters of these names, a group for each list.
class Names final : public Model {
 public:
  Names(const Grid& grid, const std::vector<std::vector<std::string>>& names) {
    for (const auto& list : names) {
      groups_.push_back(std::make_unique<ParameterGroup>(list.front() + "s", grid));
      for (const std::string& name : list)
        groups_.back()->add({.name = name, .layout = {.rows = 3}});
    }
  }
  std::vector<ParameterGroup*> groups() override {
    std::vector<ParameterGroup*> all;
    for (const auto& group : groups_) all.push_back(group.get());
    return all;
  }
  void loss(const Context&, const Tokens&, float, const Tensor&) override {}
  Tensor target_losses(const Context&, const Tokens&) override { return {}; }
  Tensor next_logits(const Context&, const Tokens&, std::span<const std::int64_t>) override {
    return {};
  }
  std::int64_t vocab() const override { return 1; }

 private:
  std::vector<std::unique_ptr<ParameterGroup>> groups_;
};

/// A family that is called `name` and has these parameters.
Architecture family_of(const std::string& name, std::vector<std::vector<std::string>> names) {
  return {.name = name,
          .help = "Only names",
          .keys = {{.name = "depth", .value = 2, .help = "how deep"}},
          .make = [names = std::move(names)](const ModelConfig&, const Grid& grid) {
            return std::make_unique<Names>(grid, names);
          }};
}

}  // namespace

TEST(Architecture, IsNamedInAConfigAndItsKeysHaveTheirDefaults) {
  register_architecture(family_of("named_family", {{"a"}, {"b"}}));
  ModelConfig config{.family = model_family("named_family")};
  EXPECT_EQ(parameter_count(config), 6);
  EXPECT_EQ(config.own<std::int64_t>("named_family.depth"), 2);
  config.own_values["named_family.depth"] = 5;
  validate(config);
  EXPECT_EQ(config.own<std::int64_t>("named_family.depth"), 5);
  config.own_values["named_family.dept"] = 5;
  EXPECT_THAT([&] { validate(config); },
              ThrowsMessage<UsageError>(HasSubstr("did you mean 'named_family.depth'")));
  EXPECT_THAT([] { model_family("mamba"); },
              ThrowsMessage<UsageError>(HasSubstr("model.family wants one of gpt, llama, ")));
  EXPECT_THAT([] { architecture_of(static_cast<ModelFamily>(99)); },
              ThrowsMessage<Error>(HasSubstr("model.family has no value 99")));
}

TEST(Architecture, WithParametersThatCouldNotBeSavedIsRefusedWhenItIsMade) {
  register_architecture(family_of("twins", {{"a", "b"}, {"c", "a"}}));
  EXPECT_THAT([] { parameter_count(ModelConfig{.family = model_family("twins")}); },
              ThrowsMessage<Error>(
                  HasSubstr("twins: two parameters are named a, in the groups as and cs")));
  register_architecture(family_of("twins_of_a_group", {{"a", "a"}}));
  EXPECT_THAT(
      [] { parameter_count(ModelConfig{.family = model_family("twins_of_a_group")}); },
      ThrowsMessage<Error>(HasSubstr("two parameters are named a, in the groups as and as")));
  register_architecture(family_of("childless", {}));
  EXPECT_THAT([] { parameter_count(ModelConfig{.family = model_family("childless")}); },
              ThrowsMessage<Error>(HasSubstr("childless: Model::groups() is empty")));
  register_architecture(
      {.name = "unmade", .help = {}, .make = [](const auto&, const auto&) { return nullptr; }});
  EXPECT_THAT([] { parameter_count(ModelConfig{.family = model_family("unmade")}); },
              ThrowsMessage<Error>(HasSubstr("unmade: its function `make` returned null")));
}

TEST(Architecture, NeedsANameOfItsOwnAndAFunctionThatMakesIt) {
  EXPECT_THAT([] { register_architecture({.name = "empty", .help = {}, .make = {}}); },
              ThrowsMessage<Error>(HasSubstr("'empty' has no function `make`")));
  EXPECT_THAT([] { register_architecture(family_of("gpt", {{"a"}})); },
              ThrowsMessage<Error>(HasSubstr("model.family 'gpt' exists already")));
  EXPECT_THAT([] { register_architecture(family_of("No Name", {{"a"}})); },
              ThrowsMessage<Error>(HasSubstr("small letters")));
}

TEST(ModelConfig, ParameterCountsAreThePublishedOnes) {
  EXPECT_EQ(parameter_count(resolved(llama31_8b(), 0, 8192)), 8'030'261'248);
  ModelConfig qwen3_06b{.family = ModelFamily::llama,
                        .layers = 28,
                        .hidden = 1024,
                        .heads = 16,
                        .kv_heads = 8,
                        .head_dim = 128,
                        .ffn = 3072,
                        .vocab = 151936,
                        .tied = true,
                        .qk_norm = QkNormKind::head};
  EXPECT_EQ(parameter_count(resolved(qwen3_06b, 0, 8192)), 596'049'920);
  ModelConfig qwen2_05b{.family = ModelFamily::llama,
                        .layers = 24,
                        .hidden = 896,
                        .heads = 14,
                        .kv_heads = 2,
                        .ffn = 4864,
                        .vocab = 151936,
                        .tied = true,
                        .qkv_bias = true};
  EXPECT_EQ(parameter_count(resolved(qwen2_05b, 0, 8192)), 494'032'768);
}

TEST(ModelConfig, FlopsOfATokenExcludeTheEmbeddingAndUseAttentionsWidth) {
  const ModelConfig config = resolved(llama31_8b(), 0, 8192);
  const double multiplied = 8'030'261'248.0 - 128256.0 * 4096;
  EXPECT_EQ(model_flops_per_token(config, 8192), 6 * multiplied + 6.0 * 32 * 4096 * 8192);
  ModelConfig narrow = config;
  narrow.head_dim = 64;
  EXPECT_EQ(model_flops_per_token(narrow, 8192) - model_flops_per_token(narrow, 0),
            6.0 * 32 * 2048 * 8192);
}

TEST(ModelConfig, FlopsOfATokenCountOnlyTheExpertsThatItUses) {
  ModelConfig config = resolved(llama31_8b(), 0, 8192);
  const double dense = model_flops_per_token(config, 0);
  config.experts = 16;
  config.experts_per_token = 3;
  config.expert_ffn = 1000;
  config.dense_layers = {5};
  config.router_bias = true;
  EXPECT_EQ(model_flops_per_token(config, 0) - dense,
            6.0 * 31 * (16.0 * 4097 + 3.0 * 4096 * (3 * 1000 - 14336)));
  EXPECT_FALSE(step_flops(config, 2, 8192, false).narayanan);
  EXPECT_EQ(parameter_count(config) - active_parameter_count(config),
            std::int64_t{31} * 13 * 3 * 4096 * 1000);
}

TEST(ModelConfig, RefusesExpertsThatDoNotFitTheLayers) {
  const auto message = [](void (*change)(ModelConfig&)) {
    ModelConfig config = tiny_llama();
    config.experts = 4;
    config.experts_per_token = 2;
    change(config);
    try {
      validate(config);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message([](ModelConfig&) {}), "no error");
  EXPECT_THAT(message([](ModelConfig& c) { c.family = ModelFamily::gpt; }),
              HasSubstr("needs family = \"llama\""));
  EXPECT_THAT(message([](ModelConfig& c) { c.experts_per_token = 5; }),
              HasSubstr("experts_per_token = 5 must be from 1 to experts = 4"));
  EXPECT_THAT(message([](ModelConfig& c) { c.dense_layers = {c.layers}; }),
              HasSubstr(", but the layers are 0 to"));
  EXPECT_THAT(message([](ModelConfig& c) { c.expert_step = c.layers + 1; }),
              HasSubstr("set experts = 0 for a dense model"));
  EXPECT_THAT(message([](ModelConfig& c) { c.mlp_bias = true; }),
              HasSubstr("all layers have experts alone"));
  EXPECT_EQ(message([](ModelConfig& c) {
              c.mlp_bias = true;
              c.dense_layers = {0};
            }),
            "no error");
}

TEST(ModelConfig, QkNormMayBeABooleanAsInEarlierVersions) {
  ModelConfig config;
  OptionList list;
  list_options(config, list);
  Origins origins;
  const auto read = [&](const std::string& value) {
    config.qk_norm = QkNormKind::width;
    read_toml_text(list, "[model]\nqk_norm = " + value, "a.toml", origins);
    return config.qk_norm;
  };
  EXPECT_EQ(read("true"), QkNormKind::head);
  EXPECT_EQ(read("false"), QkNormKind::none);
  EXPECT_EQ(read("\"head\""), QkNormKind::head);
  EXPECT_EQ(list.find("model", "qk_norm")->text(), "\"head\"");
  list.find("model", "qk_norm")->set_text("false", "--model.qk_norm");
  EXPECT_EQ(config.qk_norm, QkNormKind::none);
  EXPECT_THAT([&] { read("1"); },
              ThrowsMessage<UsageError>(
                  HasSubstr("wants one of none, head, width, rotated-head, rotated-plain, got 1")));
  EXPECT_THAT([&] { read_toml_text(list, "[model]\nfamily = true", "a.toml", origins); },
              ThrowsMessage<UsageError>(HasSubstr("got true")));
}

TEST(ModelConfig, DefaultsFollowTheFamily) {
  ModelConfig config = llama31_8b();
  config.ffn = config.kv_heads = 0;
  EXPECT_EQ(resolved(config, 0, 8192).ffn, 11008) << "as in Llama 7B";
  EXPECT_EQ(resolved(config, 0, 8192).kv_heads, 32);
  EXPECT_EQ(resolved(config, 0, 8192).head_dim, 128);
  config.family = ModelFamily::gpt;
  EXPECT_EQ(resolved(config, 0, 8192).ffn, 4 * 4096);
}

TEST(ModelConfig, RefusesOddHeadsAndWrongOrderOfRopeFactors) {
  EXPECT_THAT([] { validate(with([](ModelConfig& c) { c.head_dim = 5; })); },
              ThrowsMessage<UsageError>(HasSubstr("[model] head_dim = 5 is odd")));
  EXPECT_THAT(
      [] {
        validate(with([](ModelConfig& c) {
          c.rope.kind = RopeScalingKind::llama3;
          c.rope.low_freq_factor = 5;
        }));
      },
      ThrowsMessage<UsageError>(HasSubstr("is above rope_high_freq_factor = 4")));
  EXPECT_THAT(
      [] {
        validate(with([](ModelConfig& c) {
          c.head_dim = 0;
          c.heads = 36;
        }));
      },
      ThrowsMessage<UsageError>(HasSubstr("or set head_dim")));
}

TEST(ModelConfig, HeadsOfADeclaredWidthNeedNotDivideTheModelsWidth) {
  EXPECT_NO_THROW(validate(with([](ModelConfig& c) {
    c.heads = 20;
    c.head_dim = 6;
  })));
}
