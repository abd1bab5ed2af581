// Embeddings on every grid, compared with those of transformers.
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/use/infer/generator.h"

#include "tests/support/model_folder.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"
#include "tests/support/with_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

using Embeddings = std::vector<std::vector<float>>;

Config embedding_config(ModelFamily family, const GridShape& grid) {
  Config config = on_grid(tiny_config("unused"), grid);
  config.data.tokenizer = "bytes";
  config.model = {.family = family,
                  .layers = 2,
                  .hidden = 96,
                  .heads = 24,
                  .kv_heads = family == ModelFamily::gpt ? 24 : 4,
                  .head_dim = 4,
                  .ffn = 192,
                  .positions = 40,
                  .tied = family == ModelFamily::gpt};
  config.model.vocab = 256;
  return config;
}

/// Prompts of 3, 1, 11, 7 and 5 tokens.
const std::vector<std::vector<std::int32_t>> kTexts{{5, 90, 17},
                                                    {200},
                                                    {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144},
                                                    {7, 6, 5, 4, 3, 2, 1},
                                                    {255, 0, 255, 0, 255}};

/// The embeddings of kTexts by a model in a folder, of length 1.
Embeddings embeddings(const Config& config, Pooling pooling,
                      const Generator::Options& options = {}) {
  Embeddings result;
  with_model(config, [&](LoadedModel& model) {
    Generator generator(model, options);
    for (const Generation& each : generator.generate(kTexts, {.pooling = pooling}))
      if (model.grid().world().rank() == 0) {
        std::vector<float>& one = result.emplace_back(each.embedding);
        double squares = 0;
        for (const float value : one) squares += double{value} * value;
        for (float& value : one) value /= static_cast<float>(std::sqrt(squares));
      }
  });
  return result;
}

struct Case {
  Pooling pooling;
  std::vector<std::vector<float>> begins;  ///< the first four values of each embedding
};

/// Compares a model's embeddings on every grid with recorded ones.
void expect_embeddings(ModelFamily family, const std::vector<Case>& cases) {
  const test::TemporaryPath folder;
  const ModelConfig sizes = embedding_config(family, {}).model;
  test::write_model(folder.path(), sizes, {.type = StoredType::f32});
  test::spill(folder.path() + "/config.json", to_hugging_face_config(sizes, {}));
  for (const GridShape& grid : {GridShape{1, 1, 1, 1},
                                {2, 1, 1, 1},
                                {1, 2, 1, 1},
                                {1, 1, 2, 1},
                                {1, 1, 1, 2},
                                {2, 2, 1, 1},
                                {1, 3, 2, 1},
                                {2, 2, 2, 1}}) {
    Config config = embedding_config(family, grid);
    config.model.path = folder.path();
    for (const auto& [pooling, begins] : cases)
      for (const std::int64_t batch : {1, 3}) {
        const Embeddings got = embeddings(config, pooling, {.batch = batch});
        ASSERT_EQ(got.size(), kTexts.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(got[i].size(), 96U);
          // Values of about 0.1 after two layers in f32.
          for (std::size_t k = 0; k < begins[i].size(); ++k)
            EXPECT_NEAR(got[i][k], begins[i][k], 1e-5) << with_factors(grid) << ", text " << i;
        }
      }
  }
}

}  // namespace

// Recorded: last_hidden_state of transformers 5.23 in f64 for the same parameters.

TEST(Embeddings, OfGptAreThoseOfTransformersOnEveryGrid) {
  expect_embeddings(ModelFamily::gpt, {{Pooling::mean,
                                        {{0.036943f, 0.036564f, -0.043578f, 0.014094f},
                                         {0.033664f, 0.042521f, -0.036566f, -0.054647f},
                                         {0.052288f, 0.027197f, -0.011681f, -0.001682f},
                                         {0.044468f, 0.02169f, -0.016666f, -0.029814f},
                                         {0.044121f, 0.022015f, -0.053033f, -0.014043f}}},
                                       {Pooling::last,
                                        {{0.033231f, 0.034764f, -0.055063f, 0.012062f},
                                         {0.033664f, 0.042521f, -0.036566f, -0.054647f},
                                         {0.037874f, 0.030302f, 0.036418f, 0.008383f},
                                         {0.041635f, 0.017744f, -0.000362f, -0.037525f},
                                         {0.041809f, 0.003093f, -0.047727f, -0.016489f}}}});
}

TEST(Embeddings, OfLlamaAreThoseOfTransformersOnEveryGrid) {
  expect_embeddings(ModelFamily::llama, {{Pooling::mean,
                                          {{-0.099726f, 0.073592f, 0.207697f, 0.217164f},
                                           {-0.194329f, 0.146424f, -0.098287f, 0.044403f},
                                           {0.048713f, -0.161237f, -0.093901f, -0.060028f},
                                           {-0.127035f, 0.177066f, -0.254895f, -0.239424f},
                                           {-0.297684f, 0.107098f, -0.093497f, 0.020324f}}},
                                         {Pooling::last,
                                          {{-0.188971f, 0.054466f, 0.21491f, 0.128115f},
                                           {-0.194329f, 0.146424f, -0.098287f, 0.044403f},
                                           {-0.268681f, -0.016495f, -0.05792f, 0.050191f},
                                           {-0.160167f, 0.12694f, -0.083571f, -0.163086f},
                                           {-0.187888f, 0.010061f, 0.053918f, 0.124618f}}}});
}

TEST(Embeddings, AreComputedBesideTextsAndChangeNone) {
  for (const GridShape& grid : {GridShape{1, 1, 1, 1}, {1, 2, 2, 1}})
    with_model(embedding_config(ModelFamily::llama, grid), [](LoadedModel& model) {
      Generator generator(model, {.batch = 2});
      const GenerationOptions text{.max_tokens = 12};
      const std::vector<std::int32_t> alone = generator.generate({kTexts[2]}, text)[0].tokens;
      const std::vector<float> wanted =
          generator.generate({kTexts[2]}, {.pooling = Pooling::mean})[0].embedding;
      generator.reserve(4);
      const std::size_t writes = generator.add(kTexts[2], text);
      std::int64_t embeddings = 0, after = 0;
      std::vector<std::int32_t> tokens;
      while (!generator.idle()) {
        if (tokens.empty()) generator.add(kTexts[2], {.pooling = Pooling::mean});  // without end
        generator.step({}, [&](std::size_t number, const Generation& result) {
          if (number == writes) {
            tokens = result.tokens;
            after = embeddings;
          } else {
            ++embeddings;
            ASSERT_EQ(result.embedding.size(), wanted.size());
            for (std::size_t i = 0; i < wanted.size(); ++i)
              EXPECT_NEAR(result.embedding[i], wanted[i], 1e-5);
          }
        });
      }
      EXPECT_EQ(tokens, alone);
      EXPECT_GE(after, 10) << "in turn with the text's passes";
    });
}

TEST(Embeddings, OfAPromptBeyondTheContextAreRefused) {
  with_model(embedding_config(ModelFamily::gpt, {}), [](LoadedModel& model) {
    Generator generator(model, {});
    EXPECT_THAT([&] { generator.generate({std::vector(41, 1)}, {.pooling = Pooling::last}); },
                ThrowsMessage<UsageError>(HasSubstr("41 tokens, but the context has only 40")));
  });
}
