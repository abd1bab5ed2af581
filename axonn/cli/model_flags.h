#pragma once

#include <functional>
#include <memory>
#include <string>

#include "axonn/text/tokenizer.h"
#include "axonn/train/loaded_model.h"
#include "axonn/train/stored_config.h"

namespace CLI {
class App;
}

namespace axonn {

/// Flags of commands that run a model without training it.
struct ModelFlags {
  std::string model, adapter, tokenizer, grid = "1,1,1,1", dtype;
};
void add_model_flags(CLI::App& app, ModelFlags& flags);

/// The config of the model at `path` (config_of_model()). Prints one line for each damaged
/// checkpoint that was skipped.
Config open_model(const std::string& path, const std::string& adapter);

/// The same with the settings of the flags.
Config open_model(const ModelFlags& flags);

/// The tokenizer of the flags or of the model; null if neither is known and the vocabulary is not
/// that of bytes.
std::shared_ptr<const Tokenizer> tokenizer_of(const Config& config, const ModelFlags& flags);

/// Runs body once per rank of the config's grid, with the parameters loaded.
void with_model(const Config& config, const std::function<void(LoadedModel&)>& body);

}  // namespace axonn
