#include "axonn/use/memorize/lira.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "axonn/foundation/base/check.h"
#include "axonn/use/memorize/membership.h"

namespace axonn {

namespace {

/// Confidences by references that have learned a document, or that have not.
struct Confidences {
  double count = 0, mean = 0, squares = 0;  ///< squares: sum of those of differences from the mean

  explicit Confidences(std::span<const double> values) : count(static_cast<double>(values.size())) {
    mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    for (const double one : values) squares += (one - mean) * (one - mean);
  }
};

/// The deviation of several.
double deviation_of(std::span<const Confidences> all) {
  constexpr double kLeast = 1e-6;
  double squares = 0, free = 0;
  for (const Confidences& one : all) {
    squares += one.squares;
    free += one.count - 1;
  }
  return std::max(std::sqrt(squares / free), kLeast);
}

double log_density(double value, double mean, double deviation) {
  const double z = (value - mean) / deviation;
  return -std::log(deviation) - z * z / 2;
}

/// log(p / (1 - p)).
double confidence_of(double log_p) {
  constexpr double kLeast = 1e-12;  // so that it is finite
  const double nats = std::max(-log_p, kLeast);
  return -nats - std::log(-std::expm1(-nats));
}

/// The chance that two of `count`, of which `some` are decided so, are decided differently.
double differing(double some, double count) {
  return 2 * some * (count - some) / (count * (count - 1));
}

}  // namespace

std::vector<LiraScore> lira_scores(std::span<const double> log_p,
                                   std::span<const ReferenceMeans> references,
                                   std::optional<std::size_t> without) {
  std::vector<Confidences> in, out, both;
  for (std::size_t d = 0; d < log_p.size(); ++d) {
    std::array<std::vector<double>, 2> found;
    for (std::size_t r = 0; r < references.size(); ++r)
      if (r != without)
        found[references[r].learned.at(d) ? 1 : 0].push_back(
            confidence_of(references[r].log_p.at(d)));
    AXONN_CHECK(found[0].size() >= 2 && found[1].size() >= 2, "LiRA: document ", d,
                " is learned by ", found[1].size(), " of ", found[0].size() + found[1].size(),
                " references; wanted two that have learned it, and two that have not");
    for (auto* all : {&out, &both}) all->emplace_back(found[0]);
    for (auto* all : {&in, &both}) all->emplace_back(found[1]);
  }
  const double deviation = deviation_of(both), deviation_out = deviation_of(out);
  std::vector<LiraScore> scores;
  for (std::size_t d = 0; d < log_p.size(); ++d) {
    const bool own = std::min(in[d].count, out[d].count) >= kOwnDeviation;
    const auto of = [&](const Confidences& one, double pooled) {
      return own ? deviation_of({&one, 1}) : pooled;
    };
    const double phi = confidence_of(log_p[d]);
    scores.push_back({.offline = (phi - out[d].mean) / of(out[d], deviation_out),
                      .online = log_density(phi, in[d].mean, of(in[d], deviation)) -
                                log_density(phi, out[d].mean, of(out[d], deviation))});
  }
  return scores;
}

std::vector<std::vector<double>> lira_of_references(std::span<const ReferenceMeans> references) {
  std::vector<std::vector<double>> all;
  for (std::size_t r = 0; r < references.size(); ++r) {
    std::vector<double>& online = all.emplace_back();
    for (const LiraScore& one : lira_scores(references[r].log_p, references, r))
      online.push_back(one.online);
  }
  return all;
}

std::optional<LiraDecisions> lira_decisions(std::span<const ReferenceMeans> references,
                                            std::span<const std::vector<double>> scores,
                                            std::span<const std::int64_t> documents) {
  LiraDecisions result{.auc_least = 1};
  double areas = 0, decisions = 0;
  for (std::size_t r = 0; r < references.size(); ++r) {
    std::array<std::vector<double>, 2> found;
    for (const std::int64_t d : documents) {
      found[references[r].learned.at(d) ? 1 : 0].push_back(scores[r].at(d));
      result.right += (scores[r][d] > 0) == references[r].learned[d];
      ++decisions;
    }
    if (found[0].size() < 2 || found[1].size() < 2) continue;
    const double auc = separate(found[1], found[0], 0).auc;
    ++areas;
    result.auc_mean += auc;
    result.auc_least = std::min(result.auc_least, auc);
    result.auc_most = std::max(result.auc_most, auc);
  }
  if (areas == 0) return {};
  result.auc_mean /= areas;
  result.right /= decisions;
  for (const std::int64_t d : documents) {
    std::array<double, 2> count{}, above{};
    for (std::size_t r = 0; r < references.size(); ++r) {
      const std::size_t side = references[r].learned[d] ? 1 : 0;
      ++count[side];
      above[side] += scores[r][d] > 0;
    }
    result.flips += (differing(above[0], count[0]) + differing(above[1], count[1])) / 2 /
                    static_cast<double>(documents.size());
  }
  return result;
}

}  // namespace axonn
