#include "axonn/use/rewards/reward_function.h"

#include <limits>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/registry.h"
#include "axonn/run/config/policy_loss.h"
#include "axonn/use/rewards/verifiers.h"

namespace axonn {

namespace {

struct NamedReward {
  std::string name;
  RewardFunction function;
};

Registry<NamedReward>& rewards() {
  static Registry<NamedReward> all("rl.rewards", {"exact", "number", "format", kOverlong});
  return all;
}

}  // namespace

void register_reward(const std::string& name, RewardFunction function) {
  AXONN_CHECK(function, "register_reward: '", name, "' has no function");
  rewards().add({name, std::move(function)});
}

RewardFunction reward_function(const RlConfig& config, const std::string& name) {
  if (const NamedReward* const own = rewards().find(rewards().value_of(name))) return own->function;
  if (name == kOverlong)
    return [config](const JudgedAnswer& answer) {
      return overlong_reward(config, std::ssize(answer.tokens));
    };
  return [verify = make_verifier(name), reads = reads_wanted(name)](const JudgedAnswer& answer) {
    const auto wanted = wanted_of_line(answer.prompt_line);
    if (!wanted && reads) return std::numeric_limits<double>::quiet_NaN();
    return verify(answer.text, wanted.value_or(""));
  };
}

}  // namespace axonn
