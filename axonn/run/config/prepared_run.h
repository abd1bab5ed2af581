#pragma once

#include <utility>

#include "axonn/run/config/config.h"

namespace axonn {

/// A configuration that is complete: Training and LoadedModel take nothing else. prepared() makes
/// one of what a user wrote, prepared_model() of what a stored model brings.
class PreparedRun {
 public:
  const Config& config() const { return config_; }
  const Config* operator->() const { return &config_; }

 private:
  explicit PreparedRun(Config config) : config_(std::move(config)) {}
  friend PreparedRun prepared(Config config);
  friend PreparedRun prepared_model(Config config);
  friend PreparedRun still_prepared(Config config);

  Config config_;
};

/// Validates a training's config and fills in every value that follows from others, or from the
/// tokenizer: see validate() and resolved(). Throws UsageError as these do, and if vocab is 0 and
/// no tokenizer gives it.
PreparedRun prepared(Config config);

/// The config of a stored model (config_of_model()), to generate or evaluate: sizes that follow
/// from others are filled in, settings of the training do not count. Throws UsageError as
/// with_vocab().
PreparedRun prepared_model(Config config);

/// A variant of a prepared run in which no value became incomplete, such as one on another grid
/// with its micro-batch. Throws Error, with the function to call, if a size or the grid is missing.
PreparedRun still_prepared(Config config);

}  // namespace axonn
