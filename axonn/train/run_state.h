#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "axonn/model/model_files.h"
#include "axonn/storage/checkpoint/checkpoint_reader.h"
#include "axonn/storage/checkpoint/checkpoint_saver.h"
#include "axonn/train/loaded_model.h"
#include "axonn/train/optimizer.h"
#include "axonn/train/training.h"
#include "axonn/train/tune.h"

namespace axonn {

/// Which steps are outliers: those whose loss or gradient norm exceeds one of two limits.
struct OutlierRule {
  double factor = 0;      ///< times the running mean of about the last hundred steps; 0: no limit
  double deviations = 0;  ///< standard deviations above the mean of the last 128 steps; 0: no limit
};

/// Loss and gradient norm of the last steps, and which of them were outliers.
struct OutlierMeans {
  static constexpr std::size_t kWindow = 128;  ///< steps of the standard deviation
  static constexpr std::size_t kFewest = 64;   ///< fewer give no reliable deviation

  double loss = 0, norm = 0;       ///< running means over about the last hundred steps
  double steps = 0;                ///< number of steps in the means
  std::int64_t skipped = 0;        ///< number of outliers since the last step that was applied
  std::int64_t skipped_total = 0;  ///< number of outliers in the whole run
  /// Those of the last kWindow steps, oldest first; empty unless the rule has deviations.
  std::vector<double> losses = {}, norms = {};

  /// Returns whether to apply the step, and adds it to the means. An outlier is not applied, and
  /// counts in the means as the limit that it exceeds, so that they follow a loss that stays high.
  /// Gives the same answer on every rank if its inputs are the same.
  bool accept(const OutlierRule& rule, double loss_of_step, double norm_of_step);
};

/// The validations of a run.
struct BestLoss {
  double loss = 0;         ///< the lowest; of the weights, not of their averages
  std::int64_t step = 0;   ///< after which it was found; 0: there was no validation
  std::int64_t worse = 0;  ///< validations since then, none of which was lower

  /// Notes a validation. Returns whether its loss is the lowest so far.
  bool note(double loss_of_step, std::int64_t step_of_loss);
};

/// The file of tuned products, in output.dir and in checkpoints.
inline constexpr const char* kProductsFile = "products.json";

/// Position of a run and what it has learnt about itself: what a checkpoint holds beside parameters
/// and the optimizer's state.
struct RunState {
  std::int64_t steps_done = 0;
  std::int64_t tokens_seen = 0;  ///< over all ranks, without padding
  BestLoss best = {};
  DataPlace data = {};
  OutlierMeans outliers = {};
  MatmulChoices products = {};  ///< empty unless training.tune is set
};

/// The texts of a checkpoint: the state, and the run's config.toml.
StateTexts to_texts(const RunState& state, std::string config_toml);
/// Reads them again; what an older checkpoint does not state is taken from config. Throws
/// UsageError if state.json is damaged.
RunState read_run_state(const CheckpointReader& reader, const Config& config);

/// Bytes of a checkpoint with so many kinds of values of the parameters of these groups: of all
/// ranks' files, without their headers.
std::int64_t checkpoint_bytes(std::span<ParameterGroup* const> trained, std::int64_t kinds);

/// This rank's part of the trained parameters and the optimizer's state, as CheckpointSaver takes
/// it.
std::vector<StateBlock> state_blocks(const LoadedModel& model, const OptimizerState& optimizer);

}  // namespace axonn
