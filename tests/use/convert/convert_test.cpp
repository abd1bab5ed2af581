// Conversions to a checkpoint and back, exact to the bit, and rejected jobs.
#include "axonn/use/convert/convert.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <span>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/model/gguf_keys.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/model_files.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/use/convert/gguf_model.h"

#include "tests/data/storage/plain_safetensors.h"
#include "tests/data/text/small_bpe.h"
#include "tests/support/model_folder.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::Conditional;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

namespace {

ModelConfig model_to_convert(ModelFamily family) {
  ModelConfig config{.family = family,
                     .layers = 2,
                     .hidden = 48,
                     .heads = 12,
                     .ffn = 96,
                     .vocab = 101,
                     .positions = 8,
                     .tied = family == ModelFamily::gpt};
  if (family == ModelFamily::llama) config.kv_heads = 4;
  return resolved(config, 0, 0);
}

/// Like Mixtral, Qwen3-MoE with dense layers, and OLMoE.
std::vector<ModelConfig> mixtures() {
  std::vector<ModelConfig> all(3, model_to_convert(ModelFamily::llama));
  for (ModelConfig& config : all) {
    config.experts = 4;
    config.experts_per_token = 2;
    config.expert_ffn = config.ffn;
  }
  all[1].qk_norm = QkNormKind::head;
  all[1].expert_ffn = 32;
  all[1].layers = 4;
  all[1].expert_step = 2;
  all[1].dense_layers = {3};
  all[2].qk_norm = QkNormKind::width;
  all[2].expert_norm = false;
  return all;
}

/// granite, glm4, exaone4 with a window and without, ernie4_5, hunyuan_v1_dense, ministral3,
/// gemma3_text, starcoder2, nemotron and cohere2.
void set_types_of_2025(std::span<ModelConfig> all) {
  all[0].embedding_scale = 12;
  all[0].residual_scale = 0.25;
  all[0].logit_scale = 0.125;
  all[0].attention_scale = 0.015625;
  all[1].block_norm = BlockNormKind::both;
  all[1].rope_pairs = all[4].rope_pairs = RopePairs::neighbours;
  all[1].partial_rotary_factor = 0.5;
  for (ModelConfig* exaone : {&all[2], &all[3]}) {
    exaone->block_norm = BlockNormKind::output;
    exaone->qk_norm = QkNormKind::head;
  }
  all[2].layers = 4;
  all[2].window = 4;
  all[2].full_layers = all[2].nope_layers = {1, 3};
  all[4].qkv_bias = all[4].out_bias = all[4].mlp_bias = true;
  all[5].qk_norm = QkNormKind::rotated_head;
  all[6].rope = {.kind = RopeScalingKind::yarn, .factor = 4, .original_positions = 4};
  all[6].query_growth = 0.1;
  ModelConfig& gemma = all[7];
  gemma.activation = MlpKind::geglu;
  gemma.qk_norm = QkNormKind::head;
  gemma.block_norm = BlockNormKind::both;
  gemma.norm_plus_one = true;
  gemma.window = 4;
  gemma.full_layers = {1};
  gemma.rope = {.kind = RopeScalingKind::linear, .factor = 8};
  gemma.window_rope_theta = 500;
  gemma.window_rope_scaling = false;
  gemma.embedding_scale = std::sqrt(static_cast<double>(gemma.hidden));
  gemma.attention_scale = 1 / std::sqrt(12.0);
  all[8].norm = all[9].norm = NormKind::layer;
  all[8].activation = MlpKind::gelu;
  all[9].norm_plus_one = true;
  all[9].activation = MlpKind::relu2;
  all[9].partial_rotary_factor = 0.5;
  ModelConfig& cohere = all[10];
  cohere.norm = NormKind::layer_without_bias;
  cohere.block_norm = BlockNormKind::parallel;
  cohere.rope_pairs = RopePairs::neighbours;
  cohere.window = 4;
  cohere.full_layers = cohere.nope_layers = {1};
  cohere.logit_scale = 0.25;
}

/// granitemoe, glm4_moe, ernie4_5_moe and minimax_m2.
std::vector<ModelConfig> mixtures_of_2025() {
  std::vector<ModelConfig> all(4, model_to_convert(ModelFamily::llama));
  for (ModelConfig& config : all) {
    config.experts = 4;
    config.experts_per_token = 2;
    config.expert_ffn = config.ffn;
    config.layers = 3;
  }
  all[0].type = "granitemoe";
  all[0].residual_scale = 0.5;
  for (ModelConfig* config : {&all[1], &all[2]}) {
    config->expert_ffn = 16;
    config->shared_ffn = 32;
    config->dense_layers = {0};
    config->router_bias = true;
  }
  all[1].type = "glm4_moe";
  all[1].router = all[3].router = RouterKind::sigmoid;
  all[1].router_scale = 2.5;
  all[1].expert_groups = 2;
  all[1].qk_norm = QkNormKind::head;
  all[1].qkv_bias = true;
  all[1].partial_rotary_factor = all[3].partial_rotary_factor = 0.5;
  all[2].type = "ernie4_5_moe";
  all[2].rope_pairs = RopePairs::neighbours;
  all[3].type = "minimax_m2";
  all[3].qk_norm = QkNormKind::width;
  all[3].router_bias = true;
  return all;
}

/// One model of every family whose written config has another model_type or other fields.
std::vector<ModelConfig> families() {
  std::vector<ModelConfig> all(26, model_to_convert(ModelFamily::llama));
  all.push_back(model_to_convert(ModelFamily::opt));
  all.back().bias = false;
  all[0] = all[1] = model_to_convert(ModelFamily::gpt);
  all[1].tied = false;
  all[2].rope.kind = RopeScalingKind::llama3;
  all[3].window = 4;
  all[4].qkv_bias = true;
  all[5].qk_norm = QkNormKind::head;
  all[5].head_dim = 8;
  all[6].tied = true;
  all[7].activation = MlpKind::xielu;
  all[7].qk_norm = QkNormKind::head;
  all[7].rope.kind = RopeScalingKind::llama3;
  for (std::size_t i = 8; i < 12; ++i) all[i].layers = 4;
  all[8].nope_layers = {1, 3};
  all[9].window = 4;
  all[9].full_layers = {0, 3};
  for (ModelConfig* olmo : {&all[10], &all[11]}) {
    olmo->block_norm = BlockNormKind::output;
    olmo->qk_norm = QkNormKind::width;
  }
  all[11].window = 4;
  all[11].full_layers = {3};
  all[11].rope.kind = RopeScalingKind::yarn;
  all[11].window_rope_scaling = false;
  all[12].type = "phi3";
  all[13].partial_rotary_factor = 0.5;  // phi3, too
  all[14].out_bias = true;              // seed_oss
  set_types_of_2025(std::span(all).subspan(15));
  std::ranges::copy(mixtures(), std::back_inserter(all));
  std::ranges::copy(mixtures_of_2025(), std::back_inserter(all));
  return all;
}

void write_folder(const std::string& folder, const ModelConfig& config,
                  const FolderOptions& options = {}) {
  write_model(folder, config, options);
  spill(folder + "/config.json", to_hugging_face_config(config, {}));
}

/// The tensors of an untied GPT with the names that transformers 4 needs.
auto with_prefix(const auto& tensors) {
  auto named = tensors;
  named.clear();
  for (const auto& [name, tensor] : tensors)
    named.emplace(name == "lm_head.weight" ? name : "transformer." + name, tensor);
  return named;
}

/// Converts, and returns the message of the UsageError, or the description of the result.
std::string outcome(const ConvertJob& job) {
  try {
    return convert(job).what;
  } catch (const UsageError& error) {
    return error.what();
  }
}

/// Converts with default options.
ConvertJob whole(const std::string& model, const std::string& out) {
  return {.model = model, .out = out};
}

}  // namespace

