#include "axonn/run/config/policy_loss.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "axonn/foundation/base/check.h"
#include "axonn/run/config/logistic.h"

namespace axonn {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeastSpread = 1e-4;  // added to a standard deviation

/// A token's loss and its derivatives with respect to the logarithm of the ratio and to the
/// token's own log-probability.
struct TokenLoss {
  double value = 0, d_ratio = 0, d_own = 0;
  bool low = false, high = false;
};

TokenLoss clipped(const RlConfig& config, double ratio, double advantage) {
  const double low = 1 - config.clip, high = 1 + clip_high_of(config);
  const bool bounded = config.delta > 0 && ratio > config.delta;
  const double first = (bounded ? config.delta : ratio) * advantage,
               second = std::clamp(ratio, low, high) * advantage;
  const bool inside = ratio >= low && ratio <= high;
  const bool moves = first < second ? !bounded : first == second ? inside && !bounded : inside;
  return {.value = -std::min(first, second),
          .d_ratio = moves ? -ratio * advantage : 0,
          .low = ratio < low && advantage<0, .high = ratio> high && advantage > 0};
}

TokenLoss soft(double ratio, double advantage) {
  const double t = advantage > 0 ? 1.0 : 1.05, s = logistic(t * (ratio - 1));
  return {.value = -4 / t * s * advantage, .d_ratio = -4 * s * (1 - s) * ratio * advantage};
}

TokenLoss bounded(const RlConfig& config, double ratio, double advantage, double policy) {
  const double factor = std::min(ratio, clip_high_of(config)) * advantage;
  return {.value = -factor * policy,
          .d_own = -factor,
          .high = ratio > clip_high_of(config) && advantage > 0};
}

TokenLoss token_loss(const RlConfig& config, double ratio, double advantage, double policy) {
  if (config.loss == PolicyLoss::sapo) return soft(ratio, advantage);
  if (config.loss == PolicyLoss::cispo) return bounded(config, ratio, advantage, policy);
  return clipped(config, ratio, advantage);
}

/// A token's estimate, g as in KlEstimator, and its derivative with respect to the policy's
/// log-probability.
struct TokenDivergence {
  double value, d_own;
};

TokenDivergence divergence_of_token(KlEstimator estimator, double g) {
  switch (estimator) {
    case KlEstimator::k1:
      return {-g, 1};
    case KlEstimator::k2:
      return {g * g / 2, -g};
    case KlEstimator::k3:
      break;
  }
  return {std::expm1(g) - g, -std::expm1(g)};
}

/// The weights that correct an answer's tokens for a sampler that is not the policy.
std::vector<double> sampler_weights(const RlConfig& config, const PolicyTokens& answer) {
  const std::size_t count = answer.policy.size();
  std::vector<double> weights(count, 1);
  const SamplerCorrection kind = config.sampler_correction;
  if (answer.sampler.empty() || kind == SamplerCorrection::none) return weights;
  const std::span<const double> old = answer.old.empty() ? answer.policy : answer.old;
  const bool whole = corrects_answers(config), masks = kind == SamplerCorrection::token_mask ||
                                                       kind == SamplerCorrection::sequence_mask;
  std::vector<double> logs(count);
  for (std::size_t t = 0; t < count; ++t)
    if (answer.counts[t] != 0 && !std::isnan(answer.sampler[t]))
      logs[t] = old[t] - answer.sampler[t];
  const double sum = std::accumulate(logs.begin(), logs.end(), 0.0);
  for (std::size_t t = 0; t < count; ++t) {
    const double ratio = std::exp(whole ? sum : logs[t]);
    weights[t] = ratio <= config.sampler_clip ? ratio : masks ? 0 : config.sampler_clip;
  }
  return weights;
}

/// The logarithm of the ratio of policy to old, of a token or of the whole answer.
class Ratios {
 public:
  Ratios(const RlConfig& config, const PolicyTokens& answer, double tokens)
      : answer_(answer), whole_(has_ratios_of_answers(config)) {
    if (!whole_) return;
    share_ = config.loss == PolicyLoss::rloo ? 1 : 1 / std::max(tokens, 1.0);
    for (std::size_t t = 0; t < answer.policy.size(); ++t)
      if (answer.counts[t] != 0) of_all_ += share_ * log_of_token(t);
  }

  double at(std::size_t t) const { return std::exp(whole_ ? of_all_ : log_of_token(t)); }
  /// Adds to `d` what derivatives with respect to the logarithm of each token's ratio are of
  /// log-probabilities.
  void add(std::span<const double> of_ratios, std::span<double> d) const {
    const double all =
        whole_ ? share_ * std::accumulate(of_ratios.begin(), of_ratios.end(), 0.0) : 0;
    for (std::size_t t = 0; t < d.size(); ++t)
      if (answer_.counts[t] != 0) d[t] += whole_ ? all : of_ratios[t];
  }

