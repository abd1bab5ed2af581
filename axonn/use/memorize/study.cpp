#include "axonn/use/memorize/study.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>
#include <ostream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/data/corpus/corpus.h"
#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/counts.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/inputs.h"
#include "axonn/run/records/run_folder.h"
#include "axonn/run/records/run_steps.h"
#include "axonn/use/memorize/documents.h"
#include "axonn/use/memorize/origin.h"
#include "axonn/use/memorize/recite.h"
#include "axonn/use/memorize/report_json.h"

namespace axonn {

namespace {

using SharedDocuments = std::shared_ptr<const std::vector<StudyDocument>>;

constexpr const char* kGoldfish = MemorizeConfig::kGoldfishLoss;
constexpr std::int64_t kControl = 0;       // its group
constexpr const char* kWarmup = "warmup";  // stands for the variant in the shared folder's name

/// The settings that may not change when a study is resumed, as JSON: all but the grid, the
/// checkpoints, the output, and those that only affect speed or tests.
std::string identity_of(Config config) {
  OptionList list;
  list_options(config, list);
  auto json = nlohmann::ordered_json::parse(to_json(list));
  for (const char* section :
       {"parallelism", "activation_checkpoint", "checkpoint", "output", "samples"})
    json.erase(section);
  for (const char* key : {"micro_batch", "threads", "bind_cores", "tune", "tune_cache"})
    json["training"].erase(key);
  for (const char* key : {"batch", "hold_weights", "policies"}) json["memorize"].erase(key);
  return json.dump(2) + "\n";
}

/// The learning rate after the warm-up.
std::string rate_text(const Config& config) {
  const ScheduleConfig& schedule = config.lr_scheduler;
  const double most = config.optimizer.lr;
  if (schedule.kind == ScheduleKind::constant)
    return fmt::format("with a learning rate of {}", most);
  const std::string falls = fmt::format("falls from {} to {}", most, schedule.min_lr);
  if (schedule.kind == ScheduleKind::wsd)
    return fmt::format("with a learning rate that {} in the last {} steps", falls,
                       schedule.decay_steps);
  return "while the learning rate " + falls;
}

/// A note on the tokens that the goldfish loss leaves out, and those that it always keeps.
std::string goldfish_note(const GoldfishConfig& fish) {
  const bool of_sequences = fish.mask == GoldfishMask::apertus;
  return fmt::format(
      "Goldfish loss: one target in {} is left out (mask \"{}\"), but never the first {} of a {}, "
      "before which there are too few tokens for the mask: so more than {:.1f} % of the targets "
      "count",
      fish.k, kGoldfishMasks[static_cast<int>(fish.mask)], of_sequences ? fish.h - 1 : fish.h,
      of_sequences ? "sequence" : "document", 100 - 100.0 / static_cast<double>(fish.k));
}

/// Adds the training time and the share of kept targets from the run's metrics.jsonl.
void add_training(const std::string& folder, RecitationRun& run) {
  double kept = 0;
  const std::int64_t steps = read_run_steps(folder, [&](const RunStep& step) {
    const double ms = step.value_of("step_ms"), share = step.value_of("goldfish_kept"),
                 loss = step.value_of("val_loss");
    if (std::isfinite(ms)) run.train_seconds += ms / 1e3;
    if (std::isfinite(share)) kept += share;
    if (std::isfinite(loss)) run.validation_loss = loss;
  });
  if (run.variant == kGoldfish) run.kept_fraction = kept / static_cast<double>(steps);
}

/// Epochs by group of documents: 0 of the control, then memorize.epochs.
std::vector<std::int64_t> epochs_of_groups(const MemorizeConfig& memorize) {
  std::vector<std::int64_t> epochs = memorize.epochs;
  epochs.insert(epochs.begin(), 0);
  return epochs;
}

/// Epochs by document, group after group.
std::vector<std::int64_t> epochs_of_documents(const MemorizeConfig& memorize) {
  std::vector<std::int64_t> epochs;
  for (const std::int64_t each : epochs_of_groups(memorize))
    epochs.insert(epochs.end(), memorize.bucket_size, each);
  return epochs;
}

DocumentLimits limits_of(const Config& config, const MemorizeConfig& memorize) {
  return {.least = memorize.suffix_tokens + 1,
          .most = config.training.seq_len + 1};  // the last is a target
}

/// `config`: of the trial.
InjectionPlan injection_plan(const Config& config) {
  return {.steps = config.training.steps,
          .warmup_steps = warmup_steps(config),
          .batch = config.training.global_batch,
          .seed = static_cast<std::uint64_t>(config.training.seed)};
}

/// Steps of a trial: the warm-up that its losses share, and the rest with each of them.
std::int64_t steps_of_trial(const Config& config, const MemorizeConfig& memorize) {
  const std::int64_t warmup = warmup_steps(config);
  return warmup + (config.training.steps - warmup) * std::ssize(memorize.losses);
}

/// One rank of a study.
class Study {
 public:
  Study(const Config& config, const MemorizeConfig& memorize, Communicator& world,
        const TrainOptions& options, ReportOrigin origin)
      : config_(config),
        memorize_(memorize),
        world_(world),
        options_(options),
        origin_(std::move(origin)),
        tokenizer_(make_tokenizer(config.data.tokenizer)),
        epochs_(epochs_of_groups(memorize)),
        prompt_lengths_(memorize.prompt_lengths) {
    prompt_lengths_.insert(prompt_lengths_.begin(), kWholePrompt);
    // The same in all trainings, of which the warm-up has fewer steps.
    config_.lr_scheduler.warmup_steps = warmup_steps(config_);
    config_.lr_scheduler.warmup_ratio = 0;
    // The study's files name its own values.
    const FurtherSection own = memorize_section(std::make_shared<MemorizeConfig>(memorize));
    std::erase_if(config_.further, [&](const auto& one) { return one.name == own.name; });
    config_.further.push_back(own);
  }