TEST(Convert, ToACheckpointAndBackIsExactForEveryFamily) {
  int folders = 0;
  for (const ModelConfig& config : families())
    for (const StoredType type : {StoredType::bf16, StoredType::f16, StoredType::f32}) {
      const TemporaryPath path;
      const std::string in = path / "in", checkpoint = path / "checkpoint", out = path / "out";
      fs::create_directory(in);
      const bool prefixed =
          config.family == ModelFamily::gpt && type == StoredType::bf16 && config.tied;
      write_folder(
          in, config,
          {.type = type, .prefix = prefixed ? "transformer." : "", .shards = folders % 2 == 1});
      EXPECT_EQ(outcome(whole(in, checkpoint)), "a checkpoint");
      EXPECT_EQ(outcome(whole(checkpoint, out)),
                concat("a Hugging Face folder (", name_of(type), ')'));
      const bool untied_gpt = config.family == ModelFamily::gpt && !config.tied;
      const auto want = plain_folder(in);
      EXPECT_EQ(plain_folder(out), untied_gpt ? with_prefix(want) : want) << folders;
      EXPECT_EQ(read_hugging_face_config(out), read_hugging_face_config(in));
      ++folders;
    }
  EXPECT_EQ(folders, 102);
}

TEST(Convert, ReadsTensorsThatJoinAllExpertsAndWritesEachExpertsOwn) {
  for (const ModelConfig& config : mixtures()) {
    const TemporaryPath path;
    for (const char* folder : {"joined", "each"}) {
      fs::create_directory(path / folder);
      write_folder(path / folder, config, {.joined = folder == std::string("joined")});
    }
    EXPECT_EQ(plain_folder(path / "joined").count("model.layers.1.mlp.experts.down_proj"), 1u);
    EXPECT_EQ(outcome(whole(path / "joined", path / "checkpoint")), "a checkpoint");
    EXPECT_EQ(outcome(whole(path / "checkpoint", path / "out")), "a Hugging Face folder (BF16)");
    EXPECT_EQ(plain_folder(path / "out"), plain_folder(path / "each"));
    ModelConfig stored = config;
    stored.path = path / "joined";
    const std::vector<float> want = logits(stored, {});
    stored.path = path / "each";
    EXPECT_EQ(logits(stored, {}), want);
  }
}

