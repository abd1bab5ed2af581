#include "axonn/run/train/data_stages.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "axonn/data/corpus/forget.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/options/options.h"
#include "axonn/run/config/policy_loss.h"

namespace axonn {

namespace {

/// The seed of a stage's order: stages that share data see them in different orders.
std::uint64_t order_seed(const Config& config, const std::string& stage) {
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  return stage.empty() ? seed : seed ^ xxh3(stage);
}

/// The first changed setting that alters the order of samples, with its remedy; "" if none.
std::string difference_of(const DataPosition& saved, const StagePosition& was,
                          const DataPosition& here, const StagePosition& is) {
  const std::string key = is.name.empty() ? "training.seq_len" : "seq_len of stage " + is.name;
  std::string difference;
  const auto compare = [&](const std::string& name, const auto& then, const auto& now) {
    if (difference.empty() && then != now)
      difference = concat(name, " was ", then, " and is ", now, "; set it to ", then);
  };
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  compare("training.seed", saved.seed, here.seed);
  compare(key, was.seq_len, is.seq_len);
  compare("data.shuffle", std::string(truth(saved.shuffle)), truth(here.shuffle));
  if (difference.empty() && !std::ranges::includes(is.forgotten, was.forgotten))
    difference =
        concat("data.forget left out documents", is.name.empty() ? "" : " of stage " + is.name,
               " that it does not name now; name them again");
  if (difference.empty() && !was.fingerprint.empty() && was.fingerprint != is.fingerprint)
    difference = concat("the training data", is.name.empty() ? "" : " of stage " + is.name,
                        " are others (their files, the files' order, data.tokenizer or the part "
                        "that data.validation leaves); use the same");
  return difference;
}

/// Answers of one token to the first prompts, as many as a generation has.
std::shared_ptr<const RolloutFile> placeholders(const PromptFile& prompts, std::int64_t count,
                                                std::int64_t group) {
  const auto file = std::make_shared<RolloutFile>();
  for (std::int64_t i = 0; i < count; ++i) {
    const Prompt& prompt = prompts.prompts[i / group % std::ssize(prompts.prompts)];
    file->answers.push_back({.prompt = prompt.tokens, .answer = {0}, .counts = {1}});
  }
  return file;
}

std::unique_ptr<const Sequences> own_sequences(const Config& config, const Corpus& corpus,
                                               const SamplerOptions& options) {
  if (!corpus.rollouts && !corpus.prompts) return training_sequences(corpus, options);
  const GenerationSteps steps = generation_steps(config, corpus);
  const auto answers = corpus.rollouts
                           ? corpus.rollouts
                           : placeholders(*corpus.prompts, steps.of_generation(), config.rl.group);
  return std::make_unique<const RolloutSequences>(answers, options.seq_len, steps);
}

std::string name_of_stage(const Config& config, std::size_t i) {
  return config.stage.empty() ? "" : config.stage[i].name;
}

}  // namespace

std::vector<std::shared_ptr<const Corpus>> open_stages(const Config& config,
                                                       const CorpusOptions& options) {
  std::vector<std::shared_ptr<const Corpus>> stages;
  for (const Config& one : stages_of(config))
    stages.push_back(std::make_shared<const Corpus>(open_corpus(one.data, options)));
  refuse_unknown_documents(stages);
  return stages;
}

GenerationSteps generation_steps(const Config& config, const Corpus& corpus) {
  GenerationSteps steps{.answers = config.training.global_batch,
                        .parts = config.rl.steps_per_generation,
                        .iterations = config.rl.iterations,
                        .only_counting = !weighs_answers(config.rl)};
  if (corpus.prompts)
    steps.generations = std::max<std::int64_t>(
        1, std::ssize(corpus.prompts->prompts) * config.rl.group / steps.of_generation());
  return steps;
}

std::vector<BatchSource> stage_sources(const Config& config,
                                       const std::vector<std::shared_ptr<const Corpus>>& stages,
                                       const SequencesMaker& make_sequences) {
  const std::vector<Config> configs = stages_of(config);
  std::vector<BatchSource> sources;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const Config& one = configs[i];
    const std::string name = name_of_stage(config, i);
    if (make_sequences && !one.data.forget.empty())
      refuse("data.forget finds documents in [data], not in the sequences that this run makes of ",
             "them itself; leave it out");
    auto sequences = make_sequences ? make_sequences(one, *stages[i])
                                    : own_sequences(one, *stages[i],
                                                    {.seq_len = one.training.seq_len,
                                                     .seed = order_seed(config, name),
                                                     .shuffle = one.data.shuffle,
                                                     .vocab = one.model.vocab});
    AXONN_CHECK(sequences, "TrainingOptions::make_sequences returned null");
    sources.push_back(
        {.name = name,
         .first_step = config.stage.empty() ? 0 : config.stage[i].from_step - 1,
         .sequences = std::move(sequences),
         .mask = make_goldfish(one.training.goldfish, static_cast<std::uint64_t>(one.training.seed),
                               *stages[i]),
         .in_one = config.training.seq_len / one.training.seq_len});
  }
  return sources;
}

