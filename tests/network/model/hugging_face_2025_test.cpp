// config.json of types that came in 2025, in the forms in which they were published.
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/known_models.h"

#include "tests/network/model/config_texts.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

ModelConfig read(const std::string& type, const std::string& keys) {
  return parse_hugging_face_config(llama_file(keys, type), "config.json");
}

}  // namespace

TEST(HuggingFace2025, Gemma3HasABaseOfItsOwnInLayersWithTheWindow) {
  const ModelConfig older = read("gemma3_text", R"("hidden_activation": "gelu_pytorch_tanh",
    "rope_theta": 1000000, "rope_local_base_freq": 10000, "sliding_window": 512,
    "sliding_window_pattern": 2, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "query_pre_attn_scalar": 64)");
  EXPECT_EQ(older.window, 512);
  EXPECT_EQ(older.full_layers, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(older.rope_theta, 1e6);
  EXPECT_EQ(older.window_rope_theta, 10000);
  EXPECT_FALSE(older.window_rope_scaling);
  EXPECT_EQ(older.rope, (RopeScaling{.kind = RopeScalingKind::linear, .factor = 8}));
  EXPECT_EQ(older.attention_scale, 1 / std::sqrt(64.0));
  EXPECT_EQ(older.embedding_scale, std::sqrt(static_cast<double>(older.hidden)));
  EXPECT_EQ(older.head_dim, 256) << "if the file is silent";
  const ModelConfig newer = read("gemma3_text", R"("query_pre_attn_scalar": 256,
    "layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"],
    "sliding_window": 512,
    "rope_parameters": {"full_attention": {"rope_theta": 500, "rope_type": "default"},
                        "sliding_attention": {"rope_theta": 50, "rope_type": "default"}})");
  EXPECT_EQ(newer.full_layers, (std::vector<std::int64_t>{0, 2, 3}));
  EXPECT_EQ(newer.rope_theta, 500);
  EXPECT_EQ(newer.window_rope_theta, 50);
  EXPECT_EQ(newer.attention_scale, 0);
  EXPECT_THAT(to_hugging_face_config(older, {}), HasSubstr("\"query_pre_attn_scalar\": 64,"))
      << "an integer, which transformers wants";
  const ModelConfig capped = read("gemma3_text", R"("final_logit_softcapping": 12.5,
    "attn_logit_softcapping": null)");
  EXPECT_EQ(capped.logit_cap, 12.5);
  EXPECT_EQ(parse(to_hugging_face_config(resolved(capped, 0, 0), {})), resolved(capped, 0, 0));
  for (const char* const refused :
       {R"("attn_logit_softcapping": 50.0)", R"("use_bidirectional_attention": true)",
        R"("hidden_activation": "silu")"})
    EXPECT_THROW(read("gemma3_text", refused), UsageError) << refused;
}

