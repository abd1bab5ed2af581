#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "axonn/data/corpus.h"
#include "axonn/train/loaded_model.h"
#include "axonn/train/optimizer.h"
#include "axonn/train/step.h"
#include "axonn/train/step_inputs.h"

namespace axonn {

/// Replaces the training sequences that [data] names. Receives the resolved config and the opened
/// corpus.
using SequencesMaker =
    std::function<std::unique_ptr<const Sequences>(const Config& config, const Corpus& corpus)>;

struct TrainingOptions {
  bool data = true;               ///< false: corpus and batches stay empty
  std::string cache_folder = {};  ///< of tokenised text; "": tokens stay in memory
  ModelMaker make_model = axonn::make_model;
  OptimizerMaker make_optimizer = axonn::make_optimizer;
  SequencesMaker make_sequences = {};  ///< empty: training_sequences()
};

/// The parts of a training run on one rank, made from its config: the model, its optimizer, the
/// step, and the data.
struct Training {
  /// Collective over world, which must outlive it. config must be validated and resolved; a vocab
  /// of 0 becomes the tokenizer's. Parameters are not yet set: see LoadedModel::initialise().
  /// Throws UsageError if the grid cannot cut the model, and for bad data.
  Training(const Config& config, Communicator& world, std::unique_ptr<Backend> backend,
           const TrainingOptions& options = {});

  /// Does step n with the config's learning rate.
  StepResult run(std::int64_t n);
  /// Returns the mean loss over the first training.eval_batches global batches of the validation
  /// data (0: all of them). Requires validation.
  double validate() { return step.evaluate(model.context(), *validation); }
  /// Number of validation sequences that validate() uses; 0 without validation data.
  std::int64_t validation_windows() const { return validation ? validation->options().end : 0; }

  Corpus corpus;
  LoadedModel model;
  std::unique_ptr<Batches> batches;     ///< null without data
  std::unique_ptr<Batches> validation;  ///< null without validation data
  std::optional<StepInputs> inputs;     ///< of the steps; none without data
  OptimizerState optimizer;
  TrainStep step;  // last: its graphs must be destroyed before the groups
};

}  // namespace axonn
