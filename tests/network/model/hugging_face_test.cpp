#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/network/model/config_texts.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;

namespace {

const std::string kLlama31 = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false,
  "bos_token_id": 128000, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
  "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "tie_word_embeddings": false,
  "torch_dtype": "bfloat16", "vocab_size": 128256, )";

}  // namespace

TEST(HuggingFaceConfig, ReadsOlderAndNewerSpellingsOfLlamasFrequencies) {
  const std::string fields = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192)";
  const ModelConfig want = known("llama-3.1-8b");
  EXPECT_EQ(resolved(parse(kLlama31 + R"("rope_theta": 500000.0,
    "rope_scaling": {)" + fields +
                           R"(, "rope_type": "llama3"}})"),
                     0, 0),
            want);
  EXPECT_EQ(resolved(parse(kLlama31 + R"("rope_theta": 500000.0,
    "rope_scaling": {)" + fields +
                           R"(, "type": "llama3"}})"),
                     0, 0),
            want);
  EXPECT_EQ(resolved(parse(kLlama31 + R"("rope_parameters": {"rope_theta": 500000.0, )" + fields +
                           R"(, "rope_type": "llama3"}})"),
                     0, 0),
            want);
  EXPECT_EQ(resolved(parse(kLlama31 + R"("rope_theta": 500000.0, "rope_scaling": null})"), 0, 0)
                .rope.kind,
            RopeScalingKind::none);
}

TEST(HuggingFaceConfig, ReadsGpt2sOwnKeys) {
  const ModelConfig model = parse(R"({"activation_function": "gelu_new", "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"], "layer_norm_epsilon": 1e-05, "n_ctx": 1024,
    "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "n_inner": null,
    "vocab_size": 50257})");
  EXPECT_EQ(resolved(model, 0, 0), known("gpt2-124m"));
}

/// As published, with further keys, of which the last of a name counts.
std::string opt_file(const std::string& keys) {
  return R"({"_name_or_path": "facebook/opt-125m", "_remove_final_layer_norm": false,
    "activation_function": "relu", "architectures": ["OPTForCausalLM"], "attention_dropout": 0.0,
    "bos_token_id": 2, "do_layer_norm_before": true, "dropout": 0.1, "eos_token_id": 2,
    "ffn_dim": 3072, "hidden_size": 768, "init_std": 0.02, "layerdrop": 0.0,
    "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 12,
    "num_hidden_layers": 12, "pad_token_id": 1, "prefix": "</s>", "torch_dtype": "float16",
    "use_cache": true, "vocab_size": 50272, "word_embed_proj_dim": 768)" +
         keys + "}";
}

TEST(HuggingFaceConfig, ReadsOptAsPublishedAndTakesOpt125mForMissingKeys) {
  EXPECT_EQ(resolved(parse(opt_file("")), 0, 0), known("opt-125m"));
  EXPECT_EQ(resolved(parse(R"({"model_type": "opt"})"), 0, 0), known("opt-125m"));
  std::vector<std::string> notes;
  parse_hugging_face_config(opt_file(""), "config.json", &notes);
  EXPECT_THAT(notes, testing::IsEmpty());
  const ModelConfig plain = parse(opt_file(R"(, "enable_bias": false, "init_std": 0.006)"));
  EXPECT_FALSE(plain.bias);
  EXPECT_EQ(plain.init_std, 0.006);
  EXPECT_FALSE(parse(opt_file(R"(, "tie_word_embeddings": false)")).tied);
}

TEST(HuggingFaceConfig, RefusesOptsThatComputeOtherwise) {
  for (const auto& [key, text] :
       {std::pair{R"(, "word_embed_proj_dim": 512)", "word_embed_proj_dim 512, as in opt-350m"},
        {R"(, "do_layer_norm_before": false)", "do_layer_norm_before false, as in opt-350m"},
        {R"(, "activation_function": "gelu")", "activation_function 'gelu'"},
        {R"(, "layer_norm_elementwise_affine": false)", "layer_norm_elementwise_affine false"},
        {R"(, "_remove_final_layer_norm": true)", "_remove_final_layer_norm"}})
    EXPECT_THAT(error_of(opt_file(key)), HasSubstr(text));
}

