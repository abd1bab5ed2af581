#include "axonn/run/config/policy_loss.h"

#include <array>
#include <cmath>
#include <string>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/run/config/published_policies.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// What a config makes of the answers.
struct Losses {
  double loss = 0;
  std::vector<double> advantages, slopes;
};

Losses losses_of(const RlConfig& config, const TokenValues& policy) {
  std::vector<double> rewards;
  std::vector<std::vector<std::uint8_t>> counts;
  PolicyDivisors by{.answers = 8};
  for (std::size_t i = 0; i < 8; ++i) {
    const bool counted = !config.mask_truncated || !kTruncated[i];
    counts.emplace_back(policy[i].size(), counted ? 1 : 0);
    by.tokens += counted ? static_cast<double>(policy[i].size()) : 0;
    double reward = reward_sum(config, kRewards[i]);
    if (config.loss == PolicyLoss::rloo)
      for (std::size_t t = 0; t < policy[i].size(); ++t)
        reward -= kl_of(config) * (kOld[i][t] - kReference[i][t]);
    rewards.push_back(reward);
  }
  const bool each = config.reward_sum == RewardSum::normalize_then_sum;
  Losses all{.advantages =
                 each ? advantages_of_each(config, kRewards) : advantages(config, rewards)};
  std::vector<double> entropies;
  for (const std::vector<double>& one : kEntropy)
    entropies.insert(entropies.end(), one.begin(), one.end());
  const EntropyRule rule = entropy_rule(config, by.tokens, entropies);
  for (std::size_t i = 0; i < 8; ++i) {
    std::vector<double> d(policy[i].size());
    all.loss += policy_loss(config,
                            {.policy = policy[i],
                             .old = kOld[i],
                             .reference = kReference[i],
                             .sampler = kSampler[i],
                             .counts = counts[i],
                             .advantage = all.advantages[i],
                             .entropy = kEntropy[i],
                             .rule = rule},
                            by, d)
                    .loss;
    double slope = 0;
    for (std::size_t t = 0; t < d.size(); ++t) slope += static_cast<double>(t + 1) * d[t];
    all.slopes.push_back(slope);
  }
  return all;
}

class PolicyLosses : public testing::TestWithParam<PublishedLoss> {};

}  // namespace

TEST_P(PolicyLosses, AreThoseOfTrl) {
  const PublishedLoss& want = GetParam();
  const Losses got = losses_of(want.config, kPolicy);
  EXPECT_NEAR(got.loss, want.loss, 2e-6 * std::max(1.0, std::abs(want.loss)));
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_NEAR(got.advantages[i], want.advantages[i], 1e-6) << i;
    EXPECT_NEAR(got.slopes[i], want.slopes[i], 1e-6) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Published, PolicyLosses, testing::ValuesIn(kPublished),
                         [](const auto& published) {
                           std::string name;
                           for (const char c : std::string(published.param.name))
                             if (std::isalnum(static_cast<unsigned char>(c))) name += c;
                           return name;
                         });

/// Of losses that TRL's values do not have, too.
TEST(PolicyLossSlopes, AreThoseOfDifferences) {
  for (const PolicyLoss loss :
       {PolicyLoss::grpo, PolicyLoss::dapo, PolicyLoss::dr_grpo, PolicyLoss::bnpo, PolicyLoss::gspo,
        PolicyLoss::cispo, PolicyLoss::sapo, PolicyLoss::luspo, PolicyLoss::vespo, PolicyLoss::gmpo,
        PolicyLoss::rloo})
    for (const bool whole : {false, true}) {
      RlConfig config{.loss = loss, .group = 4, .delta = 2, .kl = 0.1, .max_tokens = 8};
      // Of an even loss k1, of an odd one k2, and k3 of single tokens.
      if (whole) config.kl_estimator = static_cast<KlEstimator>(static_cast<int>(loss) % 2 + 1);
      config.sampler_correction = SamplerCorrection::none;
      if (whole) config.importance_sampling_level = RatioLevel::sequence;
      const Losses at = losses_of(config, kPolicy);
      for (std::size_t i = 0; i < 8; ++i) {
        double slope = 0;
        for (std::size_t t = 0; t < kPolicy[i].size(); ++t) {
          constexpr double kStep = 1e-6;
          TokenValues above = kPolicy, below = kPolicy;
          above[i][t] += kStep;
          below[i][t] -= kStep;
          // The first factor of cispo and vespo has no gradient.
          if (loss == PolicyLoss::cispo || loss == PolicyLoss::vespo) continue;
          slope += static_cast<double>(t + 1) *
                   (losses_of(config, above).loss - losses_of(config, below).loss) / (2 * kStep);
        }
        if (loss != PolicyLoss::cispo && loss != PolicyLoss::vespo) {
          EXPECT_NEAR(at.slopes[i], slope, 1e-7)
              << kPolicyLosses[static_cast<std::size_t>(loss)] << ' ' << whole << ' ' << i;
        }
      }
    }
}

