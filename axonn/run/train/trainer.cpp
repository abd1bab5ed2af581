#include "axonn/run/train/trainer.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/data/corpus/batches.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/trace.h"
#include "axonn/network/model/model_files.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/run_text.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/records/run_end.h"
#include "axonn/run/records/run_folder.h"
#include "axonn/run/records/run_state.h"
#include "axonn/run/records/sample_file.h"
#include "axonn/run/train/corruption.h"
#include "axonn/run/train/local_state.h"
#include "axonn/run/train/nonfinite.h"
#include "axonn/run/train/resume.h"
#include "axonn/run/train/run_log.h"
#include "axonn/run/train/state_blocks.h"
#include "axonn/run/train/tune.h"

namespace axonn {

namespace {

LogOptions log_options(const Config& config, int rank, const TrainOptions& options) {
  const std::string folder = config.output.dir + "/logs";
  make_folders(folder);
  return {.file = fmt::format("{}/rank-{}.log", folder, rank),
          .terminal = rank == 0 ? options.terminal : nullptr,
          .interactive = rank == 0 && options.interactive,
          .columns = options.columns};
}

/// Records the operations of every rank in a few steps of a run and writes them to one file for
/// Perfetto (https://ui.perfetto.dev) or chrome://tracing. It must be created before the run's
/// communicators and backend and outlive them.
class StepTracer {
 public:
  /// If file is "", records nothing and costs nothing. Groups split from world from now on are
  /// traced.
  StepTracer(std::string file, Communicator& world) : file_(std::move(file)), world_(world) {
    if (!file_.empty()) world_.set_trace(&trace_);
  }
  ~StepTracer() { world_.set_trace(nullptr); }
  StepTracer(const StepTracer&) = delete;
  StepTracer& operator=(const StepTracer&) = delete;

  std::unique_ptr<Backend> wrap(std::unique_ptr<Backend> backend) {
    return file_.empty() ? std::move(backend) : make_tracing_backend(std::move(backend), trace_);
  }

  /// Call these before and after each step, counted from 0 in this run. Collective at the first and
  /// the last traced step.
  void before_step(std::int64_t step) {
    if (file_.empty() || step != kSkipped) return;
    world_.barrier("trace");  // so that all ranks start their clocks together
    trace_.start();
  }
  void after_step(std::int64_t step, const std::string& process) {
    if (file_.empty() || step != kSkipped + kSteps - 1) return;
    trace_.stop();
    std::vector<std::string> all;
    gather_texts(world_, trace_.events(world_.rank(), process),
                 [&](std::string events) { all.push_back(std::move(events)); });
    if (world_.rank() == 0) write_file_atomically(file_, trace_file(all));
  }

 private:
  // The first steps allocate memory and learn the order of blocks; the later ones are typical.
  static constexpr std::int64_t kSkipped = 2, kSteps = 3;

  std::string file_;
  Communicator& world_;
  Trace trace_;
};

/// Whether something that is done every so many steps (0: never) is due after step `done`, or at
/// the last of all.
bool is_due(std::int64_t every, std::int64_t done, std::int64_t last = 0) {
  return done == last || (every > 0 && done % every == 0);
}

/// A training run on one rank.
class Trainer {
 public:
  Trainer(const PreparedRun& run, Communicator& world, const RunFolder& folder,
          const TrainOptions& options)
      : options_(options),
        world_(world),
        folder_(folder),
        log_(log_options(run.config(), world.rank(), options), world),
        tracer_(run->output.trace, world),
        cores_(run.config(), world),
        training_(run, world, tracer_.wrap(make_backend(run.config(), world, cores_.threads())),
                  {.cache_folder = run->output.dir + "/cache",
                   .make_optimizer = options.make_optimizer,
                   .make_sequences = options.make_sequences,
                   .make_sampler = options.make_sampler,
                   .rollouts_folder = concat(run->output.dir, '/', kRolloutsFolder),
                   .progress = options.progress}),
        config_(training_.model.config()),
        saver_({.folder = run->output.dir + "/checkpoints",
                .keep = run->checkpoint.keep,
                .keep_factor = run->checkpoint.keep_factor,
                .async = run->checkpoint.async,
                .offload_folder = run->offload.copy_dir(),
                .progress = training_.model.progress()}),
        local_(config_, world) {}

  TrainEnd run() {
    try {
      begin();
      return go();
    } catch (const std::exception& error) {  // of this or another rank
      if (saver_.finish_alone()) log_.info("the checkpoint that was being written is complete");
      log_.error(error.what());
      throw;
    }
  }

