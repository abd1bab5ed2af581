#include "axonn/plan/machine/probe.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <string>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/host.h"
#include "axonn/base/log.h"
#include "axonn/plan/machine/probe_parts.h"

namespace axonn {

namespace {

using HostName = std::array<std::uint8_t, 256>;

/// The number of ranks on the first rank's host. Throws UsageError if other hosts have more or
/// fewer, or if a host's ranks are not consecutive.
int ranks_of_host(Communicator& world) {
  HostName mine{};
  ::gethostname(reinterpret_cast<char*>(mine.data()), mine.size() - 1);
  std::vector<std::uint8_t> all(mine.size() * world.size());
  world.all_gather(buffer(std::span(all)), buffer(std::span<std::uint8_t>(mine)), "probe").wait();
  const auto same = [&](int a, int b) {
    const auto begin = [&](int rank) { return all.begin() + rank * std::ssize(mine); };
    return std::equal(begin(a), begin(a) + std::ssize(mine), begin(b));
  };
  int ranks = 1;
  while (ranks < world.size() && same(0, ranks)) ++ranks;
  for (int rank = 0; rank < world.size(); ++rank)
    if (world.size() % ranks != 0 || !same(rank, rank / ranks * ranks) ||
        (rank + ranks < world.size() && same(rank, rank + ranks)))
      refuse(
          "probe: wanted the same number of ranks on each node, with consecutive numbers; start ",
          "the ranks like this, or set --devices-per-node");
  return ranks;
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr))); }

}  // namespace

Machine probe(Communicator& world, const ProbeOptions& options) {
  if (world.size() < 2)
    refuse(
        "probe needs at least two ranks, because it measures links between them; set --ranks 2, ",
        "or start it under mpirun");
  if (options.devices_per_node > 0 && world.size() % options.devices_per_node != 0)
    refuse("--devices-per-node ", options.devices_per_node, " does not divide the ", world.size(),
           " ranks");
  const auto backend = make_cpu_backend(options.threads);
  const ProbeContext ctx{.world = world, .backend = *backend, .options = options};
  Machine machine{.name = options.name, .device = processor_name()};
  machine.devices_per_node =
      options.devices_per_node > 0 ? options.devices_per_node : ranks_of_host(world);
  const int nodes = world.size() / machine.devices_per_node;
  machine.source =
      fmt::format("probed {} with {} ranks on {} node{}, {} thread{} each", today(), world.size(),
                  nodes, nodes == 1 ? "" : "s", options.threads, options.threads == 1 ? "" : "s");
  double memory = available_memory() / machine.devices_per_node;
  world.all_reduce(buffer(std::span(&memory, 1)), "probe", ReduceOp::min).wait();
  machine.memory_bytes = memory;
  ctx.report(fmt::format("{}: {}; {} of memory per rank", machine.device, machine.source,
                         format_bytes(static_cast<std::int64_t>(memory))));
  const double start = now_seconds();
  probe_memory(ctx, machine);
  probe_products(ctx, machine);
  probe_steps(ctx, machine);
  probe_links(ctx, machine);
  ctx.report(fmt::format("took {:.0f} s", now_seconds() - start));
  return machine;
}

}  // namespace axonn