TEST(HuggingFace2025, Gemma2HasCapsUnlessTheyAreNull) {
  const ModelConfig usual = read("gemma2", R"("sliding_window": 4096)");
  EXPECT_EQ(usual.score_cap, 50);
  EXPECT_EQ(usual.logit_cap, 30);
  EXPECT_EQ(usual.full_layers, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(usual.qk_norm, QkNormKind::none);
  const ModelConfig other = read("gemma2", R"("attn_logit_softcapping": null,
    "final_logit_softcapping": 12.5)");
  EXPECT_EQ(other.score_cap, 0);
  EXPECT_EQ(other.logit_cap, 12.5);
  EXPECT_EQ(parse(to_hugging_face_config(resolved(other, 0, 0), {})), resolved(other, 0, 0));
}

TEST(HuggingFace2025, Gemma4HasHeadsOfTheirOwnInLayersWithoutTheWindow) {
  const std::string common =
      R"("head_dim": 256, "attention_k_eq_v": true, "sliding_window": 512, "num_key_value_heads": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0,
                                           "partial_rotary_factor": 0.25},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})";
  const ModelConfig published =
      read("gemma4_text", common +
                              R"(, "hidden_size_per_layer_input": 0, "global_head_dim": 512,
             "num_global_key_value_heads": 1)");
  EXPECT_EQ(published.full_head_dim, 512);
  EXPECT_EQ(published.full_kv_heads, 1);
  EXPECT_EQ(published.rope.share, 0.25);
  EXPECT_EQ(published.attention_scale, 1);
  const ModelConfig saved =
      read("gemma4_text", common + R"(, "hidden_size_per_layer_input": 0, "per_layer_config": {
    "1": {"head_dim": 512, "num_key_value_heads": 1},
    "3": {"head_dim": 512, "num_key_value_heads": 1}})");
  EXPECT_EQ(saved, published) << "as transformers 5 saves it";
  EXPECT_EQ(parse(to_hugging_face_config(resolved(saved, 0, 0), {})), resolved(saved, 0, 0));
  EXPECT_THAT(
      error_of(llama_file(
          common +
              R"(, "hidden_size_per_layer_input": 0, "per_layer_config": {"1": {"head_dim": 512}})",
          "gemma4_text")),
      HasSubstr("per_layer_config of layer 3"));
  const ModelConfig silent = read("gemma4_text", R"("hidden_size_per_layer_input": 0,
    "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}})");
  EXPECT_EQ(silent.full_layers, std::vector<std::int64_t>{3}) << "the last layer, at least";
  const ModelConfig small = read("gemma4_text", common + R"(, "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": 100, "num_kv_shared_layers": 2, "use_double_wide_mlp": true)");
  EXPECT_EQ(small.layer_input, 16);
  EXPECT_EQ(small.shared_kv_layers, 2);
  EXPECT_TRUE(small.double_shared_ffn);
  EXPECT_EQ(small.keys_of(2), 0);
  EXPECT_EQ(small.keys_of(3), 1);
  EXPECT_EQ(parse(to_hugging_face_config(resolved(small, 0, 0), {})), resolved(small, 0, 0));
  EXPECT_THAT(
      error_of(llama_file(common + R"(, "hidden_size_per_layer_input": 16)", "gemma4_text")),
      HasSubstr("vocab_size_per_layer_input = 262144 other than vocab_size"));
  EXPECT_THAT(error_of(llama_file(
                  common + R"(, "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 3)",
                  "gemma4_text")),
              HasSubstr("no layer before these sees all positions, as layer 1 does"));
  const ModelConfig moe =
      read("gemma4_text", common + R"(, "hidden_size_per_layer_input": 0, "enable_moe_block": true,
    "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704)");
  EXPECT_EQ(moe.shared_ffn, moe.ffn);
  EXPECT_TRUE(moe.expert_block_norms);
  EXPECT_EQ(parse(to_hugging_face_config(resolved(moe, 0, 0), {})), resolved(moe, 0, 0));
}

