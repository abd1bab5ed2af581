#include "axonn/run/config/policy_loss.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/run/config/logistic.h"

namespace axonn {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
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

/// The clipped ratio is that of the whole answer.
TokenLoss unclipped(double ratio, double advantage) {
  return {.value = -ratio * advantage, .d_ratio = -ratio * advantage};
}

TokenLoss weighted(double weight, double advantage, double policy) {
  return {.value = -weight * advantage * policy, .d_own = -weight * advantage};
}

TokenLoss token_loss(const RlConfig& config, double ratio, double advantage, double policy) {
  if (config.loss == PolicyLoss::sapo) return soft(ratio, advantage);
  if (config.loss == PolicyLoss::cispo) return bounded(config, ratio, advantage, policy);
  if (config.loss == PolicyLoss::gmpo) return unclipped(ratio, advantage);
  if (config.loss == PolicyLoss::vespo) return weighted(ratio, advantage, policy);
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

/// The ratio of policy to old, of a token or of the whole answer.
class Ratios {
 public:
  /// `counts`: of the tokens whose ratios count, of which there are `tokens`.
  Ratios(const RlConfig& config, const PolicyTokens& answer, std::vector<std::uint8_t> counts,
         double tokens)
      : answer_(answer), counts_(std::move(counts)), whole_(has_ratios_of_answers(config)) {
    if (!whole_) return;
    share_ = config.loss == PolicyLoss::rloo ? 1 : 1 / std::max(tokens, 1.0);
    if (config.loss == PolicyLoss::gmpo)
      (answer.advantage > 0 ? most_ : least_) =
          answer.advantage > 0 ? clip_high_of(config) : -config.clip;
    for (std::size_t t = 0; t < answer.policy.size(); ++t)
      if (counts_[t] != 0) of_all_ += share_ * std::clamp(log_of_token(t), least_, most_);
  }

  double at(std::size_t t) const { return std::exp(whole_ ? of_all_ : log_of_token(t)); }
  /// Whether the token's ratio is less, or more, than counts in that of the answer.
  bool below(std::size_t t) const { return log_of_token(t) < least_; }
  bool above(std::size_t t) const { return log_of_token(t) > most_; }
  /// Adds to `d` what derivatives with respect to the logarithm of each token's ratio are of
  /// log-probabilities.
  void add(std::span<const double> of_ratios, std::span<double> d) const {
    const double all =
        whole_ ? share_ * std::accumulate(of_ratios.begin(), of_ratios.end(), 0.0) : 0;
    for (std::size_t t = 0; t < d.size(); ++t)
      if (counts_[t] != 0 && !below(t) && !above(t)) d[t] += whole_ ? all : of_ratios[t];
  }

 private:
  double log_of_token(std::size_t t) const {
    return answer_.old.empty() ? 0 : answer_.policy[t] - answer_.old[t];
  }

  const PolicyTokens& answer_;
  std::vector<std::uint8_t> counts_;
  bool whole_;
  double least_ = -kInfinity, most_ = kInfinity;  // of the logarithm of a token's ratio
  double share_ = 0, of_all_ = 0;
};

/// The weight of VESPO, the same for all tokens of an answer.
double vespo_weight(const RlConfig& config, const PolicyTokens& answer,
                    std::span<const double> corrections) {
  constexpr double kMost = 20;
  const double least = std::log(1e-8);
  double log_w = 0;
  for (std::size_t t = 0; t < answer.policy.size(); ++t) {
    if (answer.counts[t] == 0) continue;
    const double of_old = answer.old.empty() ? 0 : answer.policy[t] - answer.old[t];
    log_w += std::clamp(of_old, -kMost, kMost) + std::clamp(std::log(corrections[t]), least, kMost);
  }
  log_w = std::clamp(log_w, least, kMost);
  const bool likelier = answer.advantage >= 0;
  const double k = likelier ? config.vespo_k_pos : config.vespo_k_neg,
               lambda =
                   std::max(likelier ? config.vespo_lambda_pos : config.vespo_lambda_neg, 1e-4);
  return std::exp(lambda + k * log_w - lambda * std::exp(log_w));
}

double count_of(std::span<const std::uint8_t> flags) {
  return static_cast<double>(std::ssize(flags) - std::ranges::count(flags, std::uint8_t{0}));
}

/// Which of the tokens that count are kept by their entropy.
std::vector<std::uint8_t> kept_tokens(const PolicyTokens& answer) {
  std::vector<std::uint8_t> kept(answer.counts.begin(), answer.counts.end());
  for (std::size_t t = 0; t < answer.entropy.size(); ++t)
    if (!answer.rule.keeps(answer.entropy[t])) kept[t] = 0;
  return kept;
}

/// Whether the answer is too far from the sampler's policy to be made less likely.
bool too_far(const RlConfig& config, const PolicyTokens& answer, double tokens) {
  if (config.off_policy_mask == 0 || answer.advantage >= 0) return false;
  const std::span<const double> from = answer.sampler.empty() ? answer.old : answer.sampler;
  double sum = 0;
  for (std::size_t t = 0; t < from.size(); ++t)
    if (answer.counts[t] != 0 && !std::isnan(from[t])) sum += from[t] - answer.policy[t];
  return sum / std::max(tokens, 1.0) > config.off_policy_mask;
}

/// The weight of each of an answer's tokens in the loss.
double token_weight(const RlConfig& config, const PolicyDivisors& by, double tokens) {
  switch (config.loss) {
    case PolicyLoss::dapo:
    case PolicyLoss::cispo:
    case PolicyLoss::vespo:
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
  if (!weighs_answers(config)) return 0;
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
         config.loss == PolicyLoss::gmpo ||
         config.importance_sampling_level == RatioLevel::sequence;
}

bool corrects_answers(const RlConfig& config) {
  if (config.loss == PolicyLoss::vespo) return false;  // its weight is one of the answer
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

bool weighs_answers(const RlConfig& config) { return config.loss != PolicyLoss::distill; }

bool needs_old(const RlConfig& config) {
  return weighs_answers(config) && steps_of_generation(config) > 1;
}

void validate_rl(const RlConfig& config) {
  const auto want = [](bool holds, const auto&... what) {
    if (!holds) refuse("[rl] ", what...);
  };
  want(config.group >= 2 || !weighs_answers(config), "group = ", config.group,
       " answers of a prompt; a loss compares at least 2");
  want(config.top_entropy_quantile > 0 && config.top_entropy_quantile <= 1,
       "top_entropy_quantile = ", config.top_entropy_quantile, "; wanted more than 0, at most 1");
  want(
      config.reward_sum == RewardSum::sum_then_normalize || config.loss != PolicyLoss::rloo,
      "reward_sum = normalize_then_sum, but rloo does not normalise; leave it out, or set another ",
      "loss");
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

std::vector<double> advantages_of_each(const RlConfig& config,
                                       std::span<const std::vector<double>> rewards) {
  RlConfig in_group = config;
  in_group.scale_rewards = RewardScale::group;
  const std::size_t names = rewards.empty() ? 0 : rewards.front().size();
  std::vector<double> sums(rewards.size(), kNone);
  for (std::size_t r = 0; r < names; ++r) {
    std::vector<double> one;
    for (const std::vector<double>& answer : rewards) one.push_back(answer.at(r));
    const std::vector<double> normal = advantages(in_group, one);
    const double weight = config.reward_weights.empty() ? 1 : config.reward_weights.at(r);
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (!std::isnan(one[i])) sums[i] = (std::isnan(sums[i]) ? 0 : sums[i]) + weight * normal[i];
  }
  const Summary all = summary_of(sums);
  for (double& sum : sums)
    sum = std::isnan(sum) ? 0 : (sum - all.mean) / (all.deviation + kLeastSpread);
  return sums;
}

EntropyRule entropy_rule(const RlConfig& config, double tokens, std::vector<double> entropies) {
  EntropyRule rule;
  if (config.top_entropy_quantile < 1 && !entropies.empty()) {
    std::ranges::sort(entropies);
    const auto last = entropies.size() - 1;
    const double at = (1 - config.top_entropy_quantile) * static_cast<double>(last);
    const auto below = static_cast<std::size_t>(at);
    const double low = entropies[below], high = entropies[std::min(below + 1, last)];
    rule.least = low + (high - low) * (at - static_cast<double>(below));
    tokens = static_cast<double>(
        std::ranges::count_if(entropies, [&](double h) { return rule.keeps(h); }));
  }
  rule.weight = config.entropy_coef / std::max(tokens, 1.0);
  return rule;
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
  for (const std::size_t size :
       {answer.old.size(), answer.reference.size(), answer.sampler.size(), answer.entropy.size()})
    AXONN_CHECK(size == 0 || size == count, "policy_loss: ", size, " values for ", count,
                " tokens");
  AXONN_CHECK(answer.counts.size() == count && d.size() == count,
              "policy_loss: wants a flag and room for a derivative for each token");
  PolicyPart part;
  part.tokens = count_of(answer.counts);
  std::ranges::fill(d, 0);
  const bool gmpo = config.loss == PolicyLoss::gmpo;
  const std::vector<std::uint8_t> kept = kept_tokens(answer);
  const double kept_count = count_of(kept);
  const Ratios ratios(
      config, answer,
      gmpo ? kept : std::vector<std::uint8_t>(answer.counts.begin(), answer.counts.end()),
      gmpo ? kept_count : part.tokens);
  const std::vector<double> corrections = sampler_weights(config, answer);
  const double weight = token_weight(config, by, part.tokens), kl = kl_of(config);
  const bool vespo = config.loss == PolicyLoss::vespo, drops = too_far(config, answer, part.tokens);
  const double of_answer = vespo ? vespo_weight(config, answer, corrections) : 0;
  const bool corrects_kl = config.kl_correction && !gmpo;
  const bool adds_kl = kl > 0 && !answer.reference.empty() && config.loss != PolicyLoss::rloo;
  std::vector<double> d_ratios(count);
  for (std::size_t t = 0; t < count; ++t) {
    if (answer.counts[t] == 0) continue;
    const double ratio = ratios.at(t);
    TokenLoss loss =
        token_loss(config, vespo ? of_answer : ratio, answer.advantage, answer.policy[t]);
    if (kept[t] != 0 && !answer.entropy.empty())
      part.loss -= answer.rule.weight * answer.entropy[t];
    // The loss of gmpo is a mean over the tokens that are kept.
    const double factor = gmpo    ? part.tokens / std::max(kept_count, 1.0)
                          : vespo ? 1
                                  : corrections[t],
                 correction = kept[t] == 0 || drops ? 0 : factor;
    for (double* const value : {&loss.value, &loss.d_ratio, &loss.d_own}) *value *= correction;
    if (adds_kl) {
      const auto [value, d_own] =
          divergence_of_token(config.kl_estimator, answer.reference[t] - answer.policy[t]);
      const double by_ratio = corrects_kl ? ratio : 1;
      loss.value += kl * by_ratio * value;
      loss.d_own += kl * by_ratio * d_own;
      if (corrects_kl) loss.d_ratio += kl * ratio * value;
      part.kl += by_ratio * value;
    }
    part.loss += weight * loss.value;
    d[t] = weight * loss.d_own;
    d_ratios[t] = weight * loss.d_ratio;
    part.low += loss.low || ratios.below(t) ? 1 : 0;
    part.high += loss.high || ratios.above(t) ? 1 : 0;
    part.correction += corrections[t];
    part.least_correction = std::min(part.least_correction, corrections[t]);
    part.largest_correction = std::max(part.largest_correction, corrections[t]);
  }
  ratios.add(d_ratios, d);
  return part;
}

}  // namespace axonn