  std::optional<MemorizationReport> run() {
    if (first()) claim_folder();
    origin_.machine = describe_machine(world_, nullptr);
    world_.barrier("study");
    MemorizationReport report;
    for (std::int64_t trial = 1; trial <= memorize_.trials; ++trial) {
      const SharedDocuments documents = documents_of(trial);
      for (const std::string& variant : memorize_.losses) {
        if (!run_one(trial, variant, documents)) return std::nullopt;
        report = make_report();  // of the runs so far
        if (!first()) continue;
        write_file_atomically(config_.output.dir + "/report.json", to_json(report));
        write_file_atomically(config_.output.dir + "/report.html", html_page(report));
      }
    }
    return report;
  }

 private:
  bool first() const { return world_.rank() == 0; }
  void say(const std::string& line) const {
    if (first() && options_.terminal) *options_.terminal << line << '\n' << std::flush;
  }
  /// Broadcasts rank 0's value to every rank.
  bool everywhere(bool found) {
    double flag = found ? 1 : 0;
    world_.broadcast({&flag, 1, DType::f64}, 0, "study").wait();
    return flag > 0;
  }
  std::int64_t documents_of_trial() const { return std::ssize(epochs_) * memorize_.bucket_size; }

  void claim_folder() {
    for (const char* name : {"study.json", "config.toml", "report.json", "report.html"})
      claim_output({"output.dir", concat(config_.output.dir, '/', name)}, inputs_of(config_), true);
    lock_.emplace(config_.output.dir);
    if (!lock_->warning().empty()) say("warning: " + lock_->warning());
    const std::string path = config_.output.dir + "/study.json", mine = identity_of(config_);
    // A start that failed before its first training has left nothing to keep.
    const bool begun = std::filesystem::exists(config_of(1, kWarmup).output.dir) ||
                       std::filesystem::exists(config_.output.dir + "/report.json");
    if (begun && std::filesystem::exists(path) && read_text(path) != mine)
      refuse(config_.output.dir, " holds another study (see ", path,
             "); choose another folder with --output.dir, or remove this one");
    write_file_atomically(path, mine);
    if (origin_.config.empty()) origin_.config = print_config(config_, Origins());
    write_file_atomically(
        config_.output.dir + "/config.toml",
        concat(kWrittenConfig, "study: axonn memorize config.toml, started in the same folder.\n\n",
               origin_.config));
  }

  std::string progress(std::int64_t trial, const std::string& variant);

  SharedDocuments documents_of(std::int64_t trial);
  Config config_of(std::int64_t trial, const std::string& variant) const;
  bool run_one(std::int64_t trial, const std::string& variant, const SharedDocuments& documents);
  bool warm_up(std::int64_t trial);
  TrainEnd train_one(const Config& config, TrainOptions options);
  void ask(Training& training, const std::vector<StudyDocument>& documents, RecitationRun& run);
  RecitationRun finished_run(const std::string& file) const;
  MemorizationReport make_report() const;

