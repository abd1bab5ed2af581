#pragma once

// The likelihood-ratio attack: how sure a model is of a document, against how sure models are that
// have learned it, and others. Source: Carlini et al., 2022, arXiv:2112.03570.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace axonn {

/// A model of which it is known what it has learned.
struct ReferenceMeans {
  std::vector<bool> learned = {};  ///< by document
  std::vector<double> log_p = {};  ///< likewise: mean log p of its targets
};

/// References of each kind from which on a document's own deviation is used; with fewer, one of all
/// documents.
inline constexpr std::int64_t kOwnDeviation = 32;

/// With phi = log(p / (1 - p)), where log p is the mean over the targets of a document; in, out: of
/// the references that have learned the document, and of the others.
struct LiraScore {
  double offline = 0;  ///< (phi - mean of out) / deviation of out
  double online = 0;   ///< log of the normal density of phi by in - log of that by out
};
/// log_p: of each document by the model that is asked. Reference `without` does not count. Throws
/// Error unless each document is learned by two references, and not by two.
std::vector<LiraScore> lira_scores(std::span<const double> log_p,
                                   std::span<const ReferenceMeans> references,
                                   std::optional<std::size_t> without = {});

/// Decisions that a document was learned, by an online score above 0, where each reference in turn
/// is the model that is asked, and the others are its references.
struct LiraDecisions {
  double auc_mean = 0, auc_least = 0, auc_most = 0;  ///< of each reference, over the documents
  double right = 0;                                  ///< share of all decisions
  /// Chance that two references that both have learned a document, or both have not, are decided
  /// differently; the mean over the documents.
  double flips = 0;
};
/// The online scores of each reference: [reference][document]. Throws Error unless each document is
/// learned by three references, and not by three.
std::vector<std::vector<double>> lira_of_references(std::span<const ReferenceMeans> references);
/// Of some of the documents. AUC is of the references that have learned two of these, and not two;
/// empty if there are none.
std::optional<LiraDecisions> lira_decisions(std::span<const ReferenceMeans> references,
                                            std::span<const std::vector<double>> scores,
                                            std::span<const std::int64_t> documents);

}  // namespace axonn
