#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/data/storage/checkpoint/checkpoint_saver.h"
#include "axonn/run/config/config.h"
#include "axonn/run/records/data_position.h"
#include "axonn/run/records/loss_scale.h"
#include "axonn/run/records/matmul_choices.h"
#include "axonn/run/records/outliers.h"

namespace axonn {

/// The validations of a run.
struct BestLoss {
  double loss = 0;         ///< the lowest; of the weights, not of their averages
  std::int64_t step = 0;   ///< after which it was found; 0: there was no validation
  std::int64_t worse = 0;  ///< validations since then, none of which was lower

  /// Notes a validation. Returns whether its loss is the lowest so far.
  bool note(double loss_of_step, std::int64_t step_of_loss);
};

/// Position of a run and what it has learnt about itself: what a checkpoint holds beside parameters
/// and the optimizer's state.
struct RunState {
  std::int64_t steps_done = 0;
  std::int64_t tokens_seen = 0;  ///< over all ranks, without padding
  BestLoss best = {};
  DataPosition data = {};
  OutlierMeans outliers = {};
  LossScaleState loss_scale = {};
  std::map<std::string, double> optimizer = {};  ///< OptimizerState::numbers()
  MatmulChoices products = {};                   ///< empty unless training.tune is set
};

/// The texts of a checkpoint: the state, and the run's config.toml.
StateTexts to_texts(const RunState& state, std::string config_toml);
/// Reads them again; what an older checkpoint does not state is taken from config. Throws
/// UsageError if state.json is damaged.
RunState read_run_state(const CheckpointReader& reader, const Config& config);

}  // namespace axonn
