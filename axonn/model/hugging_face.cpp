#include "axonn/model/hugging_face.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/model/hugging_face_types.h"
#include "axonn/options/options.h"

namespace axonn {

namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostBytes = 1 << 20;  // of a file; published ones have a few thousand
constexpr int kDeepest = 16;                 // levels of nested objects; published files have 3
// With sizes up to these, every count of parameters fits an int64.
constexpr std::int64_t kMostLayers = 10'000, kMostColumns = 1 << 22, kMostRows = 1 << 30;
// Counts of all experts' parameters, which check_whole() computes, must fit too.
constexpr std::int64_t kMostExperts = 1 << 16;
constexpr double kMostParameters = 1e18;

/// Reads keys of one object. A null counts as a missing key.
class Reader {
 public:
  using Keys = std::initializer_list<const char*>;

  Reader(const Json& object, std::string place) : object_(object), place_(std::move(place)) {}

  /// The value of the first of the spellings that the object has, or null.
  const Json* find(Keys spellings) const {
    for (const char* key : spellings)
      if (const auto found = object_.find(key); found != object_.end() && !found->is_null()) {
        name_ = key;
        return &*found;
      }
    name_ = *spellings.begin();
    return nullptr;
  }

  /// Whether the object has the key, even if it is null.
  bool has(const char* key) const { return object_.contains(key); }

  std::optional<std::int64_t> integer(Keys spellings, std::int64_t most) const {
    const auto fits = [&](const Json& value) {
      const bool whole = value.is_number_integer() &&
                         (!value.is_number_unsigned() || value.get<std::uint64_t>() <= kUnsigned);
      return whole && value.get<std::int64_t>() >= 1 && value.get<std::int64_t>() <= most;
    };
    return get<std::int64_t>(spellings, fits, concat("an integer from 1 to ", most));
  }

  std::int64_t needed(Keys spellings, std::int64_t most) const {
    const auto value = integer(spellings, most);
    if (!value) refuse(place_, ": ", name_, " is missing");
    return *value;
  }

  /// A list of integers of at least 0, or an empty one.
  std::vector<std::int64_t> integers(const char* key) const {
    const auto fits = [](const Json& value) {
      return value.is_array() && std::ranges::all_of(value, [](const Json& one) {
               return one.is_number_unsigned() && one.get<std::uint64_t>() < kUnsigned;
             });
    };
    return get<std::vector<std::int64_t>>({key}, fits, "a list of integers of at least 0")
        .value_or(std::vector<std::int64_t>{});
  }

  double real(Keys spellings, double otherwise) const {
    const auto fits = [](const Json& value) {
      return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
    };
    return get<double>(spellings, fits, "a number above 0").value_or(otherwise);
  }

  bool flag(const char* key, bool otherwise) const {
    return get<bool>({key}, &Json::is_boolean, "true or false").value_or(otherwise);
  }

  std::string text(Keys spellings, std::string_view otherwise) const {
    return get<std::string>(spellings, &Json::is_string, "a string")
        .value_or(std::string(otherwise));
  }

  std::optional<Reader> object(const char* key) const {
    const Json* value = find({key});
    if (!value) return std::nullopt;
    if (!value->is_object()) bad(*value, "an object");
    return Reader(*value, concat(place_, ": ", key));
  }

  bool has_objects() const {
    return std::ranges::any_of(object_, [](const Json& value) { return value.is_object(); });
  }

 private:
  static constexpr std::uint64_t kUnsigned = std::uint64_t{1} << 62;

  template <typename T, typename Fits>
  std::optional<T> get(Keys spellings, const Fits& fits, const std::string& wanted) const {
    const Json* value = find(spellings);
    if (!value) return std::nullopt;
    if (!std::invoke(fits, *value)) bad(*value, wanted);
    return value->get<T>();
  }

  [[noreturn]] void bad(const Json& value, const std::string& wanted) const {
    constexpr std::size_t kShown = 40;
    std::string got = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (got.size() > kShown) got = got.substr(0, kShown) + "...";
    refuse(place_, ": ", name_, " wants ", wanted, ", got ", got);
  }