TEST(HuggingFaceConfig, ReadsMistralWithItsWindow) {
  const std::string sizes = R"({"model_type": "mistral", "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, )";
  EXPECT_EQ(resolved(parse(sizes + R"("sliding_window": 4096, "rope_theta": 10000.0,
    "vocab_size": 32000})"),
                     0, 0),
            known("mistral-7b-v0.1"));
  EXPECT_EQ(resolved(parse(sizes + R"("sliding_window": null, "rope_theta": 1000000.0,
    "vocab_size": 32768})"),
                     0, 0),
            known("mistral-7b-v0.3"));
}

TEST(HuggingFaceConfig, ReadsQwenWithItsBiasesAndNorms) {
  EXPECT_EQ(resolved(parse(R"({"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28,
    "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
    "use_sliding_window": false, "vocab_size": 152064})"),
                     0, 0),
            known("qwen2.5-7b"));
  EXPECT_EQ(resolved(parse(R"({"model_type": "qwen3", "attention_bias": false, "head_dim": 128,
    "hidden_size": 2560, "intermediate_size": 9728, "max_position_embeddings": 40960,
    "max_window_layers": 36, "num_attention_heads": 32, "num_hidden_layers": 36,
    "num_key_value_heads": 8, "rms_norm_eps": 0.000001, "rope_scaling": null,
    "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true,
    "use_sliding_window": false, "vocab_size": 151936})"),
                     0, 0),
            known("qwen3-4b"));
}

TEST(HuggingFaceConfig, ReadsMixtralWithItsExperts) {
  EXPECT_EQ(resolved(parse(R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"],
    "attention_dropout": 0.0, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
    "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
    "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "vocab_size": 32000})"),
                     0, 0),
            known("mixtral-8x7b"));
  const ModelConfig defaults = parse(llama_file("", "mixtral"));
  EXPECT_EQ(defaults.experts, 8);
  EXPECT_EQ(defaults.experts_per_token, 2);
  EXPECT_EQ(defaults.expert_ffn, 128);
  EXPECT_TRUE(defaults.expert_norm);
  EXPECT_EQ(defaults.norm_eps, 1e-5);
  EXPECT_EQ(defaults.rope_theta, 1e6);
  EXPECT_EQ(parse(llama_file(R"("sliding_window": 32)", "mixtral")).window, 32);
  EXPECT_EQ(parse(llama_file(R"("router_jitter_noise": 0.0)", "mixtral")).experts, 8);
  EXPECT_THAT(error_of(llama_file(R"("router_jitter_noise": 0.1)", "mixtral")),
              HasSubstr("not supported in models: router_jitter_noise 0.1"));
}

