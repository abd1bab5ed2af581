#include "axonn/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/comm/texts.h"
#include "axonn/data/corpus.h"
#include "axonn/options/options.h"
#include "axonn/train/devices.h"
#include "axonn/train/own_cores.h"
#include "axonn/train/run_log.h"
#include "axonn/train/run_state.h"
#include "axonn/train/schedule.h"
#include "axonn/train/step_tracer.h"
#include "axonn/train/stored_config.h"
#include "axonn/train/tune.h"

namespace axonn {

namespace {

LogOptions log_options(const Config& config, int rank, const TrainOptions& options) {
  const std::string folder = config.output.dir + "/logs";
  make_folders(folder);
  LogOptions log{.file = fmt::format("{}/rank-{}.log", folder, rank)};
  if (rank != 0) return log;
  log.terminal = options.terminal;
  log.interactive = options.interactive;
  log.columns = options.columns;
  return log;
}

/// Returns NaN without its sign, which has no meaning.
double plain(double value) { return std::isnan(value) ? std::abs(value) : value; }

/// A training run on one rank.
class Trainer {
 public:
  Trainer(const Config& config, Communicator& world, const TrainOptions& options)
      : options_(options),
        world_(world),
        log_(log_options(config, world.rank(), options), world),
        tracer_(config.output.trace, world),
        cores_(config, world),
        training_(config, world, tracer_.wrap(make_backend(config, world, cores_.threads())),
                  {.cache_folder = config.output.dir + "/cache",
                   .make_optimizer = options.make_optimizer,
                   .make_sequences = options.make_sequences}),
        config_(training_.model.config()),
        saver_({.folder = config.output.dir + "/checkpoints",
                .keep = config.checkpoint.keep,
                .async = config.checkpoint.async}),
        outliers_(config.training.skip_outliers) {}

  TrainEnd run();

 private:
  Origins origins() const { return options_.origins ? *options_.origins : Origins(); }
  void begin();
  LoadCost load(bool all);
  void resume_from(const std::string& path);
  void tune_products();
  StepResult step();
  void stop_for_nonfinite(const StepInput& input, const StepResult& result);
  void validate();
  void save();
  void finish_saving();

