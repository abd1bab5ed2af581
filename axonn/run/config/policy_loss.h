#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "axonn/run/config/config.h"

namespace axonn {

/// rl.kl, or what it is if nobody set it: 0.05 of rloo and 0 of all others, as in TRL.
double kl_of(const RlConfig& config);
/// rl.clip_high, or rl.clip if nobody set it.
double clip_high_of(const RlConfig& config);
/// Steps that the answers of one generation serve: rl.steps_per_generation · rl.iterations.
std::int64_t steps_of_generation(const RlConfig& config);
/// Whether an answer has one ratio of policies for all its tokens.
bool has_ratios_of_answers(const RlConfig& config);
/// Whether the correction for the sampler is one of whole answers.
bool corrects_answers(const RlConfig& config);
/// Whether the loss compares with what the policy was when it wrote the answers, and not with
/// itself: a generation serves several steps.
bool needs_old(const RlConfig& config);
/// Whether the loss is a function of log-probabilities and advantages, and not a divergence.
bool weighs_answers(const RlConfig& config);

/// Whether rl.rewards has kOverlong.
bool rewards_length(const RlConfig& config);
/// Name of the reward of overlong_reward().
inline constexpr const char* kOverlong = "overlong";
/// The reward of an answer of so many tokens, its end included: 0 up to max_tokens -
/// overlong_buffer, and from there linearly down to -1 at max_tokens. Source: Yu et al., "DAPO",
/// 2503.14476, section 3.4.
double overlong_reward(const RlConfig& config, std::int64_t tokens);

/// Throws UsageError, naming the key of [rl] and the remedy, for a value that the loss does not
/// read or cannot have.
void validate_rl(const RlConfig& config);

/// Throws UsageError unless rl.reward_weights is empty or has a weight for each reward.
void check_reward_names(const RlConfig& config, const std::vector<std::string>& names);

/// Of the values that are numbers; but for their count, all NaN if there are none.
struct Summary {
  double count, mean;
  double deviation;  ///< with the divisor count - 1
  double least, largest;
};
Summary summary_of(std::span<const double> values);

/// The weighted sum of an answer's rewards, of which NaN ones count nothing; NaN if all are.
double reward_sum(const RlConfig& config, std::span<const double> rewards);

/// How much better each answer is than those of its group, from the sums of rewards of a
/// generation's answers, of which rl.group in a row belong to one prompt:
///
///   scale_rewards = group   (R - mean) / (s + 1e-4) of the group, s with the divisor n - 1
///                           (GRPO, Shao et al., 2402.03300)
///                   batch   (R - mean of the group) / (s of all + 1e-4)
///                   none    R - mean (Dr. GRPO, Liu et al., 2503.20783)
///   loss = rloo             R - mean of the others of the group (Ahmadian et al., 2402.14740)
///
/// NaN rewards count neither in means nor in s, and have the advantage 0.
std::vector<double> advantages(const RlConfig& config, std::span<const double> rewards);
/// With rl.reward_sum = normalize_then_sum, from the rewards of each answer: each reward is
/// normalised in its group as with scale_rewards = group, and the weighted sum S of these becomes
/// (S - mean) / (s + 1e-4) of the generation. Source: Liu et al., "GDPO", 2026, 2601.05242.
std::vector<double> advantages_of_each(const RlConfig& config,
                                       std::span<const std::vector<double>> rewards);
/// The share of groups whose rewards are all equal, so that their advantages are 0.
double share_without_spread(const RlConfig& config, std::span<const double> rewards);

/// Which of a step's tokens have a loss by the entropy of their distribution, and its part in it.
struct EntropyRule {
  double least = -std::numeric_limits<double>::infinity();  ///< of a token that is kept
  double weight = 0;  ///< of the entropy of each of these, which is taken from the loss

  bool keeps(double entropy) const { return entropy >= least; }
};
/// `tokens` of a step count, with these entropies, which may be empty if rl.top_entropy_quantile is
/// 1. The least that is kept is the quantile 1 - rl.top_entropy_quantile, interpolated linearly.
EntropyRule entropy_rule(const RlConfig& config, double tokens, std::vector<double> entropies);

/// What a loss needs to know of an answer of T tokens.
struct PolicyTokens {
  std::span<const double> policy;        ///< (T) log-probabilities, nats
  std::span<const double> old;           ///< (T) of the policy that wrote them; empty: `policy`
  std::span<const double> reference;     ///< (T) of the reference; empty: there is none
  std::span<const double> sampler;       ///< (T) as the sampler had them; empty: not known
  std::span<const std::uint8_t> counts;  ///< (T) 0: the token has no loss
  double advantage = 0;
  std::span<const double> entropy = {};  ///< (T), nats; empty: all tokens are kept
  EntropyRule rule = {};  ///< of a token that is not kept, only the reference's divergence counts
};

/// By what the sum over a step's answers and tokens is divided.
struct PolicyDivisors {
  double answers = 0;  ///< of the step
  double tokens = 0;   ///< that count; of dapo and cispo, the mean of the generation's steps
};

/// An answer's part in the loss of a step, and figures for metrics.
struct PolicyPart {
  double loss = 0;
  double tokens = 0;         ///< that count
  double kl = 0;             ///< sum of the estimates of the divergence from the reference
  double low = 0, high = 0;  ///< tokens, or 0 and 1 of a whole answer, that are clipped
  double correction = 0;     ///< sum over its tokens of the sampler's correction
  double least_correction = std::numeric_limits<double>::infinity(), largest_correction = 0;
};

/// The part of an answer in the loss of a step, and its derivative `d` (T) with respect to
/// `policy`. With A the advantage, r the ratio of policy to old, e and f rl.clip and clip_high, g
/// log(reference/policy), per token:
///
///   grpo, gspo, dapo, dr_grpo, bnpo, luspo   -min(r A, clip(r, 1 - e, 1 + f) A); with rl.delta, r
///           is at most that in the first product
///   cispo   -min(r, f) A log p, without a gradient of the first factor      2506.13585
///   sapo    -(4/t) s(t (r - 1)) A, s the logistic function, t 1, or 1.05 where A < 0   2511.20347
///   vespo   -w^k e^(l (1 - w)) A log p, without a gradient of the weight; log w the sum over the
///           answer of log r and of the log of its tokens' corrections for the sampler
///   gmpo    -r A, log r the mean over the answer's kept tokens of log r, each at most f where
///           A > 0 and at least -e where A < 0; without corrections                  2507.20673
///   rloo    as grpo, r that of the whole answer
///
/// r is that of the token, or, with importance_sampling_level = sequence (and gspo, Zheng et al.,
/// 2507.18071), the exponential of the mean over the answer's tokens. The loss of a token is
/// multiplied by the sampler's correction (rl.sampler_correction), and rl.kl · the KlEstimator is
/// added, times r with rl.kl_correction (DeepSeek-V3.2). Tokens become a loss as
///
///   grpo, gspo, sapo, gmpo       mean over the answer's tokens, mean over answers
///   luspo, rloo                  sum over its tokens (rloo: one value), mean over answers
///   dapo, cispo, vespo, bnpo     sum over all tokens / PolicyDivisors::tokens
///   dr_grpo                      sum over all tokens / (answers · rl.max_tokens)
///
/// Throws Error if the spans differ in length.
PolicyPart policy_loss(const RlConfig& config, const PolicyTokens& answer, const PolicyDivisors& by,
                       std::span<double> d);

}  // namespace axonn