TEST(HuggingFaceConfig, ReadsQwen3sExpertsAndItsDenseLayers) {
  EXPECT_EQ(resolved(parse(R"({"model_type": "qwen3_moe", "attention_bias": false,
    "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048,
    "intermediate_size": 6144, "max_position_embeddings": 40960, "max_window_layers": 48,
    "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": true,
    "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
    "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0,
    "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
    "use_sliding_window": false, "vocab_size": 151936})"),
                     0, 0),
            known("qwen3-30b-a3b"));
  const auto read = [](const std::string& more) { return parse(llama_file(more, "qwen3_moe")); };
  const ModelConfig defaults = read("");
  EXPECT_EQ(defaults.experts, 128);
  EXPECT_EQ(defaults.experts_per_token, 8);
  EXPECT_EQ(defaults.expert_ffn, 768);
  EXPECT_FALSE(defaults.expert_norm);
  EXPECT_EQ(resolved(defaults, 0, 0).head_dim, 16) << "hidden_size / heads, unlike in qwen3";
  EXPECT_EQ(defaults.expert_step, 1);
  const ModelConfig some = read(R"("decoder_sparse_step": 2, "mlp_only_layers": [1])");
  EXPECT_FALSE(some.has_experts(0));
  EXPECT_FALSE(some.has_experts(1));
  EXPECT_FALSE(some.has_experts(2));
  EXPECT_TRUE(some.has_experts(3));
  EXPECT_EQ(read(R"("sliding_window": 32, "use_sliding_window": true)").window, 32);
  const auto error = [](const std::string& more) {
    return error_of(llama_file(more, "qwen3_moe"));
  };
  EXPECT_THAT(error(R"("mlp_only_layers": [-1])"),
              HasSubstr("mlp_only_layers wants a list of integers of at least 0"));
  EXPECT_THAT(error(R"("mlp_only_layers": 3)"), HasSubstr("wants a list"));
  EXPECT_THAT(error(R"("mlp_only_layers": [4])"),
              HasSubstr("dense_layers has 4, but the layers are 0 to 3"));
  const ModelConfig dense = resolved(read(R"("mlp_only_layers": [0, 1, 2, 3])"), 0, 0);
  EXPECT_EQ(dense.experts, 0) << "experts that no layer has are none";
  const std::string written = to_hugging_face_config(dense, {});
  EXPECT_THAT(written, HasSubstr("\"model_type\": \"qwen3\""));
  EXPECT_EQ(to_hugging_face_config(resolved(parse(written), 0, 0), {}), written);
  EXPECT_THAT(error(R"("num_experts_per_tok": 129)"), HasSubstr("must be from 1 to experts = 128"));
  EXPECT_THAT(error(R"("num_experts": 65536, "moe_intermediate_size": 4194304)"),
              testing::Not(HasSubstr("too many")));
  EXPECT_THAT(error_of(R"({"model_type": "qwen3_moe", "hidden_size": 4194304,
    "intermediate_size": 128, "num_hidden_layers": 400, "num_attention_heads": 4,
    "vocab_size": 100, "num_experts": 65536, "moe_intermediate_size": 4194304,
    "max_position_embeddings": 512})"),
              HasSubstr("too many parameters"));
}

TEST(HuggingFaceConfig, ReadsOlmoeWithNormsOverTheWidth) {
  EXPECT_EQ(resolved(parse(R"({"model_type": "olmoe", "attention_bias": false, "clip_qkv": null,
    "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 1024,
    "max_position_embeddings": 4096, "norm_topk_prob": false, "num_attention_heads": 16,
    "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16,
    "num_key_value_heads": 16, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false,
    "vocab_size": 50304})"),
                     0, 0),
            known("olmoe-1b-7b"));
  const ModelConfig defaults = parse(llama_file("", "olmoe"));
  EXPECT_EQ(defaults.experts, 64);
  EXPECT_EQ(defaults.experts_per_token, 8);
  EXPECT_EQ(defaults.norm_eps, 1e-5);
  EXPECT_TRUE(parse(llama_file(R"("norm_topk_prob": true)", "olmoe")).expert_norm);
  EXPECT_EQ(parse(llama_file(R"("sliding_window": 32)", "olmoe")).window, 0);
  EXPECT_THAT(error_of(llama_file(R"("clip_qkv": 8.0)", "olmoe")), HasSubstr("clip_qkv"));
}

TEST(HuggingFaceConfig, ReadsApertusWithItsActivationAndScaledFrequencies) {
  const std::string sizes = R"({"model_type": "apertus", "attention_bias": false,
    "architectures": ["ApertusForCausalLM"], "attention_dropout": 0.0, "hidden_act": "xielu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 21504,
    "max_position_embeddings": 65536, "mlp_bias": false, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "post_norm": false, "qk_norm": true,
    "rms_norm_eps": 1e-05, "tie_word_embeddings": false, "vocab_size": 131072)";
  const std::string scaling = R"({"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3")";
  const ModelConfig want = known("apertus-8b");
  EXPECT_EQ(
      resolved(parse(sizes + R"(, "rope_theta": 12000000, "rope_scaling": )" + scaling + "}}"), 0,
               0),
      want);
  EXPECT_EQ(resolved(parse(sizes + R"(, "rope_parameters": )" + scaling +
                           R"(, "rope_theta": 12000000.0}})"),
                     0, 0),
            want);
  EXPECT_EQ(resolved(parse(sizes + "}"), 0, 0), want) << "the type's defaults";
  // Without an object that describes them, transformers takes the type's scaling and base.
  for (const char* silent : {R"("rope_scaling": null)", R"("vocab_size": 131072)"})
    EXPECT_EQ(resolved(parse(concat(sizes, R"(, "rope_theta": 60, )", silent, "}")), 0, 0), want);
  for (const char* spoken : {R"("rope_theta": 60, "rope_scaling": {"rope_type": "default"})",
                             R"("rope_parameters": {"rope_type": "default", "rope_theta": 60})",
                             R"("rope_theta": 60, "rope_parameters": {"rope_type": "default"})"}) {
    const ModelConfig plain = parse(concat(sizes, ", ", spoken, "}"));
    EXPECT_EQ(plain.rope.kind, RopeScalingKind::none) << spoken;
    EXPECT_EQ(plain.rope_theta, 60) << spoken;
  }
  EXPECT_THAT(error_of(llama_file(R"("hidden_act": "silu")", "apertus")),
              HasSubstr("hidden_act 'silu'"));
  EXPECT_THAT(error_of(llama_file(R"("hidden_act": "xielu")")), HasSubstr("hidden_act 'xielu'"));
}

