#include "axonn/plan/planner/machine/link_rates.h"

#include <array>

#include "axonn/run/load/launch.h"

namespace axonn {

CollectiveRates link_rates(const Machine& machine) {
  CollectiveRates rates;
  const auto set = [](double& rate, double known) {
    if (known > 0) rate = known;
  };
  set(rates.inside.latency_s, machine.device_latency_s);
  set(rates.inside.bytes_per_s, machine.device_bytes_per_s);
  set(rates.across.latency_s, machine.node_latency_s);
  set(rates.across.bytes_per_s, machine.node_bytes_per_s);
  return rates;
}

void use_link_rates(Communicator& world, const ParallelismConfig& config, const Machine& machine) {
  CollectivePolicy policy = policy_of(config);
  const auto [inside, across, rings] = link_rates(machine);
  std::array<double, 4> all = {inside.latency_s, inside.bytes_per_s, across.latency_s,
                               across.bytes_per_s};
  world.broadcast(buffer(std::span<double>(all)), 0, "rates of links").wait();
  policy.rates = CollectiveRates{{all[0], all[1]}, {all[2], all[3]}};
  world.set_policy(policy);
}

}  // namespace axonn
