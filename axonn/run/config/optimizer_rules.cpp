#include "axonn/run/config/optimizer_rules.h"

#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/registry.h"
#include "axonn/run/config/config_options.h"

namespace axonn {

namespace {

Registry<OptimizerRule>& optimizer_rules() {
  static Registry<OptimizerRule> all("optimizer.kind", {"adamw", "sgd", "ademamix", "muon", "lion",
                                                        "schedule_free_adamw", "adafactor"});
  return all;
}

}  // namespace

const std::deque<OptimizerRule>& registered_optimizers() { return optimizer_rules().entries(); }

std::span<const std::string_view> optimizer_kinds() { return optimizer_rules().names(); }

OptimizerKind optimizer_kind(std::string_view name) {
  return static_cast<OptimizerKind>(optimizer_rules().value_of(name));
}

const OptimizerRule* optimizer_rule_of(OptimizerKind kind) {
  return optimizer_rules().find(static_cast<std::size_t>(kind));
}

void register_optimizer(OptimizerRule rule) {
  AXONN_CHECK(rule.make, "register_optimizer: '", rule.name, "' has no function `make`");
  OptimizerConfig config;
  OptionList list;
  list_optimizer(config, list);
  for (const std::string& key : rule.reads)
    AXONN_CHECK(list.find("optimizer", key), "register_optimizer: '", rule.name, "' reads '", key,
                "', which is no key of [optimizer]; list a key of its own in `keys`");
  add_own_section({rule.name, rule.help, rule.keys});
  optimizer_rules().add(std::move(rule));
}

}  // namespace axonn
