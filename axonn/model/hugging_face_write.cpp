#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/model/hugging_face.h"
#include "axonn/options/options_suggest.h"

namespace axonn {

namespace {

using Json = nlohmann::json;  // sorted by key, as transformers writes it

Json or_null(std::optional<std::int64_t> number) { return number ? Json(*number) : Json(); }

/// The keys that all families have. Token keys are written even if they are null: transformers
/// replaces a missing key by the default of the family's first model.
Json common_config(const ModelConfig& model, const HuggingFaceDetails& details,
                   const char* architecture, const char* type) {
  return {{"architectures", Json::array({architecture})},
          {"bos_token_id", or_null(details.begin_of_text)},
          {"eos_token_id", or_null(details.end_of_text)},
          {"initializer_range", model.init_std},
          {"model_type", type},
          {"tie_word_embeddings", model.tied},
          {"torch_dtype", details.type},
          {"use_cache", true},
          {"vocab_size", model.vocab}};
}

Json gpt2_config(const ModelConfig& model, const HuggingFaceDetails& details) {
  std::vector<std::string> faults;
  if (!model.bias) faults.emplace_back("bias = false");
  if (model.kv_heads != model.heads) faults.push_back(concat("kv_heads = ", model.kv_heads));
  if (model.head_width() * model.heads != model.hidden)
    faults.push_back(concat("head_dim = ", model.head_dim));
  if (!faults.empty())
    refuse("[model] has values that Hugging Face's GPT-2 does not support: ", join(faults));
  Json out = common_config(model, details, "GPT2LMHeadModel", "gpt2");
  out.update({{"activation_function", "gelu_new"},
              {"attn_pdrop", 0.0},
              {"embd_pdrop", 0.0},
              {"resid_pdrop", 0.0},
              {"layer_norm_epsilon", model.norm_eps},
              {"n_ctx", model.positions},
              {"n_embd", model.hidden},
              {"n_head", model.heads},
              {"n_inner", model.ffn},
              {"n_layer", model.layers},
              {"n_positions", model.positions}});
  return out;
}

/// The class and the model_type of a model with these options.
std::pair<const char*, const char*> llama_like(const ModelConfig& model) {
  if (model.qk_norm && model.qkv_bias)
    refuse("[model] qk_norm and qkv_bias together are in no model type of Hugging Face: Qwen3 has ",
           "only the first, Qwen2 only the second");
  if (model.qk_norm) return {"Qwen3ForCausalLM", "qwen3"};
  if (model.qkv_bias) return {"Qwen2ForCausalLM", "qwen2"};
  if (model.window > 0) return {"MistralForCausalLM", "mistral"};
  return {"LlamaForCausalLM", "llama"};
}

Json llama_config(const ModelConfig& model, const HuggingFaceDetails& details) {
  const auto [architecture, name] = llama_like(model);
  const std::string_view type = name;
  Json out = common_config(model, details, architecture, name);
  out.update({{"attention_dropout", 0.0},
              {"head_dim", model.head_width()},
              {"hidden_act", "silu"},
              {"hidden_size", model.hidden},
              {"intermediate_size", model.ffn},
              {"max_position_embeddings", model.positions},
              {"num_attention_heads", model.heads},
              {"num_hidden_layers", model.layers},
              {"num_key_value_heads", model.kv_heads},
              {"rms_norm_eps", model.norm_eps},
              {"rope_theta", model.rope_theta},
              {"rope_scaling", nullptr}});
  if (type == "llama" || type == "qwen3") out["attention_bias"] = false;
  if (type == "llama") out["mlp_bias"] = false;
  if (type != "llama") out["sliding_window"] = model.window > 0 ? Json(model.window) : Json();
  if (type.starts_with("qwen")) {
    out["use_sliding_window"] = model.window > 0;
    out["max_window_layers"] = model.window > 0 ? 0 : model.layers;  // the first with a window
  }
  if (model.rope_scaling == RopeScalingKind::llama3)
    out["rope_scaling"] = {{"factor", model.rope_factor},
                           {"high_freq_factor", model.rope_high_freq_factor},
                           {"low_freq_factor", model.rope_low_freq_factor},
                           {"original_max_position_embeddings", model.rope_original_positions},
                           {"rope_type", "llama3"}};
  return out;
}

}  // namespace

std::string to_hugging_face_config(const ModelConfig& given, const HuggingFaceDetails& details) {
  const ModelConfig model = resolved(given, 0, 0);
  AXONN_CHECK(model.layers > 0 && model.vocab > 0 && model.positions > 0,
              "to_hugging_face_config: wanted layers, vocab and positions above 0");
  const Json config =
      model.family == ModelFamily::gpt ? gpt2_config(model, details) : llama_config(model, details);
  return config.dump(2) + "\n";
}

std::string to_generation_config(const HuggingFaceDetails& details) {
  Json out = Json::object();
  if (details.begin_of_text) out["bos_token_id"] = *details.begin_of_text;
  if (details.end_of_text) out["eos_token_id"] = *details.end_of_text;
  return out.dump(2) + "\n";
}

std::string to_adapter_config(const ModelConfig& model, const std::string& base) {
  AXONN_CHECK(model.lora.rank > 0, "to_adapter_config: the model has no adapters");
  const Json config = {{"base_model_name_or_path", base},
                       {"bias", "none"},
                       {"fan_in_fan_out", model.family == ModelFamily::gpt},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"lora_alpha", model.lora.alpha},
                       {"lora_dropout", model.lora.dropout},
                       {"modules_to_save", nullptr},
                       {"peft_type", "LORA"},
                       {"r", model.lora.rank},
                       {"target_modules", model.lora.targets},
                       {"task_type", "CAUSAL_LM"}};
  return config.dump(2) + "\n";
}

}  // namespace axonn