// What follows is what transformers 5.23 computes with such files; see the losses of its models.

TEST(HuggingFaceConfig, HasTheWindowThatTransformersTakesFromTheKeysOfTheType) {
  const auto window = [](const char* type, const std::string& more) {
    return parse(llama_file(more, type)).window;
  };
  const std::string some = R"("sliding_window": 32)", used = R"("use_sliding_window": true)",
                    full = layer_types("ffff"), sliding = layer_types("ssss");
  for (const char* type : {"llama", "olmoe", "apertus"})
    EXPECT_EQ(window(type, some + ", " + used + ", " + sliding), 0) << type;
  EXPECT_EQ(window("mistral", some), 32);
  EXPECT_EQ(window("mistral", R"("sliding_window": null)"), 0);
  EXPECT_EQ(window("mistral", R"("hidden_act": "silu")"), 4096) << "the key is missing";
  EXPECT_EQ(window("mistral", some + R"(, "use_sliding_window": false)"), 32);
  EXPECT_EQ(window("mistral", some + ", " + full), 0);
  EXPECT_EQ(window("mistral", some + ", " + sliding), 32);
  EXPECT_EQ(window("mixtral", some + ", " + full), 32) << "it has no layer_types";
  EXPECT_EQ(window("mixtral", full), 0);
  for (const char* type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(window(type, some), 0) << type;
    EXPECT_EQ(window(type, some + ", " + sliding), 0) << type;
    EXPECT_EQ(window(type, some + ", " + used), 0) << type << ": from layer 28 on";
    EXPECT_EQ(window(type, used + R"(, "max_window_layers": 0)"), 4096) << type;
    EXPECT_EQ(window(type, used + R"(, "sliding_window": null, "max_window_layers": 0)"), 0);
    EXPECT_EQ(window(type, some + ", " + used + R"(, "max_window_layers": 0)"), 32) << type;
    EXPECT_EQ(window(type, some + ", " + used + R"(, "max_window_layers": -1)"), 32) << type;
    EXPECT_EQ(window(type, some + ", " + used + R"(, "max_window_layers": 4)"), 0) << type;
    EXPECT_EQ(window(type, some + ", " + used + R"(, "max_window_layers": 4, )" + sliding), 32);
    EXPECT_EQ(window(type, some + ", " + used + R"(, "max_window_layers": 0, )" + full), 0);
  }
  EXPECT_EQ(window("qwen3_moe", some), 0);
  EXPECT_EQ(window("qwen3_moe", some + ", " + used), 32) << "whatever max_window_layers says";
  EXPECT_EQ(window("qwen3_moe", some + ", " + used + R"(, "max_window_layers": 2)"), 32);
  EXPECT_EQ(window("qwen3_moe", some + ", " + used + ", " + full), 32);
}