 private:
  double log_of_token(std::size_t t) const {
    return answer_.old.empty() ? 0 : answer_.policy[t] - answer_.old[t];
  }

  const PolicyTokens& answer_;
  bool whole_;
  double share_ = 0, of_all_ = 0;
};

/// The weight of each of an answer's tokens in the loss.
double token_weight(const RlConfig& config, const PolicyDivisors& by, double tokens) {
  switch (config.loss) {
    case PolicyLoss::dapo:
    case PolicyLoss::cispo:
    case PolicyLoss::bnpo:
      return 1 / std::max(by.tokens, 1.0);
    case PolicyLoss::dr_grpo:
      return 1 / (by.answers * static_cast<double>(config.max_tokens));
    case PolicyLoss::luspo:
      return 1 / by.answers;
    default:  // rloo: its one value, spread over the tokens
      return 1 / (by.answers * std::max(tokens, 1.0));
  }
}

}  // namespace

double kl_of(const RlConfig& config) {
  if (config.kl >= 0) return config.kl;
  return config.loss == PolicyLoss::rloo ? 0.05 : 0;
}

double clip_high_of(const RlConfig& config) {
  return config.clip_high > 0 ? config.clip_high : config.clip;
}

std::int64_t steps_of_generation(const RlConfig& config) {
  return config.steps_per_generation * config.iterations;
}

bool has_ratios_of_answers(const RlConfig& config) {
  return config.loss == PolicyLoss::gspo || config.loss == PolicyLoss::rloo ||
         config.importance_sampling_level == RatioLevel::sequence;
}

bool corrects_answers(const RlConfig& config) {
  return config.sampler_correction == SamplerCorrection::sequence_truncate ||
         config.sampler_correction == SamplerCorrection::sequence_mask;
}

bool rewards_length(const RlConfig& config) {
  return std::ranges::find(config.rewards, kOverlong) != config.rewards.end();
}

double overlong_reward(const RlConfig& config, std::int64_t tokens) {
  const auto beyond = static_cast<double>(tokens - (config.max_tokens - config.overlong_buffer));
  return beyond > 0 ? std::max(-1.0, -beyond / static_cast<double>(config.overlong_buffer)) : 0;
}

bool needs_old(const RlConfig& config) { return steps_of_generation(config) > 1; }

void validate_rl(const RlConfig& config) {
  const auto want = [](bool holds, const auto&... what) {
    if (!holds) refuse("[rl] ", what...);
  };
  want(config.group >= 2, "group = ", config.group,
       " answers of a prompt; a loss compares at least 2");
  want(config.clip > 0, "clip = ", config.clip, "; wanted more than 0");
  want(config.clip < 1 || config.loss == PolicyLoss::cispo, "clip = ", config.clip,
       "; wanted less than 1, so that 1 - clip is a ratio");
  want(config.clip_high >= 0, "clip_high = ", config.clip_high, "; wanted 0 (as clip) or more");
  want(config.delta == 0 || config.delta > 1 + clip_high_of(config), "delta = ", config.delta,
       " bounds ratios beyond 1 + clip_high = ", 1 + clip_high_of(config),
       "; raise it, or set it to 0");
  want(config.temperature > 0, "temperature = ", config.temperature, "; wanted more than 0");
  want(config.sampler_clip > 0, "sampler_clip = ", config.sampler_clip, "; wanted more than 0");
  want(config.loss != PolicyLoss::gspo ||
           config.importance_sampling_level == RatioLevel::sequence ||
           config.importance_sampling_level == RatioLevel::automatic,
       "importance_sampling_level = token, but gspo has ratios of whole answers; leave it out, or ",
       "set loss = \"grpo\"");
  want(!rewards_length(config) ||
           (config.overlong_buffer > 0 && config.overlong_buffer <= config.max_tokens),
       "overlong_buffer = ", config.overlong_buffer, ", but the reward overlong falls over that ",
       "many of the last tokens; wanted 1 to max_tokens = ", config.max_tokens);
  for (const double weight : config.reward_weights)
    want(std::isfinite(weight), "reward_weights = ", weight, "; wanted finite numbers");
}

void check_reward_names(const RlConfig& config, const std::vector<std::string>& names) {
  const std::size_t rewards = names.size(), weights = config.reward_weights.size();
  if (weights > 0 && weights != rewards)
    refuse("[rl] reward_weights has ", weights, " numbers for ", rewards,
           " rewards of an answer; give one for each");
}

