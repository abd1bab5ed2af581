#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/data/corpus/rollouts/rollout_lines.h"

namespace axonn {

/// What writing the answers of a generation took.
struct SamplingCost {
  double sampling_seconds = 0, reward_seconds = 0;
  std::int64_t without_reward = 0;         ///< answers whose reward could not be found
  std::int64_t attempts = 0;               ///< of rl.sampling_attempts
  std::int64_t dropped_groups = 0;         ///< whose rewards were all equal
  std::vector<std::string> warnings = {};  ///< for the user
};

/// Lets the model that is trained write answers, and finds their rewards. A RolloutSamplerMaker
/// (training.h) makes it of a model, which must outlive it, for the prompts of a corpus, and throws
/// UsageError that names the key if the config has no rewards, or a prompt leaves no room.
class RolloutSampler {
 public:
  virtual ~RolloutSampler() = default;
  /// Replaces the answers by those of generation g, a function of the weights, the config and g.
  /// Collective; answers and cost are the same on every rank. Throws Error if no answer has a
  /// reward.
  virtual SamplingCost write(std::int64_t g, RolloutFile& to) = 0;
};

}  // namespace axonn
