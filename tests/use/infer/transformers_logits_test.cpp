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

ModelConfig small_opt() {
  return {.family = ModelFamily::opt,
          .layers = 4,
          .hidden = 48,
          .heads = 12,
          .ffn = 96,
          .vocab = 101,
          .positions = 64};
}

ModelConfig small_opt_without_biases() {
  ModelConfig model = small_opt();
  model.tied = model.bias = false;
  return model;
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

/// Positions at the end of a chunk of 3 and in the next; two of five experts in some layers.
ModelConfig small_llama4() {
  ModelConfig model = small_model();
  model.type = "llama4_text";
  model.window = 3;
  model.window_chunks = true;
  model.full_layers = model.nope_layers = {1};
  model.rope_pairs = RopePairs::neighbours;
  model.qk_norm = QkNormKind::rotated_plain;
  model.nope_query_growth = 0.5;
  model.nope_query_positions = 3;
  model.experts = 5;
  model.experts_per_token = 2;
  model.expert_ffn = model.shared_ffn = 24;
  model.dense_layers = {0, 2};
  model.router = RouterKind::sigmoid;
  model.expert_norm = false;
  model.expert_input_scores = true;
  return model;
}

ModelConfig small_qwen2_moe() {
  ModelConfig model = small_model();
  model.qkv_bias = model.shared_gate = true;
  model.experts = 5;
  model.experts_per_token = 2;
  model.expert_ffn = 24;
  model.shared_ffn = 40;
  model.expert_norm = false;
  model.window = 3;
  model.full_layers = {1, 3};
  model.dense_layers = {1};
  return model;
}

/// Inputs of each layer; two layers without keys of their own, one with the window.
ModelConfig small_gemma4() {
  ModelConfig model = small_model();
  model.type = "gemma4_text";
  model.layers = 5;
  model.tied = true;
  model.activation = MlpKind::geglu;
  model.qk_norm = QkNormKind::head;
  model.block_norm = BlockNormKind::both;
  model.value_norm = model.layer_factor = true;
  model.full_head_dim = 6;
  model.full_kv_heads = 3;
  model.full_values_are_keys = true;
  model.embedding_scale = std::sqrt(48.0);
  model.attention_scale = 1;
  model.logit_cap = 30;
  model.window = 3;
  model.full_layers = {1, 4};
  model.rope = {.kind = RopeScalingKind::proportional, .factor = 1, .share = 0.5};
  model.window_rope_theta = 50;
  model.window_rope_scaling = false;
  model.layer_input = 8;
  model.shared_kv_layers = 2;
  model.double_shared_ffn = true;
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

// Recorded: logits of transformers 5.24, of the last five 5.23, in f64 for the same parameters.
INSTANTIATE_TEST_SUITE_P(
    Types, TransformersLogits,
    testing::Values(
        RecordedLogits{
            "Smollm3", small_smollm3, {2.41626f, -5.75234f, -3.18686f, -3.52895f, 5.72551f}},
        RecordedLogits{
            "Ministral", small_ministral, {-11.92649f, 14.70067f, -0.36325f, -6.76867f, 13.92903f}},
        RecordedLogits{"Olmo2", small_olmo2, {1.76533f, 1.40525f, 2.23577f, -3.7671f, -3.70896f}},
        RecordedLogits{"Olmo3", small_olmo3, {8.33119f, -0.7749f, -2.35535f, 0.79231f, 11.07985f}},
        RecordedLogits{
            "Llama4", small_llama4, {3.84611f, -8.78533f, -15.55795f, -0.16426f, -1.00196f}},
        RecordedLogits{
            "Qwen2Moe", small_qwen2_moe, {2.02852f, -0.49138f, -11.73572f, 17.11754f, 8.31569f}},
        RecordedLogits{
            "Gemma4", small_gemma4, {19.35715f, -11.41321f, 5.26678f, 4.60645f, 13.42147f}},
        RecordedLogits{"Opt", small_opt, {1.39649f, -4.01286f, 18.97598f, -5.86774f, -0.08822f}},
        RecordedLogits{"OptWithoutBiases",
                       small_opt_without_biases,
                       {6.86806f, -28.32822f, 8.05483f, 10.66353f, -12.97453f}}),
    [](const auto& one) { return std::string(one.param.name); });
