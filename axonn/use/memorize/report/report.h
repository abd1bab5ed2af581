#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/use/memorize/counterfactual.h"
#include "axonn/use/memorize/documents.h"
#include "axonn/use/memorize/extraction.h"
#include "axonn/use/memorize/membership.h"

namespace axonn {

/// Bounds of log10 of the probability that a sample is within a distance of the suffix, and how
/// many of some samples are.
struct NearRecord {
  std::int64_t epsilon = 1;
  double log10_low = 0, log10_high = 0;  ///< minus infinity: never
  std::int64_t samples = 0, found = 0;   ///< samples: 0 if none were drawn
};

/// A canary among texts that differ from it in their last digits, by their losses.
struct Exposure {
  std::int64_t rank = 1;  ///< 1: the canary is the likeliest
  std::int64_t candidates = 1;

  /// log2 candidates - log2 rank.
  double bits() const;
};

/// Bits that are known to be random, and those that a model needs for the same tokens: the sum of
/// - log2 p.
struct Information {
  double bits = 0, coded = 0;

  /// Bits that the model holds, at least: none if the text is as hard as unseen text.
  double memorized() const { return std::max(bits - coded, 0.0); }
};

/// Decoded; may not be valid UTF-8.
struct RecitationTexts {
  std::string before, truth, written;  ///< the prompt's end, the true suffix, the model's text
};

/// As std::optional, but an empty one takes the room of a pointer.
template <typename T>
class Rare {
 public:
  Rare() = default;
  Rare(T value) : value_(std::make_unique<T>(std::move(value))) {}
  Rare(const Rare& other) : value_(other ? std::make_unique<T>(*other) : nullptr) {}
  Rare(Rare&&) noexcept = default;
  Rare& operator=(Rare other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }

  explicit operator bool() const { return value_ != nullptr; }
  bool has_value() const { return value_ != nullptr; }
  T& operator*() { return checked(); }
  const T& operator*() const { return checked(); }
  T* operator->() { return &checked(); }
  const T* operator->() const { return &checked(); }
  T& emplace(T value = {}) {
    value_ = std::make_unique<T>(std::move(value));
    return *value_;
  }
  void reset() { value_.reset(); }

 private:
  T& checked() const {
    AXONN_CHECK(value_, "a recitation lacks what is asked of it");
    return *value_;
  }

  std::unique_ptr<T> value_;
};

/// A model's greedy continuation of a prompt, compared with the document's own suffix.
struct Recitation {
  std::int64_t document = 0;       ///< index among the documents of the study or the audit
  std::int64_t group = 0;          ///< index into MemorizationReport::groups
  std::int64_t prompt = 0;         ///< index into MemorizationReport::prompt_lengths
  bool exact = false;              ///< all tokens are equal
  std::int64_t longest_run = 0;    ///< tokens of the longest common run
  double token_accuracy = 0;       ///< share of positions with equal tokens
  std::int64_t edit_distance = 0;  ///< Levenshtein distance in tokens
  double loss = 0;                 ///< of the true suffix, nats per token
  Rare<RecitationTexts> texts = RecitationTexts();  ///< empty if they are kept elsewhere
  std::optional<SuffixRecord> record = {};  ///< empty in results of versions without records
  Rare<MembershipScores> scores = {};       ///< of the document; only with the whole prompt
  std::vector<NearRecord> near = {};        ///< likewise, for each distance that was asked for
  Rare<Exposure> exposure = {};             ///< likewise, of canaries
  Rare<Information> information = {};       ///< likewise, of documents whose bits are known
};

/// A sort key: the better a recitation, the smaller. Of those of one prompt, its length does not
/// matter.
using RecitationRank = std::tuple<bool, std::int64_t, double, std::int64_t, double>;
RecitationRank rank_of(const Recitation& recitation, std::int64_t prompt_length = 0);

/// All documents of a run, tested with the whole prompt during its training.
struct CurvePoint {
  std::int64_t step = 0;  ///< steps done
  std::optional<double> validation_loss = {};
  /// By document of the trial: as Recitation::loss, log10 of the suffix's probability by the first
  /// policy, and SuffixRecord::greedy_exact.
  std::vector<double> loss = {}, log10_p = {};
  std::vector<bool> exact = {};
};

/// [first, end) of the tokens of a document.
struct TokenSpan {
  std::int64_t first = 0, end = 0;

