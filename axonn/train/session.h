#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "axonn/data/corpus.h"
#include "axonn/model/load.h"
#include "axonn/train/config.h"
#include "axonn/train/resume.h"
#include "axonn/train/step.h"

namespace axonn {

using NamedSeconds = std::vector<std::pair<std::string, double>>;

/// Replaces the training sequences that [data] names. Receives the resolved config and the opened
/// corpus.
using SequencesMaker =
    std::function<std::unique_ptr<const Sequences>(const Config& config, const Corpus& corpus)>;

/// One rank of a run, built from its config: grid, memory, model, optimizer and data. Shared by all
/// commands that train, check or generate.
class Session {
 public:
  struct Options {
    bool training = true;           ///< false: no optimizer, no data, no master copies
    bool data = true;               ///< false: the caller sets StepInput::tokens_of itself
    std::string cache_folder = {};  ///< of tokenised text; "": tokens stay in memory
    ModelMaker make_model = axonn::make_model;
    OptimizerMaker make_optimizer = axonn::make_optimizer;
    SequencesMaker make_sequences = {};  ///< empty: training_sequences()
  };

  /// Collective over world, which outlives the session. config must be validated and resolved; a
  /// vocab of 0 becomes the tokenizer's. Parameters are not yet set. Throws UsageError if the grid
  /// cannot cut the model, and for bad data.
  Session(const Config& config, Communicator& world, std::unique_ptr<Backend> backend,
          Options options);

  /// Sets the parameters that training starts from: those at model.path, or initial values from the
  /// seed. Adapters are read from lora.path, or get initial values. Returns what reading cost this
  /// rank. Collective. Throws as axonn::initialise() does.
  LoadCost initialise(const Progress& progress = {}) {
    return axonn::initialise(context(), *model_, trained_, config_.model, progress);
  }
  /// Does the same for frozen parameters only: those of the base model of adapters, which a
  /// checkpoint does not hold. Does nothing without adapters. Collective.
  LoadCost initialise_frozen(const Progress& progress = {}) {
    return axonn::initialise_frozen(context(), *model_, trained_, config_.model, progress);
  }
  /// Sets the trained parameters and the optimizer's buffers from a checkpoint. Collective. Throws
  /// as load_state() does.
  LoadCost load(const CheckpointReader& reader) {
    return load_state(context(), *optimizer_, reader);
  }

  /// Returns the input of step `step`, counted from 0, without a learning rate. With
  /// training.goldfish it is collective: an all-reduce of 8 bytes counts the targets that are kept.
  StepInput step_input(std::int64_t step);
  StepResult train_step(const StepInput& input) { return step_->run(context(), input); }
  /// Waits for everything that the last step left in flight: the device's work and the gather of
  /// its updated weights over data.
  void settle() const;
  /// Returns the block in which NaN first arose in that step on this rank; "" if in none.
  std::string diagnose(const StepInput& input) { return step_->diagnose(context(), input); }
  /// Calls TrainStep::rehearse() with `backend` in place of the session's.
  void rehearse(const StepInput& input, Backend& backend) {
    step_->rehearse(context_on(backend), input);
  }
  /// Returns the mean loss over the first training.eval_batches global batches of the validation
  /// data (0: all of them).
  double validate();
  /// Number of validation sequences that validate() uses; 0 without validation data.
  std::int64_t validation_windows() const;

  std::vector<StateBlock> state() const { return state_of(*optimizer_, backend_->device()); }
  Context context() const { return context_on(*backend_); }

  const Config& config() const { return config_; }
  Backend& backend() { return *backend_; }
  const Grid& grid() const { return *grid_; }
  Arena& arena() { return *arena_; }
  Model& model() { return *model_; }
  const OptimizerState& optimizer() const { return *optimizer_; }
  const TrainStep& step() const { return *step_; }
  const Corpus& corpus() const { return corpus_; }
  /// The training sequences. Requires data.
  const Sequences& sequences() const { return *training_; }
  /// Number of tokens in one step over all ranks, including padding.
  std::int64_t tokens_per_step() const;
  /// Number of inputs of step `step` over all ranks without padding, and of its targets, including
  /// those that the goldfish loss leaves out.
  Sequences::Size step_size(std::int64_t step) const;
  /// Seconds that this rank's compute has waited for collectives so far: in total, and by axis and
  /// kind ("z all_gather"), in an order that is the same on every rank.
  double waited_seconds() const;
  NamedSeconds waited_by_kind() const;

 private:
  Context context_on(Backend& backend) const;
  void open_data(const Options& options);
  /// Number of sequences that each (z, data) coordinate has in a step, and the number of the first
  /// one of this coordinate.
  std::int64_t sequences_each() const;
  std::int64_t first_sequence(std::int64_t step) const;
  std::int64_t kept_targets(std::int64_t step) const;
  /// Returns the tokens of sequences `first` to first + count. Targets of sequences from `end` on
  /// do not count.
  Tokens tokens_of(const Sequences& from, const Goldfish* goldfish, std::int64_t first,
                   std::int64_t count, std::int64_t end) const;
  /// This rank's index among the (z, data) coordinates, each of which has other tokens, and their
  /// number.
  std::int64_t place() const;
  std::int64_t places() const;

  Config config_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Communicator> device_world_;  // null if world can send the device's memory
  std::unique_ptr<Grid> grid_;
  Corpus corpus_;
  std::unique_ptr<const Sequences> training_, validation_;
  std::optional<Goldfish> goldfish_;
  std::unique_ptr<Model> model_;
  std::vector<ParameterGroup*> trained_;  // the groups of model_ that are trained
  std::unique_ptr<OptimizerState> optimizer_;
  std::unique_ptr<TrainStep> step_;  // last: its graphs must be destroyed before the groups
};

}  // namespace axonn
