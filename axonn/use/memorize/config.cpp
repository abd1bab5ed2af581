#include "axonn/use/memorize/config.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "axonn/data/corpus/batch_stages.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/run/config/batch_ramp.h"
#include "axonn/use/memorize/arms.h"
#include "axonn/use/memorize/extraction.h"
#include "axonn/use/memorize/study_plan.h"

namespace axonn {

namespace {

constexpr const char* kMemorize = "memorize";

void list_bucket(BucketConfig& bucket, OptionList& list) {
  list.section("memorize.bucket", "Documents of the memorization study");
  list.add(
      "name", &bucket.name,
      {.help = "name in the report; the documents and their positions depend on it, so that they "
               "stay as they are if other buckets change"});
  list.add("size", &bucket.size, {.help = "number of documents", .min = 1, .max = 1e6});
  list.add("times", &bucket.times,
           {.help = "how many times each document is learned; 0: never, as a control",
            .min = 0,
            .max = 1e6});
  list.add("when", &bucket.when,
           {.help = "from where to where, in shares of training.steps, as in [0.8, 1.0]; empty: "
                    "from the end of the warm-up to the last step",
            .min = 0,
            .max = 1});
  list.add("kind", bucket.kind, kDocumentKinds,
           {.help = "documents: record, generated records; text, those of memorize.documents; "
                    "uniform, tokens drawn with equal chances; canary, generated records that "
                    "are ranked among the same with other last digits"});
  list.add("tokens", &bucket.tokens,
           {.help = "length of a uniform document", .unit = "tokens", .min = 2});
  list.add("digits", &bucket.digits,
           {.help = "number of last digits of a canary that are its secret", .min = 1, .max = 6});
  list.add(
      "others", &bucket.others,
      {.help = "number of other digits among which a canary is ranked, drawn at random; 0: all, "
               "so that its exposure is exact",
       .min = 0,
       .max = 999999});
  list.add("perturbation", bucket.perturbation, kPerturbations,
           {.help = "what is learned in place of each document: none, the document itself, or with "
                    "variants above 1 as tokens; tokens, near-duplicates; paraphrase, its text "
                    "with other words and another order of sentences; names, its text with its "
                    "names in invented languages"});
  list.add("variants", &bucket.variants,
           {.help = "number of such texts of a document, which are learned in turn",
            .min = 1,
            .max = 1e6});
  list.add("change_every", &bucket.change_every,
           {.help = "of this many tokens, each near-duplicate (tokens) replaces one by another",
            .unit = "tokens",
            .min = 2});
  list.add("offset", &bucket.offset,
           {.help = "number of tokens of other text in front of each document, in the sequence in "
                    "which it is learned; all documents are cut so that they fit behind the most",
            .unit = "tokens",
            .min = 0});
  list.add("loss", bucket.loss, kBucketLosses,
           {.help = "what is learned of the documents: same, all that the loss of the training "
                    "counts; none, nothing: they are read in front of other text, which is "
                    "learned"});
}

/// The search for texts near a suffix.
void list_near(MemorizeConfig& memorize, OptionList& list) {
  list.add("near.epsilon", &memorize.near_epsilon,
           {.help = "distances: bounds of the probability, by the first of the policies, that a "
                    "sample is at most so far from a suffix; empty: none",
            .unit = "tokens",
            .min = 0,
            .max = 100});
  list.add("near.beams", &memorize.near_beams,
           {.help = "prefixes that the search for these texts goes on with after each token; more "
                    "bring the bounds closer",
            .min = 1,
            .max = 100000});
  list.add("near.distance", memorize.near_distance, kTextDistances,
           {.help = "hamming, tokens that differ, or levenshtein, tokens to insert, remove or "
                    "change"});
  list.add("near.samples", &memorize.near_samples,
           {.help = "samples of each document, of which those within the distances are counted, "
                    "beside the bounds; 0: none",
            .min = 0,
            .max = 1e6});
}

/// What is compared and measured besides.
void list_measures(MemorizeConfig& memorize, OptionList& list) {
  list.add("schedules", &memorize.schedules,
           {.help = "schedules of the learning rate to compare, each as lr_scheduler.kind; they "
                    "share the warm-up; empty: lr_scheduler.kind alone"});
  list.add("average.last", &memorize.average_last,
           {.help = "number of checkpoints at the end of each training whose mean is tested, too; "
                    "0: none",
            .min = 0,
            .max = 1000});
  list.add("average.every", &memorize.average_every,
           {.help = "steps between these checkpoints, the last of which is the training's end",
            .min = 0});
  list.add("curve.every", &memorize.curve_every,
           {.help = "steps between measurements of all documents during each training; 0: none",
            .min = 0});
  list.add("n", &memorize.n,
           {.help = "numbers of samples, for the shares of suffixes that so many samples contain",
            .min = 1,
            .max = 1e15});
  list.add("p", &memorize.p,
           {.help = "probabilities with which so many samples contain them at least once",
            .min = 0,
            .max = 1});
  list.add("offsets", &memorize.offsets,
           {.help = "with these, each of prompt_lengths is also tested from so many tokens after "
                    "the beginning of the document on; the suffix is what follows it",
            .unit = "tokens",
            .min = 0});
  list.add("references", &memorize.references,
           {.help = "further models that each trial trains for membership (LiRA and others), each "
                    "on a random half of all documents; an even number from 4 on, or 0: none",
            .min = 0,
            .max = 10000});
  list.add(
      "references_apart", &memorize.references_apart,
      {.help = "each rank trains references of its own, all by itself, instead of all ranks one "
               "after the other; only on CPUs"});
  list.add("suffix_lengths", &memorize.suffix_lengths,
           {.help = "further lengths of suffixes; each prompt, also those of prompt_lengths and "
                    "offsets, is tested with each of them, too",
            .unit = "tokens",
            .min = 1});
  list_near(memorize, list);
}

void list_memorize(MemorizeConfig& memorize, OptionList& list) {
  list.section(kMemorize,
               "The memorization study of axonn memorize; no other command reads these keys");
  list.add("documents", &memorize.documents,
           {.help = "files or folders of documents, as data.text: each file of text, or each "
                    "{\"text\": ...} of JSON lines and tables, is one; empty: generated "
                    "records of people and numbers that no rule predicts",
            .reads = Reads::files});
  list.unused_if([&memorize] {
    return memorize.buckets.empty() ? std::string()
                                    : "the entries of [[memorize.bucket]] replace it";
  });
  list.add(
      "bucket_size", &memorize.bucket_size,
      {.help = "number of documents in each bucket, drawn at random with training.seed", .min = 1});
  list.add("epochs", &memorize.epochs,
           {.help = "how many times each bucket's documents are trained on, one number per bucket; "
                    "a control bucket, which is never trained on, is added",
            .min = 1,
            .max = 1e6});
  list.unused_if({});
  list.add("suffix_tokens", &memorize.suffix_tokens,
           {.help = "length of the end of each document, which the model must recite",
            .unit = "tokens",
            .min = 1});
  list.add("prompt_lengths", &memorize.prompt_lengths,
           {.help = "further prompt lengths: only this many tokens before the suffix are shown; "
                    "the prompt of the whole document before it is always tested",
            .unit = "tokens",
            .min = 1});
  list.add("trials", &memorize.trials,
           {.help = "number of repetitions of the whole study, each with another seed",
            .min = 1,
            .max = 1000});
  list.add("losses", &memorize.losses,
           {.help = "losses to compare: standard, goldfish (with the settings of "
                    "training.goldfish), or both"});
  list.add("policies", &memorize.policies,
           {.help = "how a user samples, for the probability that the model writes a suffix: "
                    "\"greedy\", or temperature, top-k and top-p as in \"t=0.7,k=40,p=0.9\", of "
                    "which each may be left out"});
  list.add(
      "batch", &memorize.batch,
      {.help = "documents that a (z, data) coordinate recites at once; 0: as many as fit in 1 GiB",
       .min = 0});
  list.add("hold_weights", &memorize.hold_weights,
           {.help = "whether weights stay gathered over z while the model recites, which takes z "
                    "times their memory; false: they are gathered for every token, which is slow "
                    "for many documents"});
  list_measures(memorize, list);
  list.repeated("memorize.bucket",
                "Documents that are learned a number of times in a part of the steps, in place of "
                "memorize.epochs; at least one bucket of each kind has times = 0, the control",
                memorize.buckets, list_bucket);
}

/// Where the documents of a bucket stand, and what is learned there.
void validate_place(const BucketConfig& bucket, const std::string& name, const Config& config) {
  const bool reads = bucket.loss == BucketLoss::none;
  const std::string key = reads ? "loss = \"none\"" : concat("offset = ", bucket.offset);
  if (bucket.offset == 0 && !reads) return;
  if (bucket.times == 0)
    refuse(name, ": ", key, " of a control, which is never learned; leave it out");
  if (config.data.documents != DocumentMode::joined)
    refuse(name, ": ", key, " puts documents ", reads ? "in front of" : "behind",
           " other text, and with these [data] documents they do not see one another; set ",
           "documents = \"joined\"");
}

/// What is learned in place of the documents of a bucket.
void validate_perturbation(const BucketConfig& bucket, const std::string& name) {
  const Perturbation kind = perturbation_of(bucket);
  const std::string key = concat("perturbation = ", kPerturbations[static_cast<int>(kind)]);
  if (bucket.perturbation != Perturbation::none && bucket.times == 0)
    refuse(name, ": ", key, " of a control, which is never learned; leave it out");
  if ((kind == Perturbation::paraphrase || kind == Perturbation::names) &&
      bucket.kind == DocumentKind::uniform)
    refuse(name, ": ", key, " of kind = \"uniform\", which has no words; set perturbation = ",
           "\"tokens\", or another kind");
  if (bucket.times > 0 && bucket.variants > bucket.times)
    refuse(name, ": times = ", bucket.times, " leaves out some of variants = ", bucket.variants,
           "; set variants to at most times");
}

/// Throws UsageError if a bucket contradicts itself or the training.
void validate_bucket(const BucketConfig& bucket, const Config& config,
                     const MemorizeConfig& memorize) {
  const std::string name = concat("[[memorize.bucket]] ", toml_string(bucket.name));
  const std::int64_t steps = config.training.steps, warmup = warmup_steps(config);
  if (bucket.name.empty())
    refuse("a [[memorize.bucket]] has no name; set it, as in name = \"dose-16\"");
  if (!bucket.when.empty()) {
    if (bucket.when.size() != 2 || bucket.when[0] >= bucket.when[1])
      refuse(name, ": when is not [from, to] with from below to, such as [0.8, 1.0]");
    if (step_at(bucket.when[0], steps) < warmup)
      refuse(name, ": when begins with ", toml_number(bucket.when[0]), " of ", steps,
             " steps, in the warm-up of ", warmup, " steps, which all trainings share; begin at ",
             toml_number(static_cast<double>(warmup) / static_cast<double>(steps)), " or later");
  }
  if (bucket.kind == DocumentKind::text && memorize.documents.empty())
    refuse(name, ": kind = \"text\" takes documents of [memorize] documents, which names none");
  if (bucket.kind == DocumentKind::uniform &&
      (bucket.tokens <= memorize.suffix_tokens || bucket.tokens > most_tokens(config, memorize)))
    refuse(name, ": tokens = ", bucket.tokens,
           "; set more than [memorize] suffix_tokens = ", memorize.suffix_tokens,
           ", and at most [training] seq_len + 1, less the largest offset, = ",
           most_tokens(config, memorize));
  validate_place(bucket, name, config);
  validate_perturbation(bucket, name);
  if (bucket.kind == DocumentKind::canary &&
      bucket.others >= std::llround(std::pow(10, bucket.digits)))
    refuse(name, ": others = ", bucket.others, " of digits = ", bucket.digits, " are not so many; ",
           "set more digits, or others = 0 for all");
}

void validate_buckets(const Config& config, const MemorizeConfig& memorize) {
  std::set<std::string> names;
  for (const BucketConfig& bucket : memorize.buckets) {
    validate_bucket(bucket, config, memorize);
    if (!names.insert(bucket.name).second)
      refuse("[[memorize.bucket]] has the name ", toml_string(bucket.name),
             " twice; give each its own");
  }
  controls_of(arms_of(config, memorize));
}

/// The numbers and prompts of extraction.
void validate_sweeps(const MemorizeConfig& memorize) {
  if (memorize.near_samples > 0 && memorize.near_epsilon.empty())
    refuse("[memorize] near.samples need distances; set near.epsilon, as in [1, 5]");
  extraction_grid(memorize.n, memorize.p, "[memorize] n", "[memorize] p");
  if (!memorize.offsets.empty() && memorize.prompt_lengths.empty())
    refuse("[memorize] offsets need lengths of prompts; set prompt_lengths, as in [8, 32]");
  check_suffixes(memorize.suffix_lengths, memorize.suffix_tokens, "[memorize] suffix_lengths");
}

/// Throws UsageError if a document cannot hold the longest prompt and suffix.
void validate_room(const Config& config, const MemorizeConfig& memorize) {
  const auto most = [](const std::vector<std::int64_t>& all, std::int64_t least) {
    return all.empty() ? least : std::max(least, std::ranges::max(all));
  };
  const std::int64_t farthest = most(memorize.offsets, 0),
                     suffix = most(memorize.suffix_lengths, memorize.suffix_tokens),
                     longest = memorize.prompt_lengths.empty()
                                   ? 1
                                   : farthest + most(memorize.prompt_lengths, 1);
  if (longest + suffix > most_tokens(config, memorize))
    refuse("[training] seq_len = ", config.training.seq_len, " has no room for a prompt of ",
           longest, " tokens", farthest > 0 ? ", with the offset," : "", " and [memorize] ",
           suffix == memorize.suffix_tokens ? "suffix_tokens = " : "suffix_lengths of ", suffix,
           "; documents are cut to seq_len + 1 tokens",
           most_tokens(config, memorize) > config.training.seq_len
               ? ""
               : ", less the largest offset of a bucket");
}

/// The schedules, the mean of weights, and the curve.
void validate_variants(const Config& config, const MemorizeConfig& memorize) {
  std::set<std::string> names;
  for (const std::string& schedule : memorize.schedules) {
    const ScheduleKind kind = schedule_of(schedule);
    if (!names.insert(schedule).second) refuse("[memorize] schedules names ", schedule, " twice");
    if (kind == ScheduleKind::wsd && config.lr_scheduler.decay_steps == 0)
      refuse("[memorize] schedules has wsd, but [lr_scheduler] decay_steps is 0; set it");
  }
  const std::int64_t last = memorize.average_last, every = memorize.average_every,
                     steps = config.training.steps, warmup = warmup_steps(config);
  if (last == 0 && every == 0) return;
  if (last < 2 || every == 0)
    refuse("[memorize] average.last = ", last, " and average.every = ", every,
           ": set both, to a mean of at least 2 checkpoints, or leave both out");
  if (steps % every != 0 || steps - (last - 1) * every <= warmup)
    refuse("[memorize] average.last = ", last, " checkpoints, average.every = ", every,
           " steps apart, do not end with [training] steps = ", steps, " after the warm-up of ",
           warmup, "; set average.every to a divisor of steps, and fewer or closer ones");
  if (config.optimizer.kind == OptimizerKind::schedule_free_adamw)
    refuse("[memorize] average.last: [optimizer] kind = \"schedule_free_adamw\" evaluates a mean ",
           "of its weights already; leave average out");
}

}  // namespace

bool MemorizeConfig::has_goldfish() const {
  return std::ranges::find(losses, kGoldfishLoss) != losses.end();
}

FurtherSection memorize_section(std::shared_ptr<MemorizeConfig> memorize) {
  return {.name = kMemorize,
          .list = [memorize](OptionList& list) { list_memorize(*memorize, list); },
          .unread = "only axonn memorize reads it"};
}

void validate_study(const Config& config, const MemorizeConfig& memorize) {
  validate_buckets(config, memorize);
  validate_variants(config, memorize);
  if (memorize.losses.empty())
    refuse("[memorize] losses is empty; set it to standard, goldfish or both");
  for (const std::string& loss : memorize.losses) {
    if (loss != MemorizeConfig::kStandardLoss && loss != MemorizeConfig::kGoldfishLoss)
      refuse("[memorize] losses has no choice '", loss, "'; the choices are standard and goldfish");
    if (std::ranges::count(memorize.losses, loss) > 1)
      refuse("[memorize] losses names ", loss, " twice");
  }
  parse_policies(memorize.policies, "[memorize] policies");
  if (memorize.references % 2 == 1 || memorize.references == 2)
    refuse("[memorize] references = ", memorize.references,
           ": each document is in half of them, and at least in two; set an even number from 4 on");
  if (memorize.references_apart && config.parallelism.device != DeviceKind::cpu)
    refuse(
        "[memorize] references_apart: ranks would share the first GPU; set [parallelism] device ",
        "= \"cpu\", or leave references_apart out");
  for (const BucketConfig& bucket : memorize.buckets)
    if (memorize.references > 0 && perturbation_of(bucket) != Perturbation::none)
      refuse("[memorize] references: documents of the control would not be perturbed, so ",
             "[[memorize.bucket]] ", toml_string(bucket.name),
             " needs perturbation = \"none\" and variants = 1");
  validate_sweeps(memorize);
  if (memorize.has_goldfish() && config.training.goldfish.k == 0)
    refuse(
        "[memorize] losses has goldfish, but [training] goldfish.k is 0; set goldfish = {k = 2, "
        "h = 13}, or losses = [\"standard\"]");
  if (memorize.epochs.empty())
    refuse("[memorize] epochs is empty; give the epochs of each bucket, such as [1, 4, 6]");
  validate_room(config, memorize);
  if (config.training.patience > 0)
    refuse("[training] patience = ", config.training.patience,
           " would end some trainings of a study before others, which could not be compared; leave "
           "it out");
  if (!config.stage.empty())
    refuse(
        "[memorize] injects documents into the data of one training; name them in [data], and "
        "leave out [[stage]]");
  if (batch_stages(config.training).size() > 1 || config.lr_scheduler.counts_samples())
    refuse(
        "[memorize] injects documents at counted sequences of equal steps; leave out [training] "
        "batch_ramp and batch_stages, and [lr_scheduler] warmup_samples, decay_samples and "
        "total_samples");
  if (config.training.epochs > 0)
    refuse("[training] epochs = ", toml_number(config.training.epochs),
           ": a study counts its steps itself, since documents are injected; set steps");
  if (warmup_steps(config) >= config.training.steps)
    refuse("[lr_scheduler] warmup_steps = ", warmup_steps(config),
           " leaves none of [training] steps = ", config.training.steps,
           " for the documents, which are injected after the warm-up");
}

}  // namespace axonn
