#include "axonn/study/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <tuple>

#include "axonn/base/check.h"

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

std::vector<std::int64_t> by_length(const MemorizationReport& report) {
  std::vector<std::int64_t> order(report.prompt_lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {},
                           [&](std::int64_t prompt) { return length_of(report, prompt); });
  return order;
}

/// A sort key: the better the recitation, the smaller.
auto rank_of(const MemorizationReport& report, const Recitation& r) {
  return std::tuple(!r.exact, -r.longest_run, -r.token_accuracy, length_of(report, r.prompt),
                    std::isnan(r.loss) ? INFINITY : r.loss);
}

/// Sums for a cell while runs are added.
struct Sums {
  std::set<std::int64_t> documents;
  std::vector<double> shares;
  std::int64_t here = 0, exact_here = 0;  // of the current run
  RecitationCell cell;

  void add(const Recitation& r) {
    documents.insert(r.document);
    ++here;
    exact_here += r.exact;
    cell.longest_run += static_cast<double>(r.longest_run);
    cell.token_accuracy += r.token_accuracy;
    cell.edit_distance += static_cast<double>(r.edit_distance);
    cell.loss += r.loss;
  }

  void end_run() {
    if (here > 0) shares.push_back(100 * static_cast<double>(exact_here) / here);
    cell.recitations += here;
    cell.exact += exact_here;
    here = exact_here = 0;
  }

  RecitationCell result() {
    if (shares.empty()) return cell;
    cell.trials = std::ssize(shares);
    cell.documents = std::ssize(documents);
    cell.exact_percent = trial_spread_of(shares);
    cell.exact_interval = wilson_interval(cell.exact, cell.recitations);
    for (double* mean : {&cell.longest_run, &cell.token_accuracy, &cell.edit_distance, &cell.loss})
      *mean /= static_cast<double>(cell.recitations);
    return cell;
  }
};

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

/// The sums of one variant, by group, then prompt.
std::vector<Sums> sums_of(const MemorizationReport& report, const std::string& variant) {
  const std::int64_t groups = std::ssize(report.groups),
                     prompts = std::ssize(report.prompt_lengths);
  std::vector<Sums> sums(groups * prompts);
  for (const RecitationRun& run : report.runs) {
    if (run.variant != variant) continue;
    for (const Recitation& r : run.recitations) {
      AXONN_CHECK(r.group >= 0 && r.group < groups && r.prompt >= 0 && r.prompt < prompts,
                  "summarize: a recitation has group ", r.group, " and prompt length ", r.prompt,
                  "; the report has ", groups, " groups and ", prompts, " prompt lengths");
      sums[r.group * prompts + r.prompt].add(r);
    }
    for (Sums& sum : sums) sum.end_run();
  }
  return sums;
}

}  // namespace

MemorizationSummary summarize(const MemorizationReport& report) {
  MemorizationSummary summary{.variants = {}, .prompts = by_length(report), .cells = {}};
  const std::int64_t prompts = std::ssize(report.prompt_lengths);
  for (const RecitationRun& first : report.runs) {
    if (std::ranges::count(summary.variants, first.variant, &VariantSummary::name) > 0) continue;
    const std::int64_t variant = std::ssize(summary.variants);
    summary.variants.push_back(variant_of(first.variant, report.runs));
    std::vector<Sums> sums = sums_of(report, first.variant);
    for (std::int64_t i = 0; i < std::ssize(sums); ++i) {
      sums[i].cell.variant = variant;
      sums[i].cell.group = i / prompts;
      sums[i].cell.prompt = i % prompts;
      summary.cells.push_back(sums[i].result());
    }
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
