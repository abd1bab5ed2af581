#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "axonn/data/text/tokenizer.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/use/memorize/audit_part.h"
#include "axonn/use/memorize/documents.h"
#include "axonn/use/memorize/near.h"
#include "axonn/use/memorize/report/report.h"

namespace axonn {

/// Near-verbatim probabilities: see NearOptions; add_near() computes them.
struct NearRequest {
  std::vector<std::int64_t> epsilon = {};  ///< distances; empty: none is computed
  std::int64_t beams = 20;
  TextDistance distance = TextDistance::levenshtein;
  std::int64_t samples = 0;  ///< of each document that are drawn besides; 0: none
  std::uint64_t seed = 1;    ///< of these
  /// Documents searched at a time; 0: as many as the cache has room for, which is the fastest.
  std::int64_t at_once = 16;

  bool operator==(const NearRequest&) const = default;
};

/// What ReciteOptions::progress counts.
inline constexpr const char* kRecitations = "recitations";
inline constexpr const char* kNearSearches = "searches of near texts";
inline constexpr const char* kNearSamples = "documents sampled for near texts";
inline constexpr const char* kComparisons = "documents by the reference";

struct ReciteOptions {
  std::int64_t suffix_tokens = 50;
  std::vector<std::int64_t> prompt_lengths = {kWholePrompt};  ///< as in MemorizationReport
  std::vector<std::int64_t> prompt_offsets = {};              ///< likewise
  std::vector<std::int64_t> prompt_suffixes = {};             ///< likewise
  std::int64_t batch = 0;    ///< sequences per (z, data) coordinate at a time; 0: as memory allows
  bool hold_weights = true;  ///< as in Generator::Options
  std::vector<std::string> policies = {"t=1,k=40", "t=1"};  ///< of the records, see parse_policy()
  NearRequest near = {};                                    ///< by the first of the policies
  /// false: nothing is written, and `exact` is SuffixRecord::greedy_exact.
  bool writes = true;
  /// In an audit a model that has not seen the documents, with the same tokens: for the scores
  /// that set_ratio() sets. Null: there is none.
  LoadedModel* reference = nullptr;
  /// In an audit, on every rank: what an earlier start has made, the same number everywhere. Whole
  /// rounds of it are not made again. Results then have no texts.
  std::optional<AuditCounts> kept = {};
  /// In an audit that keeps what it makes: where, with the texts. Null on others than rank 0.
  AuditPart* part = nullptr;
  /// Progress: called on rank 0 with what is counted, in the plural, as in kRecitations, how many
  /// of it are done, and of how many.
  std::function<void(const char* unit, std::int64_t done, std::int64_t of)> progress = {};
};

/// Adds each of these offsets with each of the lengths that there are but the whole prompt, and
/// then each of these lengths of suffixes with all of them.
void add_sweeps(ReciteOptions& options, std::span<const std::int64_t> offsets,
                std::span<const std::int64_t> suffixes);
/// Whether a prompt is the whole document before suffix_tokens, for which documents have scores.
bool is_whole(const ReciteOptions& options, std::int64_t prompt);

/// Lets a model continue every document greedily, and records the tokens of the true suffix after
/// the same prompt, with the whole prompt also those of the prompt, for the document's scores.
/// The prompt is all tokens before the suffix, or the last of them after a begin-of-text token;
/// with an offset, which the suffix follows, it has that token unless it is the document's start.
/// Returns one recitation per document and prompt length, all documents of the first length first;
/// skips documents that are too short for a length. The caller sets the recitations' groups, and
/// with set_blind_scores() that score. A result needs about 300 bytes of memory, and its texts if
/// they are not kept elsewhere; nothing else grows with the number of documents.
///
/// Collective over the model's ranks. The result is the same on every rank, and on every grid up
/// to ties within rounding. Throws UsageError if a document has more tokens than the model has
/// positions + 1 (the last token is only a target), and as score().
std::vector<Recitation> recite(LoadedModel& model, const Tokenizer& tokenizer,
                               const StudyDocuments& documents, const ReciteOptions& options);

/// Tests which of these documents a trained model can recite, and how well it recites controls:
/// documents that it cannot have seen. The report has the group "documents" and, if there are
/// controls, the group "control"; it does not describe the model. Collective; the result is the
/// same on every rank. Throws as recite().
MemorizationReport audit_model(LoadedModel& model, const Tokenizer& tokenizer,
                               const FoundDocuments& documents, const FoundDocuments& control,
                               const ReciteOptions& options);

/// Sets MembershipScores::blind of all recitations that have scores. controls: of each group the
/// group whose documents are the others. Leaves groups out where there are not two of either kind.
void set_blind_scores(const StudyDocuments& documents, std::span<const std::int64_t> controls,
                      std::span<Recitation> recitations);

/// Sets exact, longest_run, token_accuracy and edit_distance by comparing the tokens.
void compare_tokens(std::span<const std::int32_t> truth, std::span<const std::int32_t> written,
                    Recitation& recitation);

}  // namespace axonn