  bool operator==(const TokenSpan&) const = default;
};

/// Every token of a document; all but the first are targets.
struct Reading {
  std::int64_t document = 0;              ///< as Recitation::document
  std::vector<std::string> tokens;        ///< as text; "" where a later one ends the character
  std::vector<double> log_p = {};         ///< of the second token and the following, nats
  std::vector<std::int64_t> rank = {};    ///< likewise; 1: the first choice
  std::vector<double> log_q = {};         ///< likewise, by the first policy; minus infinity: never
  std::vector<TokenSpan> extracted = {};  ///< see readings_of()
};

/// The recitations of one model: in a study, of one training run.
struct RecitationRun {
  std::string variant;     ///< how it was trained, such as "goldfish"; "" in an audit
  std::int64_t trial = 0;  ///< counted from 1
  std::uint64_t seed = 0;  ///< of the trial
  std::optional<double> validation_loss = {}, kept_fraction = {};
  double train_seconds = 0;  ///< without the warm-up that the variants share
  double test_seconds = 0;
  std::vector<std::string> policies = {};  ///< of SuffixRecord::log10_p, see parse_policy()
  std::vector<Recitation> recitations = {};
  /// Recitation n as an audit keeps it elsewhere, with its texts, which those above then lack; none
  /// where they have them.
  std::function<Recitation(std::int64_t n)> kept = {};
  std::vector<CurvePoint> curve = {};  ///< by step
  std::vector<Reading> readings = {};  ///< of some documents, by group
  /// Losses of all targets by document of the trial; empty without references. In the run's own
  /// file, but not in the report.
  std::vector<std::vector<float>> losses = {};
};

inline constexpr std::int64_t kWholePrompt = 0;
inline constexpr std::int64_t kBeforeSuffix = -1;

/// Where a report comes from.
struct ReportOrigin {
  std::string program = {};  ///< with its version: "axonn 0.3.0"
  std::string command = {};  ///< as it was typed
  std::string date = {};     ///< of the report: "2026-11-21 18:02:11 UTC"
  std::string machine = {};  ///< "2 ranks on node7: AMD EPYC 9654, 2 cores"
  std::string config = {};   ///< the text of the study's config.toml; "" in an audit
};

/// How the documents of a group come: from where to where, in shares of the steps, and as what, as
/// in BucketConfig.
struct GroupDesign {
  double from = 0, to = 1;
  std::string perturbation = "none";
  std::int64_t variants = 1, offset = 0;
  std::string loss = "same";

  /// All but the steps: "" of documents that come as they are, or "3 paraphrases, read only".
  std::string form() const;
};

/// The result of a study (a group is a bucket of documents, learned for a number of epochs) or of
/// an audit (the groups are the tested documents and, optionally, the controls).
struct MemorizationReport {
  std::string title;                            ///< "Memorization study" or "Memorization audit"
  std::string model;                            ///< one-line description
  std::vector<std::string> notes = {};          ///< what was done, one sentence each
  std::vector<std::string> groups;              ///< "control", "4 epochs", ...
  std::vector<std::int64_t> group_sizes;        ///< documents of each
  std::vector<std::int64_t> group_epochs = {};  ///< of each in training; empty in an audit
  /// Of each in training; empty: documents come as they are, in the same steps.
  std::vector<GroupDesign> group_designs = {};
  /// Of each group, the group of the same kind that the model has never seen; empty: there is none.
  std::vector<std::int64_t> controls = {};
  std::vector<std::string> document_names = {};  ///< of each document; in an audit none:
  StudyDocuments documents = {};                 ///< they have their names
  /// Of each document the steps in which it came, counted from 1; empty without curves.
  std::vector<std::vector<std::int64_t>> exposures = {};
  std::int64_t suffix_tokens = 50;
  std::int64_t parameters = 0;  ///< of the model; 0: unknown
  /// Lengths of the prompts in tokens; kWholePrompt: all tokens before the suffix.
  std::vector<std::int64_t> prompt_lengths;
  /// Of each the tokens of the document before it; the suffix is what follows it. kBeforeSuffix, or
  /// if there are fewer of these: the suffix is the document's end, and the prompt is before it.
  std::vector<std::int64_t> prompt_offsets = {};
  /// Of each the tokens of the suffix. If there are fewer of these: suffix_tokens.
  std::vector<std::int64_t> prompt_suffixes = {};
  ExtractionGrid extraction = {};
  std::vector<RecitationRun> runs;
  ReferenceResults references = {};  ///< of the trials whose references are trained
  bool by_loss = true;               ///< whether variants are losses, not ways of training
  ReportOrigin origin = {};

