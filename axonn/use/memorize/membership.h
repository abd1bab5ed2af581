#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "axonn/use/infer/evaluate.h"

namespace axonn {

/// Guesses whether a model has seen a document, from the records of all its targets: the larger,
/// the likelier it has.
struct MembershipScores {
  double loss = 0;      ///< mean log p
  double zlib = 0;      ///< the same, divided by the bytes of the text as zlib compresses it
  double min_k = 0;     ///< mean of the 20 % least log p; at least of one
  double min_k_pp = 0;  ///< mean of the 20 % least (log p - its mean under p) / its deviation
  double blind = std::numeric_limits<double>::quiet_NaN();  ///< blind_scores(), or NaN
  /// By set_reference_scores(), or NaN.
  double ratio = blind, windows = blind, lira_offline = blind, lira_online = blind;
};

/// Sources: Yeom et al., 2018, arXiv:1709.01604; Carlini et al., 2021, arXiv:2012.07805 (level 6,
/// with the stream's header); Shi et al., 2023, arXiv:2310.16789; Zhang et al., 2024,
/// arXiv:2404.02936 (variances below 1e-6 count as that). Sets all before `blind`. Throws Error if
/// there are no targets.
MembershipScores membership_scores(std::span<const TargetRecord> targets, std::string_view text);

/// A share of members found, at a share of non-members that are taken for members.
struct TruePositives {
  double false_rate = 0;     ///< the largest share of non-members
  std::int64_t found = 0;    ///< members above the threshold
  double share = 0;          ///< of all members
  double low = 0, high = 0;  ///< Clopper-Pearson, 95 %: with other members, at this threshold
  double from = 0, to = 0;   ///< bootstrap, 95 %: with other members and non-members
};

/// How well scores separate members from non-members.
struct Separation {
  std::int64_t members = 0, others = 0;
  double auc = 0;            ///< chance that a member's score is the larger one; ties count half
  double auc_error = 0;      ///< standard error. Source: DeLong et al., Biometrics, 1988
  double low = 0, high = 0;  ///< auc ± 1.96 auc_error, within 0 and 1
  /// At 0.1 % and 1 %; empty if there are fewer non-members than 1,000 and 100: not measurable.
  std::array<std::optional<TruePositives>, 2> true_positives = {};
};
inline constexpr std::array kFalseRates{0.001, 0.01};

/// The sample variance of two or more values.
double variance_of(std::span<const double> values);

/// The threshold lets at most the rate's share of non-members reach it, rounded down; of equal
/// scores all or none do. The bootstrap draws 1,000 times with the seed. Throws Error unless there
/// are two of each.
Separation separate(std::span<const double> members, std::span<const double> others,
                    std::uint64_t seed);

/// The share of controls, and of this document as one of them, that score at least as high: if all
/// could be exchanged, at most a share of alpha of documents has one of alpha or less. `controls`
/// ascend. Source: Vovk et al., "Algorithmic Learning in a Random World", 2005.
double conformal_p_value(double score, std::span<const double> controls);

/// Whether two samples could be of one distribution, by the largest difference of the shares below
/// a value (two-sample Kolmogorov-Smirnov).
struct SampleDistance {
  double distance = 0;
  double p = 1;  ///< chance of such a distance or more if they are; see sample_distance()
};
/// p is exact for samples without ties, and too large with ties; above 10^8 pairs it is that of
/// Kolmogorov's limit. Throws Error if a sample is empty. Source: Hodges, Ark. Mat. 3, 1958.
SampleDistance sample_distance(std::vector<double> one, std::vector<double> other);

struct Interval {
  double low = 0, high = 0;
};
/// The 95 % interval of a share of `found` of `count`. Source: Clopper and Pearson, Biometrika,
/// 1934. Throws Error if count is below 1 or found is not within 0 .. count.
Interval clopper_pearson(std::int64_t found, std::int64_t count);

/// Scores of documents by their tokens alone, without a model: naive Bayes on the counts of tokens,
/// learned on nine tenths and applied to the last one, in turn. Members come first, then the
/// others; tokens(n), those of document n of both, is called four times for each. If these scores
/// separate them, other scores may do so for the same reason. Source: Das et al., "Blind Baselines
/// Beat Membership Inference Attacks", 2024, arXiv:2406.16201. Throws Error unless there are two of
/// each.
std::vector<double> blind_scores(
    std::int64_t members, std::int64_t others,
    const std::function<std::vector<std::int32_t>(std::int64_t n)>& tokens);

}  // namespace axonn
