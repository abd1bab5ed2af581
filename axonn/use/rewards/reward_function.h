#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "axonn/run/config/config.h"

namespace axonn {

/// An answer that has a reward.
struct JudgedAnswer {
  std::string_view text;                 ///< without the token that ends it
  std::span<const std::int32_t> tokens;  ///< with it
  bool truncated = false;                ///< there is no such token
  std::string_view prompt_line;          ///< the JSON line of data.jsonl that has its prompt
};

/// Returns the reward of an answer; NaN: it has none.
using RewardFunction = std::function<double(const JudgedAnswer& answer)>;

/// Makes a function the reward of a name, which rl.rewards then takes. It is called on rank 0, for
/// one answer after the other; what it throws ends the run. Throws Error for an empty function, and
/// for a name that there is.
void register_reward(const std::string& name, RewardFunction function);

/// The function of a name in rl.rewards: registered, or built in (make_verifier(), kOverlong).
/// Throws UsageError for another name.
RewardFunction reward_function(const RlConfig& config, const std::string& name);

}  // namespace axonn