TEST(HuggingFace2025, Llama4HasChunksAndExpertsInSomeLayers) {
  const std::string common = R"("intermediate_size": 96, "intermediate_size_mlp": 160,
    "num_local_experts": 8, "attention_chunk_size": 64, "rope_theta": 500000.0)";
  const ModelConfig scout = read("llama4_text", common + R"(, "no_rope_layers": [],
    "moe_layers": [0, 1, 2, 3], "attn_temperature_tuning": 4, "rope_scaling": {"factor": 8.0,
    "high_freq_factor": 1.0, "low_freq_factor": 1.0, "rope_type": "llama3",
    "original_max_position_embeddings": 8192})");
  EXPECT_EQ(scout.expert_ffn, 96);
  EXPECT_EQ(scout.shared_ffn, 96);
  EXPECT_EQ(scout.ffn, 160);
  EXPECT_EQ(scout.window, 64);
  EXPECT_TRUE(scout.window_chunks);
  EXPECT_EQ(scout.full_layers, std::vector<std::int64_t>{3});
  EXPECT_EQ(scout.nope_layers, scout.full_layers);
  EXPECT_EQ(scout.nope_query_growth, 0.1);
  EXPECT_EQ(scout.nope_query_positions, 8192);
  EXPECT_EQ(scout.qk_norm, QkNormKind::rotated_plain);
  EXPECT_EQ(scout.dense_layers, std::vector<std::int64_t>());
  const ModelConfig maverick = read("llama4_text", common + R"(, "moe_layers": [1, 3],
    "interleave_moe_layer_step": 2, "use_qk_norm": false, "attn_temperature_tuning": false)");
  EXPECT_EQ(maverick.expert_step, 2);
  EXPECT_EQ(maverick.dense_layers, std::vector<std::int64_t>());
  EXPECT_EQ(maverick.qk_norm, QkNormKind::none);
  EXPECT_EQ(maverick.nope_query_growth, 0);
  const ModelConfig other = read("llama4_text", common + R"(, "moe_layers": [0, 3, 9],
    "no_rope_layers": [1, 0, 1, 1], "num_experts_per_tok": 2, "attention_bias": true,
    "layer_types": ["chunked_attention", "full_attention", "full_attention",
                    "chunked_attention"])");
  EXPECT_EQ(other.dense_layers, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(other.full_layers, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(other.nope_layers, std::vector<std::int64_t>{1});
  const ModelConfig dense = read("llama4_text", common + R"(, "moe_layers": [])");
  EXPECT_EQ(dense.experts, 0);
  EXPECT_EQ(dense.ffn, 160);
  for (const ModelConfig& model : {scout, maverick, other, dense})
    EXPECT_EQ(parse(to_hugging_face_config(resolved(model, 0, 0), {})), resolved(model, 0, 0));
  for (const char* const refused :
       {R"("attention_chunk_size": null)", R"("router_jitter_noise": 0.1)",
        R"("hidden_act": "gelu")", R"("no_rope_layers": [1, 0])",
        R"("layer_types": ["sliding_attention", "full_attention",
        "full_attention", "full_attention"])"})
    EXPECT_THROW(read("llama4_text", refused), UsageError) << refused;
}

TEST(HuggingFace2025, Qwen2MoeHasAGatedMlpBesideExperts) {
  const ModelConfig usual = read("qwen2_moe", R"("use_sliding_window": false)");
  EXPECT_EQ(usual.experts, 60);
  EXPECT_EQ(usual.experts_per_token, 4);
  EXPECT_EQ(usual.expert_ffn, 1408);
  EXPECT_EQ(usual.shared_ffn, 5632);
  EXPECT_TRUE(usual.shared_gate);
  EXPECT_TRUE(usual.qkv_bias);
  EXPECT_FALSE(usual.expert_norm);
  EXPECT_EQ(usual.window, 0);
  const ModelConfig other = read("qwen2_moe", R"("num_experts": 8, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48, "qkv_bias": false, "norm_topk_prob": true,
    "mlp_only_layers": [1], "use_sliding_window": true, "sliding_window": 16,
    "max_window_layers": 3)");
  EXPECT_EQ(other.full_layers, (std::vector<std::int64_t>{1, 3}));
  EXPECT_FALSE(other.qkv_bias);
  EXPECT_EQ(other.dense_layers, std::vector<std::int64_t>{1});
  for (const ModelConfig& model : {usual, other})
    EXPECT_EQ(parse(to_hugging_face_config(resolved(model, 0, 0), {})), resolved(model, 0, 0));
}

/// A missing or empty rope_scaling would be the type's own.
TEST(HuggingFace2025, AScalingThatIsNotThereIsWrittenWhereTheTypeHasOneByItself) {
  for (const char* const known_name : {"apertus-8b", "gpt-oss-20b", "llama-3-8b"}) {
    ModelConfig model = known_model(known_name);
    model.rope = {};
    const std::string written = to_hugging_face_config(model, {});
    EXPECT_EQ(parse(written).rope.kind, RopeScalingKind::none) << known_name;
    EXPECT_EQ(written.find(R"("rope_type": "default")") != written.npos,
              std::string(known_name) != "llama-3-8b")
        << known_name;
  }
}

TEST(HuggingFace2025, HunyuansAlphaMultipliesTheBase) {
  const ModelConfig model = read("hunyuan_v1_dense", R"("head_dim": 128, "rope_theta": 10000,
    "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0,
                     "mscale": 1.0, "mscale_all_dim": 1.0, "type": "dynamic"})");
  EXPECT_EQ(model.rope.kind, RopeScalingKind::none);
  EXPECT_NEAR(model.rope_theta, 10000 * std::pow(1000, 128.0 / 126), 1e-3);
  EXPECT_THAT(
      [] { read("hunyuan_v1_dense", R"("rope_scaling": {"factor": 2, "type": "dynamic"})"); },
      testing::ThrowsMessage<UsageError>(HasSubstr("rope scaling 'dynamic'")));
}