  const Json& object_;
  std::string place_;
  mutable std::string name_;  // the last key that was looked up, for messages
};

/// Features of a file that models here do not support.
using Unsupported = std::vector<std::string>;

/// Reads rope_scaling, or in newer files rope_parameters, which also has rope_theta. Apertus has
/// Llama 3's scaling if the file says nothing.
void read_rope(const Reader& file, const LlamaType& type, ModelConfig& model,
               Unsupported& unsupported) {
  const auto read_common = [&](const Reader& from) {
    model.rope_theta = from.real({"rope_theta"}, model.rope_theta);
    if (from.real({"partial_rotary_factor"}, 1) != 1)
      unsupported.push_back("partial_rotary_factor other than 1");
  };
  read_common(file);
  const bool newer = file.find({"rope_parameters"});
  const std::optional<Reader> rope = file.object(newer ? "rope_parameters" : "rope_scaling");
  if (!rope && type.activation == MlpKind::xielu && !file.has("rope_scaling"))
    model.rope_scaling = RopeScalingKind::llama3;
  if (!rope) return;
  if (rope->has_objects())
    return unsupported.push_back("rope_parameters of several kinds of layers");
  read_common(*rope);
  const std::string kind = rope->text({"rope_type", "type"}, "default");
  if (kind == "default") return;
  if (kind != "llama3") return unsupported.push_back("rope scaling '" + kind + "'");
  model.rope_scaling = RopeScalingKind::llama3;
  model.rope.factor = rope->real({"factor"}, 8);
  model.rope.low_freq_factor = rope->real({"low_freq_factor"}, 1);
  model.rope.high_freq_factor = rope->real({"high_freq_factor"}, 4);
  model.rope.original_positions =
      rope->integer({"original_max_position_embeddings"}, kMostRows).value_or(8192);
}

/// The window of the layers, or 0. In Mistral and Mixtral all layers have one, in Qwen those from
/// max_window_layers on; newer files list each layer's kind.
std::int64_t read_window(const Reader& file, const LlamaType& type, const ModelConfig& model,
                         Unsupported& unsupported) {
  const std::int64_t window = file.integer({"sliding_window"}, kMostRows).value_or(0);
  if (const Json* kinds = file.find({"layer_types"}); kinds && kinds->is_array()) {
    const auto sliding = std::ranges::count(*kinds, Json("sliding_attention"));
    const auto full = std::ranges::count(*kinds, Json("full_attention"));
    if (static_cast<std::size_t>(sliding + full) != kinds->size())
      unsupported.push_back("layer_types other than full_attention and sliding_attention");
    else if (sliding > 0 && full > 0)
      unsupported.push_back("layer_types that differ");
    return sliding > 0 ? window : 0;
  }
  if (type.name == "mistral" || type.name == "mixtral") return window;
  if (!type.is_qwen() || !file.flag("use_sliding_window", false)) return 0;
  // Versions of transformers differ in whether Qwen3's experts heed max_window_layers.
  const bool every = type.experts > 0;
  const Json* first = file.find({"max_window_layers"});
  const bool known = first && first->is_number_unsigned();
  const std::uint64_t from = known ? first->get<std::uint64_t>() : every ? 0 : model.layers;
  if (from > 0 && (every || from < static_cast<std::uint64_t>(model.layers)))
    unsupported.push_back("use_sliding_window in some layers only (max_window_layers)");
  return from == 0 ? window : 0;
}

ModelConfig read_gpt2(const Reader& file, Unsupported& unsupported) {
  ModelConfig model;
  model.layers = file.needed({"n_layer", "num_hidden_layers"}, kMostLayers);
  model.hidden = file.needed({"n_embd", "hidden_size"}, kMostColumns);
  model.heads = file.needed({"n_head", "num_attention_heads"}, kMostColumns);
  model.ffn = file.integer({"n_inner"}, kMostColumns).value_or(4 * model.hidden);
  model.vocab = file.needed({"vocab_size"}, kMostRows);
  model.positions = file.needed({"n_positions", "max_position_embeddings", "n_ctx"}, kMostRows);
  model.tied = file.flag("tie_word_embeddings", true);
  model.norm_eps = file.real({"layer_norm_epsilon"}, 1e-5);
  model.init_std = file.real({"initializer_range"}, 0.02);
  const std::string activation = file.text({"activation_function"}, "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    unsupported.push_back("activation_function '" + activation + "'");
  if (!file.flag("scale_attn_weights", true)) unsupported.push_back("scale_attn_weights false");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    if (file.flag(key, false)) unsupported.emplace_back(key);
  return model;
}

void read_experts(const Reader& file, const LlamaType& type, ModelConfig& model,
                  Unsupported& unsupported) {
  model.experts =
      file.integer({"num_experts", "num_local_experts"}, kMostExperts).value_or(type.experts);
  model.experts_per_token =
      file.integer({"num_experts_per_tok"}, kMostExperts).value_or(type.experts_per_token);
  model.expert_ffn = model.ffn;
  if (type.expert_ffn > 0) {
    model.expert_ffn =
        file.integer({"moe_intermediate_size"}, kMostColumns).value_or(type.expert_ffn);
    model.expert_step = file.integer({"decoder_sparse_step"}, kMostLayers).value_or(1);
    model.dense_layers = file.integers("mlp_only_layers");
  }
  model.expert_norm = type.normalises || file.flag("norm_topk_prob", false);
  if (const Json* noise = file.find({"router_jitter_noise"}); noise && *noise != 0)
    unsupported.push_back("router_jitter_noise " + noise->dump());
  if (file.find({"clip_qkv"})) unsupported.push_back("clip_qkv");
}

ModelConfig read_llama(const Reader& file, const LlamaType& type, Unsupported& unsupported) {
  ModelConfig model;
  model.family = ModelFamily::llama;
  model.layers = file.needed({"num_hidden_layers"}, kMostLayers);
  model.hidden = file.needed({"hidden_size"}, kMostColumns);
  model.heads = file.needed({"num_attention_heads"}, kMostColumns);
  model.kv_heads = file.integer({"num_key_value_heads"}, kMostColumns).value_or(model.heads);
  model.head_dim = file.integer({"head_dim"}, kMostColumns).value_or(type.head_dim);
  model.ffn = file.needed({"intermediate_size"}, kMostColumns);
  model.vocab = file.needed({"vocab_size"}, kMostRows);
  model.positions = file.needed({"max_position_embeddings"}, kMostRows);
  model.tied = file.flag("tie_word_embeddings", false);
  model.norm_eps = file.real({"rms_norm_eps"}, type.norm_eps);
  model.init_std = file.real({"initializer_range"}, 0.02);
  model.rope_theta = type.rope_theta;
  model.qkv_bias = type.qkv_bias;
  model.qk_norm = type.qk_norm;
  model.activation = type.activation;
  model.window = read_window(file, type, model, unsupported);
  read_rope(file, type, model, unsupported);
  if (type.experts > 0) read_experts(file, type, model, unsupported);
  const std::string activation = file.text({"hidden_act"}, type.hidden_act());
  if (activation != type.hidden_act()) unsupported.push_back("hidden_act '" + activation + "'");
  // In Llama and Qwen3, attention_bias adds a bias to the output projection too.
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (file.flag(key, false)) unsupported.emplace_back(key);
  return model;
}

/// The type of the Llama family, or null for gpt2. Throws UsageError for others.
const LlamaType* llama_type(const Reader& file, const std::string& place) {
  const std::string name = file.text({"model_type"}, "");
  if (name.empty()) refuse(place, ": model_type is missing; is it the config.json of a model?");
  if (name == "gpt2") return nullptr;
  const auto found = std::ranges::find(kLlamaTypes, name, &LlamaType::name);
  if (found != kLlamaTypes.end()) return &*found;
  std::vector<std::string_view> names;
  for (const LlamaType& type : kLlamaTypes) names.push_back(type.name);
  refuse(place, ": model_type is '", name, "'; supported are gpt2, ", join(names));
}

/// Throws UsageError unless the text is a JSON object that is neither too long nor too deep.
Json parse(std::string_view text, const std::string& place) {
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest) refuse(place, ": objects are nested more than ", kDeepest, " deep");
    return true;
  };
  if (text.size() > kMostBytes)
    refuse(place, ": more than ", kMostBytes, " bytes; is it the config.json of a model?");
  Json json;
  try {
    json = Json::parse(text, shallow);
  } catch (const Json::exception& error) {
    refuse(place, ": not valid JSON: ", error.what());
  }
  if (!json.is_object()) refuse(place, ": not a JSON object");
  return json;
}

