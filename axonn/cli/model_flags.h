#pragma once

#include <functional>
#include <memory>
#include <string>

#include "axonn/text/tokenizer.h"
#include "axonn/train/loaded_model.h"
#include "axonn/train/stored_model.h"

namespace CLI {
class App;
}

namespace axonn {

/// Flags of commands that run a model without training it.
struct ModelFlags {
  std::string model, adapter, tokenizer, grid = "1,1,1,1", dtype;
};
void add_model_flags(CLI::App& app, ModelFlags& flags);

/// Opens the model with the settings of the flags, and prints its warnings. Throws as
/// open_stored_model().
StoredModel stored_model_of(const ModelFlags& flags);

/// The tokenizer of the flags or of the model; null if neither is known and the vocabulary is not
/// that of bytes.
std::shared_ptr<const Tokenizer> tokenizer_of(const StoredModel& model, const ModelFlags& flags);

/// Runs body once per rank of the model's grid, with the parameters loaded.
void with_model(const StoredModel& model, const std::function<void(LoadedModel&)>& body);

}  // namespace axonn
