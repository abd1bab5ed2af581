#include "axonn/model/hugging_face.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/model/model.h"
#include "axonn/options/options.h"

namespace axonn {

namespace {

using Json = nlohmann::json;  // sorted by key, as transformers writes it

constexpr std::size_t kMostBytes = 1 << 20;  // of a file; published ones have a few thousand
constexpr int kDeepest = 16;                 // levels of nested objects; published files have 3
// With sizes up to these, every count of parameters fits an int64.
constexpr std::int64_t kMostLayers = 10'000, kMostColumns = 1 << 22, kMostRows = 1 << 30;
constexpr std::array<std::string_view, 5> kTypes = {"gpt2", "llama", "mistral", "qwen2", "qwen3"};

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

  double real(Keys spellings, double otherwise) const {
    const auto fits = [](const Json& value) {
      return value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0;
    };
    return get<double>(spellings, fits, "a number above 0").value_or(otherwise);
  }

  bool flag(const char* key, bool otherwise) const {
    return get<bool>({key}, &Json::is_boolean, "true or false").value_or(otherwise);
  }

  std::string text(Keys spellings, const char* otherwise) const {
    return get<std::string>(spellings, &Json::is_string, "a string").value_or(otherwise);
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

/// Reads rope_scaling, or in newer files rope_parameters, which also has rope_theta.
void read_rope(const Reader& file, ModelConfig& model, Unsupported& unsupported) {
  const auto read_common = [&](const Reader& from) {
    model.rope_theta = from.real({"rope_theta"}, model.rope_theta);
    if (from.real({"partial_rotary_factor"}, 1) != 1)
      unsupported.push_back("partial_rotary_factor other than 1");
  };
  read_common(file);
  const bool newer = file.find({"rope_parameters"});
  const std::optional<Reader> rope = file.object(newer ? "rope_parameters" : "rope_scaling");
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

/// The window of the layers, or 0. In Mistral all layers have one, in Qwen those from
/// max_window_layers on; newer files list each layer's kind.
std::int64_t read_window(const Reader& file, const std::string& type, const ModelConfig& model,
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
  if (type == "mistral") return window;
  if (type == "llama" || !file.flag("use_sliding_window", false)) return 0;
  const Json* first = file.find({"max_window_layers"});
  const bool known = first && first->is_number_unsigned();
  const std::uint64_t from = known ? first->get<std::uint64_t>() : model.layers;
  if (from > 0 && from < static_cast<std::uint64_t>(model.layers))
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

ModelConfig read_llama(const Reader& file, const std::string& type, Unsupported& unsupported) {
  ModelConfig model;
  model.family = ModelFamily::llama;
  model.layers = file.needed({"num_hidden_layers"}, kMostLayers);
  model.hidden = file.needed({"hidden_size"}, kMostColumns);
  model.heads = file.needed({"num_attention_heads"}, kMostColumns);
  model.kv_heads = file.integer({"num_key_value_heads"}, kMostColumns).value_or(model.heads);
  // Qwen3's heads are 128 wide unless the file says otherwise.
  model.head_dim = file.integer({"head_dim"}, kMostColumns).value_or(type == "qwen3" ? 128 : 0);
  model.ffn = file.needed({"intermediate_size"}, kMostColumns);
  model.vocab = file.needed({"vocab_size"}, kMostRows);
  model.positions = file.needed({"max_position_embeddings"}, kMostRows);
  model.tied = file.flag("tie_word_embeddings", false);
  model.norm_eps = file.real({"rms_norm_eps"}, 1e-6);
  model.init_std = file.real({"initializer_range"}, 0.02);
  model.qkv_bias = type == "qwen2";
  if (type == "qwen3") model.qk_norm = QkNormKind::head;
  model.window = read_window(file, type, model, unsupported);
  read_rope(file, model, unsupported);
  const std::string activation = file.text({"hidden_act"}, "silu");
  if (activation != "silu") unsupported.push_back("hidden_act '" + activation + "'");
  // In Llama and Qwen3, attention_bias adds a bias to the output projection too.
  for (const char* key : {"attention_bias", "mlp_bias"})
    if (file.flag(key, false)) unsupported.emplace_back(key);
  return model;
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
  if (model.qk_norm != QkNormKind::none && model.qkv_bias)
    refuse("[model] qk_norm and qkv_bias together are in no model type of Hugging Face: Qwen3 has ",
           "only the first, Qwen2 only the second");
  if (model.qk_norm != QkNormKind::none) return {"Qwen3ForCausalLM", "qwen3"};
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
    out["rope_scaling"] = {{"factor", model.rope.factor},
                           {"high_freq_factor", model.rope.high_freq_factor},
                           {"low_freq_factor", model.rope.low_freq_factor},
                           {"original_max_position_embeddings", model.rope.original_positions},
                           {"rope_type", "llama3"}};
  return out;
}

bool ends_with_one_of(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view end) { return name.ends_with(end); });
}

StoredName stored_name(ModelFamily family, const std::string& parameter) {
  if (family == ModelFamily::gpt)
    return {.names = {parameter, "transformer." + parameter},
            .transposed =
                ends_with_one_of(parameter, {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"})};
  constexpr std::string_view kPrefix = "model.";  // absent if the model was saved without its head
  StoredName stored{.names = {parameter}};
  if (parameter.starts_with(kPrefix)) stored.names.push_back(parameter.substr(kPrefix.size()));
  return stored;
}

StoredName stored_adapter_name(ModelFamily family, const std::string& parameter) {
  StoredName stored = stored_name(family, parameter);
  stored.transposed = false;  // even for a Conv1D, A is (r, in) and B is (out, r)
  // PEFT names modules as in the model with its head, where GPT-2's have the prefix.
  if (family == ModelFamily::gpt) std::ranges::reverse(stored.names);
  for (std::string& name : stored.names) name = "base_model.model." + name;
  return stored;
}

}  // namespace

ModelConfig parse_hugging_face_config(std::string_view text, const std::string& place) {
  const Json json = parse(text, place);
  const Reader file(json, place);
  const std::string type = file.text({"model_type"}, "");
  if (type.empty()) refuse(place, ": model_type is missing; is it the config.json of a model?");
  if (std::ranges::find(kTypes, type) == kTypes.end())
    refuse(place, ": model_type is '", type, "'; supported are ", join(kTypes));
  Unsupported unsupported;
  ModelConfig model =
      type == "gpt2" ? read_gpt2(file, unsupported) : read_llama(file, type, unsupported);
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

std::string to_hugging_face_config(const ModelConfig& given, const HuggingFaceDetails& details) {
  const ModelConfig model = resolved(given, 0, 0);
  if (architecture_of(model.family))
    refuse("models of family ", model_families()[static_cast<int>(model.family)],
           " have no Hugging Face format; convert them to a checkpoint");
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

std::string adapted_layer(std::string_view parameter) {
  const std::size_t end = std::min(parameter.find(".lora_A."), parameter.find(".lora_B."));
  if (end == parameter.npos) return {};
  const std::string_view module = parameter.substr(0, end);
  return std::string(module.substr(module.rfind('.') + 1));
}

TensorNames base_names(const ModelConfig& config) {
  const auto is_buffer = [tied = config.tied](std::string_view tensor) {
    return (tied && tensor == "lm_head.weight") ||
           ends_with_one_of(tensor, {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"});
  };
  return {.of = [family = config.family](
                    const std::string& parameter) { return stored_name(family, parameter); },
          .passed_over = is_buffer,
          .config = "config.json"};
}

TensorNames adapter_names(const ModelConfig& config) {
  return {
      .of = [family = config.family](
                const std::string& parameter) { return stored_adapter_name(family, parameter); },
      .passed_over = [](std::string_view) { return false; },
      .config = "adapter_config.json"};
}

}  // namespace axonn