TEST(HuggingFace2025, Glm4RotatesHalfAHeadAndHasNoBiasOfTheOutputProjection) {
  const ModelConfig model = read("glm4", R"("head_dim": 128)");
  EXPECT_EQ(model.partial_rotary_factor, 0.5);
  EXPECT_TRUE(model.qkv_bias);
  EXPECT_FALSE(model.out_bias);
  EXPECT_FALSE(read("glm4", R"("head_dim": 128, "attention_bias": false)").qkv_bias);
  EXPECT_EQ(read("glm4", R"("partial_rotary_factor": 0.25)").partial_rotary_factor, 0.25);
}

TEST(HuggingFace2025, Exaone4WithAWindowHasNoRotaryPositionsInLayersWithoutIt) {
  const ModelConfig model = read("exaone4", R"("sliding_window": 64,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
    "full_attention"])");
  EXPECT_EQ(model.full_layers, (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(model.nope_layers, model.full_layers);
  const ModelConfig without = read("exaone4", R"("sliding_window": null,
    "sliding_window_pattern": null)");
  EXPECT_EQ(without.window, 0);
  EXPECT_EQ(without.nope_layers, std::vector<std::int64_t>());
  EXPECT_THAT([] { read("exaone4", R"("sliding_window": 64, "sliding_window_pattern": "LG")"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("sliding_window_pattern is \"LG\"")));
}

TEST(HuggingFace2025, GraniteDividesLogitsAndAlwaysSaysTheScaleOfScores) {
  const ModelConfig model = read("granite", R"("logits_scaling": 8.0, "embedding_multiplier": 12.0,
    "residual_multiplier": 0.22, "attention_multiplier": 0.015625)");
  EXPECT_EQ(model.logit_scale, 0.125);
  EXPECT_EQ(model.embedding_scale, 12);
  EXPECT_EQ(model.residual_scale, 0.22);
  EXPECT_EQ(model.attention_scale, 0.015625);
  EXPECT_EQ(read("granite", "").attention_scale, 1) << "if the file is silent";
}

TEST(HuggingFace2025, Ministral3NeedsTheGrowthOfQueries) {
  const ModelConfig model = read("ministral3", R"("rope_parameters": {"rope_type": "yarn",
    "factor": 16.0, "original_max_position_embeddings": 16384, "mscale": 1.0,
    "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1, "rope_theta": 1000000.0})");
  EXPECT_EQ(model.query_growth, 0.1);
  EXPECT_EQ(model.rope.original_positions, 16384);
  EXPECT_EQ(model.rope.attention_factor, 1);
  for (const char* const rope : {"", R"("rope_parameters": {"rope_type": "default"})"})
    EXPECT_THAT([&] { read("ministral3", rope); },
                testing::ThrowsMessage<UsageError>(HasSubstr("llama_4_scaling_beta")));
  const std::string none = R"("rope_parameters": {"rope_type": "default", "rope_theta": 1e6,
    "llama_4_scaling_beta": 0})";
  const ModelConfig still = resolved(read("ministral3", none), 0, 0);
  EXPECT_EQ(still.query_growth, 0);
  const std::string written = to_hugging_face_config(still, {});
  EXPECT_THAT(written, HasSubstr("\"model_type\": \"ministral3\""));
  EXPECT_EQ(resolved(parse_hugging_face_config(written, "config.json"), 0, 0), still);
}

/// Types whose files may have no layer with experts, and the keys by which they have none.
TEST(HuggingFace2025, FilesWithoutLayersOfExpertsAreOfDenseModels) {
  for (const auto& [type, keys] :
       {std::pair{"deepseek_v2", R"("first_k_dense_replace": 40, "num_experts_per_tok": 2)"},
        {"deepseek_v3", R"("first_k_dense_replace": 32)"},
        {"glm4_moe", R"("first_k_dense_replace": 99)"},
        {"ernie4_5_moe", R"("moe_layer_start_index": 32)"},
        {"qwen3_next", R"("num_experts": 0)"}}) {
    const ModelConfig model = resolved(read(type, keys), 0, 0);
    EXPECT_EQ(model.experts, 0) << type;
    EXPECT_EQ(model.shared_ffn, 0) << type;
    EXPECT_TRUE(model.dense_layers.empty()) << type;
    const std::string written = to_hugging_face_config(model, {});
    EXPECT_THAT(written, HasSubstr(concat("\"model_type\": \"", type, '"')));
    EXPECT_EQ(resolved(parse_hugging_face_config(written, "config.json"), 0, 0), model) << type;
  }
  EXPECT_THAT(error_of(llama_file(R"("num_local_experts": 0)", "minimax_m2")),
              HasSubstr("num_local_experts"));
}