Summary summary_of(std::span<const double> all) {
  std::vector<double> values;
  std::ranges::copy_if(all, std::back_inserter(values), [](double v) { return !std::isnan(v); });
  if (values.empty()) return {0, kNone, kNone, kNone, kNone};
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto [least, largest] = std::ranges::minmax(values);
  return {count, mean, count > 1 ? std::sqrt(squares / (count - 1)) : 0, least, largest};
}

double reward_sum(const RlConfig& config, std::span<const double> rewards) {
  AXONN_CHECK(config.reward_weights.empty() || config.reward_weights.size() == rewards.size(),
              "reward_sum: ", config.reward_weights.size(), " weights for ", rewards.size(),
              " rewards");
  double sum = kNone;
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    if (std::isnan(rewards[i])) continue;
    const double weight = config.reward_weights.empty() ? 1 : config.reward_weights[i];
    sum = (std::isnan(sum) ? 0 : sum) + weight * rewards[i];
  }
  return sum;
}

std::vector<double> advantages(const RlConfig& config, std::span<const double> rewards) {
  AXONN_CHECK(std::ssize(rewards) % config.group == 0, "advantages: ", rewards.size(),
              " rewards are no groups of ", config.group);
  const double of_all = summary_of(rewards).deviation;
  std::vector<double> all;
  for (std::size_t first = 0; first < rewards.size(); first += config.group) {
    const auto group = rewards.subspan(first, config.group);
    const Summary spread = summary_of(group);
    const double known = spread.count;
    double by = 1;
    if (config.loss == PolicyLoss::rloo)
      by = known > 1 ? (known - 1) / known : 1;
    else if (config.scale_rewards != RewardScale::none)
      by = kLeastSpread + (config.scale_rewards == RewardScale::group ? spread.deviation : of_all);
    for (const double reward : group)
      all.push_back(std::isnan(reward) ? 0 : (reward - spread.mean) / by);
  }
  return all;
}

double share_without_spread(const RlConfig& config, std::span<const double> rewards) {
  double equal = 0, groups = 0;
  for (std::size_t first = 0; first < rewards.size(); first += config.group, ++groups)
    equal += summary_of(rewards.subspan(first, config.group)).deviation > 0 ? 0 : 1;
  return groups > 0 ? equal / groups : 0;
}

PolicyPart policy_loss(const RlConfig& config, const PolicyTokens& answer, const PolicyDivisors& by,
                       std::span<double> d) {
  const std::size_t count = answer.policy.size();
  for (const std::size_t size : {answer.old.size(), answer.reference.size(), answer.sampler.size()})
    AXONN_CHECK(size == 0 || size == count, "policy_loss: ", size, " values for ", count,
                " tokens");
  AXONN_CHECK(answer.counts.size() == count && d.size() == count,
              "policy_loss: wants a flag and room for a derivative for each token");
  PolicyPart part;
  part.tokens = static_cast<double>(count - std::ranges::count(answer.counts, std::uint8_t{0}));
  std::ranges::fill(d, 0);
  const Ratios ratios(config, answer, part.tokens);
  const std::vector<double> corrections = sampler_weights(config, answer);
  const double weight = token_weight(config, by, part.tokens), kl = kl_of(config);
  const bool adds_kl = kl > 0 && !answer.reference.empty() && config.loss != PolicyLoss::rloo;
  std::vector<double> d_ratios(count);
  for (std::size_t t = 0; t < count; ++t) {
    if (answer.counts[t] == 0) continue;
    const double ratio = ratios.at(t);
    TokenLoss loss = token_loss(config, ratio, answer.advantage, answer.policy[t]);
    for (double* const value : {&loss.value, &loss.d_ratio, &loss.d_own}) *value *= corrections[t];
    if (adds_kl) {
      const auto [value, d_own] =
          divergence_of_token(config.kl_estimator, answer.reference[t] - answer.policy[t]);
      const double factor = config.kl_correction ? ratio : 1;
      loss.value += kl * factor * value;
      loss.d_own += kl * factor * d_own;
      if (config.kl_correction) loss.d_ratio += kl * ratio * value;
      part.kl += factor * value;
    }
    part.loss += weight * loss.value;
    d[t] = weight * loss.d_own;
    d_ratios[t] = weight * loss.d_ratio;
    part.low += loss.low ? 1 : 0;
    part.high += loss.high ? 1 : 0;
    part.correction += corrections[t];
    part.least_correction = std::min(part.least_correction, corrections[t]);
    part.largest_correction = std::max(part.largest_correction, corrections[t]);
  }
  ratios.add(d_ratios, d);
  return part;
}

}  // namespace axonn