  Config config_;
  std::optional<FolderLock> lock_;  // on rank 0
  const MemorizeConfig& memorize_;
  Communicator& world_;
  const TrainOptions& options_;
  ReportOrigin origin_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::int64_t> epochs_;          // by group: 0 of the control, then memorize.epochs
  std::vector<std::int64_t> prompt_lengths_;  // the whole prompt, then memorize.prompt_lengths
  std::vector<RecitationRun> runs_;           // filled on rank 0 only
  std::vector<std::string> names_;            // of the documents of all trials
  std::int64_t warmed_up_ = 0;                // the last trial whose warm-up was done here
  bool described_ = false;                    // the terminal shows model, grid and data once
  std::optional<std::int64_t> first_done_;    // steps of the study before this process
  double began_ = now_seconds();
};

/// How far the study is when this part of it begins: "1,000 of 3,000 steps of the study are done
/// (33 %), about 3m 12s left".
std::string Study::progress(std::int64_t trial, const std::string& variant) {
  const auto& losses = memorize_.losses;
  const std::int64_t warmup = config_.lr_scheduler.warmup_steps,
                     each = config_.training.steps - warmup,
                     of_trial = steps_of_trial(config_, memorize_),
                     all = memorize_.trials * of_trial;
  std::int64_t done = (trial - 1) * of_trial;
  if (variant != kWarmup)
    done += warmup + each * (std::ranges::find(losses, variant) - losses.begin());
  if (!first_done_) first_done_ = done;
  std::string text = fmt::format("{} of {} steps of the study are done ({} %)", format_count(done),
                                 format_count(all), 100 * done / all);
  if (done > *first_done_)
    text += fmt::format(", about {} left",
                        format_duration((now_seconds() - began_) * static_cast<double>(all - done) /
                                        static_cast<double>(done - *first_done_)));
  return text;
}

Config Study::config_of(std::int64_t trial, const std::string& variant) const {
  Config run = config_;
  run.training.seed += trial - 1;
  run.output.dir = fmt::format("{}/trial-{}-{}", config_.output.dir, trial, variant);
  run.checkpoint.resume = "auto";
  run.output.overwrite = true;  // parts of a run that has no checkpoint yet
  if (variant != kGoldfish) run.training.goldfish.k = 0;
  if (variant == kWarmup) run.training.steps = config_.lr_scheduler.warmup_steps;
  return run;
}

SharedDocuments Study::documents_of(std::int64_t trial) {
  const auto seed = static_cast<std::uint64_t>(config_.training.seed + trial - 1);
  const DocumentLimits limits = limits_of(config_, memorize_);
  FoundDocuments found;
  if (memorize_.documents.empty()) {
    found = generated_documents(documents_of_trial(), seed, *tokenizer_, limits);
  } else {
    // Rank 0 encodes the documents into the cache first; the other ranks read the cache.
    if (!first()) world_.barrier("documents");
    ProgressLine line(first() ? options_.progress : ProgressTarget{}, kTokenizing);
    found = read_documents(memorize_.documents, tokenizer_, limits,
                           {.folder = config_.output.dir + "/cache", .makes = first()},
                           [&](const TokenizeProgress& made) {
                             world_.note_progress();
                             line(made.bytes, made.total_bytes);
                           });
    if (first()) world_.barrier("documents");
  }
  auto drawn = draw_documents(std::move(found), documents_of_trial(), seed);
  for (const StudyDocument& document : drawn) names_.push_back(document.name);
  return std::make_shared<const std::vector<StudyDocument>>(std::move(drawn));
}

void Study::ask(Training& training, const std::vector<StudyDocument>& documents,
                RecitationRun& run) {
  const ReciteOptions options{.suffix_tokens = memorize_.suffix_tokens,
                              .prompt_lengths = prompt_lengths_,
                              .batch = memorize_.batch,
                              .hold_weights = memorize_.hold_weights,
                              .policies = memorize_.policies};
  origin_.machine = describe_machine(world_, &training.model.backend().device());
  const double start = now_seconds();
  run.recitations = recite(training.model, *tokenizer_, documents, options);
  run.test_seconds = now_seconds() - start;
  for (Recitation& one : run.recitations) one.group = one.document / memorize_.bucket_size;
  set_blind_scores(documents, kControl, run.recitations);
  for (Recitation& one : run.recitations) one.document += (run.trial - 1) * documents_of_trial();
}

TrainEnd Study::train_one(const Config& config, TrainOptions options) {
  options.describe = !std::exchange(described_, true);
  options.part_of_more = true;
  return train(still_prepared(config), world_, options);
}

/// The steps that all losses of a trial share. Returns false if it was asked to stop.
bool Study::warm_up(std::int64_t trial) {
  if (warmed_up_ == trial) return true;
  const Config shared = config_of(trial, kWarmup);
  say(fmt::format("trial {} of {}, warm-up, steps 1 to {}: {}\n{}", trial, memorize_.trials,
                  format_count(shared.training.steps), shared.output.dir,
                  progress(trial, kWarmup)));
  if (train_one(shared, options_) == TrainEnd::stopped) return false;
  warmed_up_ = trial;
  return true;
}

/// The result of a run that ended before. One of a version without records has no policies.
RecitationRun Study::finished_run(const std::string& file) const {
  RecitationRun run = parse_run(read_text(file), file);
  if (!run.policies.empty() && run.policies != memorize_.policies)
    refuse("[memorize] policies: ", file, " holds a test with other policies (",
           fmt::format("{}", fmt::join(run.policies, "; ")),
           "); set these, or remove that file so that the trained model is tested again");
  return run;
}

/// Trains and tests one model, unless its result exists. Returns false if it was asked to stop.
bool Study::run_one(std::int64_t trial, const std::string& variant,
                    const SharedDocuments& documents) {
  Config config = config_of(trial, variant);
  const std::string file = config.output.dir + "/recitations.json";
  if (everywhere(first() && std::filesystem::exists(file))) {
    if (first()) runs_.push_back(finished_run(file));
    say(fmt::format("trial {}, {}: already done", trial, variant));
    return true;
  }
  const std::int64_t warmup = config_.lr_scheduler.warmup_steps;
  const bool begun = everywhere(first() && has_checkpoint(config.output.dir + "/checkpoints"));
  if (!begun) config.checkpoint.resume = "";
  if (!begun && warmup > 0) {  // the part of a trial that all variants share
    if (!warm_up(trial)) return false;
    config.checkpoint.resume = config_of(trial, kWarmup).output.dir + "/checkpoints";
  }
  say(fmt::format("trial {} of {}, {} loss, steps {} to {}: {}\n{}", trial, memorize_.trials,
                  variant, format_count(warmup + 1), format_count(config.training.steps),
                  config.output.dir, progress(trial, variant)));
  const std::vector<std::int64_t> epochs = epochs_of_documents(memorize_);
  const InjectionPlan plan = injection_plan(config);
  TrainOptions options = options_;
  options.make_sequences = [&](const Config& made, const Corpus& corpus) {
    auto others = training_sequences(corpus, {.seq_len = made.training.seq_len,
                                              .seed = plan.seed,
                                              .shuffle = made.data.shuffle,
                                              .vocab = made.model.vocab});
    return std::make_unique<InjectedSequences>(std::move(others), documents, epochs, plan,
                                               made.training.seq_len);
  };
  RecitationRun run{
      .variant = variant, .trial = trial, .seed = plan.seed, .policies = memorize_.policies};
  options.finished = [&](Training& training) { ask(training, *documents, run); };
  if (train_one(config, std::move(options)) == TrainEnd::stopped) return false;
  if (!first()) return true;
  add_training(config.output.dir, run);
  write_file_atomically(file, to_json(run));
  say(fmt::format("tested {} documents in {}", format_count(std::ssize(*documents)),
                  format_duration(run.test_seconds)));
  runs_.push_back(std::move(run));
  return true;
}

MemorizationReport Study::make_report() const {
  const TrainingConfig& training = config_.training;
  ModelConfig sizes = config_.model;
  if (sizes.vocab == 0) sizes.vocab = tokenizer_->vocab_size();
  const std::int64_t injecting = training.steps - config_.lr_scheduler.warmup_steps,
                     injected = memorize_.bucket_size *
                                std::accumulate(epochs_.begin(), epochs_.end(), std::int64_t{0});
  MemorizationReport report{
      .title = "Memorization study",
      .model = fmt::format(
          "{}, {} layers, width {}; {}", parameters_text(sizes), sizes.layers, sizes.hidden,
          sizes.path.empty() ? std::string("from scratch") : "continued from " + sizes.path),
      .notes = {fmt::format(
                    "{} steps of {} sequences of {} tokens: {} warm-up steps on other text, shared "
                    "by all losses, then {} steps in which {} of the {} sequences are the buckets' "
                    "documents, {}",
                    training.steps, training.global_batch, training.seq_len,
                    config_.lr_scheduler.warmup_steps, injecting, format_count(injected),
                    format_count(injecting * training.global_batch), rate_text(config_)),
                fmt::format(
                    "{}: {} drawn into each bucket; the model gets each document without its last "
                    "{} tokens and continues it greedily",
                    memorize_.documents.empty()
                        ? "Generated records, whose last 50 bytes hold at least 60 "
                          "unpredictable bits"
                        : "Documents of " + memorize_.documents.front(),
                    memorize_.bucket_size, memorize_.suffix_tokens)},
      .groups = {},
      .group_sizes = std::vector<std::int64_t>(epochs_.size(), memorize_.bucket_size),
      .group_epochs = epochs_,
      .control = kControl,
      .document_names = names_,
      .suffix_tokens = memorize_.suffix_tokens,
      .prompt_lengths = prompt_lengths_,
      .runs = runs_,
      .origin = origin_};
  report.origin.date = utc_now();
  if (memorize_.has_goldfish()) report.notes.push_back(goldfish_note(training.goldfish));
  for (const std::int64_t epochs : epochs_)
    report.groups.push_back(
        epochs == 0 ? "control" : fmt::format("{} epoch{}", epochs, epochs == 1 ? "" : "s"));
  return report;
}

}  // namespace

std::optional<MemorizationReport> run_study(const PreparedRun& run, const MemorizeConfig& memorize,
                                            Communicator& world, const TrainOptions& options,
                                            const ReportOrigin& origin) {
  validate_study(run.config(), memorize);
  return Study(run.config(), memorize, world, options, origin).run();
}

std::string describe_study(const PreparedRun& run, const MemorizeConfig& memorize,
                           const ProgressTarget& progress) {
  const std::int64_t losses = std::ssize(memorize.losses), steps = run->training.steps,
                     warmup = warmup_steps(run.config()), trials = memorize.trials;
  const std::vector<std::int64_t> epochs = epochs_of_documents(memorize);
  const auto tokenizer = make_tokenizer(run->data.tokenizer);
  const DocumentLimits limits = limits_of(run.config(), memorize);
  FoundDocuments given;
  if (!memorize.documents.empty()) {
    ProgressLine line(progress, kTokenizing);
    given =
        read_documents(memorize.documents, tokenizer, limits, {},
                       [&](const TokenizeProgress& made) { line(made.bytes, made.total_bytes); });
  }
  std::int64_t injected = 0;
  for (std::int64_t trial = 0; trial < trials; ++trial) {
    InjectionPlan plan = injection_plan(run.config());
    plan.seed += static_cast<std::uint64_t>(trial);
    draw_documents(memorize.documents.empty()
                       ? generated_documents(std::ssize(epochs), plan.seed, *tokenizer, limits)
                       : given,
                   std::ssize(epochs), plan.seed);
    const std::vector<std::int32_t> places = injections(plan, epochs);
    injected = std::ranges::count_if(places, [](std::int32_t document) { return document >= 0; });
  }
  const std::int64_t sequences = (steps - warmup) * run->training.global_batch;
  return fmt::format(
      "study: {} trial{}, each a warm-up of {} steps and {} steps with each of {} loss{} ({}): {} "
      "steps\n"
      "documents: {} a trial, {} in each of {} buckets ({} epochs){}\n"
      "injected: {} of {} sequences after the warm-up ({:.1f} %)\n",
      trials, trials == 1 ? "" : "s", format_count(warmup), format_count(steps - warmup), losses,
      losses == 1 ? "" : "es", fmt::join(memorize.losses, ", "),
      format_count(trials * steps_of_trial(run.config(), memorize)),
      format_count(std::ssize(epochs)), format_count(memorize.bucket_size),
      std::ssize(epochs) / memorize.bucket_size, fmt::join(epochs_of_groups(memorize), ", "),
      memorize.documents.empty()
          ? ", generated"
          : fmt::format(", of {} that can be used", format_count(std::ssize(given.documents))),
      format_count(injected), format_count(sequences),
      100 * static_cast<double>(injected) /
          static_cast<double>(std::max<std::int64_t>(sequences, 1)));
}

}  // namespace axonn
