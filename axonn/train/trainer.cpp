#include "axonn/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/base/log.h"
#include "axonn/comm/texts.h"
#include "axonn/model/flops.h"
#include "axonn/options/options.h"
#include "axonn/train/devices.h"
#include "axonn/train/metrics.h"
#include "axonn/train/outliers.h"
#include "axonn/train/own_cores.h"
#include "axonn/train/resume.h"
#include "axonn/train/schedule.h"
#include "axonn/train/session.h"
#include "axonn/train/step_tracer.h"
#include "axonn/train/stored_config.h"
#include "axonn/train/stragglers.h"
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

constexpr const char* kProductsFile = "products.json";  // in output.dir and in checkpoints

double share_kept(std::int64_t kept, std::int64_t targets) {
  return static_cast<double>(kept) / static_cast<double>(targets);
}

/// Returns NaN without its sign, which has no meaning.
double plain(double value) { return std::isnan(value) ? std::abs(value) : value; }

/// The training loop on one rank.
class Trainer {
 public:
  Trainer(const Config& config, Communicator& world, const TrainOptions& options)
      : options_(options),
        world_(world),
        log_(log_options(config, world.rank(), options)),
        tracer_(config.output.trace, world),
        cores_(config, world),
        session_(config, world, tracer_.wrap(make_backend(config, world, cores_.threads())),
                 {.cache_folder = config.output.dir + "/cache",
                  .make_model = options.make_model,
                  .make_optimizer = options.make_optimizer,
                  .make_sequences = options.make_sequences}),
        config_(session_.config()),
        saver_({.folder = config.output.dir + "/checkpoints",
                .keep = config.checkpoint.keep,
                .async = config.checkpoint.async}),
        outliers_(config.training.skip_outliers) {}

  TrainEnd run();

 private:
  std::string config_text() const {
    return config_toml(config_, options_.origins ? *options_.origins : Origins());
  }
  std::string stored_text() const {
    return stored_config_text(config_, options_.origins ? *options_.origins : Origins());
  }
  bool first() const { return world_.rank() == 0; }
  void describe();
  void begin();
  void tell_loaded(const LoadCost& cost);
  void resume_from(const std::string& path);
  void tune_products();
  bool step(std::int64_t step);
  void stop_for_nonfinite(const StepInput& input, const StepResult& result);
  void report(const StepInput& input, const StepResult& result, double seconds);
  void validate(std::int64_t step);
  void begin_checkpoint(std::int64_t steps_done);
  void finish_checkpoint();
  void draw();

  TrainOptions options_;
  Communicator& world_;
  Log log_;
  StepTracer tracer_;
  OwnCores cores_;
  Session session_;
  const Config config_;
  CheckpointSaver saver_;
  OutlierFilter outliers_;
  MatmulChoices products_;  // empty unless training.tune is set
  std::unique_ptr<MetricsFile> metrics_;
  StepMetrics line_;
  std::int64_t first_step_ = 0, tokens_seen_ = 0;
  std::int64_t kept_ = 0, targets_ = 0;  // since the start or the resume
  double began_ = 0, waited_ = 0, working_ = 0;
  NamedSeconds waited_by_;  // of the last step, in ms
  double seconds_since_log_ = 0;
  std::int64_t steps_since_log_ = 0;
};

void Trainer::describe() {
  const ModelConfig& m = config_.model;
  log_.info(fmt::format(
      "model: {} parameters, {} layer{}, width {}, {} heads, vocabulary {}{}",
      format_count(parameter_count(m)), m.layers, m.layers == 1 ? "" : "s", m.hidden, m.heads,
      format_count(m.vocab),
      m.lora.rank > 0 ? fmt::format("; frozen, with adapters of rank {}", m.lora.rank) : ""));
  const Device& device = session_.backend().device();
  const std::string each = device.uuid().empty() ? fmt::format("{} thread{}", cores_.threads(),
                                                               cores_.threads() == 1 ? "" : "s")
                                                 : device.name();
  log_.info(fmt::format("grid: x {}, y {}, z {}, data {}: {} rank{}, {} each, {}",
                        config_.parallelism.x, config_.parallelism.y, config_.parallelism.z,
                        config_.parallelism.data, world_.size(), world_.size() == 1 ? "" : "s",
                        each, name_of(config_.training.dtype)));
  log_.info(fmt::format(
      "step: {} sequences of {} tokens, in micro-batches of {}; about {:.2f} epochs in the whole "
      "run",
      config_.training.global_batch, config_.training.seq_len, config_.training.micro_batch,
      static_cast<double>(config_.training.steps * config_.training.global_batch) /
          static_cast<double>(session_.sequences().count())));
  if (session_.step().graphs())
    log_.info("graphs: captured in the second step, launched from then on");
}

