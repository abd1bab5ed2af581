#pragma once

// What references, each trained on a half of the documents, say about the documents themselves.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "axonn/use/memorize/lira.h"

namespace axonn {

/// The mean log p of a document's tokens by references that have learned a document, less that by
/// the others. Nats a token.
struct CounterfactualMean {
  double nats = 0;
  double error = 0;  ///< standard error: root of the sum of s² / n of both sides, s² with n - 1
};

/// How much each document is memorized: by references that have learned it, and the others.
/// Source: Zhang et al., 2021, arXiv:2112.12938, with log p in place of accuracy. Throws Error
/// unless each document is learned by two references, and not by two.
std::vector<CounterfactualMean> counterfactual_memorization(
    std::span<const ReferenceMeans> references);

/// How much likelier document `on` is to references that have learned document `of`. Source: the
/// same, influence.
struct Influence {
  std::int64_t of = 0, on = 0;
  CounterfactualMean mean = {};
  double deviations = 0;  ///< nats, in standard deviations of all pairs
};
/// Of all pairs of two documents, the `most` with the largest nats, largest first. Throws likewise.
std::vector<Influence> largest_influences(std::span<const ReferenceMeans> references,
                                          std::int64_t most);

/// What the references of a trial say.
struct ReferenceResults {
  struct Document {
    std::int64_t trial = 1, group = 0, document = 0;
    CounterfactualMean memorized = {};
  };
  /// Of a bucket that is learned.
  struct Group {
    std::int64_t trial = 1, group = 0, documents = 0, references = 0;
    CounterfactualMean memorized = {};  ///< mean over documents, with the error of that mean
    std::optional<LiraDecisions> lira = {};
  };
  struct Pair {
    std::int64_t trial = 1;
    Influence influence = {};
  };
  std::vector<Document> documents = {};
  std::vector<Group> groups =
      {};  ///< without lira: fewer than six references, or too few documents
  std::vector<Pair> pairs = {};
};
inline constexpr std::int64_t kMostInfluences = 20;  ///< of a trial

/// Which documents of a trial references are asked about.
struct ReferenceDocuments {
  std::int64_t trial = 1, first = 0;      ///< number of the trial's first document in the report
  std::span<const std::int64_t> group;    ///< by document of the trial
  std::span<const std::int64_t> control;  ///< of each group the number of its control
};
/// Adds a trial to the results.
void add_reference_results(std::span<const ReferenceMeans> references,
                           const ReferenceDocuments& documents, ReferenceResults& to);

}  // namespace axonn
