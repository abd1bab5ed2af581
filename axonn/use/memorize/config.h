#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/run/config/config.h"
#include "axonn/use/memorize/near.h"
#include "axonn/use/memorize/perturb.h"

namespace axonn {

/// The documents of a bucket: generated records, those of memorize.documents, tokens drawn
/// uniformly, whose bits are known, or canaries: records that are ranked among texts with other
/// last digits.
enum class DocumentKind { record, text, uniform, canary };
inline constexpr std::array<std::string_view, 4> kDocumentKinds = {"record", "text", "uniform",
                                                                   "canary"};

/// What is learned of a bucket's documents. same: what the training's loss counts; none: nothing.
/// They are read then in front of other text, which is learned.
enum class BucketLoss { same, none };
inline constexpr std::array<std::string_view, 2> kBucketLosses = {"same", "none"};

/// [[memorize.bucket]]: documents that are learned a number of times in a part of the steps.
struct BucketConfig {
  std::string name = {};
  std::int64_t size = 100;        ///< documents
  std::int64_t times = 0;         ///< that each is learned; 0: a control
  std::vector<double> when = {};  ///< from and to, shares of the steps; empty: after the warm-up
  DocumentKind kind = DocumentKind::record;
  std::int64_t tokens = 64;  ///< of a uniform document
  std::int64_t digits = 3;   ///< of a canary that are secret, the last ones
  std::int64_t others = 0;   ///< texts with other digits to rank a canary among; 0: all
  Perturbation perturbation = Perturbation::none;  ///< see perturbation_of()
  std::int64_t variants = 1;       ///< perturbed documents, of which each is learned in turn
  std::int64_t change_every = 16;  ///< tokens, of which one differs in each near-duplicate
  std::int64_t offset = 0;         ///< tokens of other text before the document in its sequence
  BucketLoss loss = BucketLoss::same;

  bool operator==(const BucketConfig&) const = default;
};

/// The perturbation of a bucket's documents. Several variants are near-duplicates if none is named.
inline Perturbation perturbation_of(const BucketConfig& bucket) {
  return bucket.perturbation == Perturbation::none && bucket.variants > 1 ? Perturbation::tokens
                                                                          : bucket.perturbation;
}

/// [memorize]: the memorization study.
struct MemorizeConfig {
  std::vector<std::string> documents = {};        ///< JSONL files; empty: generated records
  std::int64_t bucket_size = 200;                 ///< documents
  std::vector<std::int64_t> epochs = {1, 4, 6};   ///< per bucket; the control bucket has 0
  std::int64_t suffix_tokens = 50;                ///< to recite
  std::vector<std::int64_t> prompt_lengths = {};  ///< tokens, in addition to the whole document
  std::int64_t trials = 3;
  std::vector<std::string> losses = {kStandardLoss, kGoldfishLoss};
  std::vector<std::string> policies = {"t=1,k=40", "t=1"};  ///< see parse_policy()
  std::int64_t batch = 0;    ///< documents that a (z, data) coordinate recites at a time; 0: auto
  bool hold_weights = true;  ///< keep weights gathered over z while reciting
  std::vector<BucketConfig> buckets = {};   ///< in place of epochs and bucket_size
  std::vector<std::string> schedules = {};  ///< to compare, by lr_scheduler.kind; empty: that one
  std::int64_t average_last = 0;            ///< checkpoints whose mean is tested, too; 0: none
  std::int64_t average_every = 0;           ///< steps between them
  std::int64_t curve_every = 0;             ///< steps between measurements; 0: none
  std::vector<std::int64_t> near_epsilon = {};  ///< distances of near-verbatim texts
  std::int64_t near_beams = 20;
  TextDistance near_distance = TextDistance::levenshtein;
  std::int64_t near_samples = 0;
  std::vector<std::int64_t> n = {1, 10, 100, 1'000, 10'000, 100'000, 1'000'000};
  std::vector<double> p = {0.1, 0.5, 0.9, 0.999};
  std::vector<std::int64_t> offsets = {};         ///< tokens before each of prompt_lengths
  std::int64_t references = 0;                    ///< further trainings on halves of the documents
  bool references_apart = false;                  ///< each rank trains others of them
  std::vector<std::int64_t> suffix_lengths = {};  ///< tokens to recite, besides suffix_tokens

  static constexpr const char* kStandardLoss = "standard";
  static constexpr const char* kGoldfishLoss = "goldfish";

  /// Whether the goldfish loss is among the losses.
  bool has_goldfish() const;
  bool operator==(const MemorizeConfig&) const = default;
};

/// The section [memorize] of a configuration, with its values in `memorize`.
FurtherSection memorize_section(
    std::shared_ptr<MemorizeConfig> memorize = std::make_shared<MemorizeConfig>());

/// Throws UsageError, naming the keys, if [memorize] contradicts itself or other sections.
void validate_study(const Config& config, const MemorizeConfig& memorize);

}  // namespace axonn