TEST(Convert, ChoosesMixtralsNamesByTheModelsType) {
  const TemporaryPath path;
  save_checkpoint(path / "run", mixtures()[0], {1, 1, 2, 1});
  EXPECT_EQ(outcome(whole(path / "run", path / "out")), "a Hugging Face folder (F32)");
  const auto folder = plain_folder(path / "out");
  EXPECT_EQ(folder.count("model.layers.0.block_sparse_moe.gate.weight"), 1u);
  EXPECT_EQ(folder.count("model.layers.1.block_sparse_moe.experts.3.w2.weight"), 1u);
  EXPECT_EQ(folder.count("model.layers.1.mlp.experts.3.down_proj.weight"), 0u);
}

TEST(Convert, KeepsLayersThatPredictFurtherTokens) {
  const TemporaryPath path;
  ModelConfig config = mixtures_of_2025()[1];
  config.vocab = 256;
  config.expert_groups = 1;  // GGUF has no others
  config.mtp_layers = 2;
  save_checkpoint(path / "run", config, {1, 1, 2, 1});
  EXPECT_EQ(outcome(whole(path / "run", path / "out")), "a Hugging Face folder (F32)");
  const auto folder = plain_folder(path / "out");
  for (const char* const layer : {"model.layers.3", "model.layers.4"}) {
    for (const char* const name : {".eh_proj.weight", ".enorm.weight", ".hnorm.weight",
                                   ".shared_head.norm.weight", ".mlp.experts.3.up_proj.weight"})
      EXPECT_EQ(folder.count(concat(layer, name)), 1u) << layer << name;
    EXPECT_EQ(folder.at(concat(layer, ".embed_tokens.weight")),
              folder.at("model.embed_tokens.weight"));
    EXPECT_EQ(folder.at(concat(layer, ".shared_head.head.weight")), folder.at("lm_head.weight"));
  }
  EXPECT_EQ(ModelFiles(path / "out").config().mtp_layers, 2);
  EXPECT_EQ(outcome(whole(path / "out", path / "checkpoint")), "a checkpoint");
  EXPECT_EQ(outcome(whole(path / "checkpoint", path / "again")), "a Hugging Face folder (F32)");
  EXPECT_EQ(plain_folder(path / "again"), folder);
  ConvertJob job{.model = path / "out", .out = path / "m.gguf", .to = ModelForm::gguf};
  job.tokenizer = "bytes";
  EXPECT_THAT(outcome(job), HasSubstr("a GGUF file"));
  // Text is generated without them, and training has as many as it asks for.
  for (const char* const form : {"run", "out", "checkpoint"}) {
    EXPECT_EQ(config_of_model(path / form).model.mtp_layers, 0);
    Config wanted;
    wanted.model.path = path / form;
    for (const std::int64_t layers : {0, 1, 2}) {
      wanted.model.mtp_layers = layers;
      EXPECT_EQ(with_stored_model(wanted, {}).model.mtp_layers, layers);
    }
    ModelConfig stored = config;
    stored.mtp_layers = 0;
    const std::vector<float> want = logits(stored, {});
    stored.path = path / form;
    EXPECT_EQ(logits(stored, {}), want);
    wanted.model.mtp_layers = 3;
    EXPECT_THROW(with_stored_model(wanted, {}), UsageError);
  }
}