TEST(HuggingFace2025, TextModelsOfModelsThatSeeImagesAreReadAlone) {
  std::vector<std::string> notes;
  const ModelConfig gemma = parse_hugging_face_config(R"({"model_type": "gemma3",
    "mm_tokens_per_image": 256, "vision_config": {"hidden_size": 1152},
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                    "num_hidden_layers": 34, "sliding_window": 1024,
                    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})",
                                                      "config.json", &notes);
  EXPECT_EQ(resolved(gemma, 0, 0), known("gemma-3-4b"));
  ASSERT_EQ(notes.size(), 1);
  EXPECT_THAT(notes[0], HasSubstr("only the text model of \"gemma3\" is read"));
  const ModelConfig mistral = parse(
      R"({"model_type": "mistral3", "tie_word_embeddings": false,
      "text_config": )" +
      llama_file(R"("sliding_window": null)", "mistral") + "}");
  EXPECT_EQ(mistral.window, 0);
  EXPECT_FALSE(mistral.tied);
  EXPECT_THAT(error_of(R"({"model_type": "gemma3", "quantization_config": {}, "text_config": {}})"),
              HasSubstr("config.json, text_config: not supported in models: quantization_config"));
}

TEST(HuggingFace2025, Glm4MoeHasAnMlpBesideExpertsAndGroups) {
  const ModelConfig model = read("glm4_moe", R"("n_routed_experts": 16, "num_experts_per_tok": 4,
    "moe_intermediate_size": 8, "n_shared_experts": 2, "n_group": 4, "topk_group": 2,
    "first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "use_qk_norm": true)");
  EXPECT_EQ(model.experts, 16);
  EXPECT_EQ(model.shared_ffn, 16);
  EXPECT_EQ(model.expert_groups, 4);
  EXPECT_EQ(model.expert_groups_per_token, 2);
  EXPECT_EQ(model.dense_layers, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(model.qk_norm, QkNormKind::head);
  EXPECT_EQ(model.router, RouterKind::sigmoid);
  EXPECT_TRUE(model.router_bias);
  ModelConfig other = resolved(model, 0, 0);
  other.dense_layers = {1};
  EXPECT_THAT([&] { to_hugging_face_config(other, {}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("dense_layers")));
}

TEST(HuggingFace2025, Ernie45MoeCountsLayersWithExpertsFromAndTo) {
  const ModelConfig model = read("ernie4_5_moe", R"("moe_num_experts": 8, "moe_k": 2,
    "moe_intermediate_size": 8, "moe_num_shared_experts": 0, "moe_layer_start_index": 1,
    "moe_layer_end_index": 2)");
  EXPECT_EQ(model.dense_layers, (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(model.shared_ffn, 0);
  EXPECT_EQ(read("ernie4_5_moe", "").shared_ffn, 2 * 1536);
}

TEST(HuggingFace2025, DeepseekV3HasLatentsAndScoresThatGrowWithYarn) {
  const std::string published = R"("kv_lora_rank": 512, "q_lora_rank": 1536, "v_head_dim": 128,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "n_routed_experts": 256, "n_group": 8,
    "topk_group": 4, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "moe_intermediate_size": 2048, "moe_layer_freq": 1, "first_k_dense_replace": 3,
    "norm_topk_prob": true, "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
                     "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
                     "type": "yarn"})";
  std::vector<std::string> notes;
  const ModelConfig model = parse_hugging_face_config(
      llama_file(published + R"(, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
                                 "weight_block_size": [128, 128]})",
                 "deepseek_v3"),
      "config.json", &notes);
  EXPECT_EQ(notes.size(), 1) << testing::PrintToString(notes);
  EXPECT_EQ(model.head_width(), 192);
  EXPECT_EQ(model.rotary_width(), 64);
  EXPECT_EQ(model.rope.attention_factor, 1);
  const double root = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(model.attention_scale, root * root / std::sqrt(192.0));
  EXPECT_EQ(model.expert_groups, 8);
  EXPECT_EQ(model.mtp_layers, 1);
  const ModelConfig whole = resolved(model, 0, 0);
  const ModelConfig again =
      parse_hugging_face_config(to_hugging_face_config(whole, {}), "config.json");
  EXPECT_NEAR(again.attention_scale, whole.attention_scale, 1e-15);
  EXPECT_EQ(again.rope, whole.rope);
  EXPECT_EQ(again.mtp_layers, 1);
  EXPECT_THAT(
      error_of(llama_file(R"("quantization_config": {"quant_method": "fp8"})", "deepseek_v3")),
      HasSubstr("fp8 with weight_block_size [128, 128]"));
}

