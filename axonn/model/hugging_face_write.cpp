#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/model/hugging_face.h"
#include "axonn/model/hugging_face_types.h"
#include "axonn/model/model.h"
#include "axonn/options/options.h"

namespace axonn {

namespace {

using Json = nlohmann::json;  // sorted by key, as transformers writes it

Json or_null(std::optional<std::int64_t> number) { return number ? Json(*number) : Json(); }

/// The keys that all families have. Token keys are written even if they are null: transformers
/// replaces a missing key by the default of the family's first model.
Json common_config(const ModelConfig& model, const HuggingFaceDetails& details,
                   std::string_view architecture, std::string_view type) {
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

using Faults = std::vector<std::string>;

/// Adds the values of keys of experts that the type does not support.
void add_expert_faults(const ModelConfig& model, const LlamaType& type, Faults& faults) {
  const auto add = [&](bool fault, const std::string& what) {
    if (fault) faults.push_back(what);
  };
  add(model.router != RouterKind::softmax, "router = sigmoid");
  add(model.router_scale != 1, concat("router_scale = ", model.router_scale));
  add(model.router_bias, "router_bias = true");
  add(type.normalises && !model.expert_norm, "expert_norm = false");
  if (type.is_qwen()) return;
  add(model.expert_step != 1, concat("expert_step = ", model.expert_step));
  add(!model.dense_layers.empty(), "dense_layers");
}

/// The type of a model with these options.
const LlamaType& llama_type_of(const ModelConfig& model) {
  if (model.activation == MlpKind::xielu &&
      (model.qk_norm != QkNormKind::head || model.qkv_bias || model.window > 0))
    refuse(
        "[model] activation = xielu is in Hugging Face's type apertus, which has qk_norm = head, "
        "no qkv_bias and no window");
  if (model.qk_norm != QkNormKind::none && model.qkv_bias)
    refuse("[model] qk_norm and qkv_bias together are in no model type of Hugging Face: Qwen3 has ",
           "only the first, Qwen2 only the second");
  const bool experts = model.experts > 0, mistral = !experts && !model.qkv_bias &&
                                                    model.qk_norm == QkNormKind::none &&
                                                    model.window > 0;
  const auto found = std::ranges::find_if(kLlamaTypes, [&](const LlamaType& type) {
    return mistral ? type.name == "mistral"
                   : (type.experts > 0) == experts && type.qk_norm == model.qk_norm &&
                         type.qkv_bias == model.qkv_bias && type.activation == model.activation;
  });
  if (found == kLlamaTypes.end())
    refuse("[model] ", model.qkv_bias ? "qkv_bias = true" : "qk_norm = width", ' ',
           experts ? "with" : "without",
           " experts is in no model type of Hugging Face that is supported here");
  Faults faults;
  if (experts) add_expert_faults(model, *found, faults);
  if (found->name == "olmoe" && model.window > 0)
    faults.push_back(concat("window = ", model.window));
  if ((found->name == "olmoe" || found->name == "apertus") &&
      model.heads * model.head_width() != model.hidden)
    faults.push_back(concat("head_dim = ", model.head_dim));
  if (!faults.empty())
    refuse("[model] has values that Hugging Face's type ", found->name,
           " does not support: ", join(faults));
  return *found;
}

void add_experts(const ModelConfig& model, const LlamaType& type, Json& out) {
  out["num_experts_per_tok"] = model.experts_per_token;
  out["router_aux_loss_coef"] = type.balance;
  out["output_router_logits"] = false;
  out[type.is_mixtral() ? "num_local_experts" : "num_experts"] = model.experts;
  if (type.is_mixtral())
    out["router_jitter_noise"] = 0.0;
  else
    out["norm_topk_prob"] = model.expert_norm;
  if (type.expert_ffn == 0) {
    out["intermediate_size"] = model.expert_ffn;
  } else {
    out["moe_intermediate_size"] = model.expert_ffn;
    out["decoder_sparse_step"] = model.expert_step;
    out["mlp_only_layers"] = model.dense_layers;
  }
}

Json llama_config(const ModelConfig& model, const HuggingFaceDetails& details) {
  const LlamaType& type = llama_type_of(model);
  Json out = common_config(model, details, type.architecture, type.name);
  out.update({{"attention_dropout", 0.0},
              {"head_dim", model.head_width()},
              {"hidden_act", type.hidden_act()},
              {"hidden_size", model.hidden},
              {"intermediate_size", model.ffn},
              {"max_position_embeddings", model.positions},
              {"num_attention_heads", model.heads},
              {"num_hidden_layers", model.layers},
              {"num_key_value_heads", model.kv_heads},
              {"rms_norm_eps", model.norm_eps},
              {"rope_theta", model.rope_theta},
              {"rope_scaling", nullptr}});
  const bool llama = type.name == "llama", olmoe = type.name == "olmoe",
             apertus = type.name == "apertus";
  if (llama || olmoe || apertus || (type.is_qwen() && !type.qkv_bias))
    out["attention_bias"] = false;
  if (llama) out["mlp_bias"] = false;
  if (olmoe) out["clip_qkv"] = nullptr;
  if (!llama && !olmoe && !apertus)
    out["sliding_window"] = model.window > 0 ? Json(model.window) : Json();
  if (type.is_qwen()) {
    out["use_sliding_window"] = model.window > 0;
    out["max_window_layers"] = model.window > 0 ? 0 : model.layers;  // the first with a window
  }
  if (type.experts > 0) add_experts(model, type, out);
  if (model.rope_scaling == RopeScalingKind::llama3)
    out["rope_scaling"] = {{"factor", model.rope.factor},
                           {"high_freq_factor", model.rope.high_freq_factor},
                           {"low_freq_factor", model.rope.low_freq_factor},
                           {"original_max_position_embeddings", model.rope.original_positions},
                           {"rope_type", "llama3"}};
  return out;
}

}  // namespace

std::string to_hugging_face_config(const ModelConfig& given, const HuggingFaceDetails& details) {
  const ModelConfig model = resolved(given, 0, 0);
  if (architecture_of(model.family))
    refuse("models of family ", model_families()[static_cast<int>(model.family)],
           " have no Hugging Face format; convert them to a checkpoint");
  AXONN_CHECK(model.mup_base == 0, "to_hugging_face_config: muP has no keys there");
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