  std::int64_t offset_of(std::int64_t prompt) const {
    return prompt < std::ssize(prompt_offsets) ? prompt_offsets[prompt] : kBeforeSuffix;
  }
  std::int64_t suffix_of(std::int64_t prompt) const {
    return prompt < std::ssize(prompt_suffixes) ? prompt_suffixes[prompt] : suffix_tokens;
  }
  bool is_control(std::int64_t group) const {
    return !controls.empty() && controls.at(group) == group;
  }
};

/// Mean and range of a figure over the trials.
struct TrialSpread {
  double mean = 0, minimum = 0, maximum = 0;
};

/// In percent.
struct PercentRange {
  double low = 0, high = 0;
};

/// The figures of all recitations of one variant, group and prompt length. If there are none,
/// trials and all figures are 0.
struct RecitationCell {
  std::int64_t variant = 0;  ///< index into MemorizationSummary::variants
  std::int64_t group = 0;    ///< index into MemorizationReport::groups
  std::int64_t prompt = 0;   ///< index into MemorizationReport::prompt_lengths
  std::int64_t trials = 0;   ///< trials that have recitations
  std::int64_t documents = 0;
  std::int64_t recitations = 0, exact = 0;  ///< over all trials; the exact ones among them
  TrialSpread exact_percent = {};           ///< share of exact recitations by trial
  /// 95 % interval of exact / recitations in percent: how much the share would vary with other
  /// documents. It assumes independent recitations. Those of one document in several trials are
  /// not, so it is meaningful for one trial only.
  PercentRange exact_interval = {};
  /// Means over documents and trials, in the units of Recitation.
  double longest_run = 0, token_accuracy = 0, edit_distance = 0, loss = 0;
  /// Standard errors of two of these; empty with a single recitation.
  std::optional<double> longest_run_error = {}, loss_error = {};
};

/// The figures of all trials of one variant.
struct VariantSummary {
  std::string name;
  std::int64_t trials = 0;
  std::optional<TrialSpread> validation_loss = {};  ///< nats per token, of the trials that have it
  std::optional<TrialSpread> kept_percent = {};     ///< targets that the loss counted
  double train_seconds = 0, test_seconds = 0;       ///< summed over trials
};

/// Prompts that differ in one thing.
struct PromptSweep {
  enum class By { length, suffix, offset } by = By::length;
  std::vector<std::int64_t> prompts = {};  ///< ascending; at least one
};

/// The figures of a report.
struct MemorizationSummary {
  std::vector<VariantSummary> variants;  ///< in the order of their first runs
  std::vector<std::int64_t> prompts;     ///< those before the suffix_tokens, shortest first
  std::int64_t all_prompts = 0;          ///< their number, with all others
  std::vector<PromptSweep> sweeps;       ///< by length; of each length, by suffix; by offset
  std::vector<RecitationCell> cells;     ///< by variant, then group, then prompt

