#include "axonn/use/memorize/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

TrialSpread trial_spread_of(std::span<const double> values) {
  const auto [least, most] = std::ranges::minmax(values);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.mean = sum / static_cast<double>(values.size()), .minimum = least, .maximum = most};
}

/// A prompt's length as a sort key.
std::int64_t length_of(const MemorizationReport& report, std::int64_t prompt) {
  const std::int64_t length = report.prompt_lengths.at(prompt);
  return length == kWholePrompt ? std::numeric_limits<std::int64_t>::max() : length;
}

/// A sort key: the better the recitation, the smaller.
auto rank_of(const MemorizationReport& report, const Recitation& r) {
  return std::tuple(!r.exact, -r.longest_run, -r.token_accuracy, length_of(report, r.prompt),
                    std::isnan(r.loss) ? INFINITY : r.loss);
}

/// Fills in the figures of a cell, which has its indices.
void sum_up(RecitationCell& cell, const std::string& variant, const MemorizationReport& report) {
  std::set<std::int64_t> documents;
  std::vector<double> shares;  // by trial
  for (const RecitationRun& run : report.runs) {
    if (run.variant != variant) continue;
    std::int64_t here = 0, exact_here = 0;
    for (const Recitation& r : run.recitations) {
      if (r.group != cell.group || r.prompt != cell.prompt) continue;
      documents.insert(r.document);
      ++here;
      exact_here += r.exact;
      cell.longest_run += static_cast<double>(r.longest_run);
      cell.token_accuracy += r.token_accuracy;
      cell.edit_distance += static_cast<double>(r.edit_distance);
      cell.loss += r.loss;
    }
    if (here > 0) shares.push_back(100 * static_cast<double>(exact_here) / here);
    cell.recitations += here;
    cell.exact += exact_here;
  }
  if (shares.empty()) return;
  cell.trials = std::ssize(shares);
  cell.documents = std::ssize(documents);
  cell.exact_percent = trial_spread_of(shares);
  cell.exact_interval = wilson_interval(cell.exact, cell.recitations);
  for (double* mean : {&cell.longest_run, &cell.token_accuracy, &cell.edit_distance, &cell.loss})
    *mean /= static_cast<double>(cell.recitations);
}

VariantSummary variant_of(const std::string& name, const std::vector<RecitationRun>& runs) {
  VariantSummary variant{.name = name};
  std::vector<double> losses, kept;
  for (const RecitationRun& run : runs) {
    if (run.variant != name) continue;
    ++variant.trials;
    if (run.validation_loss) losses.push_back(*run.validation_loss);
    if (run.kept_fraction) kept.push_back(100 * *run.kept_fraction);
    variant.train_seconds += run.train_seconds;
    variant.test_seconds += run.test_seconds;
  }
  if (!losses.empty()) variant.validation_loss = trial_spread_of(losses);
  if (!kept.empty()) variant.kept_percent = trial_spread_of(kept);
  return variant;
}

}  // namespace

MemorizationSummary summarize(const MemorizationReport& report) {
  MemorizationSummary summary;
  const std::int64_t groups = std::ssize(report.groups),
                     prompts = std::ssize(report.prompt_lengths);
  summary.prompts.resize(prompts);
  std::iota(summary.prompts.begin(), summary.prompts.end(), 0);
  std::ranges::stable_sort(summary.prompts, {},
                           [&](std::int64_t prompt) { return length_of(report, prompt); });
  for (const RecitationRun& run : report.runs) {
    for (const Recitation& r : run.recitations)
      AXONN_CHECK(r.group >= 0 && r.group < groups && r.prompt >= 0 && r.prompt < prompts,
                  "summarize: a recitation has group ", r.group, " and prompt length ", r.prompt,
                  "; the report has ", groups, " groups and ", prompts, " prompt lengths");
    if (std::ranges::count(summary.variants, run.variant, &VariantSummary::name) > 0) continue;
    const std::int64_t variant = std::ssize(summary.variants);
    summary.variants.push_back(variant_of(run.variant, report.runs));
    for (std::int64_t group = 0; group < groups; ++group)
      for (std::int64_t prompt = 0; prompt < prompts; ++prompt)
        sum_up(summary.cells.emplace_back(RecitationCell{variant, group, prompt}), run.variant,
               report);
  }
  return summary;
}

PercentRange wilson_interval(std::int64_t exact, std::int64_t count) {
  AXONN_CHECK(count >= 1 && exact >= 0 && exact <= count, "wilson_interval: invalid share ", exact,
              " of ", count);
  constexpr double kZ = 1.959963984540054;  // the normal distribution's 97.5 % quantile
  const double n = static_cast<double>(count), p = static_cast<double>(exact) / n,
               weight = 1 / (1 + kZ * kZ / n), center = weight * (p + kZ * kZ / (2 * n)),
               half = weight * kZ * std::sqrt(p * (1 - p) / n + kZ * kZ / (4 * n * n));
  // The ends 0 and 100 are set exactly, since rounding would miss them.
  return {.low = exact == 0 ? 0 : 100 * (center - half),
          .high = exact == count ? 100 : 100 * (center + half)};
}

std::vector<RankedRecitation> most_recited(const MemorizationReport& report,
                                           const std::string& variant,
                                           std::optional<std::int64_t> group) {
  std::map<std::int64_t, RankedRecitation> best;  // by document
  for (const RecitationRun& run : report.runs) {
    if (run.variant != variant) continue;
    for (const Recitation& r : run.recitations) {
      if (group && r.group != *group) continue;
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
