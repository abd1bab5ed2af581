#pragma once

#include <atomic>
#include <functional>
#include <iosfwd>

#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/log.h"
#include "axonn/network/model/model.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/samples.h"
#include "axonn/run/train/training.h"

namespace axonn {

class Origins;

struct TrainOptions {
  const Origins* origins = nullptr;  ///< of the config's values, for output.dir/config.toml
  std::ostream* terminal = nullptr;  ///< where rank 0 shows progress; null: nowhere
  bool interactive = false;          ///< redraw the step line in place: see LogOptions
  int columns = 100;                 ///< of an interactive terminal
  bool describe = true;              ///< show model, grid and data at the start
  /// Part of a larger job: it does not say that there is nothing to do, or what to raise.
  bool part_of_more = false;
  ProgressTarget progress = {};  ///< shows on rank 0 how far slow parts are
  OptimizerMaker make_optimizer = axonn::make_optimizer;
  SequencesMaker make_sequences = {};  ///< empty: sequences of the data that [data] names
  /// Writes the texts that samples.prompts ask for, such as axonn::make_text_sampler
  /// (infer/text_sampler.h).
  TextSamplerMaker make_text_sampler = {};
  /// Writes the answers to the prompts of [rl], such as axonn::make_rollout_sampler
  /// (rewards/rollout_sampler.h).
  RolloutSamplerMaker make_sampler = {};
  /// Called on every rank after each step, with the number of steps that are done.
  std::function<void(Training& training, std::int64_t done)> after_step = {};
  /// Called on every rank when all steps are done and saved, also if a resumed run has none left to
  /// do.
  std::function<void(Training& training)> finished = {};
  const std::atomic<bool>* stop =
      nullptr;  ///< set by a signal: the run saves and ends after this step
  /// Seconds, for checkpoint.every_minutes; rank 0's decides.
  std::function<double()> clock = now_seconds;
};

enum class TrainEnd {
  finished,  ///< all steps are done, or training.patience is over
  stopped,   ///< asked to stop: the last step that all ranks did is saved
};

/// Trains as the run's config says, whose grid must fit world. Writes to output.dir: config.toml,
/// metrics.jsonl, loss.svg, checkpoints/, logs/rank-N.log, with training.tune also products.json,
/// and with samples.prompts samples.jsonl. Notes its end in the file lock (records/run_end.h).
///
/// Throws UsageError for bad data or a bad checkpoint. Throws Error if loss or gradient becomes NaN
/// or infinite, as stop_for_nonfinite() does (train/nonfinite.h).
TrainEnd train(const PreparedRun& run, Communicator& world, const TrainOptions& options);

}  // namespace axonn