/// qwen3_5_text or qwen3_next with the layer that predicts a further token.
ModelConfig qwen_with_mtp(const std::string& type) {
  ModelConfig config = model_to_convert(ModelFamily::llama);
  config.type = type;
  config.layers = 2;
  config.vocab = 256;
  config.qk_norm = QkNormKind::head;
  config.norm_plus_one = config.attention_gate = true;
  config.partial_rotary_factor = 0.5;
  config.delta_layers = {0};
  config.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 4, .value_dim = 4, .taps = 5};
  config.mtp_layers = 1;
  if (type == "qwen3_5_text") return config;
  config.experts = 4;
  config.experts_per_token = 2;
  config.expert_ffn = config.shared_ffn = 16;
  config.shared_gate = true;
  return config;
}

TEST(Convert, CallsTheLayerOfQwensThatPredictsAFurtherTokenMtp) {
  for (const auto& [type, key] : {std::pair{"qwen3_5_text", "mtp_num_hidden_layers"},
                                  {"qwen3_5_moe_text", "mtp_num_hidden_layers"},
                                  {"qwen3_next", "num_nextn_predict_layers"}}) {
    const TemporaryPath path;
    save_checkpoint(path / "run", qwen_with_mtp(type), {1, 1, 2, 1});
    EXPECT_EQ(outcome(whole(path / "run", path / "out")), "a Hugging Face folder (F32)") << type;
    const auto folder = plain_folder(path / "out");
    for (const char* const name :
         {"fc.weight", "norm.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight",
          "layers.0.input_layernorm.weight", "layers.0.self_attn.q_norm.weight"})
      EXPECT_EQ(folder.count(concat("mtp.", name)), 1u) << type << ' ' << name;
    for (const auto& [name, tensor] : folder)
      EXPECT_FALSE(name.starts_with("model.layers.2.")) << type << ' ' << name;
    EXPECT_EQ(ModelFiles(path / "out").config().mtp_layers, 1);
    const std::string file = path / "out" + "/config.json";
    nlohmann::json written = nlohmann::json::parse(slurp(file));
    EXPECT_EQ(written.at(key), 1) << type;
    EXPECT_EQ(outcome(whole(path / "out", path / "checkpoint")), "a checkpoint");
    EXPECT_EQ(outcome(whole(path / "checkpoint", path / "again")), "a Hugging Face folder (F32)");
    EXPECT_EQ(plain_folder(path / "again"), folder);
    // Files need not say that they have it, or may mean another one.
    written.erase(key);
    spill(file, written.dump());
    EXPECT_EQ(ModelFiles(path / "out").config().mtp_layers, 1);
    written["mtp_use_dedicated_embeddings"] = true;
    spill(file, written.dump());
    EXPECT_EQ(ModelFiles(path / "out").config().mtp_layers, 0);
    EXPECT_EQ(outcome(whole(path / "out", path / "without")), "a checkpoint");
  }
}

