#include "axonn/study/ranking.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace axonn {

namespace {

/// A sort key: the better the recitation, the smaller.
auto rank_of(const MemorizationReport& report, const Recitation& r) {
  const std::int64_t length = report.prompt_lengths.at(r.prompt);
  return std::tuple(!r.exact, -r.longest_run, -r.token_accuracy,
                    length == kWholePrompt ? std::numeric_limits<std::int64_t>::max() : length,
                    std::isnan(r.loss) ? INFINITY : r.loss);
}

}  // namespace

std::vector<RankedRecitation> most_recited(const MemorizationReport& report,
                                           const RankingOptions& options) {
  std::map<std::int64_t, RankedRecitation> best;  // by document
  for (const RecitationRun& run : report.runs) {
    if (run.variant != options.variant) continue;
    for (const Recitation& r : run.recitations) {
      if (options.group && r.group != *options.group) continue;
      const auto [found, is_new] = best.try_emplace(r.document, RankedRecitation{&run, &r});
      if (!is_new && rank_of(report, r) < rank_of(report, *found->second.recitation))
        found->second = {&run, &r};
    }
  }
  std::vector<RankedRecitation> ranked;
  for (const auto& [document, one] : best) ranked.push_back(one);
  std::ranges::stable_sort(
      ranked, {}, [&](const RankedRecitation& one) { return rank_of(report, *one.recitation); });
  return ranked;
}

}  // namespace axonn