TEST(HuggingFaceConfig, HasTheKeyValueHeadsAndTheWidthOfTheTypeIfTheyAreMissing) {
  const auto heads = [](const char* type, const std::string& more) {
    std::string file = llama_file(R"("num_attention_heads": 32, )" + more, type);
    const std::string given = R"("num_key_value_heads": 4,)";
    return resolved(parse(file.erase(file.find(given), given.size())), 0, 0).kv_heads;
  };
  for (const auto& [type, missing] : {std::pair{"llama", 32},
                                      {"ministral", 8},
                                      {"smollm3", 4},
                                      {"olmo2", 32},
                                      {"olmo3", 32},
                                      {"apertus", 32},
                                      {"olmoe", 32},
                                      {"mistral", 8},
                                      {"mixtral", 8},
                                      {"qwen2", 32},
                                      {"qwen3", 32},
                                      {"qwen3_moe", 4}}) {
    EXPECT_EQ(heads(type, R"("use_cache": true)"), missing) << type;
    EXPECT_EQ(heads(type, R"("num_key_value_heads": null)"), 32) << type;
    EXPECT_EQ(heads(type, R"("num_key_value_heads": 2)"), 2) << type;
  }
  EXPECT_EQ(parse(llama_file("", "qwen3")).head_dim, 128);
  EXPECT_EQ(resolved(parse(llama_file(R"("head_dim": null)", "qwen3")), 0, 0).head_width(), 16);
}

TEST(HuggingFaceConfig, TakesRopeScalingForTheWholeOfRopeParametersWhereBothAreThere) {
  const std::string llama3 = R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 40})",
                    plain = R"({"rope_type": "default", "rope_theta": 60.0})";
  const ModelConfig scaled = parse(llama_file(R"("rope_theta": 50.0, "rope_parameters": )" + plain +
                                              R"(, "rope_scaling": )" + llama3));
  EXPECT_EQ(scaled.rope.kind, RopeScalingKind::llama3);
  EXPECT_EQ(scaled.rope_theta, 50) << "that of rope_parameters is replaced, too";
  EXPECT_THAT(error_of(llama_file(R"("rope_parameters": )" + llama3 +
                                  R"(, "rope_scaling": {"type": "dynamic", "factor": 4.0})")),
              HasSubstr("rope scaling 'dynamic'"));
  const ModelConfig newer =
      parse(llama_file(R"("rope_scaling": {}, "rope_theta": 500.0, "rope_parameters": )" + plain));
  EXPECT_EQ(newer.rope.kind, RopeScalingKind::none);
  EXPECT_EQ(newer.rope_theta, 60);
  EXPECT_EQ(parse(llama_file(R"("rope_scaling": {"factor": 8.0})")).rope.kind,
            RopeScalingKind::none)
      << "without a kind";
}

TEST(HuggingFaceConfig, NeedsTheFactorsOfLlama3AndTakesTheOuterPositionsFirst) {
  const auto file = [](const std::string& inner, const std::string& outer = "") {
    return llama_file(R"("rope_scaling": {"rope_type": "llama3")" + inner + "}" + outer);
  };
  const std::string factors = R"(, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0)",
                    inner = R"(, "original_max_position_embeddings": 40)",
                    outer = R"(, "original_max_position_embeddings": 20)";
  EXPECT_EQ(parse(file(factors + inner, outer)).rope.original_positions, 20);
  EXPECT_EQ(parse(file(factors + inner)).rope.original_positions, 40);
  EXPECT_EQ(parse(file(factors)).rope.original_positions, 512) << "max_position_embeddings";
  EXPECT_THAT(error_of(file(inner)), HasSubstr("rope_scaling: factor is missing"));
  EXPECT_THAT(error_of(file(R"(, "factor": 8.0, "high_freq_factor": 4.0)")),
              HasSubstr("low_freq_factor is missing"));
  EXPECT_THAT(error_of(file(R"(, "factor": 8.0, "low_freq_factor": 1.0)")),
              HasSubstr("high_freq_factor is missing"));
}