TEST(Convert, FindsNoLayersThatAConfigOnlyStates) {
  const TemporaryPath path;
  ModelConfig config = mixtures_of_2025()[1];
  config.vocab = 256;
  save_checkpoint(path / "run", config, {});
  EXPECT_EQ(outcome(whole(path / "run", path / "out")), "a Hugging Face folder (F32)");
  const std::string file = path / "out" + "/config.json";
  nlohmann::json written = nlohmann::json::parse(slurp(file));
  EXPECT_EQ(written.at("num_nextn_predict_layers"), 0);
  written["num_nextn_predict_layers"] = 1;  // as transformers writes it, without the tensors
  spill(file, written.dump());
  EXPECT_EQ(ModelFiles(path / "out").config().mtp_layers, 0);
  config = model_to_convert(ModelFamily::llama);
  config.mtp_layers = 1;
  save_checkpoint(path / "plain", config, {});
  EXPECT_THAT(outcome(whole(path / "plain", path / "other")),
              AllOf(HasSubstr("llama does not support"), HasSubstr("mtp_layers = 1")));
}

TEST(Convert, ToGgufNamesWhatTheTypeLacks) {
  const TemporaryPath path;
  ModelConfig config = model_to_convert(ModelFamily::llama);
  config.norm_plus_one = true;
  config.qk_norm = QkNormKind::head;
  config.attention_gate = true;
  config.partial_rotary_factor = 0.5;
  save_checkpoint(path / "run", config, {});
  ConvertJob job = whole(path / "run", path / "m.gguf");
  job.to = ModelForm::gguf;
  EXPECT_THAT(outcome(job),
              HasSubstr("models of the type qwen3_5_text can be neither read nor written with "
                        "delta_layers other than"));
}

TEST(Convert, CheckpointsOfAllGridsGiveTheSameFolderWithTheSameLogits) {
  for (const ModelConfig& config :
       {model_to_convert(ModelFamily::gpt), model_to_convert(ModelFamily::llama),
        model_to_convert(ModelFamily::opt), mixtures()[2]}) {
    const TemporaryPath path;
    save_checkpoint(path / "one", config, {});
    save_checkpoint(path / "eight", config, {2, 2, 2, 1});
    EXPECT_EQ(outcome(whole(path / "one", path / "a")), "a Hugging Face folder (F32)");
    EXPECT_EQ(outcome(whole(path / "eight", path / "b")), "a Hugging Face folder (F32)");
    EXPECT_EQ(plain_folder(path / "a"), plain_folder(path / "b"));
    ModelConfig stored = read_hugging_face_config(path / "a");
    stored.path = path / "a";
    EXPECT_EQ(logits(stored, {}), logits(config, {})) << "logits differ";
    EXPECT_EQ(logits(stored, {2, 1, 2, 1}), logits(config, {2, 1, 2, 1}));
  }
}

TEST(Convert, WritesAMupModelAsOneWithoutMupThatComputesTheSame) {
  std::vector<ModelConfig> models(4, model_to_convert(ModelFamily::llama));
  models[1].qkv_bias = true;
  models[2].qk_norm = QkNormKind::head;
  models[3] = model_to_convert(ModelFamily::gpt);
  models.push_back(model_to_convert(ModelFamily::opt));
  for (ModelConfig config : models) {
    const TemporaryPath path;
    config.mup_base = 24;           // half as wide
    config.mup_base_head_dim = 16;  // four times as wide as its heads
    save_checkpoint(path / "run", config, {2, 1, 2, 1});
    EXPECT_EQ(outcome(whole(path / "run", path / "folder")), "a Hugging Face folder (F32)");
    ModelConfig stored = read_hugging_face_config(path / "folder");
    stored.path = path / "folder";
    EXPECT_EQ(stored.mup_base, 0);
    const std::vector<float> want = logits(config, {});
    EXPECT_EQ(logits(stored, {}), want);  // the factors are powers of two
    stored.path.clear();
    EXPECT_NE(logits(stored, {}), want);

    config.mup_base = 20;
    config.mup_base_head_dim = 3;
    save_checkpoint(path / "other", config, {});
    ASSERT_EQ(outcome(whole(path / "other", path / "folder2")), "a Hugging Face folder (F32)");
    stored.path = path / "folder2";
    const std::vector<float> found = logits(stored, {}), near = logits(config, {});
    for (std::size_t i = 0; i < near.size(); ++i) EXPECT_NEAR(found[i], near[i], 1e-5) << i;
  }
}

