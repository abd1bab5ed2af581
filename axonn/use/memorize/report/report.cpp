#include "axonn/use/memorize/report/report.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <tuple>

#include "axonn/foundation/base/check.h"
#include "axonn/use/memorize/references.h"

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

/// Whether the suffix is the document's last suffix_tokens.
bool before_suffix(const MemorizationReport& report, std::int64_t prompt) {
  return report.offset_of(prompt) == kBeforeSuffix &&
         report.suffix_of(prompt) == report.suffix_tokens;
}

/// The sweeps of several prompts over lengths and suffixes, and all over offsets.
std::vector<PromptSweep> sweeps_of(const MemorizationReport& report) {
  using By = PromptSweep::By;
  std::map<std::tuple<By, std::int64_t, std::int64_t>, PromptSweep> sweeps;  // by what is the same
  const auto add = [&](By by, std::int64_t prompt, std::int64_t length, std::int64_t suffix) {
    PromptSweep& sweep = sweeps[{by, length, suffix}];
    sweep.by = by;
    sweep.prompts.push_back(prompt);
  };
  for (std::int64_t prompt = 0; prompt < std::ssize(report.prompt_lengths); ++prompt) {
    const std::int64_t suffix = report.suffix_of(prompt);
    if (before_suffix(report, prompt)) add(By::length, prompt, 0, suffix);
    if (report.offset_of(prompt) == kBeforeSuffix)
      add(By::suffix, prompt, length_of(report, prompt), 0);
    else
      add(By::offset, prompt, length_of(report, prompt), suffix);
  }
  std::vector<PromptSweep> several;
  for (auto& [same, sweep] : sweeps) {
    std::ranges::stable_sort(sweep.prompts, {}, [&](std::int64_t prompt) {
      return std::tuple(length_of(report, prompt), report.offset_of(prompt),
                        report.suffix_of(prompt));
    });
    if (sweep.prompts.size() > 1 || sweep.by == By::offset) several.push_back(std::move(sweep));
  }
  return several;
}

RecitationRank rank_of(const MemorizationReport& report, const Recitation& r) {
  return rank_of(r, length_of(report, r.prompt));
}