void Trainer::begin() {
  if (first()) {
    write_file_atomically(config_.output.dir + "/config.toml", config_text());
    describe();
  }
  const std::string from =
      broadcast_texts(world_, {first() ? resume_path(config_) : std::string()}).front();
  ProgressLine progress(first() && options_.interactive ? options_.terminal : nullptr, "loading");
  if (from.empty()) {
    tell_loaded(session_.initialise(std::ref(progress)));
  } else {
    tell_loaded(session_.initialise_frozen(std::ref(progress)));
    resume_from(from);
  }
  if (config_.training.tune) tune_products();
  if (first())
    metrics_ = std::make_unique<MetricsFile>(config_.output.dir + "/metrics.jsonl", first_step_);
}

void Trainer::tell_loaded(const LoadCost& cost) {
  if (cost.bytes > 0)
    log_.info(fmt::format("model from {}: this rank read {} in {}", config_.model.path,
                          format_bytes(cost.bytes), format_duration(cost.seconds)));
}

/// Chooses how products are computed. A resumed run keeps its earlier choices.
void Trainer::tune_products() {
  products_ = tune(session_, {.cache = matmul_cache_path(config_.training.tune_cache),
                              .earlier = products_,
                              .report = [this](const std::string& line) { log_.info(line); }});
  if (first()) write_file_atomically(config_.output.dir + "/" + kProductsFile, to_json(products_));
}

void Trainer::resume_from(const std::string& path) {
  const auto& [reader, cost, warnings] = resume(session_, path);
  for (const std::string& warning : warnings) log_.warn(warning);
  const auto state = nlohmann::json::parse(reader.text("state.json"), nullptr, false);
  if (!state.is_object() || !state.contains("steps_done") ||
      !state["steps_done"].is_number_integer())
    refuse(reader.folder(), "/state.json does not state how many steps were done");
  first_step_ = state["steps_done"];
  tokens_seen_ = state.value("tokens_seen", first_step_ * session_.tokens_per_step());
  const auto means = state.value("outliers", nlohmann::json::object());
  outliers_ = OutlierFilter(
      config_.training.skip_outliers,
      {means.value("loss", 0.0), means.value("norm", 0.0), means.value("steps", 0.0)});
  if (config_.training.tune && reader.has_text(kProductsFile))
    products_ =
        parse_matmul_choices(reader.text(kProductsFile), reader.folder() + "/" + kProductsFile);
  log_.info(fmt::format("resumed from {} (written by {} ranks): read {} in {}; the next step is {}",
                        reader.folder(), reader.index().ranks, format_bytes(cost.bytes),
                        format_duration(cost.seconds), first_step_ + 1));
}

TrainEnd Trainer::run() {
  begin();
  began_ = now_seconds();
  std::int64_t done = first_step_;
  bool go_on = true;
  while (done < config_.training.steps && go_on) {
    go_on = step(done);
    ++done;
    const std::int64_t every = config_.checkpoint.every;
    if (every > 0 && done % every == 0 && done < config_.training.steps && go_on)
      begin_checkpoint(done);
  }
  if (done > first_step_) begin_checkpoint(done);
  if (saver_.pending()) finish_checkpoint();
  draw();
  if (config_.training.goldfish.k > 0 && targets_ > 0)
    log_.info(fmt::format("goldfish: {:.2f} % of {} targets counted in the loss",
                          100 * share_kept(kept_, targets_), format_count(targets_)));
  const bool finished = done >= config_.training.steps;
  if (!finished)
    log_.info(fmt::format(
        "stopped by a signal after step {}; to continue, run again with --checkpoint.resume auto",
        done));
  if (finished && options_.finished) options_.finished(session_);
  return finished ? TrainEnd::finished : TrainEnd::stopped;
}

/// Does one step. Returns whether the run continues.
bool Trainer::step(std::int64_t step) {
  const double start = now_seconds(), waited = session_.waited_seconds();
  const NamedSeconds kinds = session_.waited_by_kind();
  StepInput input = session_.step_input(step);
  input.lr = learning_rate(config_, step);
  input.stop = options_.stop && options_.stop->load();
  input.busy = saver_.pending() && !saver_.written();
  input.accept = [this](double loss, double norm) { return outliers_.accept(loss, norm); };
  tracer_.before_step(step - first_step_);
  const StepResult result = session_.train_step(input);
  for (const std::string& remark : session_.backend().take_remarks()) log_.info(remark);
  tracer_.after_step(step - first_step_, session_.grid().describe());
  if (!result.finite) stop_for_nonfinite(input, result);
  const double seconds = now_seconds() - start;
  waited_ = session_.waited_seconds() - waited;
  waited_by_ = session_.waited_by_kind();
  for (std::size_t i = 0; i < kinds.size(); ++i)
    waited_by_[i].second = (waited_by_[i].second - kinds[i].second) * 1e3;
  std::erase_if(waited_by_, [](const auto& kind) { return kind.second <= 0; });
  working_ = seconds - waited_;
  kept_ += input.tokens;
  targets_ += input.all_targets;
  report(input, result, seconds);
  if (saver_.pending() && !result.busy) finish_checkpoint();
  return !result.stop;
}