TEST(HuggingFace2025, DeepseekV2ChoosesGroupsByTheirBestScore) {
  const ModelConfig lite = read("deepseek_v2", R"("q_lora_rank": null, "num_experts_per_tok": 6,
    "topk_method": "greedy", "n_group": 1, "topk_group": 1)");
  EXPECT_EQ(lite.q_lora_rank, 0);
  EXPECT_EQ(lite.expert_groups, 1);
  EXPECT_EQ(lite.expert_group_best, 1);
  EXPECT_FALSE(lite.expert_norm);
  EXPECT_THAT(
      error_of(llama_file(R"("num_experts_per_tok": 6, "topk_method": "noaux_tc")", "deepseek_v2")),
      HasSubstr("topk_method 'noaux_tc'"));
}

TEST(HuggingFace2025, GptOssHasWindowsInTurnAndItsPublishedKeysAreRead) {
  const std::string published = R"("num_local_experts": 32, "experts_per_token": 4,
    "num_experts_per_tok": 4, "head_dim": 64, "attention_bias": true, "sliding_window": 128,
    "initial_context_length": 4096, "rope_theta": 150000, "swiglu_limit": 7.0,
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "rope_type": "yarn",
                     "original_max_position_embeddings": 4096, "truncate": false})";
  std::vector<std::string> notes;
  const ModelConfig model = parse_hugging_face_config(
      llama_file(published + R"(, "quantization_config": {"quant_method": "mxfp4"})", "gpt_oss"),
      "config.json", &notes);
  ASSERT_EQ(notes.size(), 1);
  EXPECT_THAT(notes[0], HasSubstr("weights in mxfp4 are read as the values"));
  EXPECT_TRUE(model.sinks && model.expert_bias && model.router_logit_bias && model.out_bias);
  EXPECT_EQ(model.activation, MlpKind::clamped_swiglu);
  EXPECT_EQ(model.swiglu_alpha, 1.702);
  EXPECT_EQ(model.full_layers, (std::vector<std::int64_t>{1, 3}));
  EXPECT_FALSE(model.rope.truncate);
  EXPECT_EQ(read("gpt_oss", "").rope, model.rope) << "if the file is silent";
  EXPECT_THAT(error_of(llama_file(published + R"(, "quantization_config":
                                  {"quant_method": "awq"})",
                                  "gpt_oss")),
              HasSubstr("quantization_config with quant_method 'awq' (mxfp4 and bitsandbytes"));
  ModelConfig other = resolved(model, 0, 0);
  other.sinks = false;
  EXPECT_THAT([&] { to_hugging_face_config(other, {}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("expert_bias = true")));
}

TEST(HuggingFace2025, MinimaxOnceCountedTheColumnsThatRotate) {
  const ModelConfig model =
      read("minimax_m2", R"("num_local_experts": 8, "head_dim": 32, "rotary_dim": 16)");
  EXPECT_EQ(model.partial_rotary_factor, 0.5);
  EXPECT_EQ(model.expert_ffn, 128);
}

TEST(HuggingFace2025, Ernie45HasBiasesOfAllProductsOrNone) {
  const ModelConfig model = read("ernie4_5", R"("use_bias": true)");
  EXPECT_TRUE(model.qkv_bias && model.out_bias && model.mlp_bias);
  ModelConfig some = resolved(model, 0, 0);
  some.mlp_bias = false;
  EXPECT_THAT([&] { to_hugging_face_config(some, {}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("rope_pairs = neighbours")));
}
