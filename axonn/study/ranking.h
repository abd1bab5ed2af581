#pragma once

#include <optional>
#include <vector>

#include "axonn/study/recitation.h"

namespace axonn {

/// The recitation in which a document was recited most. Refers to the report.
struct RankedRecitation {
  const RecitationRun* run;
  const Recitation* recitation;
};

struct RankingOptions {
  std::string variant;                     ///< of the runs
  std::optional<std::int64_t> group = {};  ///< none: all of them
};

/// One for each document, the most recited first: exact ones, then by longest run, token accuracy,
/// the shorter prompt, and the lower loss; what is equal in all of that stays in the order of
/// documents and trials.
std::vector<RankedRecitation> most_recited(const MemorizationReport& report,
                                           const RankingOptions& options);

}  // namespace axonn
