#include "axonn/use/memorize/study_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/counts.h"
#include "axonn/run/config/config_options.h"
#include "axonn/use/memorize/arms.h"
#include "axonn/use/memorize/report/report.h"

namespace axonn {

namespace {

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

/// Sequences of a trial that are documents.
std::int64_t injected_sequences(const std::vector<BucketConfig>& arms) {
  std::int64_t sequences = 0;
  for (const BucketConfig& arm : arms) sequences += arm.size * arm.times;
  return sequences;
}

std::string kind_text(const BucketConfig& arm) {
  switch (arm.kind) {
    case DocumentKind::record:
      return "generated records";
    case DocumentKind::text:
      return "documents of memorize.documents";
    case DocumentKind::canary:
      return fmt::format("canaries, each ranked among {} texts with other last digits",
                         format_count(CanarySpace{arm.digits, arm.others}.candidates() - 1));
    case DocumentKind::uniform:
      break;
  }
  return fmt::format("documents of {} uniform tokens", arm.tokens);
}

/// ", as 4 near-duplicates in turn, in which one of 16 tokens differs".
std::string perturbation_text(const BucketConfig& arm) {
  const bool several = arm.variants > 1;
  const std::string count = several ? format_count(arm.variants) + " " : "a ",
                    turn = several ? "s in turn" : "";
  switch (perturbation_of(arm)) {
    case Perturbation::none:
      break;
    case Perturbation::tokens:
      return fmt::format(", as {}near-duplicate{}, in which one of {} tokens differs", count, turn,
                         arm.change_every);
    case Perturbation::paraphrase:
      return fmt::format(", as {}paraphrase{}", count, turn);
    case Perturbation::names:
      return fmt::format(", as {}translation{}, in which the names differ", count, turn);
  }
  return "";
}

/// "dose-4: 40 generated records, 4 times each in steps 961 to 1,200, 160 sequences".
std::string arm_text(const BucketConfig& arm, std::int64_t steps) {
  std::string text = fmt::format("{}: {} {}", arm.name, format_count(arm.size), kind_text(arm));
  if (arm.times == 0) return text + ", never learned: the control";
  text +=
      fmt::format(", {} time{} each in steps {} to {}, {} sequences", format_count(arm.times),
                  arm.times == 1 ? "" : "s", format_count(step_at(arm.when[0], steps) + 1),
                  format_count(step_at(arm.when[1], steps)), format_count(arm.size * arm.times));
  if (arm.offset > 0) text += fmt::format(", behind {} tokens of other text", arm.offset);
  text += perturbation_text(arm);
  if (arm.loss == BucketLoss::none) text += ", of which nothing is learned";
  return text;
}

/// "8 references a trial, each trained for 100 steps on a random half of all documents, ...".
std::string references_text(const MemorizeConfig& memorize, std::int64_t steps) {
  return fmt::format(
      "{} references a trial, each trained for {} steps on a random half of all documents, also of "
      "controls, from other initial values and on data in another order",
      memorize.references, format_count(steps));
}

/// The claims that the sizes of buckets and their control can support, a line for those of each
/// size.
std::string claims_text(const std::vector<BucketConfig>& arms,
                        const std::vector<std::int64_t>& controls) {
  std::string text;
  std::set<std::pair<std::int64_t, std::int64_t>> said;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    const std::int64_t size = arms[i].size, others = arms[controls[i]].size;
    if (arms[i].times == 0 || !said.emplace(size, others).second) continue;
    const PercentRange half = wilson_interval(size / 2, size);
    text += fmt::format(
        "claims of a trial with {} documents and {} controls: a share near 50 % is known to "
        "±{:.0f} "
        "points; a suffix is memorized at alpha = {:.2g} % or more; TPR at 1 % FPR {}, at 0.1 % "
        "{}\n",
        format_count(size), format_count(others), (half.high - half.low) / 2,
        100 / static_cast<double>(others + 1),
        others >= 100 ? "can be measured" : "needs 100 controls",
        others >= 1000 ? "can be measured" : "needs 1,000 controls");
  }
  return text;
}

/// Processor time of all trainings, at the speed that small models reach on AVX-512.
std::string time_text(const Config& config, const MemorizeConfig& memorize) {
  constexpr double kFlopsPerCore = 1.2e11;  // 505 thousand parameters, of an AMD EPYC (Zen 5)
  ModelConfig sizes = config.model;
  const double tokens = static_cast<double>(memorize.trials * steps_of_trial(config, memorize) *
                                            config.training.global_batch * config.training.seq_len),
               flops = tokens * model_flops_per_token(sizes, config.training.seq_len);
  return fmt::format(
      "time: {:.3g} million tokens and {:.3g} Tflop of training; at 120 Gflop/s a core {} of one "
      "core, without tests\n",
      tokens / 1e6, flops / 1e12, format_duration(flops / kFlopsPerCore));
}

/// The buckets of [[memorize.bucket]], each with its claims.
std::string buckets_text(const Config& config, const MemorizeConfig& memorize) {
  const std::vector<BucketConfig> arms = arms_of(config, memorize);
  std::string text = "buckets:\n";
  for (const BucketConfig& arm : arms)
    text += fmt::format("  {}\n", arm_text(arm, config.training.steps));
  return text + claims_text(arms, controls_of(arms));
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

}  // namespace

ScheduleKind schedule_of(const std::string& name) {
  Config config;
  OptionList list;
  list_options(config, list);
  list.find("lr_scheduler", "kind")->set_text(name, "[memorize] schedules");
  return config.lr_scheduler.kind;
}

std::vector<std::string> study_notes(const Config& config, const MemorizeConfig& memorize) {
  const TrainingConfig& training = config.training;
  const std::vector<BucketConfig> arms = arms_of(config, memorize);
  const std::int64_t warmup = warmup_steps(config), injecting = training.steps - warmup;
  const std::string asked = fmt::format(
      "the model gets each document without its last {} tokens and continues it greedily",
      memorize.suffix_tokens);
  std::vector<std::string> notes{fmt::format(
      "{} steps of {} sequences of {} tokens: {} warm-up steps on other text, shared by all "
      "{}, then {} steps in which {} of the {} sequences are the buckets' documents, {}",
      training.steps, training.global_batch, training.seq_len, warmup,
      memorize.schedules.empty() ? "losses" : "schedules", injecting,
      format_count(injected_sequences(arms)), format_count(injecting * training.global_batch),
      rate_text(config))};
  if (memorize.buckets.empty()) {
    notes.push_back(fmt::format(
        "{}: {} drawn into each bucket; {}",
        memorize.documents.empty()
            ? "Generated records, whose last 50 bytes hold at least 60 unpredictable bits"
            : "Documents of " + memorize.documents.front(),
        memorize.bucket_size, asked));
  } else {
    for (const BucketConfig& arm : arms) notes.push_back(arm_text(arm, training.steps));
    notes.push_back("In a test " + asked);
  }
  if (memorize.references > 0) notes.push_back(references_text(memorize, training.steps));
  if (!memorize.schedules.empty())
    notes.push_back(
        fmt::format("Schedules of the learning rate after the warm-up: {}; the last {} "
                    "steps are the decay of wsd",
                    fmt::join(memorize.schedules, ", "), config.lr_scheduler.decay_steps));
  if (memorize.average_last > 0)
    notes.push_back(
        fmt::format("Average: the mean of the weights of the last {} checkpoints, {} steps apart",
                    memorize.average_last, memorize.average_every));
  if (memorize.has_goldfish()) notes.push_back(goldfish_note(training.goldfish));
  return notes;
}

std::string describe_study(const PreparedRun& run, const MemorizeConfig& memorize,
                           const ProgressTarget& progress) {
  const std::int64_t steps = run->training.steps, warmup = warmup_steps(run.config()),
                     trials = memorize.trials;
  const std::vector<BucketConfig> arms = arms_of(run.config(), memorize);
  const auto tokenizer = make_tokenizer(run->data.tokenizer);
  FoundDocuments given;
  if (!memorize.documents.empty()) {
    ProgressLine line(progress, kTokenizing);
    given =
        read_documents(memorize.documents, tokenizer, limits_of(run.config(), memorize), {},
                       [&](const TokenizeProgress& made) { line(made.bytes, made.total_bytes); });
  }
  std::int64_t documents = 0;
  for (std::int64_t trial = 0; trial < trials; ++trial) {
    Config config = run.config();
    config.training.seed += trial;
    const TrialPlan plan = plan_of_trial(config, memorize, *tokenizer, given);
    documents = plan.documents.tested;
    if (memorize.references > 0)  // is there room?
      slots_of_reference(config, memorize, plan.documents, std::vector<bool>(documents, true));
  }
  std::vector<std::string> names;
  for (const StudyVariant& variant : variants_of(memorize)) names.push_back(variant.name);
  std::vector<std::int64_t> epochs;
  for (const BucketConfig& arm : arms) epochs.push_back(arm.times);
  const std::int64_t sequences = (steps - warmup) * run->training.global_batch,
                     injected = injected_sequences(arms);
  std::string text = fmt::format(
      "study: {} trial{}, each a warm-up of {} steps and {} steps with each of {} {}{} ({}): {} "
      "steps\n",
      trials, trials == 1 ? "" : "s", format_count(warmup), format_count(steps - warmup),
      names.size(), memorize.schedules.empty() ? "loss" : "variant",
      names.size() == 1            ? ""
      : memorize.schedules.empty() ? "es"
                                   : "s",
      fmt::join(names, memorize.schedules.empty() ? ", " : "; "),
      format_count(trials * steps_of_trial(run.config(), memorize)));
  if (memorize.buckets.empty())
    text += fmt::format(
        "documents: {} a trial, {} in each of {} buckets ({} epochs){}\n", format_count(documents),
        format_count(memorize.bucket_size), arms.size(), fmt::join(epochs, ", "),
        memorize.documents.empty()
            ? ", generated"
            : fmt::format(", of {} that can be used", format_count(given.documents.size())));
  else
    text += buckets_text(run.config(), memorize);
  return text +
         fmt::format("injected: {} of {} sequences after the warm-up ({:.1f} %)\n",
                     format_count(injected), format_count(sequences),
                     100 * static_cast<double>(injected) /
                         static_cast<double>(std::max<std::int64_t>(sequences, 1))) +
         (memorize.references > 0 ? "references: " + references_text(memorize, steps) + "\n" : "") +
         time_text(run.config(), memorize);
}

}  // namespace axonn