double epochs_before(const Batches& batches, std::size_t s, std::int64_t n) {
  return static_cast<double>(batches.done(s, n)) /
         static_cast<double>(batches.sources()[s].sequences->count());
}

double epochs_of(const Config& config, const Batches& batches, std::size_t s) {
  return epochs_before(batches, s, config.training.steps);
}

std::int64_t steps_of_epochs(const Config& config, const Batches& batches) {
  constexpr double kRounding = 1e-12,  // 0.1 * 30 is above 3
      kMost = 1LL << 53;               // which a double counts exactly
  const double epochs = config.training.epochs,
               sequences = epochs * static_cast<double>(batches.sources()[0].sequences->count());
  if (sequences > kMost)
    refuse("[training] epochs = ", toml_number(epochs), " are ", sequences,
           " sequences, more than a run can count; lower it");
  const auto needed = static_cast<std::int64_t>(std::ceil(sequences * (1 - kRounding)));
  std::int64_t enough = batches.first_step() + needed, fewer = batches.first_step() - 1;
  while (enough - fewer > 1) {
    const std::int64_t between = fewer + (enough - fewer) / 2;
    (batches.done(0, between) >= needed ? enough : fewer) = between;
  }
  return std::max<std::int64_t>(enough, 1);
}

std::vector<std::string> describe_stages(const Config& config, const Batches& batches) {
  std::vector<std::string> lines;
  for (std::size_t s = 0; s < config.stage.size(); ++s) {
    const BatchSource& source = batches.sources()[s];
    lines.push_back(source.first_step < config.training.steps
                        ? fmt::format("{} from step {}: sequences of {} tokens, {:.2f} epochs",
                                      source.name, source.first_step + 1,
                                      config.training.seq_len / source.in_one,
                                      epochs_of(config, batches, s))
                        : fmt::format("{} never begins: its step {} is after the last, {}",
                                      source.name, source.first_step + 1, config.training.steps));
  }
  return lines;
}

DataPosition data_begin(const Config& config,
                        const std::vector<std::shared_ptr<const Corpus>>& stages,
                        const std::vector<BatchSource>& sources,
                        std::vector<std::string> fingerprints) {
  const std::vector<Config> configs = stages_of(config);
  DataPosition position{.seed = config.training.seed, .shuffle = config.data.shuffle};
  for (std::size_t s = 0; s < sources.size(); ++s) {
    position.stages.push_back({.name = sources[s].name,
                               .seq_len = configs[s].training.seq_len,
                               .fingerprint = std::move(fingerprints[s])});
    for (const ForgottenDocument& document : forgotten_of(*stages[s]))
      position.stages.back().forgotten.push_back(document.hash);
    std::ranges::sort(position.stages.back().forgotten);
  }
  return position;
}

