#pragma once

#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Settings of NCCL, RCCL and MPI that are dangerous or slow on some machines, as far as the
/// program can see them.

namespace axonn {

/// Facts of a machine and its ranks, by which the rules decide.
struct NetworkFacts {
  std::string gpu = {};          ///< name of a rank's GPU
  std::string collectives = {};  ///< "NCCL" or "RCCL", by which the ranks exchange GPU memory
  std::string version = {};      ///< of it: "2.27.3"
  bool slingshot = false;        ///< whether the hosts have adapters of Slingshot
  bool several_hosts = false;    ///< whether the ranks are on more than one
  std::function<const char*(const char* name)> variable = std::getenv;

  /// The value of a variable; empty if it is not set.
  std::string_view value_of(std::string_view name) const;
  /// Whether the version is this one or newer; false if it is unknown.
  bool is_since(int major, int minor, int patch) const;
};

struct NetworkRule {
  std::string_view variable;
  std::string_view value;  ///< the safe value
  bool sets;               ///< whether the program sets it, if the variable is not set
  bool refuses;            ///< whether the program refuses other values; else it warns
  bool (*concerns)(const NetworkFacts&);                       ///< the machine and the ranks
  bool (*accepts)(const NetworkFacts&, std::string_view set);  ///< a value; "" if it is not set
  std::string_view reason, source;
};

/// All rules.
std::span<const NetworkRule> network_rules();

/// A change of the environment that a rule asks for.
struct NetworkAdvice {
  enum class Kind { set, warn, refuse } kind;
  const NetworkRule* rule;
  std::string text;  ///< "NCCL_PROTO=^LL128 is set: REASON (SOURCE)"
};

/// The advice of every rule that concerns these facts and does not accept the environment. Changes
/// nothing.
std::vector<NetworkAdvice> network_advice(const NetworkFacts& facts);

/// Sets the variables that rules set, before NCCL is started. Returns the texts of these and of
/// warnings. Throws UsageError with the first text of a rule that refuses.
std::vector<std::string> obey_network_rules(const NetworkFacts& facts);

}  // namespace axonn
