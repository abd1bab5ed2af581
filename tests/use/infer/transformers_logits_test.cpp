// Logits of models in Hugging Face's folders on several grids, compared with those of transformers.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/network/model/hugging_face.h"

#include "tests/support/model_folder.h"
#include "tests/support/temporary_path.h"

using namespace axonn;

namespace {

ModelConfig small_model() {
  return {.family = ModelFamily::llama,
          .layers = 4,
          .hidden = 48,
          .heads = 12,
          .kv_heads = 4,
          .ffn = 96,
          .vocab = 101,
          .positions = 64,
          .tied = false};
}

ModelConfig small_smollm3() {
  ModelConfig model = small_model();
  model.tied = true;
  model.nope_layers = {0, 2};
  return model;
}

ModelConfig small_ministral() {
  ModelConfig model = small_model();
  model.head_dim = 6;
  model.window = 3;
  model.full_layers = {0, 3};
  return model;
}

ModelConfig small_olmo2() {
  ModelConfig model = small_model();
  model.block_norm = BlockNormKind::output;
  model.qk_norm = QkNormKind::width;
  model.rope = {.kind = RopeScalingKind::yarn,
                .factor = 4,
                .original_positions = 8,
                .beta_fast = 2,
                .truncate = false};
  return model;
}

ModelConfig small_olmo3() {
  ModelConfig model = small_olmo2();
  model.rope.truncate = true;
  model.rope.attention_factor = 1.3;
  model.window = 3;
  model.full_layers = {1};
  model.window_rope_theta = 50;
  model.window_rope_scaling = false;
  return model;
}

struct RecordedLogits {
  const char* name;
  ModelConfig (*model)();
  std::vector<float> first;  ///< of the first tokens of the vocabulary
};

class TransformersLogits : public testing::TestWithParam<RecordedLogits> {};

}  // namespace

TEST_P(TransformersLogits, AreThoseOfTheFolderOnEveryGrid) {
  const ModelConfig sizes = resolved(GetParam().model(), 0, 0);
  const test::TemporaryPath folder;
  test::write_model(folder.path(), sizes, {.type = StoredType::f32});
  test::spill(folder.path() + "/config.json", to_hugging_face_config(sizes, {}));
  ModelConfig read = read_hugging_face_config(folder.path());
  EXPECT_EQ(resolved(read, 0, 0), sizes);
  read.path = folder.path();
  for (const GridShape& grid : {GridShape{1, 1, 1, 1}, GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2},
                                GridShape{4, 1, 1, 1}}) {
    const std::vector<float> got = test::logits(read, grid);
    float largest = 0;
    for (const float value : got) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < GetParam().first.size(); ++i)
      EXPECT_NEAR(got[i], GetParam().first[i], 2e-5 * largest) << i << " on " << to_string(grid);
  }
}

// Recorded: logits of transformers 5.24 in f64 for the same parameters.
INSTANTIATE_TEST_SUITE_P(
    Types, TransformersLogits,
    testing::Values(
        RecordedLogits{
            "Smollm3", small_smollm3, {2.41626f, -5.75234f, -3.18686f, -3.52895f, 5.72551f}},
        RecordedLogits{
            "Ministral", small_ministral, {-11.92649f, 14.70067f, -0.36325f, -6.76867f, 13.92903f}},
        RecordedLogits{"Olmo2", small_olmo2, {1.76533f, 1.40525f, 2.23577f, -3.7671f, -3.70896f}},
        RecordedLogits{"Olmo3", small_olmo3, {8.33119f, -0.7749f, -2.35535f, 0.79231f, 11.07985f}}),
    [](const auto& one) { return std::string(one.param.name); });
