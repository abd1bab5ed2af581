#pragma once

#include <functional>
#include <utility>

#include "axonn/run/config/config.h"

namespace axonn {

/// A configuration that is complete: Training and LoadedModel take nothing else. prepared() makes
/// one of what a user wrote, prepared_model() of what a stored model brings.
class PreparedRun {
 public:
  const Config& config() const { return config_; }
  const Config* operator->() const { return &config_; }

  /// This run after a change of values that no other one follows from, such as a grid's extents
  /// with the micro-batch, overlap, recomputation, folders. Throws Error if a size or the grid is
  /// missing then.
  PreparedRun with(const std::function<void(Config& config)>& change) const;

 private:
  explicit PreparedRun(Config config) : config_(std::move(config)) {}
  friend PreparedRun prepared(Config config);
  friend PreparedRun prepared_model(Config config);

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

}  // namespace axonn
