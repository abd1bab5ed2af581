#include "axonn/train/stored_model.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "axonn/base/check.h"
#include "axonn/base/options.h"
#include "axonn/model/hugging_face.h"

namespace axonn {

namespace {

bool has_tokenizer(const std::string& folder) {
  return std::ranges::any_of(
      std::array{"tokenizer.json", "vocab.json", "tokenizer.model"},
      [&](const char* file) { return std::filesystem::exists(folder + '/' + file); });
}

}  // namespace

bool is_hugging_face(const std::string& path) {
  return path.ends_with(".json") || std::filesystem::exists(path + "/config.json");
}

Config stored_config(const CheckpointReader& reader) {
  Config config;
  OptionList list;
  list_options(config, list);
  Origins origins;
  read_toml_text(list, reader.text("config.toml"), reader.folder() + "/config.toml", origins);
  return config;
}

Config with_stored_model(Config config) {
  if (config.model.path.empty()) return config;
  const std::string path = config.model.path;
  const LoraConfig lora = config.model.lora;
  config.model = is_hugging_face(path) ? read_hugging_face_config(path)
                                       : stored_config(CheckpointReader(path)).model;
  if (config.model.lora.rank > 0)
    refuse("[model] path = '", path, "' holds adapters alone, of the model at '", config.model.path,
           "'; name that one");
  config.model.path = path;
  config.model.lora = lora;
  if (config.data.tokenizer == "bytes" && has_tokenizer(path)) config.data.tokenizer = path;
  return config;
}

}  // namespace axonn