  /// Of a run that is finished, for its user.
  std::string why_ended() const {
    if (!gives_up()) return "all steps are done";
    return fmt::format(
        "ended early after step {}: no lower validation loss than {:.4f}, of step {}, in {} "
        "validations (training.patience)",
        state_.steps_done, state_.best.loss, state_.best.step, state_.best.worse);
  }

 private:
  Origins origins() const { return options_.origins ? *options_.origins : Origins(); }

  TrainEnd go() {
    const std::int64_t steps = config_.training.steps;
    std::int64_t& done = state_.steps_done;
    bool stopped = false;
    while (done < steps && !stopped && !gives_up()) {
      const StepResult result = step();
      ++done;
      stopped = result.stop;
      const bool best = is_due(config_.training.eval_every, done, steps) && validate();
      if (sampler_ && is_due(sample_every(), done, steps)) write_samples();
      if (options_.after_step) options_.after_step(training_, done);
      // So that no more than local_every steps that are noted can be lost.
      if (local_.is_due(done)) note_local(local_.finish());
      log_.write_metrics();
      if (!result.busy) finish_saving();
      const bool last = done == steps || stopped || gives_up();
      if (!last && (best || result.save || is_due(config_.checkpoint.every, done))) save();
      if (!last && local_.is_due(done)) save_locally();
    }
    finish_saving();
    must_save_ = true;
    if (done > first_step_ || local_.resumed()) save();
    finish_saving();
    if (const std::string line = local_.end(); !line.empty()) log_.info(line);
    log_.finish();
    if (done < steps && stopped) {
      log_.info(fmt::format(
          "stopped by a signal after step {}; to continue, run again with --checkpoint.resume auto",
          done));
      return TrainEnd::stopped;
    }
    if (done > first_step_ && gives_up()) log_.info(why_ended());
    if (options_.finished) with_evaluated_weights([&] { options_.finished(training_); });
    return TrainEnd::finished;
  }

  /// Whether so many validations in a row had no lower loss that the run ends.
  bool gives_up() const {
    return config_.training.patience > 0 && state_.best.worse >= config_.training.patience;
  }

  /// Sets parameters, state and products to those that the first step begins with.
  void begin() {
    if (!folder_.warning().empty()) log_.warn(folder_.warning());
    log_.describe(training_, cores_.threads(), options_.describe);
    if (!training_.corpora.front()->tokenizer && origins().is_set("data.tokenizer") &&
        world_.rank() == 0)
      log_.warn(concat("data.tokenizer (", origins().of("data.tokenizer"), ") has no effect: \"",
                       config_.data.tokenizer, "\" cannot have made the tokens of data.tokens"));
    sampler_ = text_sampler_of(training_.model, training_.corpora.front()->tokenizer,
                               options_.make_text_sampler);
    model_text_ = to_json(text_of_run(config_.data, training_.corpora.front()->tokenizer));
    const std::string& from = folder_.resumes_from();
    std::optional<CheckpointReader> newest;
    std::string fault;
    if (!from.empty()) fault = fault_of([&] { newest.emplace(world_, from); });
    std::optional<CheckpointReader> local = find_local(newest ? newest->step() : 0);
    if (!local && !fault.empty()) refuse(fault);
    if (local || newest) refuse_other_run(local ? *local : *newest);
    LoadedModel& model = training_.model;
    const LoadCost cost = local || newest ? model.initialise_frozen() : model.initialise();
    if (cost.bytes > 0)
      log_.info(fmt::format("model from {}: this rank read {} in {}", config_.model.path,
                            format_bytes(cost.bytes), format_duration(cost.seconds)));
    training_.data_position(0);  // collective, which saving should not be
    if (local || newest)
      resume_from(from, std::move(local));
    else if (config_.checkpoint.resume == "auto")
      log_.info(
          fmt::format("no checkpoint in {}/checkpoints: starting at step 1", config_.output.dir));
    const ModelFiles* const files = config_.model_files.model.get();
    if (files && config_.model.lora.rank == 0 && world_.rank() == 0) origin_ = files->origin();
    if (config_.training.tune) tune_products();
    // A run that cannot read its first batch leaves the files of an earlier one as they are.
    if (!nothing_to_do()) {
      training_.read(first_step_);
      check_disk();
    }
    world_.barrier("first batch");
    if (world_.rank() == 0)
      folder_.remove_replaced({first_step_, state_.best.step, local_.resumed()});
    if (!nothing_to_do() || local_.resumed()) start_local();
    std::optional<std::string> text;  // without one, the files are those of the run that did it
    if (!nothing_to_do()) text = world_.rank() == 0 ? start_files() : "";
    log_.begin(config_, text, state_);
    restart_clock();
  }