TEST(Convert, KeepsMupInACheckpoint) {
  const TemporaryPath path;
  ModelConfig config = model_to_convert(ModelFamily::llama);
  config.mup_base = 24;
  save_checkpoint(path / "run", config, {});
  ConvertJob job = whole(path / "run", path / "again");
  job.to = ModelForm::checkpoint;
  EXPECT_EQ(outcome(job), "a checkpoint");
  EXPECT_EQ(ModelFiles(path / "again").config().mup_base, 24);
}

TEST(Convert, WritesBf16ForModelsTrainedInBf16UnlessToldOtherwise) {
  const TemporaryPath path;
  save_checkpoint(path / "run", model_to_convert(ModelFamily::llama), {}, DType::bf16);
  EXPECT_EQ(outcome(whole(path / "run", path / "a")), "a Hugging Face folder (BF16)");
  ConvertJob job = whole(path / "run", path / "b");
  job.type = StoredType::f16;
  job.most_bytes = 20'000;
  EXPECT_EQ(outcome(job), "a Hugging Face folder (F16)");
  EXPECT_TRUE(fs::exists(path / "b" + "/model.safetensors.index.json"));
  for (const auto& [name, tensor] : plain_folder(path / "b")) EXPECT_EQ(tensor.dtype, "F16");
  const auto config = nlohmann::json::parse(slurp(path / "b" + "/config.json"));
  EXPECT_EQ(config["torch_dtype"], "float16");
}

TEST(Convert, CopiesTheTokenizersFilesAndNamesItsSpecialTokens) {
  const TemporaryPath path;
  const std::string in = path / "in";
  fs::create_directory(in);
  write_folder(in, model_to_convert(ModelFamily::llama));
  spill(in + "/vocab.json", small_vocab_json());
  spill(in + "/merges.txt", small_merges_txt());
  spill(in + "/chat_template.jinja", "{{ messages }}");
  spill(in + "/generation_config.json", R"({"eos_token_id": [3, 2]})");
  outcome(whole(in, path / "checkpoint"));
  EXPECT_EQ(outcome(whole(path / "checkpoint", path / "out")), "a Hugging Face folder (BF16)");
  EXPECT_EQ(make_tokenizer(path / "out" + "/tokenizer.json")->encode("hello world"),
            make_tokenizer(in)->encode("hello world"))
      << "other programs read this file";
  EXPECT_THAT(slurp(path / "out" + "/tokenizer_config.json"), HasSubstr("<|endoftext|>"));
  for (const char* name :
       {"vocab.json", "merges.txt", "chat_template.jinja", "generation_config.json"})
    EXPECT_EQ(slurp(path / "out" + '/' + name), slurp(in + '/' + name)) << name;
  const auto config = nlohmann::json::parse(slurp(path / "out" + "/config.json"));
  EXPECT_EQ(config["eos_token_id"], (nlohmann::json{3, 2}));
  fs::rename(in, path / "moved");
  EXPECT_THAT(outcome(whole(path / "checkpoint", path / "other")),
              HasSubstr("does not exist; name it with --tokenizer"));
  EXPECT_FALSE(fs::exists(path / "other"));
  ConvertJob job = whole(path / "checkpoint", path / "other");
  job.tokenizer = path / "moved";
  EXPECT_EQ(outcome(job), "a Hugging Face folder (BF16)");
}

TEST(Convert, WritesATokenizerForModelsOfBytesAndRefusesADamagedGenerationConfig) {
  const TemporaryPath path;
  ModelConfig config = model_to_convert(ModelFamily::llama);
  config.vocab = 256;
  save_checkpoint(path / "run", config, {});
  outcome(whole(path / "run", path / "out"));
  EXPECT_EQ(make_tokenizer(path / "out")->encode("\u00fcber"),
            make_tokenizer("bytes")->encode("\u00fcber"));
  EXPECT_THAT(slurp(path / "out" + "/chat_template.jinja"), HasSubstr("<|im_start|>"));
  spill(path / "out" + "/generation_config.json", R"({"eos_token_id": "2"})");
  ConvertJob job = whole(path / "run", path / "other");
  job.tokenizer = path / "out";
  EXPECT_THAT(outcome(job), HasSubstr("generation_config.json"));
}