void Trainer::stop_for_nonfinite(const StepInput& input, const StepResult& result) {
  const std::string block = session_.diagnose(input);
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
    fail(Where::here(), what, "; it arose first in ", block, " on ", session_.grid().describe(),
         remedy);
  world_.barrier("waiting for the rank that found it");  // that rank's error ends the wait
}

void Trainer::report(const StepInput& input, const StepResult& result, double seconds) {
  const std::int64_t step = input.step + 1;
  const bool logs = step % config_.output.log_every == 0 || step == config_.training.steps;
  if (logs) {
    const std::string slow = stragglers(session_.grid(), working_);
    if (first() && !slow.empty()) log_.warn(slow);
  }
  if (first()) {
    const std::int64_t tokens = session_.step_size(step - 1).inputs;
    tokens_seen_ += tokens;
    const double per_second = static_cast<double>(tokens) / seconds;
    const double tflops =
        per_second * model_flops_per_token(config_.model, config_.training.seq_len) * 1e-12;
    const double peak = config_.parallelism.peak_tflops * world_.size();
    line_ = {.step = step,
             .loss = result.loss,
             .grad_norm = result.grad_norm,
             .lr = input.lr,
             .tokens = tokens_seen_,
             .step_ms = seconds * 1e3,
             .tokens_per_s = per_second,
             .model_tflops = tflops,
             .mfu = peak > 0 ? tflops / peak : StepMetrics::kNone,
             .exposed_comm_ms = waited_ * 1e3,
             .exposed_by = waited_by_,
             .memory_bytes = session_.arena().stats().peak_bytes};
    if (config_.training.goldfish.k > 0) line_.kept = share_kept(input.tokens, input.all_targets);
    const double mean = (now_seconds() - began_) / static_cast<double>(step - first_step_);
    seconds_since_log_ += seconds;
    ++steps_since_log_;
    if (logs) {
      const double share = static_cast<double>(steps_since_log_) * seconds / seconds_since_log_;
      log_.step({.step = step,
                 .steps = config_.training.steps,
                 .loss = result.loss,
                 .grad_norm = result.grad_norm,
                 .memory_bytes = line_.memory_bytes,
                 .tokens_per_second = per_second * share,  // mean of the steps since the last line
                 .tflops = tflops * share,
                 .mfu = peak > 0 ? std::optional(tflops * share / peak) : std::nullopt,
                 .seconds_left = mean * static_cast<double>(config_.training.steps - step)});
      seconds_since_log_ = 0;
      steps_since_log_ = 0;
    }
  }
  if (!result.applied)
    log_.warn(fmt::format("step {} skipped: loss {:.4f}, gradient norm {:.3g} are outliers", step,
                          result.loss, result.grad_norm));
  const std::int64_t every = config_.training.eval_every;
  if (every > 0 && session_.validation_windows() > 0 &&
      (step % every == 0 || step == config_.training.steps))
    validate(step);
  if (first()) metrics_->write(line_);
}

void Trainer::validate(std::int64_t step) {
  const double start = now_seconds();
  line_.val_loss = session_.validate();
  log_.info(fmt::format("validation: step {}  loss {:.4f}  ({} windows in {})", step,
                        line_.val_loss, format_count(session_.validation_windows()),
                        format_duration(now_seconds() - start)));
}

void Trainer::begin_checkpoint(std::int64_t steps_done) {
  if (saver_.pending()) finish_checkpoint();
  const OutlierFilter::State& means = outliers_.state();
  const nlohmann::json state = {
      {"steps_done", steps_done},
      {"samples_done", steps_done * config_.training.global_batch},
      {"tokens_seen", tokens_seen_},
      {"seed", config_.training.seed},
      {"outliers", {{"loss", means.loss}, {"norm", means.norm}, {"steps", means.steps}}}};
  const auto blocks = session_.state();
  StateTexts texts{{"state.json", state.dump(2) + "\n"}, {"config.toml", stored_text()}};
  if (!products_.products.empty()) texts.emplace(kProductsFile, to_json(products_));
  saver_.begin(world_, steps_done, blocks, texts);
}

void Trainer::finish_checkpoint() {
  const SaveCost cost = saver_.finish(world_);
  log_.info(fmt::format("saved {}: {} in {} (training waited {})", cost.folder,
                        format_bytes(cost.bytes), format_duration(cost.write_seconds),
                        format_duration(cost.stall_seconds)));
  draw();
}

void Trainer::draw() {
  if (!first()) return;
  const std::string title =
      fmt::format("{} parameters on grid {}", format_count(parameter_count(config_.model)),
                  to_string(config_.parallelism.grid()));
  write_file_atomically(config_.output.dir + "/loss.svg",
                        loss_svg(title, metrics_->losses(), metrics_->validation()));
}

}  // namespace

TrainEnd train(const Config& config, Communicator& world, const TrainOptions& options) {
  return Trainer(config, world, options).run();
}

}  // namespace axonn
