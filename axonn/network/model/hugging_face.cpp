#include "axonn/network/model/hugging_face.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/json_reader.h"
#include "axonn/network/model/model.h"

namespace axonn {

namespace {

/// Keys that change nothing here. What a program does with a model is not the model: its tokens and
/// texts (which the tokenizer's files have), its training, heads for other tasks.
constexpr std::array<std::string_view, 46> kHarmlessKeys = {
    // Who wrote the file, and with what.
    "_name_or_path", "architectures", "auto_map", "transformers_version", "unsloth_fixed",
    "unsloth_version", "tokenizer_class", "torch_dtype", "dtype", "_attn_implementation",
    "_experts_implementation", "attn_implementation", "use_flash_attn",
    // Special tokens, which generation_config.json and the tokenizer's files have.
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "decoder_start_token_id",
    "cls_token_id", "prefix",
    // What a call of the model returns, and how it computes it.
    "use_cache", "output_attentions", "output_hidden_states", "output_router_logits", "return_dict",
    "return_dict_in_generate", "torchscript", "pretraining_tp", "gradient_checkpointing",
    "use_return_dict", "chunk_size_feed_forward", "reorder_and_upcast_attn",
    // Training.
    "router_aux_loss_coef",
    // Heads for classification and other tasks.
    "finetuning_task", "id2label", "label2id", "num_labels", "problem_type", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "task_specific_params", "is_decoder", "is_encoder_decoder"};

/// A key of the dropout that a model was trained with, which changes nothing here either.
struct DropoutKey {
  const char* name;
  std::string_view type = {};  // of which transformers takes 0.1 for a missing key; of others 0
};

constexpr std::array kDropoutKeys = {DropoutKey{"attn_pdrop", "gpt2"},
                                     DropoutKey{"embd_pdrop", "gpt2"},
                                     DropoutKey{"resid_pdrop", "gpt2"},
                                     DropoutKey{"attention_dropout"},
                                     DropoutKey{"hidden_dropout"},
                                     DropoutKey{"residual_dropout"},
                                     DropoutKey{"embedding_dropout"},
                                     DropoutKey{"dropout", "opt"},
                                     DropoutKey{"layerdrop"}};

constexpr std::array<std::string_view, 2> kHeads = {"lm_head.weight",
                                                    "language_model.lm_head.weight"};

/// A model that also sees images, whose text model is the object text_config.
struct Wrapper {
  std::string_view name;  ///< its model_type
  std::string_view text;  ///< that of the text model, if the object does not say
  bool tied = true;       ///< if the file does not say
};
constexpr std::array kWrappers = {Wrapper{"gemma3", "gemma3_text"},
                                  Wrapper{"gemma4", "gemma4_text"},
                                  Wrapper{"mistral3", "mistral"},
                                  Wrapper{"llama4", "llama4_text", false},
                                  Wrapper{"qwen3_5", "qwen3_5_text", false},
                                  Wrapper{"qwen3_5_moe", "qwen3_5_moe_text", false}};

/// In front of the names of its other tensors.
constexpr std::array<std::string_view, 10> kTowers = {
    "vision_tower.",          "vision_model.",
    "multi_modal_projector.", "model.vision_tower.",
    "model.audio_tower.",     "model.embed_vision.",
    "model.embed_audio.",     "visual.",
    "model.visual.",          "model.multi_modal_projector."};

constexpr double kMostParameters = 1e18;  // of all experts, so that their count fits an int64

nlohmann::json or_null(std::optional<std::int64_t> number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

/// As transformers writes one token or several; null if there are none.
nlohmann::json number_or_list(const std::vector<std::int64_t>& tokens) {
  if (tokens.size() > 1) return tokens;
  return tokens.empty() ? nlohmann::json() : nlohmann::json(tokens.front());
}

/// The keys that all families have. Token keys are written even if they are null: transformers
/// replaces a missing key by the default of the family's first model.
JsonObject common_config(const ModelConfig& model, const HuggingFaceDetails& details,
                         const ModelType& type) {
  return {{"architectures", nlohmann::json::array({type.architecture})},
          {"bos_token_id", or_null(details.begin_of_text)},
          {"eos_token_id", number_or_list(details.ends)},
          {"initializer_range", model.init_std},
          {"model_type", type.name},
          {"pad_token_id", or_null(details.pad)},
          {"tie_word_embeddings", model.tied},
          {"torch_dtype", details.type},
          {"use_cache", true},
          {"vocab_size", model.vocab}};
}

/// The key by which transformers reads layers as bitsandbytes stored them.
nlohmann::json nf4_config(const HuggingFaceDetails& details) {
  return {{"quant_method", "bitsandbytes"},
          {"load_in_4bit", true},
          {"load_in_8bit", false},
          {"_load_in_4bit", true},
          {"_load_in_8bit", false},
          {"bnb_4bit_quant_type", "nf4"},
          {"bnb_4bit_use_double_quant", false},
          {"bnb_4bit_quant_storage", "uint8"},
          {"bnb_4bit_compute_dtype", details.type},
          {"llm_int8_skip_modules", nullptr},
          {"llm_int8_threshold", 6.0}};
}

struct FoundType {
  const Family& family;
  const ModelType& type;
};

FoundType type_of(const JsonReader& file) {
  const std::string name = file.text({"model_type"}, "");
  if (name.empty())
    refuse(file.location(), ": model_type is missing; is it the config.json of a model?");
  std::vector<std::string_view> names;
  for (const Family* const family : families())
    for (const ModelType& type : family->types()) {
      if (type.name == name) return {*family, type};
      names.push_back(type.name);
    }
  refuse(file.location(), ": model_type is '", name, "'; supported are ", join(names));
}

/// The text model of a model that also sees images; as in transformers 5, the outer object says
/// whether it is tied. Null: the object describes a text model.
nlohmann::json text_model(const nlohmann::json& json) {
  const auto name = json.find("model_type");
  const auto wrapper = std::ranges::find_if(
      kWrappers, [&](const Wrapper& one) { return name != json.end() && *name == one.name; });
  if (wrapper == kWrappers.end()) return nullptr;
  nlohmann::json text = json.value("text_config", nlohmann::json::object());
  if (!text.is_object()) return nullptr;
  text.emplace("model_type", wrapper->text);
  text["tie_word_embeddings"] = json.value("tie_word_embeddings", nlohmann::json(wrapper->tied));
  for (const char* const key : {"quantization_config", "quantization"})
    if (json.contains(key)) text[key] = json[key];
  return text;
}

/// Weights that the folder's readers unpack are read; others are not.
void read_quantization(const JsonReader& file, Unsupported& unsupported,
                       std::vector<std::string>* notes) {
  if (file.find({"quantization"})) unsupported.emplace_back("quantization");  // of mlx-lm
  const nlohmann::json* const config = file.find({"quantization_config"});
  if (!config) return;
  const std::string method = config->is_object() ? config->value("quant_method", "") : "";
  const bool blocks = method == "fp8" && config->value("weight_block_size", nlohmann::json()) ==
                                             nlohmann::json{128, 128};
  if (method != "mxfp4" && method != "bitsandbytes" && !blocks)
    return unsupported.push_back(concat("quantization_config with quant_method '", method,
                                        "' (mxfp4 and bitsandbytes are, and fp8 with ",
                                        "weight_block_size [128, 128])"));
  if (notes)
    notes->push_back(
        concat(file.location(), ": weights in ", method, " are read as the values that ",
               "they stand for; they are trained and written as other weights",
               method == "mxfp4" ? "; quantize = \"file\" keeps them as they are" : ""));
}

/// Experts that no layer has are none.
void forget_unused_experts(ModelConfig& model) {
  for (std::int64_t layer = 0; layer < model.layers + model.mtp_layers; ++layer)
    if (model.has_experts(layer)) return;
  model.experts = model.experts_per_token = model.expert_ffn = model.shared_ffn = 0;
  model.shared_gate = false;
  model.expert_groups = model.expert_groups_per_token = model.expert_step = 1;
  model.dense_layers = {};
}

ModelConfig config_of(const nlohmann::json& json, const std::string& location,
                      std::vector<std::string>* notes) {
  if (const nlohmann::json text = text_model(json); !text.is_null()) {
    if (notes)
      notes->push_back(concat(location, ": only the text model of ", json["model_type"].dump(),
                              " is read, and written; its tensors for images are passed over"));
    return config_of(text, location + ", text_config", notes);
  }
  const JsonReader file(json, location);
  const auto& [family, type] = type_of(file);
  Unsupported unsupported;
  ModelConfig model = family.read_config(file, type, unsupported);
  if (type.read) type.read(file, model, unsupported);
  forget_unused_experts(model);
  read_quantization(file, unsupported, notes);
  if (!file.flag("is_causal", true)) unsupported.emplace_back("is_causal false");
  if (!unsupported.empty()) refuse(location, ": not supported in models: ", join(unsupported));
  check_whole(model, location);
  for (const DropoutKey& key : kDropoutKeys) file.find({key.name});  // unread_keys_of() has them
  if (const auto unread = file.unread(kHarmlessKeys); notes && !unread.empty())
    notes->push_back(concat(location, ": not read, since models of type ", type.name,
                            " have no such keys: ", join(unread)));
  return model;
}

constexpr const char* kMtpEmbedding = ".embed_tokens.weight";
constexpr const char* kMtpHead = ".shared_head.head.weight";

/// Whether a tensor of a layer that predicts further tokens is the model's embedding or output
/// layer once more.
bool is_shared_with_mtp(std::string_view tensor, const ModelConfig& model) {
  return is_beyond(tensor, model.layers) &&
         (tensor.ends_with(kMtpEmbedding) || tensor.ends_with(kMtpHead));
}

/// These tensors, and the parameters that they are.
std::vector<std::pair<std::string, std::string>> copies_of_mtp(const Family& family,
                                                               const ModelConfig& model,
                                                               const ModelType::Further& further) {
  std::vector<std::pair<std::string, std::string>> all;
  if (further.named) return all;
  const std::string embedding(family.embedding);
  for (std::int64_t i = model.layers; i < model.layers + model.mtp_layers; ++i) {
    const std::string layer = concat("model.layers.", i);
    all.emplace_back(layer + kMtpEmbedding, embedding);
    all.emplace_back(layer + kMtpHead, model.tied ? embedding : "lm_head.weight");
  }
  return all;
}

/// Whether a tensor makes keys or values of a layer that uses those of another one; published files
/// have some.
bool makes_unused_keys(std::string_view tensor, const ModelConfig& model) {
  constexpr std::string_view kLayers = "layers.", kAttention = ".self_attn.";
  const std::size_t at = tensor.find(kLayers);
  if (model.shared_kv_layers == 0 || at == tensor.npos) return false;
  tensor.remove_prefix(at + kLayers.size());
  std::int64_t layer = 0;
  const char* const end = tensor.data() + tensor.size();
  const auto [rest, error] = std::from_chars(tensor.data(), end, layer);
  tensor = std::string_view(rest, static_cast<std::size_t>(end - rest));
  if (error != std::errc() || layer >= model.layers || model.keys_of(layer) == layer ||
      !tensor.starts_with(kAttention))
    return false;
  tensor.remove_prefix(kAttention.size());
  return std::ranges::any_of(std::array{"k_proj.", "v_proj.", "k_norm.", "v_norm."},
                             [&](const char* product) { return tensor.starts_with(product); });
}

std::string config_file(const std::string& path) {
  return is_folder(path) ? path + "/config.json" : path;
}

UnreadTrainingKeys unread_keys_of(const nlohmann::json& json) {
  if (const nlohmann::json text = text_model(json); !text.is_null()) return unread_keys_of(text);
  const nlohmann::json type = json.value("model_type", nlohmann::json());
  const auto number = [&](const char* name, double otherwise) {
    const auto found = json.find(name);
    return found != json.end() && found->is_number() ? found->get<double>() : otherwise;
  };
  UnreadTrainingKeys unread;
  for (const auto& [name, of_type] : kDropoutKeys)
    if (const double value = number(name, !of_type.empty() && type == of_type ? 0.1 : 0); value > 0)
      unread.dropout.push_back(concat(name, " = ", value));
  if (json.value("output_router_logits", nlohmann::json()) == true)
    unread.balance = number("router_aux_loss_coef", 0);
  return unread;
}

}  // namespace

void check_whole(const ModelConfig& model, const std::string& location) {
  if (model.heads * model.head_width() > kMostColumns)
    refuse(location, ": ", model.heads, " heads of ", model.head_width(), " are too wide");
  const double experts = static_cast<double>(model.experts) * static_cast<double>(model.layers) *
                         static_cast<double>(model.hidden) * static_cast<double>(model.expert_ffn);
  if (experts > kMostParameters) refuse(location, ": the experts have too many parameters");
  try {
    validate(model);
  } catch (const UsageError& error) {
    refuse(location, ": ", error.what());
  }
}

ModelConfig parse_hugging_face_config(std::string_view text, const std::string& location,
                                      std::vector<std::string>* notes) {
  return config_of(parse_json_object(text, location), location, notes);
}

ModelConfig read_hugging_face_config(const std::string& path, std::vector<std::string>* notes) {
  const std::string file = config_file(path);
  return config_of(read_json_object(file), file, notes);
}

UnreadTrainingKeys unread_training_keys(std::string_view text, const std::string& location) {
  return unread_keys_of(parse_json_object(text, location));
}

UnreadTrainingKeys read_unread_training_keys(const std::string& path) {
  return unread_keys_of(read_json_object(config_file(path)));
}

std::string to_hugging_face_config(const ModelConfig& given, const HuggingFaceDetails& details) {
  const ModelConfig model = resolved(given, 0, 0);
  const Family* const family = find_family(model);
  if (!family)
    refuse("models of family ", model_families()[static_cast<int>(model.family)],
           " have no Hugging Face format; convert them to a checkpoint");
  AXONN_CHECK(model.mup_base == 0, "to_hugging_face_config: muP has no keys there");
  AXONN_CHECK(model.layers > 0 && model.vocab > 0 && model.positions > 0,
              "to_hugging_face_config: wanted layers, vocab and positions above 0");
  const ModelType& type = need_type(*family, model);
  Unsupported unsupported;
  if (family->check) family->check(model, type, unsupported);
  if (type.check) type.check(model, unsupported);
  if (!unsupported.empty())
    refuse("[model] has values that Hugging Face's type ", type.name,
           " does not support: ", join(unsupported));
  JsonObject out = common_config(model, details, type);
  family->write_config(model, type, out);
  if (type.write) type.write(model, out);
  if (details.nf4) out["quantization_config"] = nf4_config(details);
  return out.dump(2) + "\n";
}

std::string to_generation_config(const HuggingFaceDetails& details) {
  nlohmann::json out = nlohmann::json::object();
  if (details.begin_of_text) out["bos_token_id"] = *details.begin_of_text;
  if (!details.ends.empty()) out["eos_token_id"] = number_or_list(details.ends);
  if (details.pad) out["pad_token_id"] = *details.pad;
  return out.dump(2) + "\n";
}

bool is_beyond(std::string_view name, std::int64_t layers) {
  constexpr std::string_view kLayers = "model.layers.";
  std::int64_t layer = 0;
  return name.starts_with(kLayers) &&
         std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer).ec ==
             std::errc() &&
         layer >= layers;
}

TensorNames base_names(const ModelConfig& model) {
  const Family* const family = find_family(model);
  AXONN_CHECK(family, "base_names: a registered family has no Hugging Face format");
  const ModelType* const type = find_type(*family, model);
  const auto further = type ? type->further : ModelType::Further{};
  const auto is_passed_over = [=, tied = model.tied](std::string_view tensor) {
    if (further.named && model.mtp_layers == 0 &&
        (tensor.starts_with("mtp.") || tensor.starts_with("model.mtp.")))
      return true;
    if (further.key && !further.named &&
        (is_beyond(tensor, model.layers + model.mtp_layers) || is_shared_with_mtp(tensor, model)))
      return true;
    if (makes_unused_keys(tensor, model)) return true;
    const auto begins = [&](std::string_view tower) { return tensor.starts_with(tower); };
    return (tied && std::ranges::find(kHeads, tensor) != kHeads.end()) ||
           std::ranges::any_of(kTowers, begins) ||
           std::ranges::any_of(
               std::array{".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"},
               [&](const char* buffer) { return tensor.ends_with(buffer); });
  };
  const auto name_of = [family, type, model](const std::string& name) {
    StoredName stored = family->stored_name(model, type, name);
    if (model.tied && name == family->embedding)
      stored.names.insert(stored.names.end(), kHeads.begin(), kHeads.end());
    return stored;
  };
  return {.of = name_of,
          .passed_over = is_passed_over,
          .config = "config.json",
          .numbers = type && type->numbers ? type->numbers(model) : std::vector<StoredNumber>(),
          .copies = copies_of_mtp(*family, model, further)};
}

bool has_mtp_layers(const ModelConfig& model, const SafetensorsFolder& folder) {
  const TensorNames names = base_names(model);
  for (std::int64_t i = model.layers; i < model.layers + model.mtp_layers; ++i) {
    const auto spelled = names.of(concat("model.layers.", i, ".eh_proj.weight")).names;
    if (std::ranges::none_of(
            spelled, [&](const std::string& name) { return folder.find(name).entry != nullptr; }))
      return false;
  }
  return true;
}

bool has_own_head(const ModelConfig& model, const SafetensorsFolder& folder) {
  const Family* const family = find_family(model);
  if (!model.tied || !family) return false;
  const auto is_head = [](const std::string& name) {
    return std::ranges::find(kHeads, name) != kHeads.end();
  };
  SafetensorsFolder::Tensor head = folder.find(std::string(kHeads[0]));
  if (!head.entry) head = folder.find(std::string(kHeads[1]));
  if (!head.entry) return false;
  for (const std::string& name : base_names(model).of(std::string(family->embedding)).names)
    if (const auto embedding = folder.find(name); embedding.entry && !is_head(name))
      return !same_values(head, embedding);
  return false;
}

}  // namespace axonn