TEST(HuggingFaceConfig, HasTheBiasesThatTransformersTakesFromTheKeysOfTheType) {
  const std::string attention = R"("attention_bias": true)", mlp = R"("mlp_bias": true)";
  for (const char* type : {"llama", "qwen3", "qwen3_moe", "olmoe", "apertus"})
    EXPECT_TRUE(parse(llama_file(attention, type)).out_bias) << type;
  for (const char* type : {"qwen2", "mistral", "mixtral"})
    EXPECT_FALSE(parse(llama_file(attention, type)).out_bias) << type;
  EXPECT_TRUE(parse(llama_file(mlp)).mlp_bias);
  for (const char* type : {"apertus", "qwen3", "mistral", "mixtral", "olmoe"})
    EXPECT_FALSE(parse(llama_file(mlp, type)).mlp_bias) << type;
  EXPECT_THAT(error_of(llama_file(R"("is_causal": false)")), HasSubstr("is_causal false"));
}

TEST(HuggingFaceConfig, NotesEachKeyThatTheTypeDoesNotHave) {
  const auto notes = [](const std::string& text) {
    std::vector<std::string> found;
    parse_hugging_face_config(text, "config.json", &found);
    return found;
  };
  EXPECT_THAT(notes(llama_file(R"("architectures": ["LlamaForCausalLM"], "eos_token_id": 2,
    "torch_dtype": "bfloat16", "use_cache": true, "attention_dropout": 0.1, "some_key": null,
    "attention_bias": false, "rope_theta": 1e4, "sliding_window": null)")),
              testing::IsEmpty());
  EXPECT_THAT(notes(llama_file(R"("embedding_multiplier": 12, "sliding_window": 4)")),
              testing::ElementsAre(AllOf(HasSubstr("models of type llama have no such keys: "),
                                         HasSubstr("embedding_multiplier, sliding_window"))));
  EXPECT_THAT(notes(llama_file(R"("rope_scaling": {"rope_type": "default", "beta_fast": 32})")),
              testing::ElementsAre(HasSubstr("no such keys: rope_scaling.beta_fast")));
  EXPECT_THAT(notes(R"({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2,
    "n_positions": 64, "vocab_size": 10, "hidden_act": "relu", "attn_pdrop": 0.1})"),
              testing::ElementsAre(HasSubstr("type gpt2 have no such keys: hidden_act")));
}

TEST(HuggingFaceConfig, ListsAllUnsupportedFeaturesInOneMessage) {
  EXPECT_THAT(error_of(llama_file(R"("rope_scaling": {"type": "dynamic", "factor": 4.0},
    "hidden_act": "gelu",
    "quantization_config": {"bits": 4}, "partial_rotary_factor": 0.5)")),
              AllOf(HasSubstr("config.json: not supported in models:"),
                    HasSubstr("rope scaling 'dynamic'"), HasSubstr("hidden_act 'gelu'"),
                    HasSubstr("quantization_config"), HasSubstr("partial_rotary_factor")));
  EXPECT_THAT(error_of(llama_file(R"("quantization": {"group_size": 64, "bits": 4})")),
              HasSubstr("config.json: not supported in models: quantization"));
  EXPECT_THAT(
      error_of(llama_file("", "mamba2")),
      HasSubstr("model_type is 'mamba2'; supported are gpt2, llama, mistral, ministral, "
                "ministral3, mixtral, olmoe, olmo2, olmo3, qwen2, qwen3, qwen2_moe, "
                "qwen3_moe, apertus, smollm3, phi3, seed_oss, granite, granitemoe, glm4, glm4_moe, "
                "exaone4, ernie4_5, ernie4_5_moe, hunyuan_v1_dense, gemma2, gemma3_text, "
                "minimax_m2, starcoder2, nemotron, cohere2, gpt_oss, deepseek_v2, "
                "deepseek_v3, gemma4_text, llama4_text"));
  EXPECT_THAT(error_of(llama_file("", "mamba2")), HasSubstr(", opt"));
  EXPECT_THAT(error_of(llama_file(R"("rope_parameters": {"full_attention": {"rope_theta": 1}})")),
              HasSubstr("rope_parameters of several kinds of layers"));
  EXPECT_THAT(error_of(R"({"model_type": "gpt2", "n_embd": 64, "n_head": 4, "n_layer": 2,
    "n_positions": 64, "vocab_size": 10, "activation_function": "relu",
    "scale_attn_weights": false})"),
              AllOf(HasSubstr("'relu'"), HasSubstr("scale_attn_weights")));
}

