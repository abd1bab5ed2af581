#include "axonn/use/memorize/references.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/use/infer/evaluate.h"

namespace axonn {

namespace {

double mean_loss(std::span<const float> losses) {
  return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
}

/// The mean over the references that have not learned a document of each of its losses.
std::vector<double> others_losses(std::size_t document, std::span<const Reference> references) {
  std::vector<double> sums(references.front().losses.at(document).size());
  double count = 0;
  for (const Reference& one : references) {
    if (one.learned[document]) continue;
    ++count;
    for (std::size_t t = 0; t < sums.size(); ++t) sums[t] += one.losses[document].at(t);
  }
  for (double& sum : sums) sum /= count;
  return sums;
}

double window_votes(std::span<const float> losses, std::span<const double> others) {
  constexpr std::array<std::size_t, 10> kWidths{2, 3, 4, 6, 9, 13, 18, 25, 32, 40};
  const std::size_t size = losses.size();
  std::vector<double> own(size + 1, 0), other(size + 1, 0);  // sums of the first ones
  for (std::size_t t = 0; t < size; ++t) {
    own[t + 1] = own[t] + static_cast<double>(losses[t]);
    other[t + 1] = other[t] + others[t];
  }
  double shares = 0;
  for (const std::size_t width : kWidths) {
    const std::size_t taken = std::min(width, size);
    double won = 0;
    for (std::size_t t = taken; t <= size; ++t)
      won += other[t] - other[t - taken] > own[t] - own[t - taken];
    shares += won / static_cast<double>(size - taken + 1);
  }
  return shares / kWidths.size();
}

/// Documents that each (z, data) coordinate scores at a time.
std::int64_t losses_batch(const LoadedModel& model, const StudyDocuments& documents) {
  return usual_batch(model.grid(), documents.longest(), documents.size());
}

/// The losses of `count` documents from `first` on.
TokenLosses losses_of_some(LoadedModel& model, const StudyDocuments& documents, std::int64_t first,
                           std::int64_t count, std::int64_t batch) {
  const auto sequence = [&](std::int64_t n) {
    ScoredSequence result{.tokens = documents[first + n].tokens};
    result.scored = result.positions = std::ssize(result.tokens) - 1;
    return result;
  };
  TokenLosses losses;
  for (TargetScores& one : score_targets(model, {.count = count, .at = sequence}, {.batch = batch}))
    losses.push_back(std::move(one.losses));
  return losses;
}

}  // namespace

TokenLosses token_losses(LoadedModel& model, const StudyDocuments& documents) {
  return losses_of_some(model, documents, 0, documents.size(), losses_batch(model, documents));
}

void compare_losses(LoadedModel& model, LoadedModel& other, const StudyDocuments& documents,
                    std::int64_t known,
                    const std::function<void(std::int64_t first, const TokenLosses& own,
                                             const TokenLosses& by_other)>& to) {
  const std::int64_t batch = losses_batch(model, documents), all = documents.size(),
                     round = 8 * batch * model.grid().batch_coordinates();  // whole batches of all
  for (std::int64_t first = 0; first < all; first += round) {
    const std::int64_t count = std::min(round, all - first);
    if (first + count <= known) continue;
    const TokenLosses own = losses_of_some(model, documents, first, count, batch);
    to(first, own, losses_of_some(other, documents, first, count, batch));
  }
}

std::vector<bool> learned_by(std::int64_t reference, std::int64_t documents, std::uint64_t seed) {
  const Random random(seed, "study/members");
  std::vector<bool> learned(documents);
  for (std::int64_t d = 0; d < documents; ++d) {
    const auto index = static_cast<std::uint64_t>(reference / 2) << 32U | d;
    learned[d] = (random.below(index, 2) == 0) == (reference % 2 == 0);
  }
  return learned;
}

std::int64_t group_in_turn(std::span<const std::int64_t> controls, std::int64_t control,
                           std::int64_t k) {
  std::vector<std::int64_t> groups;
  for (std::int64_t group = 0; group < std::ssize(controls); ++group)
    if (group != control && controls[group] == control) groups.push_back(group);
  return groups.empty() ? control : groups[k % std::ssize(groups)];
}

void set_ratio(std::span<const float> losses, std::span<const double> others,
               MembershipScores& to) {
  AXONN_CHECK(!losses.empty() && losses.size() == others.size(), "set_ratio: ", losses.size(),
              " targets, but others have ", others.size(), " of the same document");
  to.ratio =
      std::accumulate(others.begin(), others.end(), 0.0) / std::ssize(others) - mean_loss(losses);
  to.windows = window_votes(losses, others);
}

std::vector<ReferenceMeans> reference_means(std::span<const Reference> references) {
  std::vector<ReferenceMeans> all;
  for (const Reference& one : references) {
    ReferenceMeans& to = all.emplace_back(ReferenceMeans{.learned = one.learned});
    for (const std::vector<float>& losses : one.losses) to.log_p.push_back(-mean_loss(losses));
  }
  return all;
}

void set_reference_scores(const TokenLosses& losses, std::span<const Reference> references,
                          std::span<MembershipScores* const> scores) {
  std::vector<double> log_p;
  for (const std::vector<float>& one : losses) log_p.push_back(-mean_loss(one));
  const std::vector<LiraScore> lira = lira_scores(log_p, reference_means(references));
  for (std::size_t d = 0; d < losses.size(); ++d) {
    MembershipScores& to = *scores[d];
    set_ratio(losses[d], others_losses(d, references), to);
    to.lira_offline = lira[d].offline;
    to.lira_online = lira[d].online;
  }
}

std::string to_json(const Reference& reference) {
  return nlohmann::json{{"learned", reference.learned}, {"losses", reference.losses}}.dump() + "\n";
}

Reference parse_reference(const std::string& text, std::int64_t documents,
                          const std::string& where) {
  Reference reference;
  try {
    const auto json = nlohmann::json::parse(text);
    json.at("learned").get_to(reference.learned);
    json.at("losses").get_to(reference.losses);
  } catch (const nlohmann::json::exception& error) {
    refuse(where, ": damaged: ", error.what());
  }
  if (std::ssize(reference.learned) != documents || std::ssize(reference.losses) != documents)
    refuse(where, " has the losses of ", reference.losses.size(), " documents; the study has ",
           documents, "; remove the file, so that the reference is trained again");
  return reference;
}

}  // namespace axonn