void check_whole(const ModelConfig& model, const std::string& place) {
  if (model.heads * model.head_width() > kMostColumns)
    refuse(place, ": ", model.heads, " heads of ", model.head_width(), " are too wide");
  const double experts = static_cast<double>(model.experts) * static_cast<double>(model.layers) *
                         static_cast<double>(model.hidden) * static_cast<double>(model.expert_ffn);
  if (experts > kMostParameters) refuse(place, ": the experts have too many parameters");
  try {
    validate(model);
  } catch (const UsageError& error) {
    refuse(place, ": ", error.what());
  }
}

std::string read_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) refuse("cannot read '", file, "': ", std::strerror(errno));
  std::string text(kMostBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (in.bad()) refuse("cannot read '", file, "': ", std::strerror(errno));
  return text;
}

}  // namespace

ModelConfig parse_hugging_face_config(std::string_view text, const std::string& place) {
  const Json json = parse(text, place);
  const Reader file(json, place);
  const LlamaType* type = llama_type(file, place);
  Unsupported unsupported;
  ModelConfig model = type ? read_llama(file, *type, unsupported) : read_gpt2(file, unsupported);
  if (file.find({"quantization_config"})) unsupported.push_back("quantization_config");
  if (!unsupported.empty()) refuse(place, ": not supported in models: ", join(unsupported));
  check_whole(model, place);
  return model;
}

