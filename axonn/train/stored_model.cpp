#include "axonn/train/stored_model.h"

#include <algorithm>
#include <array>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/model/hugging_face.h"
#include "axonn/model/stored_names.h"
#include "axonn/options/options.h"
#include "axonn/options/options_print.h"
#include "axonn/options/options_read.h"
#include "axonn/storage/safetensors/safetensors_folder.h"

namespace axonn {

bool has_tokenizer(const std::string& folder) {
  return std::ranges::any_of(std::array{"tokenizer.json", "vocab.json", "tokenizer.model"},
                             [&](const char* file) { return path_exists(folder + '/' + file); });
}

bool is_adapter_folder(const std::string& path) {
  return path_exists(path + "/adapter_config.json");
}

bool is_hugging_face(const std::string& path) {
  return path.ends_with(".json") || path_exists(path + "/config.json");
}

Config stored_config(const CheckpointReader& reader) {
  Config config;
  OptionList list;
  list_options(config, list);
  Origins origins;
  // A checkpoint may hold sections of other owners: of a study, or of a user's program.
  read_toml_text(list, reader.text("config.toml"), reader.folder() + "/config.toml", origins,
                 UnknownSections::skip);
  return config;
}

LoraConfig stored_lora(const std::string& path) {
  LoraConfig lora;
  if (is_adapter_folder(path)) {
    lora = read_adapter_config(path).lora;
    const SafetensorsFolder folder(path, "adapter_model");
    for (const auto& [name, tensor] : folder.tensors())
      if (const std::string layer = adapted_layer(name);
          !layer.empty() && std::ranges::find(lora.targets, layer) == lora.targets.end())
        lora.targets.push_back(layer);
    if (lora.targets.empty()) refuse(path, " has no tensors of adapters");
  } else {
    lora = stored_config(CheckpointReader(path)).model.lora;
    if (lora.rank == 0) refuse("[lora] path = '", path, "' holds a model, not adapters");
  }
  lora.path = path;
  return lora;
}

std::string stored_config_text(Config config, const Origins& origins) {
  config.model.lora.path.clear();  // the checkpoint holds the adapters itself
  if (config.model.path.empty()) return config_toml(config, origins);
  Origins all = origins;
  Config scratch;
  OptionList list;
  list_options(scratch, list);
  for (const Option& option : list.find("model")->options)
    if (!all.is_set(option.key())) all.set(option.key(), "model.path");
  return config_toml(config, all);
}

std::string stored_config_text(const ModelConfig& model, const std::string& tokenizer) {
  Config config;
  config.model = model;
  config.data.tokenizer = tokenizer;
  OptionList list;
  list_options(config, list);
  return "# The sizes of a converted model.\n\n" + to_toml(list, [](const Option& option) {
           const bool told = option.section() == "model" || option.key() == "data.tokenizer";
           return TomlNote{.comment = {}, .disabled = !told};
         });
}

Config with_stored_model(Config config) {
  if (!config.model.lora.path.empty()) {
    const double dropout = config.model.lora.dropout;
    config.model.lora = stored_lora(config.model.lora.path);
    config.model.lora.dropout = dropout;
  }
  if (config.model.path.empty()) return config;
  const std::string path = config.model.path;
  const LoraConfig lora = config.model.lora;
  std::string tokenizer = has_tokenizer(path) ? path : "bytes";
  if (is_hugging_face(path)) {
    config.model = read_hugging_face_config(path);
  } else {
    const Config stored = stored_config(CheckpointReader(path));
    config.model = stored.model;
    if (!stored.data.tokenizer.empty()) tokenizer = stored.data.tokenizer;
  }
  if (config.model.lora.rank > 0)
    refuse("[model] path = '", path, "' holds only adapters of the model at '", config.model.path,
           "'; set path to that model and [lora] path to the adapters");
  config.model.path = path;
  config.model.lora = lora;
  if (config.data.tokenizer == "bytes") config.data.tokenizer = tokenizer;
  return config;
}

StoredModel open_stored_model(const std::string& path, const std::string& adapter) {
  StoredModel model;
  if (is_hugging_face(path)) {
    model.config.model.path = path;
    model.config = with_stored_model(model.config);
  } else {
    model.reader.emplace(path);
    model.config = stored_config(*model.reader);
    // Device and transport of the training machine may not exist on this one.
    model.config.parallelism.device = DeviceKind::automatic;
    model.config.parallelism.transport = TransportKind::automatic;
  }
  if (adapter.empty()) return model;
  if (model.config.model.lora.rank > 0)
    refuse("--adapter: ", path, " holds adapters itself; give the path of their base model");
  model.config.model.path = path;
  model.config.model.lora = stored_lora(adapter);
  model.reader.reset();
  return model;
}

void load_parameters(LoadedModel& loaded, const StoredModel& model) {
  if (!model.reader) {
    loaded.initialise();
    return;
  }
  loaded.initialise_frozen();
  loaded.load(*model.reader);
}

}  // namespace axonn
