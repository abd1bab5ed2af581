#include "axonn/use/memorize/arms.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/use/memorize/references.h"

namespace axonn {

namespace {

/// A seed that depends on the trial's seed and on a name.
std::uint64_t seed_of(std::uint64_t seed, const std::string& name) {
  return mix_bits(seed ^ hash_text("study/bucket/" + name));
}

/// `count` documents of tokens that are drawn with equal chances among those that are no markers.
std::vector<StudyDocument> uniform_documents(const BucketConfig& arm, const Tokenizer& tokenizer,
                                             std::uint64_t seed) {
  std::vector<std::int32_t> choices;
  for (std::int32_t token = 0; token < tokenizer.vocab_size(); ++token)
    if (!tokenizer.is_special(token) && token != tokenizer.end_of_text().value_or(-1))
      choices.push_back(token);
  const Random random(seed, "study/uniform");
  std::vector<StudyDocument> all;
  for (std::int64_t d = 0; d < arm.size; ++d) {
    all.push_back({fmt::format("uniform tokens {} of {}", d + 1, arm.name), {}});
    for (std::int64_t i = 0; i < arm.tokens; ++i)
      all.back().tokens.push_back(choices[random.below(d * arm.tokens + i, choices.size())]);
    all.back().bits_of = arm.tokens - 1;  // the first is no target
    all.back().bits = static_cast<double>(arm.tokens - 1) * std::log2(choices.size());
  }
  return all;
}

/// Takes the first `count` documents.
std::vector<StudyDocument> taken(std::vector<StudyDocument>& from, std::int64_t count) {
  std::vector<StudyDocument> some(std::make_move_iterator(from.begin()),
                                  std::make_move_iterator(from.begin() + count));
  from.erase(from.begin(), from.begin() + count);
  return some;
}

std::vector<StudyDocument> generated(const BucketConfig& arm, const Tokenizer& tokenizer,
                                     const ArmOptions& options) {
  const std::uint64_t seed = seed_of(options.seed, arm.name);
  if (arm.kind == DocumentKind::uniform) return uniform_documents(arm, tokenizer, seed);
  auto drawn = draw_documents(generated_documents(arm.size, seed, tokenizer, options.limits),
                              arm.size, seed);
  for (StudyDocument& one : drawn) {
    one.name += " of " + arm.name;
    if (arm.kind == DocumentKind::canary && std::ssize(one.tokens) == options.limits.most)
      refuse("[[memorize.bucket]] \"", arm.name, "\": a canary of ", one.tokens.size(),
             " tokens or more may have lost its last digits; raise training.seq_len");
  }
  return drawn;
}

/// The sequences after the warm-up in which an arm's documents come: [first, end).
struct SlotRange {
  std::int64_t first, end;
};

SlotRange range_of(const BucketConfig& arm, const InjectionPlan& plan) {
  const auto slot = [&](double share) {
    return (std::max(step_at(share, plan.steps), plan.warmup_steps) - plan.warmup_steps) *
           plan.batch;
  };
  return {slot(arm.when.at(0)), slot(arm.when.at(1))};
}

DocumentPlace place_of_arm(const BucketConfig& arm) {
  return {.offset = arm.offset, .learned = arm.loss == BucketLoss::same};
}

/// The first free sequence at or after `from` in the range, else the first free one in it.
std::int64_t next_free(const std::vector<std::int32_t>& slots, SlotRange range, std::int64_t from,
                       const BucketConfig& arm) {
  for (std::int64_t i = 0; i < range.end - range.first; ++i) {
    const std::int64_t at = from + i < range.end ? from + i : from + i - range.end + range.first;
    if (slots[at] < 0) return at;
  }
  refuse("[[memorize.bucket]] \"", arm.name, "\": its documents need ", arm.size * arm.times,
         " sequences, but the ", range.end - range.first, " of when = [",
         fmt::format("{}, {}", arm.when[0], arm.when[1]),
         "] do not have so many beside those of the buckets before it; raise training.steps or "
         "training.global_batch, or lower size or times");
}

}  // namespace

std::vector<BucketConfig> arms_of(const Config& config, const MemorizeConfig& memorize) {
  const double begin =
      static_cast<double>(warmup_steps(config)) / static_cast<double>(config.training.steps);
  std::vector<BucketConfig> arms = memorize.buckets;
  if (arms.empty()) {
    std::vector<std::int64_t> epochs = memorize.epochs;
    epochs.insert(epochs.begin(), 0);
    const DocumentKind kind =
        memorize.documents.empty() ? DocumentKind::record : DocumentKind::text;
    for (const std::int64_t times : epochs)
      arms.push_back({.name = times == 0   ? "control"
                              : times == 1 ? "1 epoch"
                                           : fmt::format("{} epochs", times),
                      .size = memorize.bucket_size,
                      .times = times,
                      .kind = kind});
  }
  for (BucketConfig& arm : arms)
    if (arm.when.empty()) arm.when = {begin, 1};
  return arms;
}

std::int64_t step_at(double share, std::int64_t steps) {
  return std::llround(share * static_cast<double>(steps));
}

std::vector<std::int64_t> controls_of(std::span<const BucketConfig> arms) {
  std::vector<std::int64_t> controls;
  for (const BucketConfig& arm : arms) {
    std::optional<std::int64_t> found;
    for (std::size_t i = 0; i < arms.size(); ++i) {
      if (arms[i].times > 0 || arms[i].kind != arm.kind) continue;
      if (found)
        refuse("[[memorize.bucket]] \"", arms[*found].name, "\" and \"", arms[i].name,
               "\" are both controls (times = 0) of kind ",
               kDocumentKinds[static_cast<int>(arm.kind)], "; make them one, with a larger size");
      found = static_cast<std::int64_t>(i);
    }
    if (!found)
      refuse("[[memorize.bucket]] \"", arm.name, "\" has no control; add a bucket with times = 0 ",
             "and kind = \"", kDocumentKinds[static_cast<int>(arm.kind)], '"');
    controls.push_back(*found);
  }
  return controls;
}

StudyDocument near_duplicate(const StudyDocument& document, std::int64_t number, std::int64_t every,
                             std::uint64_t seed) {
  StudyDocument copy{fmt::format("near-duplicate {} of {}", number + 1, document.name),
                     document.tokens};
  const Random random(seed_of(seed, document.name), "study/near");
  const auto size = std::ssize(copy.tokens);
  auto next = static_cast<std::uint64_t>(2 * number * size);
  for (std::int64_t begin = 0; begin < size; begin += every) {
    const auto length = static_cast<std::uint64_t>(std::min(every, size - begin));
    std::int32_t& changed = copy.tokens[begin + random.below(next++, length)];
    const auto from = static_cast<std::int64_t>(random.below(next++, size));
    for (std::int64_t i = 0; i < size; ++i) {  // the first other token from there on
      const std::int32_t other = document.tokens[(from + i) % size];
      if (other == changed) continue;
      changed = other;
      break;
    }
  }
  return copy;
}

namespace {

/// Text number v that is learned in place of a document of an arm.
StudyDocument perturbed(const StudyDocument& document, std::int64_t v, const BucketConfig& arm,
                        const Tokenizer& tokenizer, const ArmOptions& options) {
  const Perturbation kind = perturbation_of(arm);
  if (kind == Perturbation::tokens)
    return near_duplicate(document, v, arm.change_every, options.seed);
  const bool names = kind == Perturbation::names;
  const std::string text = tokenizer.decode(document.tokens, {.skip_special = true}),
                    changed = names ? with_translated_names(
                                          text, seed_of(options.seed, concat("names/", v)))
                                    : paraphrased(text, seed_of(options.seed,
                                                                concat(document.name, "/", v)));
  if (changed == text)
    refuse("[[memorize.bucket]] \"", arm.name, "\": perturbation = \"",
           kPerturbations[static_cast<int>(kind)], "\" finds ",
           names ? "no name" : "no word that it knows and no two sentences", " in ", document.name,
           "; choose other documents, or perturbation = \"tokens\"");
  StudyDocument copy{concat(names ? "translation " : "paraphrase ", v + 1, " of ", document.name),
                     tokenizer.encode_prompt(changed)};
  const auto end = tokenizer.end_of_text();
  if (end && copy.tokens.back() == *end) copy.tokens.pop_back();
  if (std::ssize(copy.tokens) > options.limits.most) copy.tokens.resize(options.limits.most);
  return copy;
}

}  // namespace

TrialDocuments documents_of_arms(std::span<const BucketConfig> arms, const FoundDocuments& given,
                                 const Tokenizer& tokenizer, const ArmOptions& options) {
  std::int64_t texts = 0, records = 0;
  for (const BucketConfig& arm : arms)
    (arm.kind == DocumentKind::text ? texts : records) += arm.size;
  std::vector<StudyDocument> drawn;  // for all arms together
  if (!options.by_name && texts == 0)
    drawn = draw_documents(generated_documents(records, options.seed, tokenizer, options.limits),
                           records, options.seed);
  else if (texts > 0)
    drawn = draw_documents(given, texts, options.seed);
  TrialDocuments documents;
  std::vector<StudyDocument> all;
  for (std::size_t a = 0; a < arms.size(); ++a) {
    const bool together = arms[a].kind == DocumentKind::text || !options.by_name;
    for (StudyDocument& one :
         together ? taken(drawn, arms[a].size) : generated(arms[a], tokenizer, options)) {
      all.push_back(std::move(one));
      documents.original.push_back(std::ssize(documents.group));
      documents.group.push_back(static_cast<std::int64_t>(a));
    }
  }
  documents.tested = std::ssize(all);
  for (std::int64_t d = 0; d < documents.tested; ++d) {
    const BucketConfig& arm = arms[documents.group[d]];
    const bool itself = perturbation_of(arm) == Perturbation::none || arm.times == 0;
    documents.first_variant.push_back(itself ? d : std::ssize(all));
    for (std::int64_t v = 0; !itself && v < arm.variants; ++v) {
      documents.original.push_back(d);
      all.push_back(perturbed(all[d], v, arm, tokenizer, options));
    }
  }
  documents.all = std::make_shared<const std::vector<StudyDocument>>(std::move(all));
  return documents;
}

std::vector<CanarySpace> canary_spaces(std::span<const BucketConfig> arms,
                                       const TrialDocuments& documents, std::uint64_t seed) {
  std::vector<CanarySpace> spaces;
  for (const std::int64_t group : documents.group) {
    const BucketConfig& arm = arms[group];
    CanarySpace& space = spaces.emplace_back(CanarySpace{.others = arm.others, .seed = seed});
    if (arm.kind == DocumentKind::canary) space.digits = arm.digits;
  }
  return spaces;
}

std::vector<std::int32_t> slots_of_arms(std::span<const BucketConfig> arms,
                                        const TrialDocuments& documents,
                                        const InjectionPlan& plan) {
  constexpr std::int64_t kTries = 64;
  std::vector<std::int32_t> slots((plan.steps - plan.warmup_steps) * plan.batch, -1);
  std::int64_t first = 0;  // document of the arm
  for (const BucketConfig& arm : arms) {
    const SlotRange range = range_of(arm, plan);
    const std::int64_t size = range.end - range.first;
    const Random random(seed_of(plan.seed, arm.name), "study/slots");
    for (std::int64_t visit = 0; visit < arm.size * arm.times; ++visit) {
      const std::int64_t e = visit % arm.times, d = first + visit / arm.times,
                         begin = range.first + e * size / arm.times,
                         end = std::max(range.first + (e + 1) * size / arm.times, begin + 1);
      if (begin >= range.end) next_free(slots, {0, 0}, 0, arm);  // refuses
      std::int64_t at = begin;
      for (std::int64_t i = 0; i < kTries; ++i) {
        at = begin + static_cast<std::int64_t>(random.below(visit * kTries + i, end - begin));
        if (slots[at] < 0) break;
      }
      if (slots[at] >= 0) at = next_free(slots, range, begin, arm);
      const std::int64_t variant = documents.first_variant[d] == d ? 0 : e % arm.variants;
      slots[at] = static_cast<std::int32_t>(documents.first_variant[d] + variant);
    }
    first += arm.size;
  }
  return slots;
}

std::int64_t steps_of_trial(const Config& config, const MemorizeConfig& memorize) {
  const std::int64_t warmup = warmup_steps(config);
  return warmup + (config.training.steps - warmup) * std::ssize(variants_of(memorize)) +
         memorize.references * config.training.steps;
}

std::int64_t most_tokens(const Config& config, const MemorizeConfig& memorize) {
  std::int64_t offset = 0;
  for (const BucketConfig& bucket : memorize.buckets) offset = std::max(offset, bucket.offset);
  return config.training.seq_len + 1 - offset;
}

DocumentLimits limits_of(const Config& config, const MemorizeConfig& memorize) {
  return {.least = memorize.suffix_tokens + 1, .most = most_tokens(config, memorize)};
}

TrialPlan plan_of_trial(const Config& config, const MemorizeConfig& memorize,
                        const Tokenizer& tokenizer, const FoundDocuments& given) {
  const InjectionPlan plan{.steps = config.training.steps,
                           .warmup_steps = warmup_steps(config),
                           .batch = config.training.global_batch,
                           .seed = static_cast<std::uint64_t>(config.training.seed)};
  const bool listed = !memorize.buckets.empty();
  const std::vector<BucketConfig> arms = arms_of(config, memorize);
  TrialPlan trial{
      .documents = documents_of_arms(
          arms, given, tokenizer,
          {.seed = plan.seed, .limits = limits_of(config, memorize), .by_name = listed}),
      .slots = {.first = plan.warmup_steps * plan.batch, .replaces = listed}};
  std::vector<std::int64_t> epochs;
  for (const std::int64_t arm : trial.documents.group) epochs.push_back(arms[arm].times);
  trial.slots.documents =
      listed ? slots_of_arms(arms, trial.documents, plan) : injections(plan, epochs);
  for (const std::int64_t tested : trial.documents.original)
    trial.slots.places.push_back(place_of_arm(arms[trial.documents.group[tested]]));
  return trial;
}

InjectedSlots slots_of_reference(const Config& config, const MemorizeConfig& memorize,
                                 const TrialDocuments& documents,
                                 const std::vector<bool>& learned) {
  const InjectionPlan plan{.steps = config.training.steps,
                           .warmup_steps = warmup_steps(config),
                           .batch = config.training.global_batch,
                           .seed = static_cast<std::uint64_t>(config.training.seed)};
  std::vector<BucketConfig> arms = arms_of(config, memorize);
  const std::vector<std::int64_t> controls = controls_of(arms);
  std::vector<std::vector<std::int64_t>> of_arm(arms.size());
  std::vector<std::int64_t> seen(arms.size(), 0);  // documents of each arm
  std::vector<DocumentPlace> places;               // by document
  for (std::int64_t d = 0; d < documents.tested; ++d) {
    const std::int64_t group = documents.group[d], k = seen[group]++;
    const std::int64_t as = controls[group] == group ? group_in_turn(controls, group, k) : group;
    of_arm[as].push_back(d);
    places.push_back(place_of_arm(arms[as]));
  }
  TrialDocuments ordered;
  for (std::size_t arm = 0; arm < arms.size(); ++arm) {
    arms[arm].size = std::ssize(of_arm[arm]);
    std::ranges::copy(of_arm[arm], std::back_inserter(ordered.first_variant));
  }
  InjectedSlots slots{.first = plan.warmup_steps * plan.batch,
                      .documents = slots_of_arms(arms, ordered, plan),
                      .places = std::move(places),
                      .replaces = true};
  for (std::int32_t& document : slots.documents)
    if (document >= 0 && !learned[document]) document = -1;
  return slots;
}

std::vector<std::vector<std::int64_t>> exposures_of(const TrialPlan& plan, std::int64_t batch) {
  const TrialDocuments& documents = plan.documents;
  std::vector<std::vector<std::int64_t>> exposures(documents.tested);
  for (std::int64_t i = 0; i < std::ssize(plan.slots.documents); ++i)
    if (const std::int32_t document = plan.slots.documents[i]; document >= 0)
      exposures[documents.original[document]].push_back((plan.slots.first + i) / batch + 1);
  return exposures;
}

std::vector<StudyVariant> variants_of(const MemorizeConfig& memorize) {
  std::vector<StudyVariant> variants;
  for (const std::string& loss : memorize.losses) {
    if (memorize.schedules.empty()) variants.push_back({loss, "", loss, loss});
    for (const std::string& schedule : memorize.schedules)
      variants.push_back({loss, schedule,
                          memorize.losses.size() == 1 ? schedule : concat(loss, ", ", schedule),
                          concat(loss, '-', schedule)});
  }
  return variants;
}

}  // namespace axonn
