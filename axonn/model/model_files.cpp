#include "axonn/model/model_files.h"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/model/hugging_face.h"
#include "axonn/options/options_read.h"
#include "axonn/storage/checkpoint/checkpoint_source.h"
#include "axonn/storage/safetensors/safetensors_source.h"

namespace axonn {

namespace {

constexpr const char* kAdapterStem = "adapter_model";

bool is_hugging_face(const std::string& path) {
  return path.ends_with(".json") || path_exists(path + "/config.json");
}

bool is_peft(const std::string& path) { return path_exists(path + "/adapter_config.json"); }

bool has_tokenizer(const std::string& folder) {
  return std::ranges::any_of(std::array{"tokenizer.json", "vocab.json", "tokenizer.model"},
                             [&](const char* file) { return path_exists(folder + '/' + file); });
}

/// The layers that the tensors of a folder in PEFT's format adapt.
std::vector<std::string> adapted_layers(const std::string& path) {
  std::vector<std::string> layers;
  const SafetensorsFolder folder(path, kAdapterStem);
  for (const auto& [name, tensor] : folder.tensors())
    if (const std::string layer = adapted_layer(name);
        !layer.empty() && std::ranges::find(layers, layer) == layers.end())
      layers.push_back(layer);
  if (layers.empty()) refuse(path, " has no tensors of adapters");
  return layers;
}

}  // namespace

ModelFiles::ModelFiles(std::string path)
    : ModelFiles(path, is_hugging_face(path) ? Format::hugging_face
                       : is_peft(path)       ? Format::peft
                                             : Format::checkpoint) {}

ModelFiles ModelFiles::of_adapters(std::string path) {
  ModelFiles files = is_peft(path) ? ModelFiles(path, Format::peft) : ModelFiles(path);
  if (!files.adapters()) refuse(path, " holds a model, not adapters");
  return files;
}

ModelFiles::ModelFiles(std::string path, Format format)
    : path_(std::move(path)), format_(format), tokenizer_(has_tokenizer(path_) ? path_ : "bytes") {
  if (format == Format::hugging_face) {
    config_ = resolved(read_hugging_face_config(path_), 0, 0);
  } else if (format == Format::peft) {
    StoredAdapterConfig stored = read_adapter_config(path_);
    config_.lora = std::move(stored.lora);
    config_.lora.targets = adapted_layers(path_);
    base_ = std::move(stored.base);
  } else {
    checkpoint_.emplace(path_);
    std::string tokenizer = "bytes", dtype = "f32";
    OptionList list;
    list_options(config_, list);
    list.section("data", "");
    list.add("tokenizer", &tokenizer, {});
    list.section("training", "");
    list.add("dtype", &dtype, {});
    Origins origins;
    read_toml_text(list, checkpoint_->text("config.toml"), checkpoint_->folder() + "/config.toml",
                   origins, UnknownSections::skip_keys);
    config_ = resolved(config_, 0, 0);
    base_ = config_.path;
    if (!tokenizer.empty() || tokenizer_ == "bytes") tokenizer_ = tokenizer;
    if (dtype == "bf16") trained_in_ = StoredType::bf16;
  }
}

ModelFiles::Form ModelFiles::form() const {
  Form form{.type = trained_in_};
  if (checkpoint_) {
    if (!checkpoint_->has_text(kOriginName)) return form;
    const auto origin = nlohmann::json::parse(checkpoint_->text(kOriginName), nullptr, false);
    if (!origin.is_object())
      refuse(checkpoint_->folder(), '/', kOriginName, " is not a JSON object");
    for (const StoredType known : {StoredType::f32, StoredType::bf16, StoredType::f16})
      if (origin.value("type", "") == name_of(known)) form.type = known;
    form.prefix = origin.value("prefix", "");
    return form;
  }
  const SafetensorsFolder folder(path_, format_ == Format::peft ? kAdapterStem : "model");
  form.type = folder.tensors().begin()->second.entry->type;
  for (const auto& [name, tensor] : folder.tensors())
    if (tensor.entry->type != form.type) form.type = StoredType::f32;
  constexpr const char* kPrefix = "transformer.";
  if (config_.family == ModelFamily::gpt && folder.find(concat(kPrefix, "wte.weight")).entry)
    form.prefix = kPrefix;
  return form;
}

std::unique_ptr<ParameterSource> ModelFiles::source(const ModelConfig& model,
                                                    std::vector<StoredParameter> parameters) const {
  if (checkpoint_) return std::make_unique<CheckpointSource>(*checkpoint_, std::move(parameters));
  const bool peft = format_ == Format::peft;
  if (!is_folder(path_))
    refuse(path_, " gives only sizes; to read weights, give the path of their folder");
  return std::make_unique<SafetensorsSource>(
      SafetensorsFolder(path_, peft ? kAdapterStem : "model"), std::move(parameters),
      peft ? adapter_names(model) : base_names(model));
}

std::string to_text(const ModelFiles::Form& form) {
  return nlohmann::json{{"type", name_of(form.type)}, {"prefix", form.prefix}}.dump(2) + "\n";
}

}  // namespace axonn
