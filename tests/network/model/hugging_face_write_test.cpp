// Configs written for Hugging Face and PEFT: they have the right keys and read back unchanged.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/hugging_face.h"
#include "axonn/network/model/known_models.h"
#include "axonn/network/model/peft.h"

using namespace axonn;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// A known model, with all sizes set and without its name.
ModelConfig known(std::string_view name) {
  ModelConfig model = resolved(known_model(name), 32000, 2048);
  model.name.clear();
  return model;
}

nlohmann::json written(const ModelConfig& model, const HuggingFaceDetails& details = {}) {
  return nlohmann::json::parse(to_hugging_face_config(model, details));
}

/// The message of the UsageError.
std::string refusal(const ModelConfig& model) {
  try {
    to_hugging_face_config(model, {});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

StoredAdapterConfig parse_adapters(const std::string& more) {
  return parse_adapter_config(R"({"peft_type": "LORA", "r": 8, "lora_alpha": 32)" + more + "}",
                              "adapter_config.json");
}

}  // namespace

TEST(HuggingFaceWrite, EveryKnownModelReadsBackUnchanged) {
  int seen = 0;
  for (const std::string_view name : model_names().subspan(1)) {
    const ModelConfig model = known(name);
    const std::string text = to_hugging_face_config(model, {.type = "bfloat16"});
    EXPECT_EQ(resolved(parse_hugging_face_config(text, "config.json"), 0, 0), model) << name;
    ++seen;
  }
  EXPECT_GT(seen, 40);
}

TEST(HuggingFaceWrite, TheModelTypeFollowsFromTheOptions) {
  ModelConfig model = known("llama-3.1-8b");
  EXPECT_EQ(written(model)["architectures"], nlohmann::json::array({"LlamaForCausalLM"}));
  EXPECT_EQ(written(model)["rope_scaling"]["rope_type"], "llama3");
  EXPECT_EQ(written(model)["rope_theta"], 500000.0);
  EXPECT_EQ(written(model)["head_dim"], 128);
  EXPECT_TRUE(written(known("llama-2-7b"))["rope_scaling"].is_null());
  model.window = 4096;
  EXPECT_EQ(written(model)["model_type"], "mistral");
  EXPECT_EQ(written(model)["sliding_window"], 4096);
  model.full_layers = {1};
  EXPECT_EQ(written(model)["model_type"], "ministral");
  EXPECT_EQ(written(model)["layer_types"][1], "full_attention");
  EXPECT_EQ(written(model)["layer_types"][2], "sliding_attention");
  model.full_layers.clear();
  model.qkv_bias = true;
  EXPECT_EQ(written(model)["model_type"], "qwen2");
  EXPECT_EQ(written(model)["use_sliding_window"], true);
  EXPECT_EQ(written(model)["max_window_layers"], 0);
  model.window = 0;
  EXPECT_EQ(written(model)["use_sliding_window"], false);
  EXPECT_TRUE(written(model)["sliding_window"].is_null());
  model.qkv_bias = false;
  model.qk_norm = QkNormKind::head;
  EXPECT_EQ(written(model)["architectures"][0], "Qwen3ForCausalLM");
  EXPECT_EQ(written(model)["attention_bias"], false);
  const auto apertus = written(known("apertus-8b"));
  EXPECT_EQ(apertus["architectures"][0], "ApertusForCausalLM");
  EXPECT_EQ(apertus["model_type"], "apertus");
  EXPECT_EQ(apertus["hidden_act"], "xielu");
  EXPECT_EQ(apertus["attention_bias"], false);
  EXPECT_FALSE(apertus.contains("sliding_window"));
}

TEST(HuggingFaceWrite, TheTypeOfAModelWithExpertsFollowsFromItsNorms) {
  const auto mixtral = written(known("mixtral-8x7b"));
  EXPECT_EQ(mixtral["architectures"][0], "MixtralForCausalLM");
  EXPECT_EQ(mixtral["num_local_experts"], 8);
  EXPECT_EQ(mixtral["intermediate_size"], 14336);
  EXPECT_EQ(mixtral["router_aux_loss_coef"], 0.001);
  EXPECT_TRUE(mixtral["sliding_window"].is_null());
  EXPECT_FALSE(mixtral.contains("norm_topk_prob"));
  const auto qwen = written(known("qwen3-30b-a3b"));
  EXPECT_EQ(qwen["architectures"][0], "Qwen3MoeForCausalLM");
  EXPECT_EQ(qwen["moe_intermediate_size"], 768);
  EXPECT_EQ(qwen["intermediate_size"], 6144);
  EXPECT_EQ(qwen["norm_topk_prob"], true);
  EXPECT_EQ(qwen["attention_bias"], false);
  EXPECT_EQ(qwen["mlp_only_layers"], nlohmann::json::array());
  const auto olmoe = written(known("olmoe-1b-7b"));
  EXPECT_EQ(olmoe["model_type"], "olmoe");
  EXPECT_EQ(olmoe["intermediate_size"], 1024);
  EXPECT_EQ(olmoe["router_aux_loss_coef"], 0.01);
  EXPECT_EQ(olmoe["norm_topk_prob"], false);
  EXPECT_TRUE(olmoe["clip_qkv"].is_null());
  ModelConfig some = known("qwen3-30b-a3b");
  some.expert_step = 2;
  some.dense_layers = {3, 5};
  some.window = 64;
  EXPECT_EQ(resolved(parse_hugging_face_config(to_hugging_face_config(some, {}), "a"), 0, 0), some);
}

TEST(HuggingFaceWrite, KindsOfLayersReadBackUnchanged) {
  ModelConfig smollm = known("smollm3-3b");
  smollm.layers = 6;
  smollm.nope_layers = {0, 4};
  smollm.window = 8;
  smollm.full_layers = {2};
  ModelConfig olmo = known("olmo-3-7b");
  olmo.layers = 3;
  olmo.full_layers = {1};
  olmo.window_rope_theta = 7000;
  olmo.rope.attention_factor = 1.25;
  ModelConfig same = olmo;
  same.window_rope_scaling = true;
  ModelConfig qwen = known("qwen3-8b");
  qwen.window = 16;
  qwen.full_layers = {0, 3};
  qwen.rope = {.kind = RopeScalingKind::yarn, .factor = 4, .truncate = false};
  for (const ModelConfig& model : {smollm, olmo, same, qwen}) {
    const std::string text = to_hugging_face_config(model, {});
    EXPECT_EQ(resolved(parse_hugging_face_config(text, "a"), 0, 0), model) << text;
  }
  EXPECT_EQ(written(smollm)["no_rope_layers"], nlohmann::json({0, 1, 1, 1, 0, 1}));
  EXPECT_EQ(written(known("olmo-3-7b"))["rope_scaling"]["rope_type"], "yarn");
  EXPECT_EQ(written(olmo)["rope_parameters"]["sliding_attention"],
            (nlohmann::json{{"rope_theta", 7000.0}, {"rope_type", "default"}}));
}

TEST(HuggingFaceWrite, RefusesKindsOfLayersThatTheTypeHasNot) {
  ModelConfig model = known("mixtral-8x7b");
  model.window = 16;
  model.full_layers = {0};
  EXPECT_THAT(refusal(model), HasSubstr("type mixtral does not support: full_layers"));
  model = known("mistral-7b-v0.1");
  model.window_rope_theta = 500;
  EXPECT_THAT(refusal(model), HasSubstr("does not support: other rotary frequencies in layers"));
  model = known("olmo-3-7b");
  model.rope.truncate = false;
  EXPECT_THAT(refusal(model), HasSubstr("rope_truncate = false"));
  model = known("llama-3.1-8b");
  model.block_norm = BlockNormKind::output;
  EXPECT_THAT(refusal(model),
              testing::AllOf(HasSubstr("[model] block_norm = output: no model type"),
                             HasSubstr("smollm3 has nope_layers"),
                             HasSubstr("ministral has window = 4096, full_layers")));
}

TEST(HuggingFaceWrite, Phi3sAndSeedOsssReadBackUnchangedWithTheTypeOfTheirFolder) {
  ModelConfig longrope = known("phi-3-mini-4k"), scaled = longrope;
  longrope.partial_rotary_factor = 0.125;
  longrope.rope = {.kind = RopeScalingKind::longrope,
                   .factor = 2,
                   .original_positions = 2048,
                   .short_factors = {1, 1.5, 2, 2.5, 3, 4},
                   .long_factors = {1, 2, 3, 4, 5, 6.25}};
  scaled = longrope;
  scaled.rope.factor = 3;
  scaled.rope.attention_factor = 1.25;
  ModelConfig seed = known("seed-oss-36b"), other = seed, llama = known("llama-3-8b");
  other.qkv_bias = false;
  other.out_bias = other.mlp_bias = true;
  llama.qkv_bias = llama.out_bias = llama.mlp_bias = true;
  for (const ModelConfig& model :
       {known("phi-3-mini-4k"), known("phi-4"), longrope, scaled, seed, other, llama}) {
    const std::string text = to_hugging_face_config(model, {});
    EXPECT_EQ(resolved(parse_hugging_face_config(text, "a"), 0, 0), model) << text;
  }
  EXPECT_EQ(written(known("phi-4"))["model_type"], "phi3");
  EXPECT_EQ(written(longrope)["rope_scaling"].size(), 3u) << "as transformers 4 wants";
  EXPECT_EQ(written(seed)["model_type"], "seed_oss");
  EXPECT_EQ(written(seed)["attention_out_bias"], false);
  seed.type.clear();
  EXPECT_EQ(written(seed)["model_type"], "qwen2") << "which has the same options";
  seed.mlp_bias = true;
  EXPECT_EQ(written(seed)["model_type"], "seed_oss");
  longrope.rope.kind = RopeScalingKind::yarn;
  EXPECT_THAT(refusal(longrope), HasSubstr("type phi3 does not support: rope_scaling = yarn"));
  longrope.qkv_bias = true;
  EXPECT_THAT(refusal(longrope), HasSubstr("type = phi3, qkv_bias = true, partial_rotary_factor"));
}

TEST(HuggingFaceWrite, RefusesExpertsThatNoTypeHasAndNamesTheKeys) {
  ModelConfig model = known("mixtral-8x7b");
  model.expert_norm = false;
  model.expert_step = 2;
  model.dense_layers = {0};
  EXPECT_THAT(refusal(model),
              testing::AllOf(HasSubstr("type mixtral"), HasSubstr("expert_norm = false"),
                             HasSubstr("expert_step = 2"), HasSubstr("dense_layers")));
  model = known("qwen3-30b-a3b");
  model.router = RouterKind::sigmoid;
  model.router_scale = 2.5;
  model.router_bias = true;
  EXPECT_THAT(refusal(model),
              testing::AllOf(HasSubstr("type qwen3_moe"), HasSubstr("router = sigmoid"),
                             HasSubstr("router_scale = 2.5"), HasSubstr("router_bias = true")));
  model = known("olmoe-1b-7b");
  model.window = 16;
  model.head_dim = 64;
  EXPECT_THAT(refusal(model), testing::AllOf(HasSubstr("type olmoe"), HasSubstr("window = 16"),
                                             HasSubstr("head_dim = 64")));
  model = known("mixtral-8x7b");
  model.qkv_bias = true;
  EXPECT_THAT(refusal(model), HasSubstr("[model] qkv_bias = true, experts = 8: no model type"));
  model = known("llama-3.1-8b");
  model.qk_norm = QkNormKind::width;
  EXPECT_THAT(refusal(model), HasSubstr("[model] qk_norm = width: no model type"));
}

TEST(HuggingFaceWrite, MixtralsExpertsHaveTheirOwnNames) {
  const auto names = [](const char* model, const char* parameter) {
    return base_names(known(model)).of(parameter);
  };
  const auto first = [&](const char* model, const char* parameter) {
    return names(model, parameter).names.front();
  };
  const char *gate = "model.layers.3.mlp.gate.weight",
             *up = "model.layers.3.mlp.experts.12.up_proj.weight",
             *down = "model.layers.3.mlp.experts.7.down_proj.weight";
  EXPECT_EQ(first("mixtral-8x7b", gate), "model.layers.3.block_sparse_moe.gate.weight");
  EXPECT_EQ(first("mixtral-8x7b", up), "model.layers.3.block_sparse_moe.experts.12.w3.weight");
  EXPECT_EQ(first("mixtral-8x7b", down), "model.layers.3.block_sparse_moe.experts.7.w2.weight");
  EXPECT_EQ(first("mixtral-8x7b", "model.layers.3.mlp.experts.0.gate_proj.weight"),
            "model.layers.3.block_sparse_moe.experts.0.w1.weight");
  for (const char* model : {"qwen3-30b-a3b", "olmoe-1b-7b"})
    for (const char* parameter : {gate, up, down}) EXPECT_EQ(first(model, parameter), parameter);
  EXPECT_EQ(first("llama-3.1-8b", "model.layers.3.mlp.gate_proj.weight"),
            "model.layers.3.mlp.gate_proj.weight");
  const StoredName::Joined joined = names("olmoe-1b-7b", up).joined;
  EXPECT_EQ(joined.names.front(), "model.layers.3.mlp.experts.gate_up_proj");
  EXPECT_EQ(joined.outer, 64);
  EXPECT_EQ(joined.rows, 2 * 1024);
  EXPECT_EQ(joined.first, 25 * 1024);
  EXPECT_FALSE(joined.usual);
}

TEST(HuggingFaceWrite, ApertussNormsHaveTheirOwnNamesAndXielusConstantsAreStored) {
  const TensorNames names = base_names(known("apertus-8b"));
  const auto first = [&](const char* parameter) { return names.of(parameter).names.front(); };
  EXPECT_EQ(first("model.layers.3.input_layernorm.weight"),
            "model.layers.3.attention_layernorm.weight");
  EXPECT_EQ(first("model.layers.3.post_attention_layernorm.weight"),
            "model.layers.3.feedforward_layernorm.weight");
  for (const char* same :
       {"model.layers.3.self_attn.q_norm.weight", "model.layers.3.mlp.act_fn.alpha_p",
        "model.layers.3.mlp.up_proj.weight", "model.norm.weight"})
    EXPECT_EQ(first(same), same);
  ASSERT_EQ(names.numbers.size(), 64u);
  EXPECT_EQ(names.numbers.front().names.front(), "model.layers.0.mlp.act_fn.beta");
  EXPECT_EQ(names.numbers.front().value, 0.5);
  EXPECT_EQ(names.numbers.back().names.front(), "model.layers.31.mlp.act_fn.eps");
  EXPECT_EQ(names.numbers.back().value, -1e-6);
  EXPECT_TRUE(base_names(known("qwen3-8b")).numbers.empty());
}

TEST(HuggingFaceWrite, WritesTheDtypeAndTheTokens) {
  const HuggingFaceDetails details{.type = "bfloat16", .begin_of_text = 1, .ends = {2}};
  const auto config = written(known("gpt2-124m"), details);
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  EXPECT_EQ(config["bos_token_id"], 1);
  EXPECT_EQ(config["eos_token_id"], 2);
  EXPECT_EQ(config["n_inner"], 3072);
  const auto generation = nlohmann::json::parse(to_generation_config(details));
  EXPECT_EQ(generation, (nlohmann::json{{"bos_token_id", 1}, {"eos_token_id", 2}}));
  EXPECT_TRUE(written(known("gpt2-124m"))["eos_token_id"].is_null());
  const HuggingFaceDetails more{.pad = 0, .ends = {2, 3}};
  EXPECT_EQ(written(known("gpt2-124m"), more)["eos_token_id"], (nlohmann::json{2, 3}));
  EXPECT_EQ(nlohmann::json::parse(to_generation_config(more)),
            (nlohmann::json{{"eos_token_id", {2, 3}}, {"pad_token_id", 0}}));
}

TEST(HuggingFaceWrite, RefusesUnsupportedOptionsAndNamesThem) {
  ModelConfig gpt = known("gpt2-124m");
  gpt.bias = false;
  gpt.kv_heads = 4;
  EXPECT_THAT(refusal(gpt), testing::AllOf(HasSubstr("bias = false"), HasSubstr("kv_heads = 4")));
  gpt = known("gpt2-124m");
  gpt.head_dim = 32;
  EXPECT_THAT(refusal(gpt), HasSubstr("head_dim = 32"));
  ModelConfig opt = known("opt-125m");
  opt.norm_eps = 1e-6;
  opt.kv_heads = 4;
  EXPECT_THAT(refusal(opt), testing::AllOf(HasSubstr("norm_eps = 1e-06"), HasSubstr("kv_heads")));
  ModelConfig llama = known("llama-3.1-8b");
  llama.qk_norm = QkNormKind::head;
  llama.qkv_bias = true;
  EXPECT_THAT(refusal(llama),
              HasSubstr("[model] qkv_bias = true, qk_norm = head: no model type of Hugging "
                        "Face that is supported here has just these "
                        "options; mistral has window = 4096"));
  ModelConfig apertus = known("apertus-8b");
  apertus.head_dim = 64;
  EXPECT_THAT(refusal(apertus), HasSubstr("type apertus does not support: head_dim = 64"));
  apertus = known("apertus-8b");
  apertus.qk_norm = QkNormKind::none;
  EXPECT_THAT(refusal(apertus), HasSubstr("apertus has activation = xielu, qk_norm = head"));
}

TEST(HuggingFaceWrite, AnAdapterConfigReadsBackUnchanged) {
  ModelConfig model = known("gpt2-124m");
  model.lora = {.rank = 4, .alpha = 12, .dropout = 0.25, .targets = {"c_attn"}};
  const std::string text = to_adapter_config(model, "openai-community/gpt2");
  const StoredAdapterConfig read = parse_adapter_config(text, "adapter_config.json");
  EXPECT_EQ(read.base, "openai-community/gpt2");
  EXPECT_EQ(read.lora.rank, 4);
  EXPECT_EQ(read.lora.alpha, 12);
  EXPECT_EQ(read.lora.dropout, 0.25);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["fan_in_fan_out"], true) << "GPT-2's layers are Conv1D";
  EXPECT_EQ(json["target_modules"], nlohmann::json::array({"c_attn"}));
  EXPECT_EQ(json["task_type"], "CAUSAL_LM");
  model = known("llama-3.1-8b");
  model.lora.rank = 1;
  EXPECT_EQ(nlohmann::json::parse(to_adapter_config(model, ""))["fan_in_fan_out"], false);
}

