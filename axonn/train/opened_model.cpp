#include "axonn/train/opened_model.h"

#include <filesystem>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/comm/self.h"
#include "axonn/model/hugging_face.h"
#include "axonn/model/model.h"
#include "axonn/train/merged_source.h"
#include "axonn/train/stored_model.h"
#include "axonn/train/stored_tensors.h"

namespace axonn {

namespace {

/// Returns the parameters that training such a model trains: all, or those of its adapters.
std::vector<ParameterSpec> parameters_of(const ModelConfig& config) {
  const auto world = make_self();
  const Grid grid(*world, {});
  const auto model = make_model(config, grid);
  std::vector<ParameterSpec> all;
  for (const ParameterGroup* group : trained_groups(*model))
    for (const auto& parameter : group->parameters()) all.push_back(parameter->spec());
  return all;
}

/// Returns the narrowest type that can hold all tensors.
StoredType type_of(const SafetensorsFolder& folder) {
  const StoredType first = folder.tensors().begin()->second.entry->type;
  for (const auto& [name, tensor] : folder.tensors())
    if (tensor.entry->type != first) return StoredType::f32;
  return first;
}

struct HeldFolder {
  SafetensorsFolder folder;
  std::unique_ptr<FolderSource> source;
};

/// Makes a folder's tensors the source of `model`.
void take_tensors(OpenedModel& model, SafetensorsFolder folder, const TensorNames& names) {
  const auto held = std::make_shared<HeldFolder>(HeldFolder{std::move(folder), {}});
  std::vector<const ParameterSpec*> specs;
  for (const ParameterSpec& spec : model.parameters) specs.push_back(&spec);
  std::vector<WantedSlices> found = find_tensors(held->folder, specs, names);
  std::map<std::string, WantedSlices, std::less<>> tensors;
  for (std::size_t i = 0; i < specs.size(); ++i) tensors[specs[i]->name] = std::move(found[i]);
  held->source = std::make_unique<FolderSource>(std::move(tensors));
  model.type = type_of(held->folder);
  model.source = {held, held->source.get()};
}

struct HeldCheckpoint {
  CheckpointReader reader;
  std::unique_ptr<CheckpointSource> source;
};

/// Reads what origin_text() wrote about the folder that a checkpoint was made from.
void take_origin(OpenedModel& model, const CheckpointReader& reader) {
  if (!reader.has_text(kOriginName)) return;
  const auto origin = nlohmann::json::parse(reader.text(kOriginName), nullptr, false);
  if (!origin.is_object()) refuse(reader.folder(), '/', kOriginName, " is not a JSON object");
  const std::string type = origin.value("type", "");
  for (const StoredType known : {StoredType::f32, StoredType::bf16, StoredType::f16})
    if (type == name_of(known)) model.type = known;
  model.prefix = origin.value("prefix", "");
}

OpenedModel open_checkpoint(const std::string& path) {
  const auto held = std::make_shared<HeldCheckpoint>(HeldCheckpoint{CheckpointReader(path), {}});
  const Config config = stored_config(held->reader);
  OpenedModel model{.path = held->reader.folder(),
                    .config = resolved(config.model, 0, config.training.seq_len),
                    .base = config.model.path,
                    .tokenizer = config.data.tokenizer};
  model.parameters = parameters_of(model.config);
  std::vector<CheckpointParameter> named;
  for (const ParameterSpec& spec : model.parameters)
    named.push_back({spec.name, spec.layout.rows, spec.layout.cols});
  held->source = std::make_unique<CheckpointSource>(held->reader, named);
  model.source = {held, held->source.get()};
  if (config.training.dtype == DType::bf16) model.type = StoredType::bf16;
  take_origin(model, held->reader);
  return model;
}

}  // namespace

OpenedModel open_model(const std::string& path) {
  if (!is_hugging_face(path)) return open_checkpoint(path);
  OpenedModel model{
      .path = path, .hugging_face = true, .config = resolved(read_hugging_face_config(path), 0, 0)};
  if (has_tokenizer(path)) model.tokenizer = std::filesystem::absolute(path).lexically_normal();
  model.parameters = parameters_of(model.config);
  SafetensorsFolder folder(path);
  constexpr const char* kPrefix = "transformer.";
  if (model.config.family == ModelFamily::gpt && folder.find(concat(kPrefix, "wte.weight")).entry)
    model.prefix = kPrefix;
  take_tensors(model, std::move(folder), base_names(model.config));
  return model;
}

OpenedModel open_adapters(const std::string& path, const ModelConfig& base) {
  if (!is_adapter_folder(path)) {
    OpenedModel adapters = open_checkpoint(path);
    if (adapters.config.lora.rank == 0) refuse(path, " holds a model, not adapters");
    return adapters;
  }
  OpenedModel adapters{.path = path, .hugging_face = true, .config = base};
  adapters.base = read_adapter_config(path).base;
  adapters.config.lora = stored_lora(path);
  adapters.parameters = parameters_of(adapters.config);
  take_tensors(adapters, SafetensorsFolder(path, "adapter_model"), adapter_names(adapters.config));
  return adapters;
}

OpenedModel merged(OpenedModel base, const OpenedModel& adapters, int threads) {
  base.source = std::make_shared<MergedSource>(base, adapters, threads);
  return base;
}

std::string origin_text(const OpenedModel& model) {
  return nlohmann::json{{"type", name_of(model.type)}, {"prefix", model.prefix}}.dump(2) + "\n";
}

}  // namespace axonn
