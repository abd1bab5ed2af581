#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "axonn/run/load/loaded_model.h"
#include "axonn/run/optim/optimizer_state.h"
#include "axonn/run/records/data_position.h"
#include "axonn/run/train/step.h"

namespace axonn {

class Batches;
class CheckpointReader;
class PreferenceTerm;
class RolloutSampler;
class Sequences;
struct AnswerTables;
struct Batch;
struct Corpus;

/// Replaces the training sequences that [data] or a stage names. Receives the resolved config, as
/// it is in the stage (stages_of()), and the opened corpus.
using SequencesMaker =
    std::function<std::unique_ptr<const Sequences>(const Config& config, const Corpus& corpus)>;

/// See rollout_sampler.h.
using RolloutSamplerMaker = std::function<std::unique_ptr<RolloutSampler>(
    LoadedModel& model, std::shared_ptr<const Corpus> corpus)>;

/// Whether sequences come with positions and document starts.
bool has_packed_data(const Config& config);

/// The input of a step with made-up tokens, which all count: step 0, without a learning rate. Its
/// sequences are as long as the longest of any stage. They have positions and document starts if
/// the config's data is packed. model must outlive it.
StepInput made_up_input(const LoadedModel& model);

struct TrainingOptions {
  bool data = true;               ///< false: corpus and batches stay empty
  std::string cache_folder = {};  ///< of tokenised text; "": tokens stay in memory
  OptimizerMaker make_optimizer = axonn::make_optimizer;
  SequencesMaker make_sequences = {};  ///< empty: training_sequences(), as losses of answers need
  RolloutSamplerMaker make_sampler = {};  ///< of prompts of [rl]; empty: these are refused
  std::string rollouts_folder = {};       ///< where rank 0 writes its answers; "": nowhere
  ProgressTarget progress = {};           ///< shows on rank 0 how far tokenising and loading are
};

/// The parts of a training run on one rank, made from its config: the model, its optimizer, the
/// step, and the data.
class Training {
 public:
  /// Collective over world, which must outlive it. Epochs become steps: see model.config().
  /// Parameters are not yet set: see LoadedModel::initialise(). Throws UsageError if the grid
  /// cannot cut the model, and for bad data, such as validation data without a target that counts.
  /// backend null: as LoadedModel has it.
  Training(const PreparedRun& run, Communicator& world, std::unique_ptr<Backend> backend = nullptr,
           const TrainingOptions& options = {});
  ~Training();

  /// The input of step n, counted from 0, with the config's learning rate. If only reading shows
  /// how many targets count (goldfish loss, documents that are not joined), it is collective: all
  /// ranks must ask for the same steps. Each call then starts an all-reduce of 24 bytes that counts
  /// the next step's targets, so that only the first call waits for one. Throws Error without data,
  /// and as Batches::at().
  StepInput input(std::int64_t n);
  /// Reads the batch of step n before its input is asked for; with an [rl] loss, begins its
  /// generation. Collective.
  std::shared_ptr<const Batch> read(std::int64_t n);
  /// The position in the data before step n. The first call is collective.
  DataPosition data_position(std::int64_t n);
  /// Makes step n continue at this position of an earlier run, whose `checkpoint` a message names.
  /// If data or order of a stage that is not yet over differ, throws UsageError, or, if
  /// checkpoint.changed_data is restart, begins that stage with its first sample; then returns
  /// true. Collective as data_position(). Does nothing without data.
  bool continue_at(std::int64_t n, const DataPosition& position, const std::string& checkpoint);
  /// What the user should know since the last call: of the answers that were written, and of bits
  /// of the state that have flipped and were set right.
  std::vector<std::string> take_warnings();
  /// Adds to the texts of a checkpoint that is made now what an [rl] generation needs to go on.
  void add_generation(std::map<std::string, std::string>& texts) const;
  /// Restores that of a checkpoint, before step n. Throws UsageError.
  void continue_generation(const CheckpointReader& reader, std::int64_t n);
  /// Does step n.
  StepResult run(std::int64_t n) { return step.run(model.context(), input(n)); }
  /// Returns the mean loss over the first training.eval_batches global batches of the validation
  /// data (0: all of them), in nats. Collective. Throws Error without validation data.
  double validate();
  /// Does the same with the running averages of the weights, and leaves all weights as they were.
  /// Also throws Error without optimizer.has_averages().
  double validate_averages();
  /// Number of validation sequences that validate() uses; 0 without validation data.
  std::int64_t validation_windows() const;

  /// The corpus of each stage; empty without data. The first has the tokenizer and the validation
  /// data of the run.
  std::vector<std::shared_ptr<const Corpus>> corpora;
  /// With a [preference] loss and data; empty tables otherwise.
  std::shared_ptr<const AnswerTables> answers;
  LoadedModel model;
  std::unique_ptr<LoadedModel> teacher;    ///< of [distill]; null without
  std::unique_ptr<LoadedModel> reference;  ///< of an [rl] loss with a divergence; null without
  std::unique_ptr<Batches> batches;        ///< null without data
  std::unique_ptr<Batches> validation;     ///< null without validation data
  OptimizerState optimizer;
  TrainStep step;  ///< destroyed first: its graphs must not outlive the groups
  /// Of the last validation, besides its loss; only with a [preference] loss.
  std::vector<Metric> validation_figures = {};

 private:
  /// Sets the steps of a config that has epochs.
  void follow_epochs();
  /// The loss of the validation data with the weights that the model has.
  double evaluate(const Context& ctx);

  std::string rollouts_folder_;
  std::unique_ptr<PreferenceTerm> held_out_;  // of answers; null without

  DataPosition begin_;                   // known after the first data_position()
  std::vector<StagePosition> unlisted_;  // of the earlier run
  /// here: null if the step's batch cannot be read.
  void begin_count(std::int64_t n, const Batch* here);
  /// Sets the targets and inputs of step n's input.
  void count(std::int64_t n, const Batch& batch, StepInput& input);

  /// The all-reduce of a step's targets, those that count and all, and of its inputs.
  struct Count {
    std::int64_t step = -1;
    std::array<double, 3> sums = {};
    Work work = {};
  };
  Count count_;
};

/// Saves a checkpoint of parameters, optimizer state and the position in the data as DIR/step-N,
/// and returns when it is written. `folder` is DIR; steps_done, N, is the number of steps that the
/// model was trained for. Collective. Throws Error, the same on all ranks, if parameters have no
/// values or a file cannot be written; checkpoints in DIR stay.
void save_checkpoint(Training& training, const std::string& folder, std::int64_t steps_done);

/// Loads parameters, optimizer state and the position in the data from the checkpoint at path,
/// which a grid of any shape may have written: a folder DIR/step-N, or DIR for the newest valid
/// checkpoint in it. Returns the number of steps that it was trained for. Collective. Throws
/// UsageError, the same on all ranks, if there is no valid checkpoint of this model and optimizer,
/// and as Training::continue_at().
std::int64_t load_checkpoint(Training& training, const std::string& path);

}  // namespace axonn