/// Fills in the figures of a cell, which has its indices.
void sum_up(RecitationCell& cell, const std::string& variant, const MemorizationReport& report) {
  std::vector<std::int64_t> documents;
  std::vector<double> shares;  // by trial
  std::vector<double> runs, losses;
  for (const RecitationRun& run : report.runs) {
    if (run.variant != variant) continue;
    std::int64_t here = 0, exact_here = 0;
    for (const Recitation& r : run.recitations) {
      if (r.group != cell.group || r.prompt != cell.prompt) continue;
      documents.push_back(r.document);
      ++here;
      exact_here += r.exact;
      cell.longest_run += static_cast<double>(r.longest_run);
      cell.token_accuracy += r.token_accuracy;
      cell.edit_distance += static_cast<double>(r.edit_distance);
      cell.loss += r.loss;
      runs.push_back(static_cast<double>(r.longest_run));
      losses.push_back(r.loss);
    }
    if (here > 0) shares.push_back(100 * static_cast<double>(exact_here) / here);
    cell.recitations += here;
    cell.exact += exact_here;
  }
  if (shares.empty()) return;
  cell.trials = std::ssize(shares);
  std::ranges::sort(documents);
  cell.documents = std::ranges::unique(documents).begin() - documents.begin();
  cell.exact_percent = trial_spread_of(shares);
  cell.exact_interval = wilson_interval(cell.exact, cell.recitations);
  cell.longest_run_error = error_of_mean(runs);
  cell.loss_error = error_of_mean(losses);
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

namespace {

/// log10 of the probabilities by policy i of the run's suffixes of a group with a prompt.
std::vector<double> probabilities_of(const RecitationRun& run, std::int64_t group,
                                     std::int64_t prompt, std::size_t i) {
  std::vector<double> all;
  for (const Recitation& r : run.recitations)
    if (r.record && r.group == group && r.prompt == prompt) all.push_back(r.record->log10_p.at(i));
  return all;
}

/// Adds the suffixes of one run to a rate, by the run's policy i.
void add_matched(const RecitationRun& run, std::int64_t control, std::size_t i, MatchedRate& rate) {
  const std::vector<double> suffixes = probabilities_of(run, rate.group, rate.prompt, i);
  std::vector<double> controls = probabilities_of(run, control, rate.prompt, i);
  if (suffixes.empty()) return;
  std::ranges::sort(controls);
  const std::int64_t count = std::ssize(controls);
  rate.controls = rate.suffixes == 0 ? count : std::min(rate.controls, count);
  rate.suffixes += std::ssize(suffixes);
  std::int64_t memorized = 0;
  for (const double log10_p : suffixes) {
    if (conformal_p_value(log10_p, controls) > rate.alpha) continue;
    ++memorized;
    rate.extractable += log10_p >= least_log10_p(static_cast<double>(kMatchedBudget), 0.5);
  }
  rate.memorized = rate.memorized.value_or(0) + memorized;
}

}  // namespace

std::vector<MatchedRate> matched_rates(const MemorizationReport& report,
                                       const MemorizationSummary& summary) {
  std::vector<MatchedRate> rates;
  if (report.controls.empty()) return rates;
  for (const SuffixProbabilities& one : suffix_probabilities(report, summary))
    for (const double alpha : kMatchedAlphas) {
      if (report.is_control(one.group)) continue;
      MatchedRate rate{one.variant, one.group, one.prompt, one.policy, alpha};
      for (const RecitationRun& run : report.runs) {
        if (run.variant != summary.variants[one.variant].name) continue;
        const auto policy = std::ranges::find(run.policies, one.policy);
        if (policy != run.policies.end())
          add_matched(run, report.controls[one.group], policy - run.policies.begin(), rate);
      }
      if (alpha * static_cast<double>(1 + rate.controls) < 1) rate.memorized.reset();
      if (rate.memorized) rate.interval = wilson_interval(*rate.memorized, rate.suffixes);
      rates.push_back(std::move(rate));
    }
  return rates;
}

std::string GroupDesign::form() const {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  for (const auto& [name, what] : {std::pair{"tokens", "near-duplicate"},
                                   {"paraphrase", "paraphrase"},
                                   {"names", "translation"}})
    if (perturbation == name) add(concat(variants, ' ', what, variants == 1 ? "" : "s"));
  if (offset > 0) add(concat("behind ", offset, " tokens"));
  if (loss == "none") add("read only");
  return text;
}

MemorizationSummary summarize(const MemorizationReport& report) {
  MemorizationSummary summary;
  const std::int64_t groups = std::ssize(report.groups),
                     prompts = std::ssize(report.prompt_lengths);
  for (std::int64_t prompt = 0; prompt < prompts; ++prompt)
    if (before_suffix(report, prompt)) summary.prompts.push_back(prompt);
  std::ranges::stable_sort(summary.prompts, {},
                           [&](std::int64_t prompt) { return length_of(report, prompt); });
  summary.all_prompts = prompts;
  summary.sweeps = sweeps_of(report);
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

RecitationRank rank_of(const Recitation& r, std::int64_t prompt_length) {
  return {!r.exact, -r.longest_run, -r.token_accuracy, prompt_length,
          std::isnan(r.loss) ? INFINITY : r.loss};
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::optional<double> error_of_mean(std::span<const double> values) {
  AXONN_CHECK(!values.empty(), "error_of_mean: no values");
  if (values.size() == 1) return std::nullopt;
  return std::sqrt(variance_of(values) / static_cast<double>(values.size()));
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

std::vector<SuffixProbabilities> suffix_probabilities(const MemorizationReport& report,
                                                      const MemorizationSummary& summary) {
  std::vector<SuffixProbabilities> all;
  for (const RecitationCell& cell : summary.cells) {
    std::vector<SuffixProbabilities> policies;
    const auto of_policy = [&](const std::string& policy) -> SuffixProbabilities& {
      const auto found = std::ranges::find(policies, policy, &SuffixProbabilities::policy);
      if (found != policies.end()) return *found;
      return policies.emplace_back(
          SuffixProbabilities{cell.variant, cell.group, cell.prompt, policy});
    };
    for (const RecitationRun& run : report.runs) {
      if (run.variant != summary.variants[cell.variant].name) continue;
      for (const Recitation& r : run.recitations)
        if (r.record && r.group == cell.group && r.prompt == cell.prompt)
          for (std::size_t i = 0; i < run.policies.size(); ++i)
            of_policy(run.policies[i]).log10_p.push_back(r.record->log10_p.at(i));
    }
    std::ranges::move(policies, std::back_inserter(all));
  }
  return all;
}

std::vector<ExtractionRate> extraction_rates(std::span<const SuffixProbabilities> suffixes,
                                             const ExtractionGrid& grid) {
  std::vector<ExtractionRate> rates;
  for (const SuffixProbabilities& one : suffixes)
    for (const double p : grid.p)
      for (const double n : grid.n) {
        ExtractionRate rate{one.variant, one.group, one.prompt, one.policy, n, p};
        rate.suffixes = std::ssize(one.log10_p);
        rate.extractable = std::ranges::count_if(
            one.log10_p, [least = least_log10_p(n, p)](double found) { return found >= least; });
        rate.interval = wilson_interval(rate.extractable, rate.suffixes);
        rates.push_back(std::move(rate));
      }
  return rates;
}

namespace {

/// The records of near texts by variant, group and distance.
auto near_records(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::vector<NearRecord>> found;
  for (std::int64_t variant = 0; variant < std::ssize(summary.variants); ++variant)
    for (const RecitationRun& run : report.runs)
      if (run.variant == summary.variants[variant].name)
        for (const Recitation& r : run.recitations)
          for (const NearRecord& one : r.near)
            found[{variant, r.group, one.epsilon}].push_back(one);
  return found;
}

}  // namespace

std::vector<NearMass> near_masses(const MemorizationReport& report,
                                  const MemorizationSummary& summary) {
  std::vector<NearMass> masses;
  for (const auto& [key, records] : near_records(report, summary)) {
    const auto& [variant, group, epsilon] = key;
    NearMass& mass = masses.emplace_back(NearMass{variant, group, epsilon, std::ssize(records)});
    for (const NearRecord& one : records) {
      mass.low += std::pow(10, one.log10_low) / static_cast<double>(records.size());
      mass.high += std::pow(10, one.log10_high) / static_cast<double>(records.size());
      mass.samples += one.samples;
      mass.found += one.found;
    }
    if (mass.samples > 0) mass.interval = clopper_pearson(mass.found, mass.samples);
  }
  return masses;
}

std::vector<NearRate> near_rates(const MemorizationReport& report,
                                 const MemorizationSummary& summary) {
  std::vector<NearRate> rates;
  for (const auto& [key, records] : near_records(report, summary))
    for (const double p : report.extraction.p)
      for (const double n : report.extraction.n) {
        NearRate rate{std::get<0>(key), std::get<1>(key), std::get<2>(key), n, p};
        const double least = least_log10_p(n, p);
        rate.suffixes = std::ssize(records);
        for (const NearRecord& one : records) {
          rate.at_least += one.log10_low >= least;
          rate.at_most += one.log10_high >= least;
        }
        rates.push_back(rate);
      }
  return rates;
}

double Exposure::bits() const {
  return std::log2(static_cast<double>(candidates)) - std::log2(static_cast<double>(rank));
}

std::vector<ExposureFigures> exposure_figures(const MemorizationReport& report,
                                              const MemorizationSummary& summary) {
  std::vector<ExposureFigures> all;
  for (std::int64_t variant = 0; variant < std::ssize(summary.variants); ++variant)
    for (std::int64_t group = 0; group < std::ssize(report.groups); ++group) {
      ExposureFigures figures{variant, group};
      std::vector<double> bits;
      for (const RecitationRun& run : report.runs)
        for (const Recitation& r : run.recitations) {
          if (run.variant != summary.variants[variant].name || r.group != group || !r.exposure)
            continue;
          bits.push_back(r.exposure->bits());
          figures.first += r.exposure->rank == 1;
          figures.candidates = r.exposure->candidates;
        }
      if (bits.empty()) continue;
      figures.canaries = std::ssize(bits);
      figures.mean = trial_spread_of(bits).mean;
      figures.median = median_of(bits);
      figures.most = Exposure{1, figures.candidates}.bits();
      all.push_back(figures);
    }
  return all;
}

std::vector<CapacityFigures> capacity_figures(const MemorizationReport& report) {
  std::vector<CapacityFigures> all;
  for (const RecitationRun& run : report.runs) {
    std::map<std::int64_t, CapacityFigures> groups;
    CapacityFigures learned{.variant = run.variant, .trial = run.trial};
    const auto add = [&](CapacityFigures& to, const Information& of) {
      ++to.documents;
      to.bits += of.bits;
      to.coded += of.coded;
      to.memorized += of.memorized();
      if (report.parameters > 0)
        to.bits_per_parameter = to.memorized / static_cast<double>(report.parameters);
    };
    for (const Recitation& r : run.recitations) {
      if (!r.information) continue;
      CapacityFigures& group = groups[r.group];
      group.variant = run.variant;
      group.trial = run.trial;
      group.group = r.group;
      add(group, *r.information);
      const bool read_only =
          !report.group_designs.empty() && report.group_designs.at(r.group).loss == "none";
      if (!report.is_control(r.group) && !read_only) add(learned, *r.information);
    }
    for (auto& [number, group] : groups) all.push_back(std::move(group));
    if (learned.documents > 0) all.push_back(std::move(learned));
  }
  return all;
}

std::vector<MembershipResult> membership_results(const MemorizationReport& report) {
  std::vector<MembershipResult> results;
  for (const RecitationRun& run : report.runs)
    for (std::int64_t group = 0; group < std::ssize(report.controls); ++group) {
      if (report.is_control(group)) continue;
      for (const auto& [name, score] : kScores) {
        std::vector<double> members, others;
        std::int64_t control = 0;  // number of a recitation of the control
        for (const Recitation& r : run.recitations) {
          if (!r.scores || std::isnan((*r.scores).*score)) continue;
          if (r.group == group) members.push_back((*r.scores).*score);
          if (r.group != report.controls[group]) continue;
          if (score != &MembershipScores::lira_online ||
              group_in_turn(report.controls, r.group, control++) == group)
            others.push_back((*r.scores).*score);
        }
        if (members.size() < 2 || others.size() < 2) continue;
        results.push_back(
            {run.variant, run.trial, group, name, separate(members, others, run.seed)});
      }
    }
  return results;
}

std::vector<ReferenceDistance> reference_distances(const MemorizationReport& report) {
  std::vector<ReferenceDistance> all;
  for (const RecitationRun& run : report.runs)
    for (std::int64_t group = 0; group < std::ssize(report.groups); ++group) {
      std::vector<double> own, by_reference;
      for (const Recitation& r : run.recitations) {
        if (!run.variant.empty() || r.group != group || !r.scores || std::isnan(r.scores->ratio))
          continue;
        own.push_back(-r.scores->loss);
        by_reference.push_back(r.scores->ratio - r.scores->loss);
      }
      if (own.empty()) continue;
      all.push_back({.group = group,
                     .documents = std::ssize(own),
                     .loss = trial_spread_of(own).mean,
                     .reference_loss = trial_spread_of(by_reference).mean,
                     .distance = sample_distance(own, by_reference)});
    }
  return all;
}

Recitation with_texts(const RecitationRun& run, const Recitation& recitation) {
  Recitation whole = recitation;
  if (!run.kept) return whole;
  whole.texts = run.kept(&recitation - run.recitations.data()).texts;
  return whole;
}

std::vector<RankedRecitation> most_recited(const MemorizationReport& report,
                                           const std::string& variant,
                                           std::optional<std::int64_t> group) {
  std::vector<RankedRecitation> best;  // by document
  for (const RecitationRun& run : report.runs) {
    if (run.variant != variant) continue;
    for (const Recitation& r : run.recitations) {
      if (group && r.group != *group) continue;
      if (!before_suffix(report, r.prompt)) continue;
      if (r.document >= std::ssize(best)) best.resize(r.document + 1, {nullptr, nullptr});
      RankedRecitation& found = best[r.document];
      if (!found.recitation || rank_of(report, r) < rank_of(report, *found.recitation))
        found = {&run, &r};
    }
  }
  std::erase_if(best, [](const RankedRecitation& one) { return !one.recitation; });
  std::ranges::stable_sort(
      best, {}, [&](const RankedRecitation& one) { return rank_of(report, *one.recitation); });
  return best;
}

}  // namespace axonn
