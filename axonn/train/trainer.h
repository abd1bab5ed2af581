#pragma once

#include <atomic>
#include <functional>
#include <iosfwd>

#include "axonn/comm/communicator.h"
#include "axonn/model/model.h"
#include "axonn/train/session.h"

namespace axonn {

struct TrainOptions {
  const Origins* origins = nullptr;  ///< of config's values, for output.dir/config.toml
  std::ostream* terminal = nullptr;  ///< where rank 0 shows progress; null: nowhere
  bool interactive = false;          ///< the step line may be redrawn in place
  int columns = 100;
  ModelMaker make_model = axonn::make_model;
  SequencesMaker make_sequences = {};  ///< empty: of what [data] names
  /// Called on every rank when all steps are done and saved, also where a resumed run finds them
  /// so.
  std::function<void(Session& session)> finished = {};
  const std::atomic<bool>* stop = nullptr;  ///< set by a signal: save and end after this step
};

enum class TrainEnd {
  finished,  ///< all steps are done
  stopped,   ///< asked to stop: saved after the last step that all ranks did
};

/// Trains as config says: validated and resolved, its grid fits world. Writes output.dir:
/// config.toml, metrics.jsonl, loss.svg, checkpoints/, logs/rank-N.log; with training.tune also
/// products.json.
///
/// Errors: UsageError for bad data or a bad checkpoint; Error where loss or gradient becomes NaN or
/// infinite, naming the step, the rank and the block in which it arose.
TrainEnd train(const Config& config, Communicator& world, const TrainOptions& options);

}  // namespace axonn