TEST(Convert, ToGgufSaysThatAWindowIsLostAndStatesItAsTheContext) {
  const TemporaryPath path;
  ModelConfig config = model_to_convert(ModelFamily::llama);
  config.vocab = 256;
  for (const std::int64_t window : {0, 4, 8}) {
    config.window = window;
    EXPECT_EQ(gguf_positions(config), window == 4 ? 4 : 8);
    const std::string run = concat(path / "run", window);
    save_checkpoint(run, config, {});
    const Converted done =
        convert({.model = run, .out = run + ".gguf", .to = ModelForm::gguf, .tokenizer = "bytes"});
    EXPECT_THAT(
        done.warnings,
        Conditional(window == 4, ElementsAre(HasSubstr("attends to a window of 4 positions")),
                    IsEmpty()));
  }
}

TEST(Convert, ToGgufSaysThatTheEndsOfARampAreRounded) {
  ModelConfig config = model_to_convert(ModelFamily::llama);
  config.rope = {.kind = RopeScalingKind::yarn, .factor = 4, .original_positions = 16};
  EXPECT_THAT(gguf_differences(config), IsEmpty());
  config.rope.truncate = false;
  EXPECT_THAT(gguf_differences(config),
              ElementsAre(HasSubstr("rounds the ends of YaRN's ramp, which this model does not")));
}

TEST(Convert, OverwritesOnlyModelsOnRequestAndNeverItsInput) {
  const TemporaryPath path;
  const std::string in = path / "in", other = path / "other";
  fs::create_directory(in);
  fs::create_directory(other);
  write_folder(in, model_to_convert(ModelFamily::gpt));
  ConvertJob job{.model = in, .out = path / "out"};
  EXPECT_EQ(outcome(job), "a checkpoint");
  const std::string before = slurp(path / "out" + "/index.json");
  EXPECT_THAT(outcome(job), HasSubstr("exists already; --overwrite replaces it"));
  job.overwrite = true;
  job.to = ModelForm::hugging_face;
  EXPECT_EQ(outcome(job), "a Hugging Face folder (BF16)");
  EXPECT_FALSE(fs::exists(path / "out" + "/index.json"))
      << "a file of the replaced checkpoint is left";
  for (const std::string& out : {in, path.path(), in + "/../in/"}) {
    job.out = out;
    EXPECT_THAT(outcome(job), AllOf(HasSubstr("--out: "), HasSubstr(" is read; "))) << out;
  }
  spill(other + "/diary.txt", "dear");
  job.out = other;
  EXPECT_THAT(outcome(job), HasSubstr("holds no model; it is not replaced"));
  EXPECT_THAT(names_in(path.path()), ElementsAre("in", "other", "out"));
}

TEST(Convert, NamesTheFileThatAFolderOfTensorsLacks) {
  const TemporaryPath path;
  write_folder(path.path(), model_to_convert(ModelFamily::llama));
  fs::remove(path / "config.json");
  EXPECT_THAT(outcome(whole(path.path(), path / "out")),
              HasSubstr("has model.safetensors but no config.json"));
}

TEST(Convert, RejectsMeaninglessCombinations) {
  const TemporaryPath path;
  const std::string in = path / "in", out = path / "out";
  fs::create_directory(in);
  write_folder(in, model_to_convert(ModelFamily::llama));
  EXPECT_THAT(outcome({.model = in, .out = out, .type = StoredType::bf16}),
              HasSubstr("--dtype is for a Hugging Face folder"));
  EXPECT_THAT(outcome({.model = in, .out = out, .merge = true}),
              HasSubstr("nothing is to be merged"));
  EXPECT_THAT(outcome({.model = in, .out = out, .base = in}),
              HasSubstr("--base is for a checkpoint of adapters"));
  EXPECT_THAT(outcome({.model = in, .out = out, .adapters = in}),
              HasSubstr("in holds a model, not adapters"));
  EXPECT_THAT(outcome({.model = path / "none", .out = out}),
              HasSubstr("there is no " + path / "none"));
  spill(in + "/config.json", R"({"model_type": "bert"})");
  EXPECT_THAT(outcome({.model = in, .out = out}), HasSubstr("model_type is 'bert'"));
  EXPECT_THAT(names_in(path.path()), ElementsAre("in"));
}