TEST(HuggingFaceWrite, ReadsAnAdapterConfigWithAllKeysThatPeftWrites) {
  // What PEFT 0.21 writes for LoraConfig(r=8) beside the keys that are read.
  EXPECT_EQ(parse_adapters(R"(, "alora_invocation_tokens": null, "alpha_pattern": {},
    "arrow_config": null, "auto_mapping": null, "bias": "none", "corda_config": null,
    "ensure_weight_tying": false, "eva_config": null, "exclude_modules": null,
    "fan_in_fan_out": false, "inference_mode": true, "init_lora_weights": true,
    "kasa_config": null, "layer_replication": null, "layers_pattern": null,
    "layers_to_transform": null, "loftq_config": {}, "lora_bias": false, "lora_ga_config": null,
    "megatron_config": null, "megatron_core": "megatron.core", "modules_to_save": null,
    "monteclora_config": null, "peft_version": "0.21.2", "qalora_group_size": 16,
    "rank_pattern": {}, "revision": null, "target_modules": ["q_proj"], "target_parameters": null,
    "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_bdlora": null,
    "use_dora": false, "use_qalora": false, "use_rslora": false, "velora_config": null)")
                .lora.rank,
            8);
}

TEST(HuggingFaceWrite, RefusesKindsOfAdaptersAndKeysThatItDoesNotKnow) {
  EXPECT_EQ(parse_adapters("").lora.alpha, 32);
  EXPECT_EQ(parse_adapters(R"(, "use_rslora": true)").lora.alpha, 32 * std::sqrt(8.0))
      << "alpha / sqrt(r) instead of alpha / r";
  EXPECT_EQ(parse_adapters(R"(, "rank_pattern": {}, "modules_to_save": null)").lora.rank, 8);
  for (const char* more :
       {R"("bias": "some")", R"("rank_pattern": {"q_proj": 0})",
        R"("rank_pattern": {"q_proj": 1.5})", R"("alpha_pattern": {"q_proj": "a"})",
        R"("rank_pattern": [4])", R"("target_modules": 4)", R"("exclude_modules": [4])",
        R"("modules_to_save": "lm_head")", R"("init_lora_weights": "pissa_niter_4")",
        R"("init_lora_weights": "lora_ga")", R"("init_lora_weights": "a_later_kind")",
        R"("alora_invocation_tokens": [250, 3])", R"("layers_to_transform": "1")",
        R"("layers_to_transform": [-1])", R"("lora_bias": true)", R"("use_qalora": true)",
        R"("trainable_token_indices": [5])", R"("arrow_config": {"top_k": 1})",
        R"("a_key_of_a_later_version": 1)"}) {
    const std::string key = std::string(more).substr(1, std::string(more).find('"', 1) - 1);
    EXPECT_THAT([&] { parse_adapters(concat(", ", more)); },
                ThrowsMessage<UsageError>(HasSubstr(key)));
  }
  for (const char* bad : {R"(, "lora_dropout": 1)", R"(, "lora_dropout": "no")", R"(, "r": 0)",
                          R"(, "r": "8")", R"(, "lora_alpha": -1)"})
    EXPECT_THROW(parse_adapters(bad), UsageError) << bad;
  EXPECT_THAT([] { parse_adapter_config(R"({"peft_type": "IA3"})", "a"); },
              ThrowsMessage<UsageError>(HasSubstr("peft_type is 'IA3'")));
  EXPECT_THROW(parse_adapter_config("[]", "a"), UsageError);
}
