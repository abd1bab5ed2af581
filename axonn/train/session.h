#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "axonn/data/corpus.h"
#include "axonn/io/checkpoint.h"
#include "axonn/model/model.h"
#include "axonn/train/config.h"
#include "axonn/train/step.h"

namespace axonn {

using NamedSeconds = std::vector<std::pair<std::string, double>>;

/// What is trained on in place of what [data] names, made of that; config is resolved.
using SequencesMaker =
    std::function<std::unique_ptr<const Sequences>(const Config& config, const Corpus& corpus)>;

/// One rank of a run, put together from its config: grid, memory, model, optimizer, data. What the
/// commands train, check and generate share.
class Session {
 public:
  struct Options {
    bool training = true;           ///< false: no optimizer, no data, no master copies
    bool data = true;               ///< false: the caller gives step_input() its tokens
    std::string cache_folder = {};  ///< for tokenised text; "": tokens are kept in memory
    ModelMaker make_model = axonn::make_model;
    SequencesMaker make_sequences = {};  ///< empty: training_sequences()
  };

  /// Collective over world, which outlives the session. config is validated and resolved; its
  /// vocab may be 0: then it is the tokenizer's. Parameters are not yet set.
  /// Errors: UsageError for what the grid cannot cut, and for bad data.
  Session(const Config& config, Communicator& world, std::unique_ptr<Backend> backend,
          Options options);

  /// What training starts from: the parameters at model.path, or the initial values of the seed.
  /// Adapters are those at lora.path, or have initial values. Returns what reading them cost this
  /// rank. Collective. Errors: as load().
  LoadCost initialise();
  /// The same of the model that adapters are of alone: what a run needs besides its checkpoint.
  /// Collective.
  LoadCost initialise_frozen();
  /// What a checkpoint holds of what is trained: everything, or the parameters alone (the moments
  /// stay as they are).
  enum class Load { everything, parameters };
  /// Collective. Errors: UsageError, the same on all ranks, as CheckpointReader::load(); parameters
  /// are then partly set.
  LoadCost load(const CheckpointReader& reader, Load what,
                const CheckpointReader::Progress& progress = {});

  /// What step `step`, counted from 0, is given: its data, and no learning rate yet. With
  /// training.goldfish collective: the targets that are kept are counted, 8 bytes.
  StepInput step_input(std::int64_t step);
  StepResult train_step(const StepInput& input) { return step_->run(context(), input); }
  /// Waits for what the last step left under way: the device's work, and its weights' way over
  /// data.
  void settle() const;
  /// Where NaN first arose in that step on this rank.
  std::string diagnose(const StepInput& input) { return step_->diagnose(context(), input); }
  /// As TrainStep::rehearse(), on a backend that stands for this one's.
  void rehearse(const StepInput& input, Backend& backend) {
    step_->rehearse(context_on(backend), input);
  }
  /// Mean loss over the validation split (training.eval_batches global batches of it, 0: all).
  double validate();
  /// Validation sequences that validate() looks at; 0 without a validation split.
  std::int64_t validation_windows() const;

  std::vector<StateBlock> state(Load what) const;
  Context context() const { return context_on(*backend_); }

  const Config& config() const { return config_; }
  Backend& backend() { return *backend_; }
  const Grid& grid() const { return *grid_; }
  Arena& arena() { return *arena_; }
  Model& model() { return *model_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const TrainStep& step() const { return *step_; }
  const Corpus& corpus() const { return corpus_; }
  /// What is trained on. Only where there is data.
  const Sequences& sequences() const { return *training_; }
  /// Rows of one step, over all ranks: inputs, padding included.
  std::int64_t tokens_per_step() const;
  /// Inputs of step `step` that are no padding, over all ranks, and targets, goldfish or not.
  Sequences::Size step_size(std::int64_t step) const;
  /// Seconds that this rank's compute has waited for collectives so far: in all, and by axis and
  /// kind ("z all_gather"), in an order that is the same on every rank.
  double waited_seconds() const;
  NamedSeconds waited_by_kind() const;

 private:
  Context context_on(Backend& backend) const;
  LoadCost load_base(const std::vector<ParameterGroup*>& groups);
  void initialise(const std::vector<ParameterGroup*>& groups);
  LoadCost load_adapters();
  LoadCost load_values(const CheckpointReader& reader, const std::vector<ParameterGroup*>& groups,
                       const CheckpointReader::Progress& progress);
  void agree_on_loading(const CheckpointReader& reader, const std::function<void()>& load);
  void open_data(const Options& options);
  /// Sequences of each (z, data) coordinate in a step, and the first of this one's.
  std::int64_t sequences_each() const;
  std::int64_t first_sequence(std::int64_t step) const;
  std::int64_t kept_targets(std::int64_t step) const;
  /// The tokens of sequences `first` to first + count; from `end` on none of their targets counts.
  Tokens tokens_of(const Sequences& from, const Goldfish* goldfish, std::int64_t first,
                   std::int64_t count, std::int64_t end) const;
  /// This rank's place among the (z, data) coordinates, which have different tokens.
  std::int64_t place() const;
  std::int64_t places() const;

  Config config_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Communicator> device_world_;  // null where the world carries the memory itself
  std::unique_ptr<Grid> grid_;
  Corpus corpus_;
  std::unique_ptr<const Sequences> training_, validation_;
  std::optional<Goldfish> goldfish_;
  std::unique_ptr<Model> model_;
  std::vector<ParameterGroup*> trained_;  // what training such a model trains
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<TrainStep> step_;  // last: its graphs go before the groups that they launch
};

}  // namespace axonn
