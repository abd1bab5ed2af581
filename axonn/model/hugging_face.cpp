#include "axonn/model/hugging_face.h"

#include <algorithm>
#include <array>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/model/families/family.h"
#include "axonn/model/json_reader.h"
#include "axonn/model/model.h"
#include "axonn/options/options.h"

namespace axonn {

namespace {

constexpr double kMostParameters = 1e18;  // of all experts, so that their count fits an int64

nlohmann::json or_null(std::optional<std::int64_t> number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

/// The keys that all families have. Token keys are written even if they are null: transformers
/// replaces a missing key by the default of the family's first model.
JsonObject common_config(const ModelConfig& model, const HuggingFaceDetails& details,
                         const ModelType& type) {
  return {{"architectures", nlohmann::json::array({type.architecture})},
          {"bos_token_id", or_null(details.begin_of_text)},
          {"eos_token_id", or_null(details.end_of_text)},
          {"initializer_range", model.init_std},
          {"model_type", type.name},
          {"tie_word_embeddings", model.tied},
          {"torch_dtype", details.type},
          {"use_cache", true},
          {"vocab_size", model.vocab}};
}

struct FoundType {
  const Family& family;
  const ModelType& type;
};

FoundType type_of(const JsonReader& file) {
  const std::string name = file.text({"model_type"}, "");
  if (name.empty())
    refuse(file.place(), ": model_type is missing; is it the config.json of a model?");
  std::vector<std::string_view> names;
  for (const Family* const family : families())
    for (const ModelType& type : family->types()) {
      if (type.name == name) return {*family, type};
      names.push_back(type.name);
    }
  refuse(file.place(), ": model_type is '", name, "'; supported are ", join(names));
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

ModelConfig config_of(const nlohmann::json& json, const std::string& place) {
  const JsonReader file(json, place);
  const auto& [family, type] = type_of(file);
  Unsupported unsupported;
  ModelConfig model = family.read_config(file, type, unsupported);
  if (type.read) type.read(file, model, unsupported);
  if (file.find({"quantization_config"})) unsupported.emplace_back("quantization_config");
  if (!unsupported.empty()) refuse(place, ": not supported in models: ", join(unsupported));
  check_whole(model, place);
  return model;
}

}  // namespace

ModelConfig parse_hugging_face_config(std::string_view text, const std::string& place) {
  return config_of(parse_json_object(text, place), place);
}

ModelConfig read_hugging_face_config(const std::string& path) {
  const std::string file = is_folder(path) ? path + "/config.json" : path;
  return config_of(read_json_object(file), file);
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
  if (type.check) type.check(model, unsupported);
  if (!unsupported.empty())
    refuse("[model] has values that Hugging Face's type ", type.name,
           " does not support: ", join(unsupported));
  JsonObject out = common_config(model, details, type);
  family->write_config(model, out);
  if (type.write) type.write(model, out);
  return out.dump(2) + "\n";
}

std::string to_generation_config(const HuggingFaceDetails& details) {
  nlohmann::json out = nlohmann::json::object();
  if (details.begin_of_text) out["bos_token_id"] = *details.begin_of_text;
  if (details.end_of_text) out["eos_token_id"] = *details.end_of_text;
  return out.dump(2) + "\n";
}

TensorNames base_names(const ModelConfig& model) {
  const Family* const family = find_family(model);
  AXONN_CHECK(family, "base_names: a registered family has no Hugging Face format");
  const ModelType* const type = find_type(*family, model);
  const auto is_passed_over = [tied = model.tied](std::string_view tensor) {
    return (tied && tensor == "lm_head.weight") ||
           std::ranges::any_of(
               std::array{".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"},
               [&](const char* buffer) { return tensor.ends_with(buffer); });
  };
  return {.of = [family, type,
                 model](const std::string& name) { return family->stored_name(model, type, name); },
          .passed_over = is_passed_over,
          .config = "config.json",
          .numbers = type && type->numbers ? type->numbers(model) : std::vector<StoredNumber>()};
}

}  // namespace axonn
