#pragma once

#include <memory>
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

/// One rank of a run, put together from its config: grid, memory, model, optimizer, data. What the
/// commands train, check and generate share.
class Session {
 public:
  struct Options {
    bool training = true;           ///< false: no optimizer, no data
    bool data = true;               ///< false: the caller gives step_input() its tokens
    std::string cache_folder = {};  ///< for tokenised text; "": tokens are kept in memory
    ModelMaker make_model = axonn::make_model;
  };

  /// Collective over world, which outlives the session. config is validated and resolved; its
  /// vocab may be 0: then it is the tokenizer's. Parameters are not yet set.
  /// Errors: UsageError for what the grid cannot cut, and for bad data.
  Session(const Config& config, Communicator& world, std::unique_ptr<Backend> backend,
          Options options);

  /// What training starts from: the parameters at model.path, or the initial values of the seed.
  /// Adapters have initial values. Collective. Errors: as load().
  void initialise();
  /// The same of what is frozen alone: what a run needs besides its checkpoint. Collective.
  void initialise_frozen();
  /// What a checkpoint holds of what is trained: everything, or the parameters alone (the moments
  /// stay as they are).
  enum class Load { everything, parameters };
  /// Collective. Errors: UsageError, the same on all ranks, as CheckpointReader::load(); parameters
  /// are then partly set.
  LoadCost load(const CheckpointReader& reader, Load what,
                const CheckpointReader::Progress& progress = {});

  /// What step `step`, counted from 0, is given: its data, and no learning rate yet.
  StepInput step_input(std::int64_t step);
  StepResult train_step(const StepInput& input) { return step_->run(context(), input); }
  /// Waits for what the last step left under way for the next one: its weights' way over data.
  void settle() const;
  /// Where NaN first arose in that step on this rank.
  std::string diagnose(const StepInput& input) { return step_->diagnose(context(), input); }
  /// As TrainStep::rehearse(), on a backend that stands for this one's.
  void rehearse(const StepInput& input, Backend& backend) {
    step_->rehearse(context_on(backend), input);
  }
  /// Mean loss over the validation split (training.eval_batches global batches of it, 0: all).
  double validate();
  /// Validation windows that validate() looks at; 0 without a validation split.
  std::int64_t validation_windows() const;

  std::vector<StateBlock> state(Load what) const;
  Context context() const { return context_on(*backend_); }

  const Config& config() const { return config_; }
  Backend& backend() { return *backend_; }
  const Grid& grid() const { return *grid_; }
  Arena& arena() { return *arena_; }
  Model& model() { return *model_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const Corpus& corpus() const { return corpus_; }
  const Sampler& sampler() const { return *sampler_; }
  /// Targets of one step, over all ranks.
  std::int64_t tokens_per_step() const;
  /// Seconds that this rank's compute has waited for collectives so far: in all, and by axis and
  /// kind ("z all_gather"), in an order that is the same on every rank.
  double waited_seconds() const;
  NamedSeconds waited_by_kind() const;

 private:
  Context context_on(Backend& backend) const;
  void load_base(const std::vector<ParameterGroup*>& groups);
  void initialise(const std::vector<ParameterGroup*>& groups);
  LoadCost load(const CheckpointReader& reader, const std::vector<ParameterGroup*>& groups,
                const std::vector<StateBlock>& state, const CheckpointReader::Progress& progress);
  void open_data(const std::string& cache_folder);
  /// The tokens of windows `first` to first + count, each (seq_len + 1), as read(n, window) gives
  /// them; a read that returns false leaves targets that do not count.
  Tokens tokens_of(std::int64_t count, std::int64_t first,
                   const std::function<bool(std::int64_t, std::span<std::int32_t>)>& read) const;
  /// This rank's place among the (z, data) coordinates, which have different tokens.
  std::int64_t place() const;
  std::int64_t places() const;

  Config config_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Grid> grid_;
  Corpus corpus_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Windows> validation_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<TrainStep> step_;
};

}  // namespace axonn
