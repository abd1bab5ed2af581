#pragma once

#include <optional>
#include <vector>

#include "axonn/study/recitation.h"

namespace axonn {

/// The best recitation of a document. Points into the report.
struct RankedRecitation {
  const RecitationRun* run;
  const Recitation* recitation;
};

struct RankingOptions {
  std::string variant;                     ///< only runs of this variant count
  std::optional<std::int64_t> group = {};  ///< empty: all groups
};

/// The best recitation of each document, best first: exact ones, then by longest run, token
/// accuracy, shorter prompt and lower loss. Ties keep the order of documents and trials.
std::vector<RankedRecitation> most_recited(const MemorizationReport& report,
                                           const RankingOptions& options);

}  // namespace axonn