std::optional<std::int64_t> first_forgetting_step(const Batches& batches, std::int64_t steps) {
  for (std::int64_t n = 0; n < steps; ++n) {
    const BatchSource& source = batches.source_of(n);
    const std::int64_t begin = batches.first_of(n),
                       end = begin + batches.batch_of(n) * source.in_one;
    for (std::int64_t i = begin; i < end; ++i)
      if (source.sequences->forgets(i)) return n;
  }
  return {};
}

std::vector<std::shared_ptr<const Corpus>> with_further_blanks(
    const Config& config, const std::vector<std::shared_ptr<const Corpus>>& stages,
    const DataPosition& saved) {
  /// Whether the run did not leave out a document of stage s.
  const auto is_new = [&](std::size_t s, const ForgottenDocument& document) {
    const auto was =
        std::ranges::find(saved.stages, name_of_stage(config, s), &StagePosition::name);
    return was == saved.stages.end() || !std::ranges::binary_search(was->forgotten, document.hash);
  };
  bool any = false;
  for (std::size_t s = 0; s < stages.size(); ++s)
    any = any || std::ranges::any_of(forgotten_of(*stages[s]),
                                     [&](const auto& document) { return is_new(s, document); });
  std::vector<std::shared_ptr<const Corpus>> further;
  for (std::size_t s = 0; any && s < stages.size(); ++s)
    further.push_back(std::make_shared<const Corpus>(
        with_blanks(*stages[s], [&](const auto& document) { return is_new(s, document); })));
  return further;
}

ContinuedData continued_data(std::int64_t n, const DataPosition& saved, const DataPosition& here,
                             const std::vector<BatchSource>& sources) {
  ContinuedData continued{.done = std::vector<std::int64_t>(sources.size()), .difference = {}};
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const StagePosition& is = here.stages[s];
    const auto was = std::ranges::find(saved.stages, is.name, &StagePosition::name);
    const bool over = s + 1 < sources.size() && sources[s + 1].first_step <= n;
    std::string of_stage;
    if (was == saved.stages.end() && !over && sources[s].first_step < n)
      of_stage = is.name.empty() ? "it was written by a run with stages; list them"
                                 : concat("it knows no stage ", is.name,
                                          ", which begins before its step; set "
                                          "from_step of the stage to ",
                                          n + 1);
    else if (was != saved.stages.end() && was->samples_done > 0 && !over)
      of_stage = difference_of(saved, *was, here, is);
    if (was != saved.stages.end() && of_stage.empty()) continued.done[s] = was->samples_done;
    if (continued.difference.empty()) continued.difference = of_stage;
  }
  return continued;
}

void refuse_changed_data(const Config& config, const std::string& checkpoint,
                         const ContinuedData& continued) {
  if (!continued.difference.empty() && config.checkpoint.changed_data == ChangedData::refuse)
    refuse("cannot continue ", checkpoint,
           " with the samples that it has not seen: ", continued.difference,
           ", or continue with the first sample of the new order by checkpoint.changed_data = "
           "\"restart\"");
}

void refuse_late_forgetting(const Config& config,
                            const std::vector<std::shared_ptr<const Corpus>>& stages,
                            const DataPosition& saved, const ContinuedData& continued,
                            const std::string& checkpoint) {
  const auto further = with_further_blanks(config, stages, saved);
  if (further.empty()) return;
  if (!continued.difference.empty())
    refuse("data.forget: whether ", checkpoint,
           " has learned of its documents is not known: ", continued.difference, ", or start anew");
  for (const BatchSource& source : stage_sources(config, further)) {
    const auto was = std::ranges::find(saved.stages, source.name, &StagePosition::name);
    const std::int64_t done = was == saved.stages.end() ? 0 : was->samples_done;
    for (std::int64_t i = 0; i < done; ++i)
      if (source.sequences->forgets(i))
        refuse("data.forget: ", checkpoint, " has learned of its documents: they are in ",
               source.sequences->where(i), ", sequence ", i + 1, " of the ", done,
               " that it has seen", source.name.empty() ? "" : " of stage " + source.name,
               "; resume from a checkpoint before that, which axonn forget finds, or start anew");
  }
}

}  // namespace axonn
