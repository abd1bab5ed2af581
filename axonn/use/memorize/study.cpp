#include "axonn/use/memorize/study.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
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
#include "axonn/foundation/base/random.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/counts.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/inputs.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/records/run_folder.h"
#include "axonn/run/records/run_steps.h"
#include "axonn/use/memorize/arms.h"
#include "axonn/use/memorize/average.h"
#include "axonn/use/memorize/curve.h"
#include "axonn/use/memorize/exposure.h"
#include "axonn/use/memorize/near_recite.h"
#include "axonn/use/memorize/origin.h"
#include "axonn/use/memorize/reading.h"
#include "axonn/use/memorize/recite.h"
#include "axonn/use/memorize/references.h"
#include "axonn/use/memorize/report/json.h"
#include "axonn/use/memorize/study_plan.h"

namespace axonn {

namespace {

constexpr const char* kGoldfish = MemorizeConfig::kGoldfishLoss;
constexpr const char* kReferenceFile = "/losses.json";
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
  for (const char* key :
       {"batch", "hold_weights", "policies", "n", "p", "references", "references_apart"})
    json["memorize"].erase(key);
  return json.dump(2) + "\n";
}

/// Adds the training time and the share of kept targets from the run's metrics.jsonl.
void add_training(const std::string& folder, bool is_goldfish, RecitationRun& run) {
  double kept = 0;
  const std::int64_t steps = read_run_steps(folder, [&](const RunStep& step) {
    const double ms = step.value_of("step_ms"), share = step.value_of("goldfish_kept"),
                 loss = step.value_of("val_loss");
    if (std::isfinite(ms)) run.train_seconds += ms / 1e3;
    if (std::isfinite(share)) kept += share;
    if (std::isfinite(loss)) run.validation_loss = loss;
  });
  if (is_goldfish) run.kept_fraction = kept / static_cast<double>(steps);
}

/// The run of which all trainings of a study are variants.
PreparedRun run_of_study(const PreparedRun& run, const MemorizeConfig& memorize) {
  return run.with([&](Config& config) {
    // The same in all trainings, of which the warm-up has fewer steps.
    config.lr_scheduler.warmup_steps = warmup_steps(config);
    config.lr_scheduler.warmup_ratio = 0;
    // The study's files name its own values.
    const FurtherSection own = memorize_section(std::make_shared<MemorizeConfig>(memorize));
    std::erase_if(config.further, [&](const auto& one) { return one.name == own.name; });
    config.further.push_back(own);
  });
}

/// One rank of a study.
class Study {
 public:
  Study(const PreparedRun& run, const MemorizeConfig& memorize, Communicator& world,
        const TrainOptions& options, ReportOrigin origin)
      : run_(run_of_study(run, memorize)),
        memorize_(memorize),
        world_(world),
        options_(options),
        origin_(std::move(origin)),
        tokenizer_(make_tokenizer(run->data.tokenizer)),
        arms_(arms_of(run.config(), memorize)),
        controls_(controls_of(arms_)),
        variants_(variants_of(memorize)) {}

  std::optional<MemorizationReport> run() {
    check_near(recite_options(), tokenizer_->vocab_size());
    if (first()) claim_folder();
    origin_.machine = describe_machine(world_, nullptr);
    world_.barrier("study");
    MemorizationReport report;
    for (std::int64_t trial = 1; trial <= memorize_.trials; ++trial) {
      const TrialPlan plan = plan_of(trial);
      for (const StudyVariant& variant : variants_) {
        if (!run_one(trial, variant, plan)) return std::nullopt;
        report = make_report();  // of the runs so far
        if (!first()) continue;
        write_report(report);
      }
      if (memorize_.references == 0) continue;
      if (!run_references(trial, plan)) return std::nullopt;
      report = make_report();
      if (first()) write_report(report);
    }
    return report;
  }

 private:
  bool first() const { return world_.rank() == 0; }
  void say(const std::string& line) const {
    if (first() && options_.terminal) *options_.terminal << line << '\n' << std::flush;
  }
  /// Broadcasts rank 0's value to every rank.
  bool everywhere(bool found) { return everywhere(found, world_); }
  static bool everywhere(bool found, Communicator& world) {
    double flag = found ? 1 : 0;
    world.broadcast({&flag, 1, DType::f64}, 0, "study").wait();
    return flag > 0;
  }
  std::int64_t documents_of_trial() const {
    std::int64_t documents = 0;
    for (const BucketConfig& arm : arms_) documents += arm.size;
    return documents;
  }