ModelConfig read_hugging_face_config(const std::string& path) {
  const std::string file = is_folder(path) ? path + "/config.json" : path;
  return parse_hugging_face_config(read_file(file), file);
}

StoredAdapterConfig parse_adapter_config(std::string_view text, const std::string& place) {
  const Json json = parse(text, place);
  const Reader file(json, place);
  const std::string type = file.text({"peft_type"}, "");
  if (type != "LORA")
    refuse(place, ": peft_type is '", type, "'; only LORA adapters are supported");
  Unsupported unsupported;
  for (const char* key : {"use_dora", "lora_bias", "use_qalora"})
    if (file.flag(key, false)) unsupported.emplace_back(key);
  for (const char* key : {"rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication",
                          "trainable_token_indices", "target_parameters"})
    if (const Json* value = file.find({key}); value && !value->empty())
      unsupported.emplace_back(key);
  // These also change the base weights, which then differ from those of the named base model.
  if (const Json* start = file.find({"init_lora_weights"}); start && start->is_string())
    for (const char* kind : {"pissa", "olora", "corda", "loftq"})
      if (start->get<std::string>().starts_with(kind))
        unsupported.push_back("init_lora_weights '" + start->get<std::string>() + "'");
  if (const std::string bias = file.text({"bias"}, "none"); bias != "none")
    unsupported.push_back("bias '" + bias + "'");
  if (!unsupported.empty()) refuse(place, ": not supported in adapters: ", join(unsupported));
  StoredAdapterConfig found{.base = file.text({"base_model_name_or_path"}, "")};
  found.lora.rank = file.needed({"r"}, kMostColumns);
  found.lora.alpha = file.real({"lora_alpha"}, 8);
  if (file.flag("use_rslora", false))  // alpha / sqrt(r)
    found.lora.alpha *= std::sqrt(static_cast<double>(found.lora.rank));
  const Json* dropout = file.find({"lora_dropout"});
  if (dropout && !(dropout->is_number() && *dropout >= 0 && *dropout < 1))
    refuse(place, ": lora_dropout wants a number of at least 0 and below 1");
  found.lora.dropout = dropout ? dropout->get<double>() : 0;
  return found;
}

StoredAdapterConfig read_adapter_config(const std::string& folder) {
  const std::string file = folder + "/adapter_config.json";
  return parse_adapter_config(read_file(file), file);
}

}  // namespace axonn
