#include "axonn/train/stored_model.h"

#include "axonn/base/options.h"

namespace axonn {

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
  config.model = stored_config(CheckpointReader(path)).model;
  config.model.path = path;
  return config;
}

}  // namespace axonn
