#include "axonn/ranks/comm/network_rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <mutex>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::string_view kPlugin = "AWS Libfabric";  // as NCCL_NET names it

/// Whether a value of NCCL_PROTO, such as "LL,Simple" or "^LL128", leaves LL128 to NCCL.
bool allows_ll128(std::string_view protocols) {
  std::string text(protocols);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  const bool excludes = text.starts_with('^');
  if (excludes) text.erase(0, 1);
  text = ',' + text + ',';
  return text.find(",LL128,") == std::string::npos ? excludes : !excludes;
}

// A rule's condition is about what was seen on the machine that its source describes, no more.
constexpr std::array kRules = {
    NetworkRule{
        .variable = "NCCL_PROTO",
        .value = "^LL128",
        .sets = true,
        .refuses = true,
        .concerns =
            [](const NetworkFacts& facts) {
              return facts.slingshot && facts.several_hosts && facts.collectives == "NCCL" &&
                     facts.gpu.find("GH200") != std::string::npos && facts.is_since(2, 27, 3);
            },
        .accepts =
            [](const NetworkFacts& facts, std::string_view set) {
              return facts.value_of("NCCL_LL128_C2C") == "0" ||
                     (!set.empty() && !allows_ll128(set));
            },
        .reason =
            "the protocol LL128 of NCCL 2.27.3 and newer silently corrupts data on GH200 with "
            "Slingshot",
        .source = "github.com/NVIDIA/nccl/issues/2001"},
    NetworkRule{
        .variable = "NCCL_NET",
        .value = kPlugin,
        .sets = false,  // a plugin may have another name
        .refuses = false,
        .concerns =
            [](const NetworkFacts& facts) { return facts.slingshot && facts.several_hosts; },
        .accepts = [](const NetworkFacts&,
                      std::string_view set) { return !set.empty() && set != "Socket"; },
        .reason =
            "with this value a run ends if the plugin for Slingshot is not found; without it, "
            "data silently travel through sockets, several times slower",
        .source = "docs.cscs.ch, NCCL"},
    NetworkRule{.variable = "NCCL_NET",
                .value = "Socket",
                .sets = true,
                .refuses = false,
                .concerns =
                    [](const NetworkFacts& facts) {
                      return facts.slingshot && !facts.several_hosts && facts.collectives == "RCCL";
                    },
                .accepts = [](const NetworkFacts&,
                              std::string_view set) { return !set.empty() && set != kPlugin; },
                .reason = "RCCL's plugin for Slingshot is not to be used on a single node",
                .source = "docs.olcf.ornl.gov, Frontier User Guide"},
    NetworkRule{
        .variable = "MPICH_GPU_SUPPORT_ENABLED",
        .value = "0",
        .sets = false,  // MPI has read it
        .refuses = false,
        .concerns = [](const NetworkFacts&) { return true; },
        .accepts = [](const NetworkFacts&,
                      std::string_view set) { return set.empty() || set == "0"; },
        .reason =
            "axonn gives MPI host memory only, and MPI on GPU memory beside NCCL can deadlock",
        .source = "docs.cscs.ch, NCCL; NCCL's guide, CUDA-aware MPI"},
    NetworkRule{
        .variable = "CUDA_VISIBLE_DEVICES",
        .value = "3,2,1,0",
        .sets = false,  // CUDA has read it
        .refuses = false,
        .concerns =
            [](const NetworkFacts& facts) {
              return facts.value_of("NERSC_HOST") == "perlmutter" &&
                     facts.gpu.find("A100") != std::string::npos;
            },
        .accepts = [](const NetworkFacts&,
                      std::string_view set) { return !set.empty() && set != "0,1,2,3"; },
        .reason =
            "on Perlmutter GPU 3 is next to the cores and the adapter of a node's first rank; "
            "in the usual order ranks use distant ones",
        .source = "docs.nersc.gov, Process and Thread Affinity"},
    NetworkRule{
        .variable = "NCCL_LAUNCH_ORDER_IMPLICIT",
        .value = "1",
        .sets = true,  // also by make_cuda_device()
        .refuses = false,
        .concerns = [](const NetworkFacts&) { return true; },
        .accepts = [](const NetworkFacts&, std::string_view set) { return set == "1"; },
        .reason =
            "otherwise GPUs may start the kernels of different groups in different orders, so "
            "that they wait for each other forever",
        .source = "NCCL's guide, environment variables"},
};

std::string text_of(NetworkAdvice::Kind kind, const NetworkRule& rule, std::string_view set) {
  const std::string wanted = rule.value.find(' ') == std::string_view::npos
                                 ? concat(rule.variable, '=', rule.value)
                                 : concat(rule.variable, "=\"", rule.value, '"');
  const std::string why = concat(": ", rule.reason, " (", rule.source, ')');
  if (kind == NetworkAdvice::Kind::set) return concat(wanted, " is set", why);
  const std::string now = set.empty() ? concat(rule.variable, " is not set")
                                      : concat(rule.variable, " is \"", set, '"');
  return concat(now, "; export ", wanted, why);
}

}  // namespace

std::string_view NetworkFacts::value_of(std::string_view name) const {
  const char* const value = variable(std::string(name).c_str());
  return value ? value : "";
}

bool NetworkFacts::is_since(int major, int minor, int patch) const {
  const std::array<int, 3> wanted{major, minor, patch};
  std::array<int, 3> mine{};
  const char* at = version.data();
  const char* const end = at + version.size();
  for (int& number : mine) {
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc{}) return false;
    at = next == end ? end : next + 1;
  }
  return mine >= wanted;
}

std::span<const NetworkRule> network_rules() { return kRules; }

std::vector<NetworkAdvice> network_advice(const NetworkFacts& facts) {
  std::vector<NetworkAdvice> all;
  for (const NetworkRule& rule : kRules) {
    const std::string_view set = facts.value_of(rule.variable);
    if (!rule.concerns(facts) || rule.accepts(facts, set)) continue;
    const auto kind = set.empty() && rule.sets ? NetworkAdvice::Kind::set
                      : rule.refuses           ? NetworkAdvice::Kind::refuse
                                               : NetworkAdvice::Kind::warn;
    all.push_back({kind, &rule, text_of(kind, rule, set)});
  }
  return all;
}

std::vector<std::string> obey_network_rules(const NetworkFacts& facts) {
  static std::mutex mutex;  // ranks may be threads
  const std::lock_guard lock(mutex);
  std::vector<std::string> texts;
  for (const NetworkAdvice& advice : network_advice(facts)) {
    if (advice.kind == NetworkAdvice::Kind::refuse) refuse(advice.text);
    if (advice.kind == NetworkAdvice::Kind::set)
      setenv(std::string(advice.rule->variable).c_str(), std::string(advice.rule->value).c_str(),
             1);
    texts.push_back(advice.text);
  }
  return texts;
}

}  // namespace axonn