  TrainOptions options_;
  Communicator& world_;
  RunLog log_;
  StepTracer tracer_;
  OwnCores cores_;
  Training training_;
  const Config& config_;
  CheckpointSaver saver_;
  OutlierFilter outliers_;
  RunState state_;
  std::int64_t first_step_ = 0;
};

/// Whether something that is done every so many steps (0: never) is due after step `done`.
bool is_due(std::int64_t every, std::int64_t done) { return every > 0 && done % every == 0; }

TrainEnd Trainer::run() {
  begin();
  const std::int64_t steps = config_.training.steps, validates = config_.training.eval_every;
  std::int64_t& done = state_.steps_done;
  bool stopped = false;
  while (done < steps && !stopped) {
    const StepResult result = step();
    ++done;
    stopped = result.stop;
    if (is_due(validates, done) || (validates > 0 && done == steps)) validate();
    log_.write_metrics();
    if (saver_.pending() && !result.busy) finish_saving();
    if (is_due(config_.checkpoint.every, done) && done < steps && !stopped) save();
  }
  if (done > first_step_) save();
  if (saver_.pending()) finish_saving();
  log_.finish();
  if (done < steps) {
    log_.info(fmt::format(
        "stopped by a signal after step {}; to continue, run again with --checkpoint.resume auto",
        done));
    return TrainEnd::stopped;
  }
  if (options_.finished) options_.finished(training_);
  return TrainEnd::finished;
}

/// Sets parameters, state and products to those that the first step begins with.
void Trainer::begin() {
  if (world_.rank() == 0)
    write_file_atomically(config_.output.dir + "/config.toml", config_toml(config_, origins()));
  log_.describe(training_, cores_.threads());
  if (!training_.corpus->tokenizer && origins().is_set("data.tokenizer") && world_.rank() == 0)
    log_.warn(concat("data.tokenizer (", origins().of("data.tokenizer"), ") has no effect: \"",
                     config_.data.tokenizer, "\" cannot have made the tokens of data.tokens"));
  const std::string here = world_.rank() == 0 ? resume_path(config_) : std::string(),
                    from = broadcast_texts(world_, {here}).front();
  const LoadCost cost = load(from.empty());
  if (cost.bytes > 0)
    log_.info(fmt::format("model from {}: this rank read {} in {}", config_.model.path,
                          format_bytes(cost.bytes), format_duration(cost.seconds)));
  if (!from.empty()) resume_from(from);
  if (config_.training.tune) tune_products();
  log_.begin(config_, first_step_, state_.tokens_seen);
}

/// Sets all parameters, or the frozen ones alone, and shows the progress of reading.
LoadCost Trainer::load(bool all) {
  const bool shows = world_.rank() == 0 && options_.interactive;
  ProgressLine progress(shows ? options_.terminal : nullptr, "loading");
  LoadedModel& model = training_.model;
  return all ? model.initialise(std::ref(progress)) : model.initialise_frozen(std::ref(progress));
}

void Trainer::resume_from(const std::string& path) {
  const auto& [reader, cost, warnings] = resume(training_.model, training_.optimizer, path);
  for (const std::string& warning : warnings) log_.warn(warning);
  state_ = read_run_state(reader, config_);
  first_step_ = state_.steps_done;
  outliers_ = OutlierFilter(config_.training.skip_outliers, state_.outliers);
  log_.info(fmt::format("resumed from {} (written by {} ranks): read {} in {}; the next step is {}",
                        reader.folder(), reader.index().ranks, format_bytes(cost.bytes),
                        format_duration(cost.seconds), first_step_ + 1));
}

/// Chooses how products are computed. A resumed run keeps its earlier choices.
void Trainer::tune_products() {
  state_.products =
      tune(training_, {.cache = matmul_cache_path(config_.training.tune_cache),
                       .earlier = state_.products,
                       .report = [this](const std::string& line) { log_.info(line); }});
  if (world_.rank() == 0)
    write_file_atomically(concat(config_.output.dir, '/', kProductsFile), to_json(state_.products));
}

/// Does the next step.
StepResult Trainer::step() {
  const std::int64_t step = state_.steps_done;
  const double start = now_seconds();
  const WaitClock waits(training_.model.grid());
  StepInput input = training_.inputs->at(step);
  input.lr = learning_rate(config_, step);
  input.stop = options_.stop && options_.stop->load();
  input.busy = saver_.pending() && !saver_.written();
  input.accept = [this](double loss, double norm) { return outliers_.accept(loss, norm); };
  tracer_.before_step(step - first_step_);
  const StepResult result = training_.step.run(training_.model.context(), input);
  for (const std::string& remark : training_.model.backend().take_remarks()) log_.info(remark);
  tracer_.after_step(step - first_step_, training_.model.grid().describe());
  if (!result.finite) stop_for_nonfinite(input, result);
  log_.step(training_, input, result,
            {.seconds = now_seconds() - start, .waited = waits.by_kind()});
  return result;
}

void Trainer::stop_for_nonfinite(const StepInput& input, const StepResult& result) {
  const std::string block = training_.step.diagnose(training_.model.context(), input);
  std::vector<double> here(world_.size(), 0);
  here[world_.rank()] = block.empty() ? 0 : 1;
  world_.all_reduce(buffer(std::span<double>(here)), "diagnosis").wait();
  const auto place = std::ranges::find(here, 1.0);
  const int rank = static_cast<int>(place - here.begin());
  const std::string what = fmt::format("step {}: the loss is {} and the gradient norm {}",
                                       input.step + 1, plain(result.loss), plain(result.grad_norm));
  const std::string remedy =
      "; the parameters are those before this step. Lower optimizer.lr, clip with "
      "training.max_norm, or skip such steps with training.skip_outliers";
  if (place == here.end()) fail(Where::here(), what, remedy);
  if (rank == world_.rank())
    fail(Where::here(), what, "; it arose first in ", block, " on ",
         training_.model.grid().describe(), remedy);
  world_.barrier("waiting for the rank that found it");  // that rank's error ends the wait
}

void Trainer::validate() {
  if (!training_.validation) return;
  const double start = now_seconds();
  const double loss = training_.validate();
  log_.validated(loss, training_.validation_windows(), now_seconds() - start);
}

void Trainer::save() {
  if (saver_.pending()) finish_saving();
  state_.tokens_seen = log_.tokens_seen();
  state_.outliers = outliers_.state();
  saver_.begin(world_, state_.steps_done, state_blocks(training_.model, training_.optimizer),
               to_texts(state_, config_, stored_config_text(config_, origins())));
}

void Trainer::finish_saving() { log_.saved(saver_.finish(world_)); }

}  // namespace

TrainEnd train(const Config& config, Communicator& world, const TrainOptions& options) {
  return Trainer(config, world, options).run();
}

}  // namespace axonn