  /// Throws Error on rank 0 if the checkpoint of the run's end has no room.
  void check_disk() const {
    if (world_.rank() != 0) return;
    StateForm form = state_form(config_.optimizer);
    const std::string fault =
        disk_fault(config_, checkpoint_bytes(training_.model.trained(), form));
    AXONN_CHECK(fault.empty(), fault);
  }

  /// Writes the first files of the run: it has all that it needs. Returns its config.toml.
  std::string start_files() {
    Config stored = config_;
    stored.output.overwrite = false;  // a permission for one start
    const std::string text = config_toml(stored, origins());
    write_file_atomically(config_.output.dir + "/config.toml", text);
    if (config_.training.tune)
      write_file_atomically(concat(config_.output.dir, '/', kProductsFile),
                            to_json(state_.products));
    return text;
  }

  /// Throws UsageError if the run may not continue there with its model, its optimizer and its
  /// data. Reads no weights.
  void refuse_other_run(const CheckpointReader& reader) {
    for (const std::string& changed : check_continues(reader, training_.model, training_.optimizer))
      log_.warn(concat(changed, ": continuing ", reader.folder(), " with another model"));
    const RunState state = read_run_state(reader, config_);
    training_.continue_at(state.steps_done, state.data, reader.folder());
  }

  /// The newest local checkpoint after this step, if there is one.
  std::optional<CheckpointReader> find_local(std::int64_t after) {
    std::vector<std::string> told;
    auto reader = local_.find(after, told);
    for (const std::string& line : told) log_.warn(line);
    return reader;
  }

  void start_local() {
    const StateForm form = state_form(config_.optimizer);
    const std::string line = local_.start(piece_bytes(training_.model.trained(), form));
    if (!line.empty()) log_.info(line);
  }

  /// Training goes on if a local checkpoint cannot be written. A row of failures is one warning.
  void note_local(const std::string& fault) {
    if (!fault.empty() && !local_fails_) log_.warn(fault + "; training goes on");
    local_fails_ = !fault.empty();
  }
  void save_locally() {
    const std::string fault =
        local_.begin(state_.steps_done, state_blocks(training_.model, training_.optimizer), texts(),
                     [this] { return check_sums(); });
    if (!fault.empty()) note_local(fault);
  }

  void resume_from(const std::string& path, std::optional<CheckpointReader> local) {
    const auto& [reader, cost, warnings] =
        local ? resume(training_.model, training_.optimizer, *std::move(local))
              : resume(training_.model, training_.optimizer, path);
    for (const std::string& warning : warnings) log_.warn(warning);
    state_ = read_run_state(reader, config_);
    first_step_ = state_.steps_done;
    training_.step.set_loss_scale(state_.loss_scale);
    if (training_.continue_at(first_step_, state_.data, reader.folder()))
      log_.warn(concat("the training data or their order are not those of ", reader.folder(),
                       ": continuing with the first sample of the new order"));
    training_.continue_generation(reader, first_step_);
    if (!nothing_to_do())
      for (const std::string& line :
           changed_course(reader, config_, training_.batches->consumed_before(first_step_)))
        log_.warn(concat(line, ": the losses do not go on as those of ", reader.folder()));
    const bool averages = training_.optimizer.has_averages();
    if (config_.optimizer.ema_decay > 0 && !averages)
      log_.info(concat(reader.folder(), " has no averages of the weights (optimizer.ema_decay): ",
                       "they begin with the weights after the next step"));
    if (!averages && reader.has_kind(kAveragesKind))
      log_.info(concat("the averages of the weights in ", reader.folder(),
                       " are left out: optimizer.ema_decay is 0"));
    log_.info(
        fmt::format("resumed from {} (written by {} ranks): read {} in {}{}", reader.folder(),
                    reader.index().ranks, format_bytes(cost.bytes), format_duration(cost.seconds),
                    nothing_to_do() ? "" : fmt::format("; the next step is {}", first_step_ + 1)));
    if (!nothing_to_do()) return;
    const std::int64_t steps = config_.training.steps;
    const bool all = first_step_ >= steps;
    if (options_.part_of_more) return log_.info(why_ended());
    log_.info(
        fmt::format("nothing to do: the checkpoint at {} is at step {} of {}{}; raise {} to "
                    "go on",
                    reader.folder(), first_step_, steps, all ? "" : ", and the run " + why_ended(),
                    !all                          ? "training.patience"
                    : config_.training.epochs > 0 ? "training.epochs"
                                                  : "training.steps"));
  }