TEST(HuggingFaceConfig, NamesTheKeyThatIsMissingOrWrong) {
  EXPECT_THAT(error_of(R"({"model_type": "llama"})"), HasSubstr("num_hidden_layers is missing"));
  EXPECT_THAT(error_of(R"({"hidden_size": 64})"), HasSubstr("model_type is missing"));
  EXPECT_THAT(error_of(llama_file(R"("num_key_value_heads": "four")")),
              HasSubstr("num_key_value_heads wants an integer from 1 to"));
  EXPECT_THAT(error_of(llama_file(R"("head_dim": -16)")), HasSubstr("head_dim wants"));
  EXPECT_THAT(error_of(llama_file(R"("head_dim": 18446744073709551615)")),
              HasSubstr("head_dim wants"));
  EXPECT_THAT(error_of(llama_file(R"("head_dim": 16.5)")), HasSubstr("got 16.5"));
  EXPECT_THAT(error_of(llama_file(R"("rms_norm_eps": 0)")), HasSubstr("a number above 0, got 0"));
  EXPECT_THAT(error_of(llama_file(R"("rope_scaling": "llama3")")), HasSubstr("wants an object"));
  EXPECT_THAT(error_of(llama_file(R"("tie_word_embeddings": 1)")), HasSubstr("true or false"));
  EXPECT_THAT(error_of(llama_file(R"("num_key_value_heads": 3)")),
              HasSubstr("kv_heads = 3 does not divide heads = 4"));
  EXPECT_THAT(error_of(llama_file(R"("head_dim": 4000000)")), HasSubstr("are too wide"));
}

TEST(HuggingFaceConfig, RefusesInvalidAndDeeplyNestedFiles) {
  EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("[1, 2]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("{\"a\": "), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("{\"a\": \"\xff\"}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(std::string(100'000, '[')), HasSubstr("nested more than"));
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += "{\"a\":";
  EXPECT_THAT(error_of(deep), HasSubstr("nested more than"));
  EXPECT_THAT(error_of(std::string(2 << 20, ' ')), HasSubstr("more than 1048576 bytes"));
}

TEST(HuggingFaceConfig, IsReadFromAFolderOrAFile) {
  const std::filesystem::path folder =
      testing::TempDir() + "hugging_face_test_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << llama_file("");
  EXPECT_EQ(read_hugging_face_config(folder).hidden, 64);
  EXPECT_EQ(read_hugging_face_config(folder / "config.json").layers, 4);
  std::filesystem::remove_all(folder);
  EXPECT_THAT([&] { read_hugging_face_config(folder); },
              testing::ThrowsMessage<UsageError>(HasSubstr("cannot read")));
}

TEST(HuggingFaceConfig, NamesTheKeysOfATrainingThatTrainingsHereDoNotRead) {
  const auto dropout = [](const std::string& text) {
    return unread_training_keys(text, "config.json").dropout;
  };
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(dropout(llama_file(R"("attention_dropout": 0.25)")),
              ElementsAre("attention_dropout = 0.25"));
  EXPECT_THAT(dropout(llama_file(R"("attention_dropout": 0.0)")), IsEmpty());
  EXPECT_THAT(dropout(llama_file(R"("attention_dropout": null)")), IsEmpty());
  EXPECT_THAT(dropout(R"({"model_type": "gpt2", "attn_pdrop": 0.0, "resid_pdrop": 0.2})"),
              ElementsAre("embd_pdrop = 0.1", "resid_pdrop = 0.2"))
      << "transformers' default of a missing key";
  EXPECT_THAT(dropout(R"({"model_type": "opt", "layerdrop": 0.2})"),
              ElementsAre("dropout = 0.1", "layerdrop = 0.2"));
  const auto balance = [](const std::string& keys) {
    return unread_training_keys(llama_file(keys), "config.json").balance;
  };
  EXPECT_EQ(balance(R"("router_aux_loss_coef": 0.02, "output_router_logits": true)"), 0.02);
  EXPECT_EQ(balance(R"("router_aux_loss_coef": 0.02, "output_router_logits": false)"), 0);
  EXPECT_EQ(balance(R"("router_aux_loss_coef": 0.02)"), 0);
}
