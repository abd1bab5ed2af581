#include "axonn/train/stored_model.h"

#include <filesystem>

#include "axonn/base/options.h"
#include "axonn/model/hugging_face.h"

namespace axonn {

namespace {

bool is_hugging_face(const std::string& path) {
  return path.ends_with(".json") || std::filesystem::exists(path + "/config.json");
}

}  // namespace

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
  config.model = is_hugging_face(path) ? read_hugging_face_config(path)
                                       : stored_config(CheckpointReader(path)).model;
  config.model.path = path;
  return config;
}

}  // namespace axonn