  bool nothing_to_do() const { return first_step_ >= config_.training.steps || gives_up(); }

  /// Chooses how products are computed. A resumed run keeps its earlier choices.
  void tune_products() {
    state_.products =
        tune(training_, {.cache = matmul_cache_path(config_.training.tune_cache),
                         .earlier = state_.products,
                         .report = [this](const std::string& line) { log_.info(line); },
                         .progress = options_.progress});
  }

  /// Does the next step.
  StepResult step() {
    const std::int64_t step = state_.steps_done;
    const double start = now_seconds();
    const WaitClock waits(training_.model.grid());
    StepInput input = training_.input(step);
    input.skipped = state_.outliers.skipped_total;
    input.stop = options_.stop && options_.stop->load();
    input.busy = saver_.pending() && !saver_.written();
    input.save = is_due_by_time();
    input.accept = [this, step](double loss, double norm) {
      if (is_due(config_.training.verify_every, step + 1)) verify(step);
      if (std::isnan(loss)) return true;  // a step without targets says nothing of the next ones
      return state_.outliers.accept({.factor = config_.training.skip_outliers,
                                     .deviations = config_.training.skip_deviations},
                                    loss, norm);
    };
    tracer_.before_step(step - first_step_);
    const StepResult result = training_.step.run(training_.model.context(), input);
    log_remarks();
    tracer_.after_step(step - first_step_, training_.model.grid().describe());
    if (!result.finite && (!result.overflow || training_.step.loss_scale().exhausted())) {
      finish_saving();  // while all ranks are there
      stop_for_nonfinite(training_, input, result, config_.output.dir, texts());
    }
    const double seconds = now_seconds() - start;
    log_.step(training_, input, result, seconds, waits.by_kind());
    if (state_.outliers.skipped >= config_.training.skip_most)
      fail(Where::here(), "step ", step + 1, ": the last ", state_.outliers.skipped,
           " steps were skipped, so ",
           "the weights have not changed since; resume from an earlier checkpoint ",
           "(checkpoint.resume, output.overwrite) with a lower ",
           "optimizer.lr, or raise training.skip_outliers or training.skip_deviations");
    return result;
  }

  /// Looks for silent corruption before step `step` updates the weights.
  void verify(std::int64_t step) {
    const double start = now_seconds();
    const std::string found = find_corruption(training_, step);
    if (!found.empty())
      fail(Where::here(), "step ", step + 1, ": silent corruption: ", found,
           "; a flipped bit or faulty hardware is likely. The weights may be wrong since step ",
           std::max<std::int64_t>(step + 1 - config_.training.verify_every, 0),
           ": resume from a checkpoint no newer than that (checkpoint.resume, output.overwrite), "
           "without that rank's hardware");
    log_.info(
        fmt::format("verified: step {}, in {}", step + 1, format_duration(now_seconds() - start)));
  }

  /// Returns whether a checkpoint is due because its loss is the lowest so far.
  bool validate() {
    if (!training_.validation) return false;
    const double start = now_seconds();
    const double loss = training_.validate();
    log_.validated_figures(training_.validation_figures);
    std::optional<double> of_averages;
    if (training_.optimizer.has_averages()) of_averages = training_.validate_averages();
    log_.validated(loss, of_averages, training_.validation_windows(), now_seconds() - start);
    finish_saving();  // of the best so far, perhaps
    const BestLoss before = state_.best;
    if (!state_.best.note(loss, state_.steps_done) || !config_.checkpoint.best) return false;
    before_best_ = before;
    saver_.keep_best(state_.steps_done);
    return true;
  }

  /// Calls f while the model has the weights to evaluate.
  void with_evaluated_weights(const auto& f) {
    const Context ctx = training_.model.context();
    training_.optimizer.exchange_evaluated(ctx);
    f();
    training_.optimizer.exchange_evaluated(ctx);
  }

  /// On rank 0, which decides for all.
  void restart_clock() {
    if (world_.rank() == 0) saved_at_ = options_.clock();
  }
  bool is_due_by_time() const {
    const double minutes = config_.checkpoint.every_minutes;
    return world_.rank() == 0 && minutes > 0 && options_.clock() - saved_at_ >= 60 * minutes &&
           !saver_.pending();
  }

