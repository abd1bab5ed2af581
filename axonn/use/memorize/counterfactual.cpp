#include "axonn/use/memorize/counterfactual.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// Sums over the references of one side.
struct SideSums {
  double count = 0, sum = 0, squares = 0;

  void add(double value) {
    ++count;
    sum += value;
    squares += value * value;
  }
  double mean() const { return sum / count; }
  /// Of the mean: s² / n.
  double variance() const {
    return std::max(squares - sum * sum / count, 0.0) / (count - 1) / count;
  }
};

/// Turned: [document][reference].
std::vector<std::vector<double>> by_document(std::span<const ReferenceMeans> references) {
  std::vector<std::vector<double>> all(references.front().log_p.size());
  for (const ReferenceMeans& one : references)
    for (std::size_t d = 0; d < all.size(); ++d) all[d].push_back(one.log_p.at(d));
  return all;
}

/// log_p: of one document by each reference; learned: which have learned another. Values are
/// counted from their mean, so that sums of squares lose nothing.
CounterfactualMean difference(std::span<const ReferenceMeans> references, std::size_t of,
                              const std::vector<double>& log_p) {
  double mean = 0;
  for (const double one : log_p) mean += one / static_cast<double>(log_p.size());
  std::array<SideSums, 2> sides;
  for (std::size_t r = 0; r < log_p.size(); ++r)
    sides[references[r].learned[of] ? 1 : 0].add(log_p[r] - mean);
  return {.nats = sides[1].mean() - sides[0].mean(),
          .error = std::sqrt(sides[0].variance() + sides[1].variance())};
}

/// Throws unless two references have learned each document, and two have not.
void check_sides(std::span<const ReferenceMeans> references) {
  AXONN_CHECK(!references.empty(), "counterfactual memorization: no references");
  for (std::size_t d = 0; d < references.front().learned.size(); ++d) {
    const auto learned = std::ranges::count_if(references, [&](const ReferenceMeans& one) {
      return static_cast<bool>(one.learned.at(d));
    });
    AXONN_CHECK(learned >= 2 && std::ssize(references) - learned >= 2,
                "counterfactual memorization: document ", d, " is learned by ", learned, " of ",
                references.size(), " references; wanted two that have learned it, and two that ",
                "have not");
  }
}

}  // namespace

std::vector<CounterfactualMean> counterfactual_memorization(
    std::span<const ReferenceMeans> references) {
  check_sides(references);
  const auto log_p = by_document(references);
  std::vector<CounterfactualMean> all;
  for (std::size_t d = 0; d < log_p.size(); ++d) all.push_back(difference(references, d, log_p[d]));
  return all;
}

std::vector<Influence> largest_influences(std::span<const ReferenceMeans> references,
                                          std::int64_t most) {
  check_sides(references);
  const auto log_p = by_document(references);
  const auto count = std::ssize(log_p);
  const auto larger = [](const Influence& a, const Influence& b) {
    return a.mean.nats > b.mean.nats;
  };
  std::vector<Influence> kept;
  SideSums all;
  for (std::int64_t of = 0; of < count; ++of)
    for (std::int64_t on = 0; on < count; ++on) {
      if (of == on) continue;
      const Influence one{of, on, difference(references, of, log_p[on])};
      all.add(one.mean.nats);
      if (std::ssize(kept) == most && !larger(one, kept.back())) continue;
      kept.insert(std::ranges::upper_bound(kept, one, larger), one);
      if (std::ssize(kept) > most) kept.pop_back();
    }
  const double deviation = std::sqrt(all.variance() * all.count);
  for (Influence& one : kept) one.deviations = deviation > 0 ? one.mean.nats / deviation : 0;
  return kept;
}

namespace {

/// The figures of a bucket, of which the references have learned a half of the documents each.
ReferenceResults::Group group_of(std::span<const CounterfactualMean> memorized) {
  SideSums sums;
  ReferenceResults::Group group{.documents = std::ssize(memorized)};
  for (const CounterfactualMean& one : memorized) sums.add(one.nats);
  group.memorized.nats = sums.mean();
  if (group.documents > 1) group.memorized.error = std::sqrt(sums.variance());
  return group;
}

}  // namespace

void add_reference_results(std::span<const ReferenceMeans> references,
                           const ReferenceDocuments& documents, ReferenceResults& to) {
  constexpr std::int64_t kLeastForLira = 6;  // three that have learned a document, and three others
  const auto memorized = counterfactual_memorization(references);
  const auto online = std::ssize(references) < kLeastForLira ? std::vector<std::vector<double>>()
                                                             : lira_of_references(references);
  for (std::int64_t d = 0; d < std::ssize(memorized); ++d)
    to.documents.push_back(
        {documents.trial, documents.group[d], documents.first + d, memorized[d]});
  for (std::int64_t number = 0; number < std::ssize(documents.control); ++number) {
    if (documents.control[number] == number) continue;
    std::vector<std::int64_t> members;
    std::vector<CounterfactualMean> of;
    for (std::int64_t d = 0; d < std::ssize(memorized); ++d)
      if (documents.group[d] == number) {
        members.push_back(d);
        of.push_back(memorized[d]);
      }
    ReferenceResults::Group& group = to.groups.emplace_back(group_of(of));
    group.trial = documents.trial;
    group.group = number;
    group.references = std::ssize(references);
    if (!online.empty()) group.lira = lira_decisions(references, online, members);
  }
  for (Influence one : largest_influences(references, kMostInfluences)) {
    one.of += documents.first;
    one.on += documents.first;
    to.pairs.push_back({documents.trial, one});
  }
}

}  // namespace axonn
