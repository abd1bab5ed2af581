// Generation of which each sequence uses its own adapters, compared with a model for each of them.
#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/infer/generator.h"

#include "tests/support/data_files.h"
#include "tests/support/model_folder.h"
#include "tests/support/runs.h"
#include "tests/support/with_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

using Text = std::vector<std::int32_t>;

const Text kPrompt{84, 104, 101, 32, 116, 111, 119, 110};

/// A base and three kinds of adapters of it: of all layers, of few, and of one block.
class AdapterChoice : public testing::TestWithParam<ModelFamily> {
 protected:
  AdapterChoice() {
    ModelConfig model{.family = GetParam(),
                      .layers = 2,
                      .hidden = 96,
                      .heads = 24,
                      .kv_heads = 4,
                      .head_dim = 4,
                      .ffn = 192,
                      .vocab = 256,
                      .positions = 40,
                      .tied = false};
    model.init_std = 0.3;  // large enough that tokens depend on earlier ones
    test::save_checkpoint(base(), model, {});
    model.path = base();
    const std::vector<LoraConfig> all{
        {.rank = 4, .alpha = 64},
        {.rank = 2, .alpha = 40, .targets = {few()}},
        {.rank = 3, .alpha = 90, .layers = {1}, .rank_pattern = {few() + " 6"}}};
    for (std::size_t i = 0; i < all.size(); ++i) {
      model.lora = all[i];
      paths_.push_back(folder_.path("adapters" + std::to_string(i)));
      test::save_checkpoint(paths_.back(), model, {});
    }
  }

  std::string base() const { return folder_.path("base"); }
  static std::string few() {
    if (GetParam() == ModelFamily::opt) return "out_proj";
    return GetParam() == ModelFamily::llama ? "o_proj" : "attn.c_proj";
  }

  static Config on(Config config, const GridShape& grid) {
    config.parallelism.set_grid(grid);
    config.data.tokenizer = "bytes";
    return config;
  }

  /// What each prompt continues with on rank 0; wanted[i] are its options.
  static std::vector<Text> generate(const Config& config, const std::vector<Text>& prompts,
                                    const std::vector<GenerationOptions>& wanted,
                                    std::int64_t batch = 0) {
    std::vector<Text> texts(prompts.size());
    with_model(config, [&](LoadedModel& model) {
      Generator generator(model, {.batch = batch});
      generator.reserve(prompts.size());
      for (std::size_t i = 0; i < prompts.size(); ++i) generator.add(prompts[i], wanted[i]);
      while (!generator.idle())
        generator.step({}, [&](std::size_t number, const Generation& result) {
          if (model.grid().world().rank() == 0) texts[number] = result.tokens;
        });
    });
    return texts;
  }

  test::TempFolder folder_;
  std::vector<std::string> paths_;
};

}  // namespace

TEST_P(AdapterChoice, EachSequenceIsThatOfAModelWithItsAdaptersAlone) {
  std::vector<Text> alone{
      generate(on(config_of_model(base()), {}), {kPrompt}, {{.max_tokens = 12}}).front()};
  for (const std::string& path : paths_)
    alone.push_back(
        generate(on(config_of_model(base(), path), {}), {kPrompt}, {{.max_tokens = 12}}).front());
  for (std::size_t i = 0; i < alone.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) ASSERT_NE(alone[i], alone[j]) << i << ' ' << j;

  const std::vector<std::int64_t> adapters{2, -1, 0, 1, 0, -1, 2};
  std::vector<GenerationOptions> wanted;
  std::vector<Text> want;
  for (const std::int64_t adapter : adapters) {
    wanted.push_back({.max_tokens = 12, .adapter = adapter});
    want.push_back(alone[static_cast<std::size_t>(adapter + 1)]);
  }
  const std::vector<Text> prompts(adapters.size(), kPrompt);
  const Config config = with_adapter_choices(config_of_model(base()), paths_);
  for (const GridShape& grid :
       {GridShape{}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {2, 2, 1, 1}, {1, 2, 1, 2}})
    for (const std::int64_t batch : {0, 1, 2})  // with fewer slots, prompts find each other's
      EXPECT_EQ(generate(on(config, grid), prompts, wanted, batch), want)
          << to_string(grid) << ", batch " << batch;
}

TEST_P(AdapterChoice, RefusesWhatCannotBeChosen) {
  EXPECT_THAT([&] { with_adapter_choices(config_of_model(base(), paths_[0]), paths_); },
              ThrowsMessage<UsageError>(HasSubstr("the model has adapters already")));
  EXPECT_THAT([&] { with_adapter_choices(config_of_model(base()), std::vector{base()}); },
              ThrowsMessage<UsageError>(HasSubstr("holds a model, not adapters")));
  Config wrong = with_adapter_choices(config_of_model(base()), paths_);
  wrong.model.lora.choices[1].targets = {"no_such_layer"};
  EXPECT_THAT([&] { with_model(on(wrong, {}), [](LoadedModel&) {}); },
              ThrowsMessage<UsageError>(testing::AllOf(HasSubstr("the adapters at " + paths_[1]),
                                                       HasSubstr("no layer 'no_such_layer'"))));
}

INSTANTIATE_TEST_SUITE_P(Families, AdapterChoice,
                         testing::Values(ModelFamily::gpt, ModelFamily::llama, ModelFamily::opt),
                         [](const auto& family) {
                           return std::string(model_families()[static_cast<int>(family.param)]);
                         });