  std::int64_t sample_every() const {
    return config_.samples.every > 0 ? config_.samples.every : config_.training.eval_every;
  }

  void write_samples() {
    const double start = now_seconds();
    std::vector<TextSample> samples;
    with_evaluated_weights([&] { samples = sampler_(); });
    log_.sampled(samples, now_seconds() - start);
  }

  void save() {
    finish_saving();
    restart_clock();
    try {
      saver_.begin(world_, state_.steps_done, state_blocks(training_.model, training_.optimizer),
                   texts(), [this] { return check_sums(); });
    } catch (const AgreedError& error) {
      note_failed_save(error.what());
    }
  }

  void log_remarks() {
    for (const std::string& remark : training_.model.backend().take_remarks()) log_.info(remark);
    for (const std::string& warning : training_.take_warnings()) log_.warn(warning);
  }

  /// Of a snapshot that is taken, which bits that have flipped by now may be in: IsWhole.
  bool check_sums() {
    const bool state = training_.optimizer.check_sums(),
               memory = training_.model.backend().check_memory();
    log_remarks();
    return state && memory;
  }

  /// The texts of a checkpoint that is made now.
  StateTexts texts() {
    state_.tokens_seen = log_.tokens_seen();
    state_.data = training_.data_position(state_.steps_done);
    state_.loss_scale = training_.step.loss_scale().state();
    state_.optimizer = training_.optimizer.numbers();
    StateTexts texts = to_texts(state_, stored_config_text(config_, origins()));
    texts.emplace(kModelTextName, model_text_);
    training_.add_generation(texts);
    if (origin_) texts.emplace(kOriginName, to_text(*origin_));
    return texts;
  }

  void finish_saving() {
    if (!saver_.pending()) return;
    try {
      log_.saved(saver_.finish(world_));
      failing_since_.reset();
      before_best_.reset();
    } catch (const AgreedError& error) {
      note_failed_save(error.what());
    }
  }

  /// Called on all ranks, from a handler of the error: throws it again if the run must end.
  void note_failed_save(const char* why) {
    if (!failing_since_) failing_since_ = now_seconds();
    double seconds = now_seconds() - *failing_since_;
    world_.all_reduce({&seconds, 1, DType::f64}, "failed checkpoint", ReduceOp::max).wait();
    if (must_save_ || seconds >= 60 * config_.checkpoint.give_up_minutes) throw;
    log_.save_failed(why);
    if (!before_best_) return;
    state_.best.loss = before_best_->loss;  // so that the next one that is lower is saved
    state_.best.step = before_best_->step;
    before_best_.reset();
  }

  TrainOptions options_;
  Communicator& world_;
  const RunFolder& folder_;
  RunLog log_;
  StepTracer tracer_;
  OwnCores cores_;
  Training training_;
  const Config& config_;
  CheckpointSaver saver_;
  LocalState local_;
  bool local_fails_ = false;                // the last one
  std::string model_text_;                  // the text.json of its checkpoints
  std::optional<ModelFiles::Form> origin_;  // rank 0: of the model that this run began with
  RunState state_;
  TextSampler sampler_;  // empty: there are no samples
  std::int64_t first_step_ = 0;
  bool must_save_ = false;               // the checkpoint of the end
  double saved_at_ = 0;                  // by options_.clock: the last checkpoint, or the start
  std::optional<BestLoss> before_best_;  // while the checkpoint of a lower loss is not yet saved
  std::optional<double> failing_since_;  // now_seconds() of the first of a row of failed saves
};

}  // namespace

TrainEnd train(const PreparedRun& run, Communicator& world, const TrainOptions& options) {
  const RunFolder folder(run.config(), world);
  const auto note = [&](RunEnd end, std::string_view why) {
    note_run_end(run->output.dir, end, why);
  };
  try {
    Trainer trainer(run, world, folder, options);
    const TrainEnd end = trainer.run();
    if (world.rank() == 0)
      note(end == TrainEnd::stopped ? RunEnd::stopped : RunEnd::finished,
           end == TrainEnd::stopped ? "by a signal; --checkpoint.resume auto continues it"
                                    : trainer.why_ended());
    return end;
  } catch (const Aborted& error) {  // the rank that failed first has said more, if it could
    if (world.rank() == 0) note(RunEnd::failed, error.what());
    throw;
  } catch (const std::exception& error) {
    note(RunEnd::failed, error.what());
    throw;
  }
}

}  // namespace axonn
