#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/run/config/config.h"

namespace axonn {

class Optimizer;

/// Names of all rules, in the order of their values.
std::span<const std::string_view> optimizer_kinds();
/// The kind of this name, such as a registered one: optimizer_kind("signum"). If there is none,
/// throws UsageError with the names of all.
OptimizerKind optimizer_kind(std::string_view name);

using OptimizerMaker = std::function<std::unique_ptr<Optimizer>(const OptimizerConfig& config)>;

/// An update rule that a program adds to those of this library. Its own keys are those of a section
/// [name] of the config.
struct OptimizerRule {
  std::string name;  ///< the value of optimizer.kind
  std::string help;  ///< of the section [name], one line
  std::vector<OwnKey> keys = {};
  /// The keys of [optimizer] that it reads besides kind, lr and ema_decay; a run that sets others
  /// is told that they have no effect.
  std::vector<std::string> reads = {"weight_decay"};
  /// Throws UsageError for keys that do not fit one another. Empty: all fit.
  std::function<void(const OptimizerConfig&)> validate = {};
  OptimizerMaker make;
};

/// Adds a rule, so that every command and config of this process knows it: `optimizer.kind = name`.
/// Call it at the beginning of main(), before a config is read. Throws Error if it has no `make`,
/// if a name is taken or not one of small letters, digits and '_', or if [optimizer] has no key
/// that it reads.
void register_optimizer(OptimizerRule rule);

/// The rule that was registered for this kind; null for the library's own. Throws Error for a value
/// that is no kind.
const OptimizerRule* optimizer_rule_of(OptimizerKind kind);

/// The rules that programs registered.
const std::deque<OptimizerRule>& registered_optimizers();

}  // namespace axonn
