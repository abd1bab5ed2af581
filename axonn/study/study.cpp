#include "axonn/study/study.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/base/log.h"
#include "axonn/model/flops.h"
#include "axonn/options/options_print.h"
#include "axonn/storage/checkpoint/checkpoint_folder.h"
#include "axonn/study/injection.h"
#include "axonn/study/recite.h"
#include "axonn/study/report.h"
#include "axonn/train/trainer.h"

namespace axonn {

namespace {

using Documents = std::shared_ptr<const std::vector<StudyDocument>>;

constexpr const char* kStandard = "standard";
constexpr const char* kGoldfish = "goldfish";
constexpr const char* kWarmup = "warmup";  // stands for the loss in the shared folder's name

/// The settings that may not change when a study is resumed, as JSON: all but the grid, the
/// checkpoints, the output and those that only affect speed.
std::string identity_of(Config config) {
  OptionList list;
  list_options(config, list);
  auto json = nlohmann::ordered_json::parse(to_json(list));
  for (const char* section : {"parallelism", "activation_checkpoint", "checkpoint", "output"})
    json.erase(section);
  for (const char* key : {"micro_batch", "threads", "bind_cores", "tune", "tune_cache"})
    json["training"].erase(key);
  for (const char* key : {"batch", "hold_weights"}) json["memorize"].erase(key);
  return json.dump(2) + "\n";
}

std::string epochs_name(std::int64_t epochs) {
  return epochs == 0 ? "control" : fmt::format("{} epoch{}", epochs, epochs == 1 ? "" : "s");
}

/// One rank of a study.
class Study {
 public:
  Study(const Config& config, Communicator& world, const StudyOptions& options)
      : config_(config),
        world_(world),
        options_(options),
        tokenizer_(make_tokenizer(config.data.tokenizer)),
        epochs_(config.memorize.epochs) {
    epochs_.insert(epochs_.begin(), 0);
  }

  std::optional<MemorizationReport> run();

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
  std::int64_t documents_of_trial() const { return std::ssize(epochs_) * bucket_size(); }
  std::int64_t bucket_size() const { return config_.memorize.bucket_size; }

  void claim_folder() const;
  std::int64_t seed_of(std::int64_t trial) const { return config_.training.seed + trial - 1; }
  Documents documents_of(std::int64_t trial);
  StudyDocuments usable_documents(std::int64_t trial);
  Config config_of(std::int64_t trial, const std::string& loss) const;
  TrainOptions train_options() const;
  bool warm_up(std::int64_t trial);
  bool run_one(std::int64_t trial, const std::string& loss, const Documents& documents);
  InjectionPlan plan_of(const Config& config) const;
  void ask(Session& session, const Documents& documents, RecitationRun& run);
  void add_training(const std::string& folder, RecitationRun& run) const;
  MemorizationReport make_report() const;
  void describe(MemorizationReport& report) const;
  void write_report(const MemorizationReport& report) const;

