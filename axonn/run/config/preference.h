#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "axonn/run/config/config.h"

namespace axonn {

/// Whether the loss compares the model with a reference.
bool has_reference(PreferenceLoss loss);
/// Whether its rewards, as TRL reports them, are of means over an answer's tokens.
constexpr bool uses_means(PreferenceLoss loss) {
  return loss == PreferenceLoss::simpo || loss == PreferenceLoss::orpo ||
         loss == PreferenceLoss::cpo_ipo;
}
/// Whether the loss reads cpo_alpha.
constexpr bool reads_alpha(PreferenceLoss loss) {
  return loss == PreferenceLoss::cpo || loss == PreferenceLoss::cpo_hinge ||
         loss == PreferenceLoss::cpo_ipo || loss == PreferenceLoss::simpo;
}
/// The weight of the mean loss of the chosen answers' tokens, or, for orpo, of those and their
/// prompts', which is added; 0: it is not.
constexpr double likelihood_weight(const PreferenceConfig& config) {
  if (config.loss == PreferenceLoss::orpo) return 1;
  return reads_alpha(config.loss) ? config.cpo_alpha : config.sft_weight;
}
/// Whether the loss is one of pairs that has a reference: reads sft_weight, ld_alpha and
/// use_weighting.
bool is_dpo_kind(PreferenceLoss loss);
/// Whether the loss reads c - r or their means, and so f_divergence_type.
bool reads_margin(PreferenceLoss loss);
/// Whether the loss is one of single answers with a label, answer_loss(), and not of pairs.
constexpr bool reads_labels(PreferenceLoss loss) {
  return loss == PreferenceLoss::kto || loss == PreferenceLoss::apo_zero_unpaired;
}
/// Whether the loss compares the answers of all pairs of a step, sorted_losses().
constexpr bool sorts_pairs(PreferenceLoss loss) {
  return loss == PreferenceLoss::aot || loss == PreferenceLoss::aot_unpaired;
}
/// Whether the loss reads label_smoothing.
bool smooths_labels(PreferenceLoss loss);

/// A loss of a sum of losses, and its factor.
struct WeightedLoss {
  PreferenceLoss loss;
  double weight;
};
/// config.loss and config.more_losses. Throws UsageError for a name that is none.
std::vector<WeightedLoss> weighted_losses(const PreferenceConfig& config);
/// Whether one of them is such a loss.
bool sorts_pairs(const PreferenceConfig& config);

/// What the loss wants of data.jsonl.
AnswerData answer_data(const Config& config);

/// Throws UsageError, naming the key of [preference] and the remedy, for a value that the loss does
/// not read or cannot have.
void validate_preference(const PreferenceConfig& config);

/// An answer.
struct AnswerScore {
  double policy = 0;     ///< sum of the log-probabilities of its tokens, nats
  double reference = 0;  ///< likewise, of the reference; not read without has_reference()
  std::int64_t tokens = 0;
};

/// A loss of a pair, and its derivatives with respect to AnswerScore::policy of the two answers.
struct PairLoss {
  double value = 0, d_chosen = 0, d_rejected = 0;
};

/// The sum of the losses of a pair, without those that sort pairs, in nats or without a unit. With
/// c and r the chosen and the rejected answer's policy - reference, D = c - r, s the logistic
/// function, ls its logarithm, e label_smoothing, n tokens. For c and r, config.f_divergence_type
/// may have another function of policy - reference (Wang et al., 2309.16240), except in losses that
/// do not read c - r:
///
///   dpo           -ls(beta D)                              Rafailov et al., 2305.18290
///   cdpo          -(1 - e) ls(beta D) - e ls(-beta D)      Mitchell, 2023
///   robust        (-(1 - e) ls(beta D) + e ls(-beta D)) / (1 - 2 e)       2403.00409
///   ipo           (c/n - r/n - 1/(2 beta))^2               Azar et al., 2310.12036
///   hinge         max(0, 1 - beta D)                       Zhao et al., 2305.10425
///   sigmoid_norm  -ls(beta (c/n - r/n))
///   exo_pair      s(u) (ls(u) - log(1 - e)) + s(-u) (ls(-u) - log e), u = beta D   2402.00856
///   nca_pair      -ls(beta c) - ls(-beta c) / 2 - ls(-beta r) / 2         2402.05369
///   bco_pair      -ls(beta c) - ls(-beta r)                2404.04656, without its shift
///   sppo_hard     (c - 1/(2 beta))^2 + (r + 1/(2 beta))^2  2405.00675
///   apo_zero      1 - s(beta c) + s(beta r)                2408.06266
///   apo_down      s(beta c) + 1 - s(beta D)                2408.06266
///   discopop      -ls(u) (1 - h) + exp(-u) h, u = beta D, h = s(u / 0.05)  2406.08414
///   ascent        r/n                                     Jang et al., 2210.01504
///   npo           -2 ls(-beta r) / beta                   Zhang et al., 2404.05868
///   cpo           cdpo without a reference                 2401.08417
///   cpo_hinge, cpo_ipo   hinge and ipo without a reference
///   simpo         cdpo of u = beta (mean - mean) - simpo_gamma, no reference   2405.14734
///   orpo          -beta ls(log odds - log odds), odds of exp(mean)   Hong et al., 2403.07691
///
/// With config.alpha = a, those of cpo and simpo have (1 - exp(-a l)) / a in place of each
/// log-probability l (AlphaPO, 2501.03884).
///
/// The likelihood of chosen answers, which CPO, SimPO and ORPO add, is not in it.
///
/// Throws Error if an answer has no token or the loss is none or not one of pairs.
PairLoss preference_loss(const PreferenceConfig& config, const AnswerScore& chosen,
                         const AnswerScore& rejected);

/// The losses of pairs that compare those of all pairs of a step, of the order of the pairs:
///
///   aot           cdpo of D = k-th smallest of policy w - l less k-th smallest of reference w - l
///   aot_unpaired  cdpo of D = k-th smallest c less k-th smallest r
///
/// with w and l the sums of the chosen and of the rejected answer. Of aot_unpaired a value counts
/// for the pair of its c. Source: Melnyk et al., 2406.05882. Losses of config that sort no pairs
/// count 0.
std::vector<PairLoss> sorted_losses(const PreferenceConfig& config,
                                    std::span<const std::array<AnswerScore, 2>> pairs);

/// The reward of an answer, as TRL reports it: beta times its log-probability (or that of
/// config.alpha, or the mean of its tokens), less that under the reference, if there is one.
double reward_of(const PreferenceConfig& config, const AnswerScore& answer);

/// A loss of an answer, and its derivative with respect to AnswerScore::policy.
struct AnswerLoss {
  double value = 0, d = 0;
};

/// The loss of an answer that was found to be good or bad, w_good (1 - s(beta (a - z))) or
/// w_bad (1 - s(beta (z - a))), with a its policy - reference and z max(0, divergence), taken as a
/// constant (KTO, Ethayarajh et al., 2402.01306) or, for apo_zero_unpaired, 0 (2408.06266). Throws
/// Error unless reads_labels().
AnswerLoss answer_loss(const PreferenceConfig& config, const AnswerScore& answer, bool good,
                       double divergence);

}  // namespace axonn