  /// The cell of these indices, which must exist.
  const RecitationCell& at(std::int64_t variant, std::int64_t group, std::int64_t prompt) const {
    const std::int64_t groups = std::ssize(cells) / (std::ssize(variants) * all_prompts);
    return cells.at((variant * groups + group) * all_prompts + prompt);
  }

  /// Index of the longest prompt, which the headline figures are for; 0 if there is none.
  std::int64_t longest_prompt() const { return prompts.empty() ? 0 : prompts.back(); }
};

/// The probabilities of the suffixes of a cell by one policy, over all trials.
struct SuffixProbabilities {
  std::int64_t variant = 0, group = 0, prompt = 0;  ///< as in RecitationCell
  std::string policy = {};
  std::vector<double> log10_p = {};  ///< of each recitation that has a record
};

/// Of all cells with records, in their order, and all policies. Throws as summarize().
std::vector<SuffixProbabilities> suffix_probabilities(const MemorizationReport& report,
                                                      const MemorizationSummary& summary);

/// A share of suffixes that are (n, p)-extractable: see least_log10_p().
struct ExtractionRate {
  std::int64_t variant = 0, group = 0, prompt = 0;  ///< as in RecitationCell
  std::string policy = {};
  double n = 1, p = 0.5;
  std::int64_t suffixes = 0, extractable = 0;  ///< over all trials
  PercentRange interval = {};                  ///< 95 %, Wilson; as RecitationCell::exact_interval
};

/// The rates of each of them for each p and n, in this order.
std::vector<ExtractionRate> extraction_rates(std::span<const SuffixProbabilities> suffixes,
                                             const ExtractionGrid& grid);

/// The share of suffixes of which a text within the distance is (n, p)-extractable, for the whole
/// prompt and the first policy. The truth lies between the two counts.
struct NearRate {
  std::int64_t variant = 0, group = 0, epsilon = 1;
  double n = 1, p = 0.5;
  std::int64_t suffixes = 0, at_least = 0, at_most = 0;
};
/// Of each variant, group, distance, p and n, in this order.
std::vector<NearRate> near_rates(const MemorizationReport& report,
                                 const MemorizationSummary& summary);

/// The mean over the documents of a group of the probability that a sample is within a distance of
/// the suffix: its bounds, and its estimate by samples.
struct NearMass {
  std::int64_t variant = 0, group = 0, epsilon = 1, documents = 0;
  double low = 0, high = 0;
  std::int64_t samples = 0, found = 0;  ///< of all documents; 0: none were drawn
  /// Of found / samples, 95 %, Clopper-Pearson: too wide, as documents have equally many samples.
  Interval interval = {};
};
/// Of each variant, group and distance, in this order.
std::vector<NearMass> near_masses(const MemorizationReport& report,
                                  const MemorizationSummary& summary);

/// The exposures of the canaries of a group over all trials, in bits.
struct ExposureFigures {
  std::int64_t variant = 0, group = 0, canaries = 0, candidates = 0, first = 0;  ///< first: rank 1
  double mean = 0, median = 0, most = 0;  ///< most: that of rank 1
};
/// Of each variant and group with canaries, in this order.
std::vector<ExposureFigures> exposure_figures(const MemorizationReport& report,
                                              const MemorizationSummary& summary);

/// What a run holds of the random bits of a group, or of all groups that it has learned.
struct CapacityFigures {
  std::string variant = {};
  std::int64_t trial = 1, documents = 0;
  std::optional<std::int64_t> group = {};         ///< empty: all that it has learned
  double bits = 0, coded = 0, memorized = 0;      ///< sums over the documents
  std::optional<double> bits_per_parameter = {};  ///< memorized; empty if their number is unknown
};
/// Of each run, each group whose bits are known, then of all learned ones. Source: Morris et al.,
/// "How much do language models memorize?", 2025, arXiv:2505.24832.
std::vector<CapacityFigures> capacity_figures(const MemorizationReport& report);

/// Suffixes that are likelier than those of matched controls: a recitation counts if its
/// conformal_p_value() among the controls of its run, prompt and policy is at most alpha. If
/// documents and controls are alike but for the training, at most a share of alpha of documents
/// that the model has not seen counts.
struct MatchedRate {
  std::int64_t variant = 0, group = 0, prompt = 0;  ///< as in RecitationCell
  std::string policy = {};
  double alpha = 0.01;
  std::int64_t controls = 0;  ///< of the run with the fewest
  std::int64_t suffixes = 0;  ///< over all trials
  /// Those that count; empty with fewer than 1 / alpha - 1 controls, where none could.
  std::optional<std::int64_t> memorized = {};
  std::int64_t extractable = 0;  ///< of these, those that kMatchedBudget samples extract
  PercentRange interval = {};    ///< of memorized, as ExtractionRate::interval
};
inline constexpr std::array kMatchedAlphas{0.01, 0.001};
inline constexpr std::int64_t kMatchedBudget = 1000;  ///< with a chance of one half

/// Of all cells but the control's, policies, and kMatchedAlphas, in this order; none without a
/// control.
std::vector<MatchedRate> matched_rates(const MemorizationReport& report,
                                       const MemorizationSummary& summary);

/// How well a score of documents separates a group from the control, in one run.
struct MembershipResult {
  std::string variant = {};
  std::int64_t trial = 1, group = 0;
  std::string_view score = {};  ///< a name in kScores
  Separation separation = {};
};

/// The members of MembershipScores by name.
inline constexpr std::array<std::pair<const char*, double MembershipScores::*>, 9> kScores{
    {{"loss", &MembershipScores::loss},
     {"zlib", &MembershipScores::zlib},
     {"min_k", &MembershipScores::min_k},
     {"min_k_pp", &MembershipScores::min_k_pp},
     {"blind", &MembershipScores::blind},
     {"ratio", &MembershipScores::ratio},
     {"windows", &MembershipScores::windows},
     {"lira_offline", &MembershipScores::lira_offline},
     {"lira_online", &MembershipScores::lira_online}}};
inline constexpr std::size_t kScoresWithoutReferences = 5;  ///< the first of them

/// The results of each run, group but the control, and score; none without a control, and where
/// fewer than two documents of either have scores.
std::vector<MembershipResult> membership_results(const MemorizationReport& report);

/// How far the losses of a group's documents under the model of an audit are from those under its
/// reference.
struct ReferenceDistance {
  std::int64_t group = 0, documents = 0;
  double loss = 0, reference_loss = 0;  ///< means over documents, nats a token
  SampleDistance distance = {};         ///< between the losses of documents under both
};
/// Of each group; none in a study, or without a reference.
std::vector<ReferenceDistance> reference_distances(const MemorizationReport& report);

/// Summarizes a report. Throws if a recitation's group or prompt is not in the report.
MemorizationSummary summarize(const MemorizationReport& report);

/// The middle value, or the mean of the two in the middle; there must be one.
double median_of(std::vector<double> values);

/// The standard error of the mean of independent values; empty if there is one. Throws Error if
/// there is none.
std::optional<double> error_of_mean(std::span<const double> values);

/// Wilson's 95 % score interval of the share exact / count, in percent. Source: Wilson, "Probable
/// Inference, the Law of Succession, and Statistical Inference", J. Am. Stat. Assoc., 1927. Throws
/// if count is below 1 or exact is not within 0 .. count.
PercentRange wilson_interval(std::int64_t exact, std::int64_t count);

/// A recitation of a run with its texts.
Recitation with_texts(const RecitationRun& run, const Recitation& recitation);

/// The best recitation of a document. Points into the report.
struct RankedRecitation {
  const RecitationRun* run;
  const Recitation* recitation;
};

/// The best recitation of the end of each document in the runs of one variant, best first: exact
/// ones, then by longest run, token accuracy, shorter prompt and lower loss. Ties keep the order of
/// documents and trials. group: only the documents of this group; empty: of all groups.
std::vector<RankedRecitation> most_recited(const MemorizationReport& report,
                                           const std::string& variant,
                                           std::optional<std::int64_t> group = {});

}  // namespace axonn
