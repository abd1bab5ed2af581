#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/text/tokenizer.h"
#include "axonn/run/config/config.h"
#include "axonn/use/memorize/config.h"
#include "axonn/use/memorize/documents.h"
#include "axonn/use/memorize/exposure.h"

namespace axonn {

/// The buckets of a study, with `when` filled in. If [memorize] lists none: a control, and one for
/// each of memorize.epochs.
std::vector<BucketConfig> arms_of(const Config& config, const MemorizeConfig& memorize);

/// The step, of so many, at a share of them, as in BucketConfig::when.
std::int64_t step_at(double share, std::int64_t steps);

/// For each arm, the number of the control of its kind. Throws UsageError if there is none, or if
/// there are several.
std::vector<std::int64_t> controls_of(std::span<const BucketConfig> arms);

/// The documents of a trial.
struct TrialDocuments {
  /// Those that are tested, arm after arm, then near-duplicates.
  std::shared_ptr<const std::vector<StudyDocument>> all;
  std::int64_t tested = 0;
  std::vector<std::int64_t> group;  ///< of each tested document, the number of its arm
  /// Of each tested document, the first of the documents that come for it: its own number, or
  /// that of its first near-duplicate, behind which the others are.
  std::vector<std::int64_t> first_variant;
  std::vector<std::int64_t> original;  ///< of each of `all`, the tested document that it stands for
};

struct ArmOptions {
  std::uint64_t seed = 1;
  DocumentLimits limits = {};
  bool by_name = true;  ///< whether generated documents depend on the arm's name, not its index
};

/// Of each tested document, among which texts it is ranked.
std::vector<CanarySpace> canary_spaces(std::span<const BucketConfig> arms,
                                       const TrialDocuments& documents, std::uint64_t seed);

/// Draws the documents of each arm. Generated ones depend on the seed and on the arm alone; those
/// of `given` are drawn without repetition, arm after arm. Throws UsageError if there are too few,
/// and if a canary is longer than the limit.
TrialDocuments documents_of_arms(std::span<const BucketConfig> arms, const FoundDocuments& given,
                                 const Tokenizer& tokenizer, const ArmOptions& options);

/// The document of each sequence after the warm-up, or -1: an index into TrialDocuments::all.
/// Visit e of a document lies in the e-th of `times` equal parts of the arm's steps, at a position
/// drawn with seed, name of the arm, document and visit. If it is taken, others are drawn, and if
/// none of 64 is free, it is the next free one. So a bucket that is added at the end moves no visit
/// of the others. Throws UsageError if there is no room, with the remedy.
std::vector<std::int32_t> slots_of_arms(std::span<const BucketConfig> arms,
                                        const TrialDocuments& documents, const InjectionPlan& plan);

/// The documents of a trial, and the sequences in which they come.
struct TrialPlan {
  TrialDocuments documents;
  InjectedSlots slots;
};

/// The plan of the trial whose seed `config` has. given: those of memorize.documents. Throws
/// UsageError if there are too few documents or steps.
TrialPlan plan_of_trial(const Config& config, const MemorizeConfig& memorize,
                        const Tokenizer& tokenizer, const FoundDocuments& given);

/// The sequences of a reference of a trial, drawn with the seed of config, its own: the documents
/// that it learns, as learned_by() says, come as in the trial, and those of a control like those of
/// group_in_turn(). Throws UsageError if there is no room.
InjectedSlots slots_of_reference(const Config& config, const MemorizeConfig& memorize,
                                 const TrialDocuments& documents, const std::vector<bool>& learned);

/// The steps, counted from 1, in which each tested document comes, or a near-duplicate of it.
std::vector<std::vector<std::int64_t>> exposures_of(const TrialPlan& plan, std::int64_t batch);

/// Tokens of the longest document: with the largest offset before it, a sequence holds all but its
/// last, which is only a target.
std::int64_t most_tokens(const Config& config, const MemorizeConfig& memorize);
/// The lengths of documents that can be tested and injected.
DocumentLimits limits_of(const Config& config, const MemorizeConfig& memorize);

/// A training of each trial after the warm-up.
struct StudyVariant {
  std::string loss, schedule;  ///< schedule: "" for that of [lr_scheduler]
  std::string name;            ///< in the report: "goldfish", "wsd", "goldfish, wsd"
  std::string folder;          ///< the end of its folder's name
};
/// Each loss with each schedule.
std::vector<StudyVariant> variants_of(const MemorizeConfig& memorize);
/// Steps of a trial: the warm-up that its variants share, the rest with each of them, and all steps
/// of each reference.
std::int64_t steps_of_trial(const Config& config, const MemorizeConfig& memorize);

/// Near-duplicate `number` of a document: of each `every` tokens one, at a random position, is
/// replaced by another token of the document, unless all are equal.
StudyDocument near_duplicate(const StudyDocument& document, std::int64_t number, std::int64_t every,
                             std::uint64_t seed);

}  // namespace axonn