  const Config& config_;
  Communicator& world_;
  StudyOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<std::int64_t> epochs_;  // by group: 0 of the control, then memorize.epochs
  std::vector<RecitationRun> runs_;   // filled on rank 0 only
  std::vector<std::string> names_;    // of the documents of all trials
};

void Study::claim_folder() const {
  const std::string path = config_.output.dir + "/study.json", mine = identity_of(config_);
  make_folders(config_.output.dir);
  if (std::filesystem::exists(path) && read_text(path) != mine)
    refuse(config_.output.dir, " holds another study (see ", path,
           "); choose another folder with --output.dir, or remove this one");
  write_file_atomically(path, mine);
  write_file_atomically(config_.output.dir + "/config.toml", print_config(config_, Origins()));
}

Config Study::config_of(std::int64_t trial, const std::string& loss) const {
  Config run = config_;
  run.training.seed = seed_of(trial);
  run.output.dir = fmt::format("{}/trial-{}-{}", config_.output.dir, trial, loss);
  run.checkpoint.resume = "auto";
  if (loss != kGoldfish) run.training.goldfish.k = 0;
  if (loss == kWarmup) run.training.steps = config_.lr_scheduler.warmup_steps;
  return run;
}

TrainOptions Study::train_options() const {
  return {.terminal = options_.terminal,
          .interactive = options_.interactive,
          .columns = options_.columns,
          .stop = options_.stop};
}

/// Trains the part of a trial that all losses share. Returns false if it was asked to stop.
bool Study::warm_up(std::int64_t trial) {
  if (config_.lr_scheduler.warmup_steps == 0) return true;
  const Config config = config_of(trial, kWarmup);
  say(fmt::format("trial {} of {}, warm-up: {}", trial, config_.memorize.trials,
                  config.output.dir));
  return train(config, world_, train_options()) == TrainEnd::finished;
}

InjectionPlan Study::plan_of(const Config& config) const {
  return {.steps = config.training.steps,
          .warmup_steps = config.lr_scheduler.warmup_steps,
          .batch = config.training.global_batch,
          .seed = static_cast<std::uint64_t>(config.training.seed)};
}

StudyDocuments Study::usable_documents(std::int64_t trial) {
  const MemorizeConfig& memorize = config_.memorize;
  const DocumentLimits limits{.least = memorize.suffix_tokens + 1,
                              .most = config_.training.seq_len};
  if (memorize.documents.empty())
    return generated_documents(documents_of_trial(), static_cast<std::uint64_t>(seed_of(trial)),
                               *tokenizer_, limits);
  const std::string cache = config_.output.dir + "/cache";
  // Rank 0 encodes the documents into the cache first; the other ranks read the cache.
  StudyDocuments mine;
  if (first()) mine = read_documents(memorize.documents, tokenizer_, limits, cache, {});
  world_.barrier("documents");
  if (!first()) mine = read_documents(memorize.documents, tokenizer_, limits, cache, {});
  return mine;
}

Documents Study::documents_of(std::int64_t trial) {
  auto drawn = draw(usable_documents(trial), documents_of_trial(),
                    static_cast<std::uint64_t>(seed_of(trial)));
  for (const StudyDocument& document : drawn) names_.push_back(document.name);
  return std::make_shared<const std::vector<StudyDocument>>(std::move(drawn));
}

/// Adds the training time and the share of kept targets from the run's metrics.jsonl.
void Study::add_training(const std::string& folder, RecitationRun& run) const {
  std::ifstream file(folder + "/metrics.jsonl");
  double kept = 0;
  std::int64_t steps = 0;
  for (std::string line; std::getline(file, line);) {
    const auto step = nlohmann::json::parse(line, nullptr, false);
    if (!step.is_object()) continue;
    run.train_seconds += step.value("step_ms", 0.0) / 1e3;
    kept += step.value("goldfish_kept", 0.0);
    ++steps;
  }
  if (run.variant == kGoldfish && steps > 0) run.kept_fraction = kept / static_cast<double>(steps);
}

void Study::ask(Session& session, const Documents& documents, RecitationRun& run) {
  std::vector<std::int64_t> groups;
  for (std::size_t d = 0; d < documents->size(); ++d)
    groups.push_back(static_cast<std::int64_t>(d) / bucket_size());
  ReciteOptions options{.suffix_tokens = config_.memorize.suffix_tokens,
                        .prompt_lengths = {kWholePrompt},
                        .batch = config_.memorize.batch,
                        .hold_weights = config_.memorize.hold_weights};
  for (const std::int64_t length : config_.memorize.prompt_lengths)
    options.prompt_lengths.push_back(length);
  if (session.validation_windows() > 0) run.validation_loss = session.validate();
  const double start = now_seconds();
  run.recitations = recite(session, *tokenizer_, *documents, groups, options);
  run.test_seconds = now_seconds() - start;
  for (Recitation& one : run.recitations) one.document += (run.trial - 1) * documents_of_trial();
}

/// Trains and tests one model, unless its result exists. Returns false if it was asked to stop.
bool Study::run_one(std::int64_t trial, const std::string& loss, const Documents& documents) {
  Config config = config_of(trial, loss);
  const std::string file = config.output.dir + "/recitations.json";
  if (everywhere(first() && std::filesystem::exists(file))) {
    if (first()) runs_.push_back(parse_run(read_text(file), file));
    say(fmt::format("trial {}, {}: already done", trial, loss));
    return true;
  }
  const bool begun = everywhere(first() && has_checkpoint(config.output.dir + "/checkpoints"));
  if (!begun) {
    if (!warm_up(trial)) return false;
    const bool warm = config_.lr_scheduler.warmup_steps > 0;
    config.checkpoint.resume =
        warm ? config_of(trial, kWarmup).output.dir + "/checkpoints" : std::string();
  }
  say(fmt::format("trial {} of {}, {} loss: {}", trial, config_.memorize.trials, loss,
                  config.output.dir));
  std::vector<std::int64_t> epochs;
  for (const std::int64_t each : epochs_) epochs.insert(epochs.end(), bucket_size(), each);
  const InjectionPlan plan = plan_of(config);
  TrainOptions options = train_options();
  options.make_sequences = [&](const Config& made, const Corpus& corpus) {
    auto others = training_sequences(corpus, {.seq_len = made.training.seq_len,
                                              .seed = plan.seed,
                                              .shuffle = made.data.shuffle,
                                              .vocab = made.model.vocab});
    return std::make_unique<InjectedSequences>(std::move(others), documents, epochs, plan,
                                               made.training.seq_len);
  };
  RecitationRun run{.variant = loss, .trial = trial, .seed = plan.seed};
  options.finished = [&](Session& session) { ask(session, documents, run); };
  if (train(config, world_, options) == TrainEnd::stopped) return false;
  if (!first()) return true;
  add_training(config.output.dir, run);
  write_file_atomically(file, to_json(run));
  say(fmt::format("tested {} documents in {}", format_count(std::ssize(*documents)),
                  format_duration(run.test_seconds)));
  runs_.push_back(std::move(run));
  return true;
}

void Study::describe(MemorizationReport& report) const {
  const TrainingConfig& training = config_.training;
  const MemorizeConfig& memorize = config_.memorize;
  ModelConfig sizes = config_.model;
  if (sizes.vocab == 0) sizes.vocab = tokenizer_->vocab_size();
  report.model = fmt::format(
      "{} parameters, {} layers, width {}; {}", format_count(parameter_count(sizes)), sizes.layers,
      sizes.hidden,
      sizes.path.empty() ? std::string("from scratch") : "continued from " + sizes.path);
  const std::int64_t injecting = training.steps - config_.lr_scheduler.warmup_steps,
                     injected = bucket_size() *
                                std::accumulate(epochs_.begin(), epochs_.end(), std::int64_t{0});
  report.notes.push_back(fmt::format(
      "{} steps of {} sequences of {} tokens: {} warm-up steps on other text, shared by all "
      "losses, then {} steps in which {} of the {} sequences are the buckets' documents, while the "
      "learning rate falls from {} to {}",
      training.steps, training.global_batch, training.seq_len, config_.lr_scheduler.warmup_steps,
      injecting, format_count(injected), format_count(injecting * training.global_batch),
      config_.optimizer.lr, config_.lr_scheduler.min_lr));
  report.notes.push_back(fmt::format(
      "{}: {} drawn into each bucket; the model gets each document without its last {} tokens "
      "and continues it greedily",
      memorize.documents.empty() ? "Generated records, whose last 50 bytes hold at least 60 "
                                   "unpredictable bits"
                                 : "Documents of " + memorize.documents.front(),
      bucket_size(), memorize.suffix_tokens));
  const auto& fish = training.goldfish;
  if (std::ranges::find(memorize.losses, kGoldfish) != memorize.losses.end())
    report.notes.push_back(fmt::format("Goldfish loss: one target in {} is left out ({}, h = {})",
                                       fish.k, kGoldfishMasks[static_cast<int>(fish.mask)],
                                       fish.h));
}

MemorizationReport Study::make_report() const {
  MemorizationReport report;
  report.title = "Memorization study";
  describe(report);
  for (const std::int64_t epochs : epochs_) {
    report.groups.push_back(epochs_name(epochs));
    report.group_sizes.push_back(bucket_size());
  }
  report.document_names = names_;
  report.suffix_tokens = config_.memorize.suffix_tokens;
  report.prompt_lengths = {kWholePrompt};
  for (const std::int64_t length : config_.memorize.prompt_lengths)
    report.prompt_lengths.push_back(length);
  report.runs = runs_;
  return report;
}

void Study::write_report(const MemorizationReport& report) const {
  write_file_atomically(config_.output.dir + "/report.json", to_json(report));
  write_file_atomically(config_.output.dir + "/report.html", html_page(report));
}

std::optional<MemorizationReport> Study::run() {
  if (first()) claim_folder();
  world_.barrier("study");
  MemorizationReport report;
  for (std::int64_t trial = 1; trial <= config_.memorize.trials; ++trial) {
    const Documents documents = documents_of(trial);
    for (const std::string& loss : config_.memorize.losses) {
      if (!run_one(trial, loss, documents)) return std::nullopt;
      report = make_report();
      if (first()) write_report(report);  // the runs so far
    }
  }
  return report;
}

}  // namespace

void validate_study(const Config& config) {
  const MemorizeConfig& memorize = config.memorize;
  const std::int64_t seq_len = config.training.seq_len;
  if (memorize.losses.empty())
    refuse("[memorize] losses is empty; set it to standard, goldfish or both");
  for (const std::string& loss : memorize.losses) {
    if (loss != kStandard && loss != kGoldfish)
      refuse("[memorize] losses has no choice '", loss, "'; the choices are standard and goldfish");
    if (std::ranges::count(memorize.losses, loss) > 1)
      refuse("[memorize] losses names ", loss, " twice");
  }
  const bool fish = std::ranges::find(memorize.losses, kGoldfish) != memorize.losses.end();
  if (fish && config.training.goldfish.k == 0)
    refuse(
        "[memorize] losses has goldfish, but [training] goldfish.k is 0; set goldfish = {k = 2, "
        "h = 13}, or losses = [\"standard\"]");
  if (memorize.epochs.empty())
    refuse("[memorize] epochs is empty; give the epochs of each bucket, such as [1, 4, 6]");
  const std::int64_t longest =
      memorize.prompt_lengths.empty() ? 1 : std::ranges::max(memorize.prompt_lengths);
  if (longest + memorize.suffix_tokens > seq_len)
    refuse("[training] seq_len = ", seq_len, " has no room for a prompt of ", longest,
           " tokens and [memorize] suffix_tokens = ", memorize.suffix_tokens,
           "; documents are cut to seq_len");
  if (config.lr_scheduler.warmup_steps >= config.training.steps)
    refuse("[lr_scheduler] warmup_steps = ", config.lr_scheduler.warmup_steps,
           " leaves none of [training] steps = ", config.training.steps,
           " for the documents, which are injected after the warm-up");
}

std::optional<MemorizationReport> run_study(const Config& config, Communicator& world,
                                            const StudyOptions& options) {
  validate_study(config);
  return Study(config, world, options).run();
}

}  // namespace axonn