  void write_report(const MemorizationReport& report) const {
    write_file_atomically(config_.output.dir + "/report.json", to_json(report));
    write_file_atomically(config_.output.dir + "/report.html", html_page(report));
  }

  void claim_folder() {
    for (const char* name : {"study.json", "config.toml", "report.json", "report.html"})
      claim_output({"output.dir", concat(config_.output.dir, '/', name)}, inputs_of(config_), true);
    lock_.emplace(config_.output.dir);
    if (!lock_->warning().empty()) say("warning: " + lock_->warning());
    const std::string path = config_.output.dir + "/study.json", mine = identity_of(config_);
    // A start that failed before its first training has left nothing to keep.
    const bool begun = std::filesystem::exists(run_of(1, {})->output.dir) ||
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

  std::string progress(std::int64_t trial, const std::optional<StudyVariant>& variant,
                       std::int64_t references = 0);

  TrialPlan plan_of(std::int64_t trial);
  PreparedRun run_of(std::int64_t trial, const std::optional<StudyVariant>& variant) const;
  bool run_one(std::int64_t trial, const StudyVariant& variant, const TrialPlan& plan);
  bool warm_up(std::int64_t trial);
  TrainEnd train_one(const PreparedRun& run, Communicator& world, TrainOptions options);
  TrainOptions options_of(const TrialPlan& plan, const Config& config);
  ReciteOptions recite_options() const;
  void ask(Training& training, const TrialDocuments& documents, RecitationRun& run);
  bool run_references(std::int64_t trial, const TrialPlan& plan);
  bool train_references(std::int64_t trial, const TrialPlan& plan);
  bool train_reference(std::int64_t trial, std::int64_t number, const TrialPlan& plan,
                       Communicator& world);
  std::string reference_folder(std::int64_t trial, std::int64_t number) const {
    return fmt::format("{}/trial-{}-reference-{}", config_.output.dir, trial, number + 1);
  }
  void ask_average(Training& training, const TrialDocuments& documents, RecitationRun& run);
  void measure(Training& training, const TrialDocuments& documents, std::int64_t step);
  std::vector<std::string> averaged_checkpoints(const Config& config) const;
  RecitationRun finished_run(const std::string& file) const;
  MemorizationReport make_report() const;

  const PreparedRun run_;
  const Config& config_ = run_.config();
  std::optional<FolderLock> lock_;  // on rank 0
  const MemorizeConfig& memorize_;
  Communicator& world_;
  const TrainOptions& options_;
  ReportOrigin origin_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<BucketConfig> arms_;      // by group
  std::vector<std::int64_t> controls_;  // likewise
  std::vector<StudyVariant> variants_;
  std::vector<RecitationRun> runs_;                   // filled on rank 0 only
  ReferenceResults reference_results_;                // likewise
  std::vector<std::string> names_;                    // of the documents of all trials
  std::vector<std::vector<std::int64_t>> exposures_;  // likewise
  std::int64_t warmed_up_ = 0;                        // the last trial whose warm-up was done here
  bool described_ = false;                  // the terminal shows model, grid and data once
  std::optional<std::int64_t> first_done_;  // steps of the study before this process
  double began_ = now_seconds();
};

/// How far the study is when this part of it begins: "1,000 of 3,000 steps of the study are done
/// (33 %), about 3m 12s left". variant: none in the warm-up. references: the number of the one that
/// begins, from 1, if the variants are done.
std::string Study::progress(std::int64_t trial, const std::optional<StudyVariant>& variant,
                            std::int64_t references) {
  const std::int64_t warmup = config_.lr_scheduler.warmup_steps,
                     each = config_.training.steps - warmup,
                     of_trial = steps_of_trial(config_, memorize_),
                     all = memorize_.trials * of_trial;
  std::int64_t done = (trial - 1) * of_trial;
  if (variant)
    done += warmup + each * (std::ranges::find(variants_, variant->name, &StudyVariant::name) -
                             variants_.begin());
  if (references > 0)  // the variants are done, and all references before this one
    done = trial * of_trial - (memorize_.references + 1 - references) * config_.training.steps;
  if (!first_done_) first_done_ = done;
  std::string text = fmt::format("{} of {} steps of the study are done ({} %)", format_count(done),
                                 format_count(all), 100 * done / all);
  if (done > *first_done_)
    text += fmt::format(", about {} left",
                        format_duration((now_seconds() - began_) * static_cast<double>(all - done) /
                                        static_cast<double>(done - *first_done_)));
  return text;
}

/// variant: none for the warm-up.
PreparedRun Study::run_of(std::int64_t trial, const std::optional<StudyVariant>& variant) const {
  return run_.with([&](Config& run) {
    run.training.seed += trial - 1;
    run.output.dir = fmt::format("{}/trial-{}-{}", config_.output.dir, trial,
                                 variant ? variant->folder : kWarmup);
    run.checkpoint.resume = "auto";
    run.output.overwrite = true;  // parts of a run that has no checkpoint yet
    if (!variant || variant->loss != kGoldfish) run.training.goldfish.k = 0;
    if (!variant) run.training.steps = config_.lr_scheduler.warmup_steps;
    if (variant && !variant->schedule.empty())
      run.lr_scheduler.kind = schedule_of(variant->schedule);
    if (variant && memorize_.average_last > 0) {
      run.checkpoint.every = memorize_.average_every;
      run.checkpoint.keep = memorize_.average_last;
    }
  });
}

TrialPlan Study::plan_of(std::int64_t trial) {
  const PreparedRun run = run_of(trial, variants_.front());
  const Config& config = run.config();
  FoundDocuments found;
  if (!memorize_.documents.empty()) {
    // Rank 0 encodes the documents into the cache first; the other ranks read the cache.
    if (!first()) world_.barrier("documents");
    ProgressLine line(first() ? options_.progress : ProgressTarget{}, kTokenizing);
    found = read_documents(memorize_.documents, tokenizer_, limits_of(config, memorize_),
                           {.folder = config_.output.dir + "/cache", .makes = first()},
                           [&](const TokenizeProgress& made) {
                             world_.note_progress();
                             line(made.bytes, made.total_bytes);
                           });
    if (first()) world_.barrier("documents");
  }
  TrialPlan plan = plan_of_trial(config, memorize_, *tokenizer_, found);
  for (std::int64_t d = 0; d < plan.documents.tested; ++d)
    names_.push_back((*plan.documents.all)[d].name);
  if (memorize_.curve_every > 0)
    std::ranges::move(exposures_of(plan, config.training.global_batch),
                      std::back_inserter(exposures_));
  return plan;
}

ReciteOptions Study::recite_options() const {
  ReciteOptions options{.suffix_tokens = memorize_.suffix_tokens,
                        .batch = memorize_.batch,
                        .hold_weights = memorize_.hold_weights,
                        .policies = memorize_.policies,
                        .near = {.epsilon = memorize_.near_epsilon,
                                 .beams = memorize_.near_beams,
                                 .distance = memorize_.near_distance,
                                 .samples = memorize_.near_samples}};
  std::ranges::copy(memorize_.prompt_lengths, std::back_inserter(options.prompt_lengths));
  add_sweeps(options, memorize_.offsets, memorize_.suffix_lengths);
  return options;
}

void Study::ask(Training& training, const TrialDocuments& documents, RecitationRun& run) {
  origin_.machine = describe_machine(world_, &training.model.backend().device());
  const double start = now_seconds();
  const StudyDocuments tested(documents.all, documents.tested);
  ReciteOptions options = recite_options();
  options.near.seed = run.seed;
  run.recitations = recite(training.model, *tokenizer_, tested, options);
  add_near(training.model, *tokenizer_, tested, options, run.recitations);
  add_exposure(training.model, *tokenizer_,
               {std::span(*documents.all).first(documents.tested),
                canary_spaces(arms_, documents, run.seed)},
               options, run.recitations);
  run.test_seconds = now_seconds() - start;
  for (Recitation& one : run.recitations) one.group = documents.group[one.document];
  set_blind_scores(tested, controls_, run.recitations);
  run.readings = readings_of(training.model, *tokenizer_, tested, options, run.recitations);
  if (memorize_.references > 0) run.losses = token_losses(training.model, tested);
  const std::int64_t before = (run.trial - 1) * documents_of_trial();
  for (Recitation& one : run.recitations) one.document += before;
  for (Reading& one : run.readings) one.document += before;
}

/// Tests the mean of the weights of the last checkpoints, which the model then has.
void Study::ask_average(Training& training, const TrialDocuments& documents, RecitationRun& run) {
  const std::vector<std::string> checkpoints = averaged_checkpoints(training.model.config());
  load_average(training.model, checkpoints);
  if (training.validation) run.validation_loss = training.validate();
  ask(training, documents, run);
}

/// The checkpoints of a run whose mean is tested, the last of which is at its end.
std::vector<std::string> Study::averaged_checkpoints(const Config& config) const {
  std::vector<std::string> paths;
  for (std::int64_t i = memorize_.average_last - 1; i >= 0; --i)
    paths.push_back(fmt::format("{}/checkpoints/step-{}", config.output.dir,
                                config.training.steps - i * memorize_.average_every));
  return paths;
}

/// Measures all documents and appends a line to the run's curve.
void Study::measure(Training& training, const TrialDocuments& documents, std::int64_t step) {
  ReciteOptions options = recite_options();
  options.prompt_lengths = {kWholePrompt};
  options.prompt_offsets.clear();
  options.prompt_suffixes.clear();
  options.writes = false;
  CurvePoint point{.step = step};
  if (training.validation) point.validation_loss = training.validate();
  const Context ctx = training.model.context();
  training.optimizer.exchange_evaluated(ctx);
  const StudyDocuments tested(documents.all, documents.tested);
  for (const Recitation& one : recite(training.model, *tokenizer_, tested, options)) {
    point.loss.push_back(one.loss);
    point.log10_p.push_back(one.record->log10_p.front());
    point.exact.push_back(one.exact);
  }
  training.optimizer.exchange_evaluated(ctx);
  if (first()) append_point(training.model.config().output.dir, point);
}

TrainEnd Study::train_one(const PreparedRun& run, Communicator& world, TrainOptions options) {
  options.describe = !std::exchange(described_, true);
  options.part_of_more = true;
  return train(run, world, options);
}

/// The steps that all variants of a trial share. Returns false if it was asked to stop.
bool Study::warm_up(std::int64_t trial) {
  if (warmed_up_ == trial) return true;
  const PreparedRun shared = run_of(trial, {});
  say(fmt::format("trial {} of {}, warm-up, steps 1 to {}: {}\n{}", trial, memorize_.trials,
                  format_count(shared->training.steps), shared->output.dir, progress(trial, {})));
  if (train_one(shared, world_, options_) == TrainEnd::stopped) return false;
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
  if (memorize_.references > 0 && run.losses.empty())
    refuse("[memorize] references: ", file, " has no losses of tokens, which they need; remove ",
           "that file so that the trained model is tested again");
  return run;
}

/// How a variant of a trial is trained: with its documents among the data, measured on the way.
TrainOptions Study::options_of(const TrialPlan& plan, const Config& config) {
  TrainOptions options = options_;
  options.make_sequences = [&plan](const Config& made, const Corpus& corpus) {
    auto others =
        training_sequences(corpus, {.seq_len = made.training.seq_len,
                                    .seed = static_cast<std::uint64_t>(made.training.seed),
                                    .shuffle = made.data.shuffle,
                                    .vocab = made.model.vocab});
    return std::make_unique<InjectedSequences>(std::move(others), plan.documents.all, plan.slots,
                                               made.training.seq_len);
  };
  const std::int64_t every = memorize_.curve_every, last = config.training.steps;
  if (every > 0)
    options.after_step = [this, &plan, every, last](Training& training, std::int64_t done) {
      if (done % every == 0 || done == last) measure(training, plan.documents, done);
    };
  return options;
}

/// Trains and tests one model, unless its results exist. Returns false if it was asked to stop.
bool Study::run_one(std::int64_t trial, const StudyVariant& variant, const TrialPlan& plan) {
  const PreparedRun whole = run_of(trial, variant);
  const Config& config = whole.config();
  const std::string file = config.output.dir + "/recitations.json",
                    average = config.output.dir + "/recitations-average.json";
  const bool averages = memorize_.average_last > 0;
  if (everywhere(first() && std::filesystem::exists(file) &&
                 (!averages || std::filesystem::exists(average)))) {
    if (first()) runs_.push_back(finished_run(file));
    if (first() && averages) runs_.push_back(finished_run(average));
    say(fmt::format("trial {}, {}: already done", trial, variant.name));
    return true;
  }
  const std::int64_t warmup = config_.lr_scheduler.warmup_steps;
  const bool begun = everywhere(first() && has_checkpoint(config.output.dir + "/checkpoints"));
  std::string resume = begun ? config.checkpoint.resume : "";
  if (!begun && warmup > 0) {  // the part of a trial that all variants share
    if (!warm_up(trial)) return false;
    resume = run_of(trial, {})->output.dir + "/checkpoints";
  }
  say(fmt::format("trial {} of {}, {}, steps {} to {}: {}\n{}", trial, memorize_.trials,
                  variant.schedule.empty() ? variant.loss + " loss" : variant.name,
                  format_count(warmup + 1), format_count(config.training.steps), config.output.dir,
                  progress(trial, variant)));
  TrainOptions options = options_of(plan, config);
  RecitationRun run{.variant = variant.name,
                    .trial = trial,
                    .seed = static_cast<std::uint64_t>(config.training.seed),
                    .policies = memorize_.policies};
  RecitationRun mean = run;
  mean.variant += " average";
  options.finished = [&](Training& training) {
    ask(training, plan.documents, run);
    if (averages) ask_average(training, plan.documents, mean);
  };
  const PreparedRun left = whole.with([&](Config& one) { one.checkpoint.resume = resume; });
  if (train_one(left, world_, std::move(options)) == TrainEnd::stopped) return false;
  if (!first()) return true;
  add_training(config.output.dir, variant.loss == kGoldfish, run);
  run.curve = read_curve(config.output.dir);
  const auto keep = [&](RecitationRun& one, const std::string& path) {
    write_file_atomically(path, to_json(one));
    say(fmt::format("tested {} documents in {}", format_count(plan.documents.tested),
                    format_duration(one.test_seconds)));
    runs_.push_back(std::move(one));
  };
  keep(run, file);
  if (averages) keep(mean, average);
  return true;
}

/// Trains the references of a trial, and gives its runs the scores that need them. Returns false if
/// it was asked to stop.
bool Study::run_references(std::int64_t trial, const TrialPlan& plan) {
  if (!train_references(trial, plan)) return false;
  if (!first()) return true;
  std::vector<Reference> references;
  for (std::int64_t r = 0; r < memorize_.references; ++r) {
    const std::string file = reference_folder(trial, r) + kReferenceFile;
    references.push_back(parse_reference(read_text(file), plan.documents.tested, file));
  }
  const std::int64_t first_document = (trial - 1) * documents_of_trial();
  for (RecitationRun& run : runs_) {
    if (run.trial != trial) continue;
    std::vector<MembershipScores*> scores(plan.documents.tested);
    for (Recitation& one : run.recitations)
      if (one.scores) scores.at(one.document - first_document) = &*one.scores;
    set_reference_scores(run.losses, references, scores);
  }
  add_reference_results(reference_means(references),
                        {.trial = trial,
                         .first = first_document,
                         .group = plan.documents.group,
                         .control = controls_},
                        reference_results_);
  return true;
}

/// The references that have no losses yet: all ranks one after the other, or each rank others.
bool Study::train_references(std::int64_t trial, const TrialPlan& plan) {
  const int ranks = memorize_.references_apart ? world_.size() : 1;
  std::unique_ptr<Communicator> alone;
  std::optional<OwnCores> cores;  // so that a rank alone takes its own part
  if (ranks > 1) {
    cores.emplace(config_, world_);
    alone = world_.split(world_.rank(), "reference");
  }
  bool trained = true;
  for (std::int64_t r = alone ? world_.rank() : 0; trained && r < memorize_.references; r += ranks)
    trained = train_reference(trial, r, plan, alone ? *alone : world_);
  double stopped = trained ? 0 : 1;
  world_.all_reduce({&stopped, 1, DType::f64}, "references").wait();
  return stopped == 0;
}

/// Trains a reference as the first variant, but from other initial values, on the data in another
/// order, unless its losses exist. Its checkpoints are removed then.
bool Study::train_reference(std::int64_t trial, std::int64_t number, const TrialPlan& plan,
                            Communicator& world) {
  const PreparedRun first_variant = run_of(trial, variants_.front());
  const auto seed = static_cast<std::uint64_t>(first_variant->training.seed);
  const std::string folder = reference_folder(trial, number), file = folder + kReferenceFile;
  const bool leads = world.rank() == 0;
  if (everywhere(leads && std::filesystem::exists(file), world)) return true;
  Reference reference{.learned = learned_by(number, plan.documents.tested, seed)};
  const bool begun = everywhere(leads && has_checkpoint(folder + "/checkpoints"), world);
  const PreparedRun run = first_variant.with([&](Config& config) {
    config.training.seed = Random(seed, "study/references").bits(number)[0];
    config.checkpoint.every = config_.checkpoint.every;
    config.checkpoint.keep = config_.checkpoint.keep;
    config.output.dir = folder;
    if (!begun) config.checkpoint.resume = "";
    if (&world != &world_) config.parallelism.set_grid({});
  });
  const TrialPlan half{
      .documents = plan.documents,
      .slots = slots_of_reference(run.config(), memorize_, plan.documents, reference.learned)};
  say(fmt::format("trial {} of {}, reference {} of {}: {}\n{}", trial, memorize_.trials, number + 1,
                  memorize_.references, folder, progress(trial, {}, number + 1)));
  TrainOptions options = options_of(half, run.config());
  if (!first()) options.terminal = nullptr;
  options.after_step = [this](Training&, std::int64_t) { world_.note_progress(); };  // no curve
  options.finished = [&](Training& training) {
    reference.losses = token_losses(training.model, {plan.documents.all, plan.documents.tested});
  };
  if (train_one(run, world, std::move(options)) == TrainEnd::stopped) return false;
  if (leads) {
    write_file_atomically(file, to_json(reference));
    std::filesystem::remove_all(folder + "/checkpoints");
  }
  return true;
}

MemorizationReport Study::make_report() const {
  const ReciteOptions asked = recite_options();
  ModelConfig sizes = config_.model;
  if (sizes.vocab == 0) sizes.vocab = tokenizer_->vocab_size();
  MemorizationReport report{
      .title = "Memorization study",
      .model = fmt::format(
          "{}, {} layers, width {}; {}", parameters_text(sizes), sizes.layers, sizes.hidden,
          sizes.path.empty() ? std::string("from scratch") : "continued from " + sizes.path),
      .notes = study_notes(config_, memorize_),
      .groups = {},
      .group_sizes = {},
      .controls = controls_,
      .document_names = names_,
      .exposures = exposures_,
      .suffix_tokens = memorize_.suffix_tokens,
      .parameters = parameter_count(sizes),
      .prompt_lengths = asked.prompt_lengths,
      .prompt_offsets = asked.prompt_offsets,
      .prompt_suffixes = asked.prompt_suffixes,
      .extraction = extraction_grid(memorize_.n, memorize_.p, "n", "p"),
      .runs = runs_,
      .references = reference_results_,
      .by_loss = memorize_.schedules.empty() && memorize_.average_last == 0,
      .origin = origin_};
  report.origin.date = utc_now();
  for (const BucketConfig& arm : arms_) {
    report.groups.push_back(arm.name);
    report.group_sizes.push_back(arm.size);
    report.group_epochs.push_back(arm.times);
    if (!memorize_.buckets.empty())
      report.group_designs.push_back(
          {.from = arm.when[0],
           .to = arm.when[1],
           .perturbation = std::string(kPerturbations[static_cast<int>(perturbation_of(arm))]),
           .variants = arm.variants,
           .offset = arm.offset,
           .loss = std::string(kBucketLosses[static_cast<int>(arm.loss)])});
  }
  return report;
}

}  // namespace

std::optional<MemorizationReport> run_study(const PreparedRun& run, const MemorizeConfig& memorize,
                                            Communicator& world, const TrainOptions& options,
                                            const ReportOrigin& origin) {
  validate_study(run.config(), memorize);
  return Study(run, memorize, world, options, origin).run();
}

}  // namespace axonn
