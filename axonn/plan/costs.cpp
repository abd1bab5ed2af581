#include "axonn/plan/costs.h"

#include <algorithm>
#include <optional>

#include "axonn/base/check.h"

namespace axonn {

namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

/// Ranks fill nodes one after another: groups stay within a node if no block of inner · size ranks
/// straddles two.
bool leaves_node(const Machine& machine, const GridShape& grid, const GroupShape& group) {
  const int node = machine.devices_per_node, block = group.inner * group.size;
  return block > node || (grid.ranks() > node && node % block != 0);
}

struct Link {
  double latency_s = 0, bytes_per_s = 0;
};

/// The machine's rate for the group, or else `other`.
Link measured_or(const Machine& machine, const GroupShape& group, std::string_view operation,
                 Link other) {
  for (const GroupRate& rate : machine.groups) {
    if (rate.inner != group.inner || rate.size != group.size) continue;
    const Link link{rate.latency_s, rate.bytes_per_s};
    if (rate.operation == operation) return link;
    if (rate.operation.empty()) other = link;
  }
  return other;
}

Link link_of(const Machine& machine, const GroupShape& group, bool leaves_node,
             std::string_view operation) {
  const Link device{machine.device_latency_s, machine.device_bytes_per_s};
  if (!leaves_node) return measured_or(machine, group, operation, device);
  const int node = machine.devices_per_node, at_once = std::min(node, group.inner);
  Link link{machine.node_latency_s, machine.node_bytes_per_s / at_once};
  if (group.inner < node) {  // several members in each node: the ring uses links inside it, too
    const GroupShape inside{.inner = group.inner, .size = node / group.inner};
    const double rate = measured_or(machine, inside, operation, device).bytes_per_s;
    if (rate > 0) link.bytes_per_s = std::min(link.bytes_per_s, rate);
  }
  return measured_or(machine, group, operation, link);
}

}  // namespace

MachineCosts::MachineCosts(const Machine& machine, const GridShape& grid)
    : machine_(machine), grid_(grid) {
  AXONN_CHECK(machine.memory_bytes_per_s > 0 && machine.devices_per_node > 0, "machine ",
              machine.name, " has no memory_bytes_per_s or no devices_per_node");
}

double MachineCosts::compute_s(const Schedule::Compute& op) const {
  const double bytes = real(op.bytes());
  if (op.kind == OperationKind::attention)
    return machine_.launch_s + op.flops / machine_.attention_flops_per_s;
  if (op.kind == OperationKind::product) {
    const Schedule::Matrix &out = op.operands.at(0), &a = op.operands.at(1);
    const double m = real(out.rows), n = real(out.cols), k = op.flops / (2 * m * n);
    const ProductRate& rate = a.dtype == DType::bf16 ? machine_.bf16 : machine_.f32;
    const double arithmetic = op.flops / rate.flops_per_s * (1 + rate.half_m / m) *
                              (1 + rate.half_n / n) * (1 + rate.half_k / k);
    return machine_.launch_s + std::max(arithmetic, bytes / machine_.memory_bytes_per_s);
  }
  const auto& rates = machine_.rowwise_bytes_per_s;
  auto own = rates.find(op.operation);
  if (own == rates.end()) own = rates.find("other");
  return machine_.launch_s +
         bytes / (own != rates.end() ? own->second : machine_.memory_bytes_per_s);
}

CollectiveCost MachineCosts::collective(const Schedule::Start& start) const {
  GroupShape group{.inner = 1, .size = start.ranks};  // the world
  for (const Axis axis : kAxes)
    if (start.group == name_of(axis)) group = group_along(grid_, axis);
  const bool leaves = leaves_node(machine_, grid_, group);
  const Link link = link_of(machine_, group, leaves, start.operation);
  std::optional<CollectiveCost> least;
  for (const auto& [hops, bytes] : algorithms_of(start.operation, group.size, start.bytes)) {
    const CollectiveCost cost{.latency_s = hops * link.latency_s,
                              .link_s = bytes / link.bytes_per_s,
                              .leaves_node = leaves};
    if (!least || cost.latency_s + cost.link_s < least->latency_s + least->link_s) least = cost;
  }
  return *least;
}

void check_rates(const Machine& machine, DType dtype, int devices) {
  const auto need = [&](bool there, const std::string& what) {
    if (!there)
      refuse("machine ", machine.name, " has no ", what,
             ", so no plan can be made for it; set the figure in its file");
  };
  need(machine.devices_per_node > 0, "devices_per_node");
  need(machine.memory_bytes > 0, "memory_bytes");
  need(machine.memory_bytes_per_s > 0, "memory_bytes_per_s");
  need((dtype == DType::bf16 ? machine.bf16 : machine.f32).flops_per_s > 0,
       concat("rate of products in ", name_of(dtype)));
  need(machine.attention_flops_per_s > 0, "attention_flops_per_s");
  need(machine.node_bytes_per_s > 0 || devices <= machine.devices_per_node,
       "node_bytes_per_s, the links between nodes");
  need(machine.device_bytes_per_s > 0 || machine.devices_per_node == 1,
       "device_bytes_per_s, the links between devices of a node");
}

}  // namespace axonn
