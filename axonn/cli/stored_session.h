#pragma once

#include <functional>
#include <memory>
#include <string>

#include "axonn/data/tokenizer.h"
#include "axonn/train/session.h"
#include "axonn/train/stored_model.h"

namespace CLI {
class App;
}

namespace axonn {

/// Flags of commands that look at a model without training it.
struct ModelFlags {
  std::string model, adapter, tokenizer, grid = "1,1,1,1", dtype;
};
void add_model_flags(CLI::App& app, ModelFlags& flags);

/// The model with what the flags ask for, of which warnings are said. Errors: as
/// open_stored_model().
StoredModel stored_model_of(const ModelFlags& flags);

/// The model's tokenizer; null where nobody named it, and the model's vocabulary is not of bytes.
std::shared_ptr<const Tokenizer> tokenizer_of(const StoredModel& model, const ModelFlags& flags);

/// Runs body once a rank of the model's grid, with its parameters set.
void with_model(const StoredModel& model, const std::function<void(Session&)>& body);

}  // namespace axonn