TEST(PolicyLossSlopes, OfEqualRewardsAreExactly0) {
  RlConfig config{.loss = PolicyLoss::grpo, .group = 4};
  const std::vector<double> equal(8, 0.7), none(8, NAN);
  EXPECT_THAT(advantages(config, equal), testing::Each(0.0));
  EXPECT_THAT(advantages(config, none), testing::Each(0.0));
  EXPECT_EQ(share_without_spread(config, equal), 1);
}

/// Those of the policy itself: the ratio is 1, and the slope that of REINFORCE.
TEST(PolicyLossSlopes, WithoutAnOldPolicyAreMinusTheAdvantage) {
  RlConfig config{.loss = PolicyLoss::dapo, .group = 2};
  const std::vector<double> policy = {-1, -2, -3};
  const std::vector<std::uint8_t> counts = {1, 0, 1};
  std::vector<double> d(3);
  const PolicyPart part =
      policy_loss(config, {.policy = policy, .counts = counts, .advantage = 0.5},
                  {.answers = 1, .tokens = 2}, d);
  EXPECT_EQ(part.loss, -0.5);
  EXPECT_THAT(d, testing::ElementsAre(-0.25, 0, -0.25));
}

TEST(KlEstimators, AreThoseOfTheirFormulas) {
  const std::vector<double> policy{-1.2}, reference{-1.0};
  const std::vector<std::uint8_t> counts{1};
  for (const auto& [estimator, value, slope] :
       {std::tuple{KlEstimator::k1, -0.2, 1.0},
        {KlEstimator::k2, 0.02, -0.2},
        {KlEstimator::k3, 0.0214027581601699, -0.2214027581601699}}) {
    RlConfig config{.loss = PolicyLoss::dapo, .kl = 0.5, .kl_correction = false};
    config.kl_estimator = estimator;
    std::vector<double> d(1);
    const PolicyPart part = policy_loss(
        config, {.policy = policy, .reference = reference, .counts = counts}, {1, 1}, d);
    EXPECT_NEAR(part.kl, value, 1e-15);
    EXPECT_NEAR(part.loss, 0.5 * value, 1e-15);
    EXPECT_NEAR(d[0], 0.5 * slope, 1e-15);
  }
}

TEST(OverlongReward, FallsOverTheLastTokens) {
  const RlConfig config{.max_tokens = 100, .rewards = {"overlong"}, .overlong_buffer = 20};
  for (const auto& [tokens, reward] :
       {std::pair{1, 0.0}, {80, 0.0}, {81, -0.05}, {90, -0.5}, {100, -1.0}, {120, -1.0}})
    EXPECT_DOUBLE_EQ(overlong_reward(config, tokens), reward) << tokens;
}

TEST(PolicyLossKeys, AreRefusedWithTheRemedy) {
  const auto refused = [](RlConfig config) { validate_rl(config); };
  EXPECT_THAT([&] { refused({.loss = PolicyLoss::grpo, .group = 1}); },
              ThrowsMessage<UsageError>(HasSubstr("[rl] group = 1")));
  EXPECT_THAT([&] { refused({.loss = PolicyLoss::grpo, .clip = 1.5}); },
              ThrowsMessage<UsageError>(HasSubstr("[rl] clip = 1.5")));
  EXPECT_THAT([&] { refused({.loss = PolicyLoss::grpo, .delta = 1.1}); },
              ThrowsMessage<UsageError>(HasSubstr("[rl] delta = 1.1")));
  EXPECT_THAT([&] { refused({.loss = PolicyLoss::grpo, .temperature = 0}); },
              ThrowsMessage<UsageError>(HasSubstr("[rl] temperature = 0")));
  EXPECT_THAT(
      [&] { refused({.loss = PolicyLoss::grpo, .max_tokens = 9, .rewards = {"overlong"}}); },
      ThrowsMessage<UsageError>(HasSubstr("[rl] overlong_buffer = 0")));
  EXPECT_THAT(
      [&] { refused({.loss = PolicyLoss::gspo, .importance_sampling_level = RatioLevel::token}); },
      ThrowsMessage<UsageError>(HasSubstr("importance_sampling_level = token")));
}
