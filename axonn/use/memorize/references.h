#pragma once

// Attacks that know other models: references, each trained on a half of the documents.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "axonn/run/load/loaded_model.h"
#include "axonn/use/memorize/documents.h"
#include "axonn/use/memorize/lira.h"
#include "axonn/use/memorize/membership.h"

namespace axonn {

/// The losses of all targets of each document, nats.
using TokenLosses = std::vector<std::vector<float>>;

/// Those by a model, the same on every rank. Collective; throws as score_targets().
TokenLosses token_losses(LoadedModel& model, const StudyDocuments& documents);

/// The same by two models, a round of documents at a time, so that memory does not grow with their
/// number. `to` gets those of the documents from `first` on; it is not called for rounds that are
/// among the first `known` documents.
void compare_losses(LoadedModel& model, LoadedModel& other, const StudyDocuments& documents,
                    std::int64_t known,
                    const std::function<void(std::int64_t first, const TokenLosses& own,
                                             const TokenLosses& by_other)>& to);

/// As ReferenceMeans, with all losses.
struct Reference {
  std::vector<bool> learned;  ///< by document
  TokenLosses losses;         ///< likewise
};

/// Which of so many documents a reference learns: a half of them drawn with the seed, and the next
/// reference of an odd number the others. So each document is in half of an even number of them,
/// whatever their number.
std::vector<bool> learned_by(std::int64_t reference, std::int64_t documents, std::uint64_t seed);

/// The group as whose documents document k of a control is learned by references: those with the
/// control come in turn. controls: of each group the number of its control.
std::int64_t group_in_turn(std::span<const std::int64_t> controls, std::int64_t control,
                           std::int64_t k);

/// Sets the scores that need references; the others are those that have not learned the document:
///   ratio    mean loss by the others, over them and targets, - mean loss
///   windows  over widths 2 to 40: share of windows of targets whose loss by the others is the
///            larger, in the mean
///   lira_offline, lira_online  lira_scores()
/// Throws Error unless each document is learned by two references, and not by two. Source of
/// windows: arXiv:2601.02751.
void set_reference_scores(const TokenLosses& losses, std::span<const Reference> references,
                          std::span<MembershipScores* const> scores);

/// The references with the means of their losses.
std::vector<ReferenceMeans> reference_means(std::span<const Reference> references);

/// Sets `ratio` and `windows`, by the losses of one model that has not learned the document, or of
/// means over several. Throws Error unless there are as many as the document has targets.
void set_ratio(std::span<const float> losses, std::span<const double> others, MembershipScores& to);

/// As JSON, and read again; throws UsageError, beginning with `where`, if the text is damaged, or
/// has not the losses of so many documents.
std::string to_json(const Reference& reference);
Reference parse_reference(const std::string& text, std::int64_t documents,
                          const std::string& where);

}  // namespace axonn
