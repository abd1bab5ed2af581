#include "axonn/plan/planner/costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

/// Ranks fill nodes one after another: groups stay within a node if no block of inner · size ranks
/// straddles two.
bool leaves_node(const Machine& machine, const GridShape& grid, const GroupShape& group) {
  const int node = machine.devices_per_node, block = group.inner * group.size;
  return block > node || (grid.ranks() > node && node % block != 0);
}

/// An operation on whole rows, of which grids that cut rows compute parts, and how often the parts
/// read and write what is counted once for it. Processors compute it by its parts.
struct WholeRows {
  std::string_view operation;
  double passes;
  std::array<std::string_view, 4> parts;
};
constexpr WholeRows kWholeRows[] = {
    {"norm_forward", 1, {"layer_norm"}},
    {"norm_backward",
     2,
     {"layer_norm_sums", "rms_norm_sums", "layer_norm_backward", "layer_norm_weight_backward"}},
    {"cross_entropy", 1.5, {"softmax_stats", "cross_entropy_backward"}}};

/// Bytes per second of an operation. A machine's step has whole rows or their parts, so that a
/// probe may have measured one of them alone.
double rowwise_rate(const Machine& machine, const std::string& operation) {
  const auto& rates = machine.rowwise_bytes_per_s;
  if (const auto own = rates.find(operation); own != rates.end()) return own->second;
  const auto other = rates.find("other");
  const double unknown = other != rates.end() ? other->second : machine.memory_bytes_per_s;
  for (const WholeRows& whole : kWholeRows) {
    if (operation == whole.operation) return unknown / whole.passes;
    const auto measured = rates.find(std::string(whole.operation));
    if (measured != rates.end() && std::ranges::find(whole.parts, operation) != whole.parts.end())
      return std::min(measured->second * whole.passes, machine.memory_bytes_per_s);
  }
  return unknown;
}

struct Link {
  double latency_s = 0, bytes_per_s = 0;
  double ring_latency_s = latency_s;  // of a ring's hops, which are not all equal: their mean
};

/// The machine's last rate for the group, that of the operation if there is one; null without one.
const GroupRate* measured(const Machine& machine, const GroupShape& group,
                          std::string_view operation) {
  const GroupRate* found = nullptr;
  for (const GroupRate& rate : machine.groups) {
    if (rate.inner != group.inner || rate.size != group.size) continue;
    if (rate.form != CollectivesKind::automatic) continue;
    const bool any = rate.operation.empty(), have = found && !found->operation.empty();
    if (rate.operation == operation || (any && !have)) found = &rate;
  }
  return found;
}

Link measured_or(const Machine& machine, const GroupShape& group, std::string_view operation,
                 Link other) {
  const GroupRate* const rate = measured(machine, group, operation);
  return rate ? Link{rate->latency_s, rate->bytes_per_s} : other;
}

/// Between the measured sizes, and beyond the last one, times grow in a straight line. What the
/// smallest collective takes is latency, the rest its bytes' time.
CollectiveCost interpolated(const GroupRate& rate, std::int64_t bytes) {
  const auto seconds = [&](std::size_t i) { return 1e-9 * real(rate.nanoseconds[i]); };
  const double latency = seconds(0);
  if (rate.bytes.size() == 1 || bytes <= rate.bytes[0]) return {.latency_s = latency};
  std::size_t next = 1;
  while (next + 1 < rate.bytes.size() && rate.bytes[next] < bytes) ++next;
  const double part =
      real(bytes - rate.bytes[next - 1]) / real(rate.bytes[next] - rate.bytes[next - 1]);
  const double time = std::lerp(seconds(next - 1), seconds(next), part);
  return {.latency_s = std::min(latency, time), .link_s = std::max(0.0, time - latency)};
}

double time_of(const CollectiveCost& cost) { return cost.latency_s + cost.link_s; }

/// Of a group whose size lies between two that were measured in this form, or is one of them: the
/// logarithm of the time is taken to grow in a straight line with that of the size.
std::optional<CollectiveCost> between_sizes(const Machine& machine, const GroupShape& group,
                                            const Recording::Start& start, CollectivesKind form) {
  const GroupRate *below = nullptr, *above = nullptr;
  for (const GroupRate& rate : machine.groups) {
    if (rate.form != form || rate.inner != group.inner || rate.operation != start.operation)
      continue;
    if (rate.size <= group.size && (!below || rate.size > below->size)) below = &rate;
    if (rate.size >= group.size && (!above || rate.size < above->size)) above = &rate;
  }
  if (!below || !above) return std::nullopt;
  const CollectiveCost few = interpolated(*below, start.bytes),
                       many = interpolated(*above, start.bytes);
  if (below == above) return few;
  const double part =
      std::log(real(group.size) / below->size) / std::log(real(above->size) / below->size);
  const auto between = [part](double a, double b) {
    return std::exp(std::lerp(std::log(a), std::log(b), part));
  };
  const double time = between(time_of(few), time_of(many)),
               latency = std::min(between(few.latency_s, many.latency_s), time);
  return CollectiveCost{.latency_s = latency, .link_s = time - latency};
}

/// As between_sizes(); of a sum those of its two halves.
std::optional<CollectiveCost> measured_in_form(const Machine& machine, const GroupShape& group,
                                               const Recording::Start& start,
                                               CollectivesKind form) {
  if (start.operation != "all_reduce") return between_sizes(machine, group, start, form);
  Recording::Start half = start;
  half.operation = "reduce_scatter";
  const auto scatter = between_sizes(machine, group, half, form);
  half.operation = "all_gather";
  const auto gather = between_sizes(machine, group, half, form);
  if (!scatter || !gather) return std::nullopt;
  return CollectiveCost{.latency_s = scatter->latency_s + gather->latency_s,
                        .link_s = scatter->link_s + gather->link_s};
}

Link link_of(const Machine& machine, const GroupShape& group, bool leaves_node,
             std::string_view operation) {
  const Link device{machine.device_latency_s, machine.device_bytes_per_s};
  if (!leaves_node) {
    Link link = measured_or(machine, group, operation, device);
    link.bytes_per_s *= machine.inside_share;
    return link;
  }
  const int node = machine.devices_per_node, members = std::max(1, node / group.inner);
  // A ring leaves a node once; in an exchange of all with all, each member sends to other nodes.
  const bool exchange = operation == "all_to_all" && members > 1 && group.size > members;
  const int at_once = exchange ? node : std::min(node, group.inner);
  Link link{machine.node_latency_s, machine.node_bytes_per_s / at_once};
  if (exchange) link.bytes_per_s *= real(group.size - 1) / real(group.size - members);
  const int adapters = machine.adapters_per_node;
  if (adapters > 0 && at_once > adapters) link.bytes_per_s *= machine.shared_adapters_share;
  if (group.inner < node) {  // several members in each node: the ring uses links inside it, too
    const GroupShape inside{.inner = group.inner, .size = node / group.inner};
    const Link within = measured_or(machine, inside, operation, device);
    if (within.bytes_per_s > 0) link.bytes_per_s = std::min(link.bytes_per_s, within.bytes_per_s);
    link.ring_latency_s = (link.latency_s + (inside.size - 1) * within.latency_s) / inside.size;
  }
  return measured_or(machine, group, operation, link);
}

/// The expected maximum of n values of the standard normal distribution, by Blom's approximation:
/// the quantile of (n − 0.375) / (n + 0.25).
double expected_maximum(int n) {
  const double p = (n - 0.375) / (n + 0.25);
  double low = 0, high = 10;
  while (high - low > 1e-9) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::numbers::sqrt2) / 2 < p ? low : high) = middle;
  }
  return n > 1 ? low : 0;
}

}  // namespace

MachineCosts::MachineCosts(const Machine& machine, const GridShape& grid,
                           CollectivesKind collectives)
    : machine_(machine),
      grid_(grid),
      collectives_(collectives),
      latest_(expected_maximum(grid.ranks())) {
  AXONN_CHECK(machine.memory_bytes_per_s > 0 && machine.devices_per_node > 0, "machine ",
              machine.name, " has no memory_bytes_per_s or no devices_per_node");
}

double MachineCosts::compute_s(const Recording::Compute& op) const {
  return (1 + machine_.device_spread * latest_) * mean_s(op);
}

double MachineCosts::lateness_s(double computed_s, double collectives) const {
  // Between two collectives a rank's time has the variance jitter_s · computed_s / collectives.
  return latest_ * std::sqrt(machine_.jitter_s * computed_s * collectives);
}

double MachineCosts::conversion_s(const Recording::Compute& op, BlockProducts type) const {
  if (type == BlockProducts::bf16) return 0;
  double written = 0.5;  // of the bytes that are read, with a byte of scale for 32 or 16 elements
  if (type == BlockProducts::mxfp8) written = (1 + 1.0 / 32) / 2;
  if (type == BlockProducts::nvfp4) written = (0.5 + 1.0 / 16) / 2;
  // The second factor is a weight, but for the product that gives a weight's gradient.
  const double casts = op.a_transposed ? 1 : machine_.program.weight_casts;
  const double bytes = real(op.operands.at(1).bytes()) + casts * real(op.operands.at(2).bytes());
  return real(op.count) * (1 + written) * bytes / rowwise_rate(machine_, "copy");
}

double MachineCosts::mean_s(const Recording::Compute& op) const {
  const double bytes = real(op.bytes());
  if (op.kind == OperationKind::attention)
    return machine_.launch_s +
           op.flops / (machine_.attention_flops_per_s * machine_.program.attention_speed);
  if (op.kind == OperationKind::product) {
    const Recording::Matrix &out = op.operands.at(0), &a = op.operands.at(1);
    const double count = real(op.count), m = real(out.rows), n = real(out.cols),
                 k = op.flops / (2 * count * m * n);
    const bool narrow = is_half(a.dtype) && op.layer != "loss";
    const BlockProducts type = narrow ? machine_.program.products : BlockProducts::bf16;
    const ProductRate& rate = machine_.products(type, a.dtype);
    const double arithmetic = op.flops / rate.flops_per_s * (1 + rate.half_m / m) *
                              (1 + rate.half_n / n) * (1 + rate.half_k / k);
    return count * machine_.launch_s + conversion_s(op, type) +
           std::max(arithmetic, bytes / machine_.memory_bytes_per_s);
  }
  const auto [rate, added] = rowwise_rates_.try_emplace(op.operation);
  if (added) rate->second = rowwise_rate(machine_, op.operation);
  return machine_.launch_s + machine_.program.rowwise_passes * bytes / rate->second;
}

CollectiveCost MachineCosts::transfer(const Recording::Start& start) const {
  check_disk(machine_);
  const int sharing = std::min(machine_.devices_per_node, grid_.ranks());
  return {.link_s = sharing * real(start.bytes) / machine_.disk_bytes_per_s};
}

CollectiveCost MachineCosts::collective(const Recording::Start& given) const {
  if (given.group == Recording::kDisk) return transfer(given);
  Recording::Start start = given;
  const bool of_weights = start.group == name_of(Axis::z) || start.group == name_of(Axis::data);
  if (of_weights && start.operation == "reduce_scatter")  // of gradients, in f32
    start.bytes = std::llround(machine_.program.gradient_bytes / 4 * real(start.bytes));
  if (start.group == name_of(Axis::z) && start.operation == "all_gather")  // of weights, in bf16
    start.bytes = std::llround(machine_.program.gather_bytes / 2 * real(start.bytes));
  GroupShape group{.inner = 1, .size = start.ranks};  // the world
  for (const Axis axis : kAxes)
    if (start.group == name_of(axis)) group = group_along(grid_, axis);
  const int neighbours = grid_.x * grid_.y;
  if (start.group == "context") group = {.inner = neighbours, .size = grid_.context};
  if (start.group == "experts") group = {.inner = neighbours, .size = grid_.experts};
  if (start.group == "same experts")
    group = {.inner = neighbours * grid_.experts, .size = grid_.z / grid_.experts};
  CollectiveCost cost = flat(group, start);
  if (collectives_ != CollectivesKind::flat && machine_.program.name.empty())
    if (const auto two = two_level(group, start))
      if (collectives_ == CollectivesKind::two_level || time_of(*two) < time_of(cost)) cost = *two;
  cost.collectives = start.group == name_of(Axis::z) ? machine_.program.weight_collectives : 1;
  cost.latency_s *= cost.collectives;
  if (start.group == name_of(Axis::z) && start.operation == "reduce_scatter") {
    cost.latency_s *= machine_.program.sums_over_z;
    cost.link_s *= machine_.program.sums_over_z;
  }
  const bool of_rows = start.group == "experts" && start.operation == "all_to_all";
  if (of_rows && cost.leaves_node && machine_.program.node_rows < 1)
    cost.link_s = std::max(machine_.program.node_rows * cost.link_s,
                           real(start.bytes) / machine_.device_bytes_per_s);
  return cost;
}

CollectiveCost MachineCosts::flat(const GroupShape& group, const Recording::Start& start) const {
  const bool leaves = leaves_node(machine_, grid_, group);
  const GroupRate* const rate = measured(machine_, group, start.operation);
  if (rate && !rate->bytes.empty()) {
    CollectiveCost cost = interpolated(*rate, start.bytes);
    cost.leaves_node = leaves;
    return cost;
  }
  const Link link = link_of(machine_, group, leaves, start.operation);
  std::optional<CollectiveCost> least =
      measured_in_form(machine_, group, start, CollectivesKind::flat);
  if (least) {
    least->leaves_node = leaves;
    return *least;
  }
  for (const auto& [hops, bytes, ring] : algorithms_of(start.operation, group.size, start.bytes)) {
    const CollectiveCost cost{.latency_s = hops * (ring ? link.ring_latency_s : link.latency_s),
                              .link_s = bytes / link.bytes_per_s,
                              .leaves_node = leaves};
    if (!least || time_of(cost) < time_of(*least)) least = cost;
  }
  return *least;
}

std::optional<CollectiveCost> MachineCosts::two_level(const GroupShape& group,
                                                      const Recording::Start& start) const {
  const bool sum = start.operation == "all_reduce";
  if (!sum && start.operation != "all_gather" && start.operation != "reduce_scatter")
    return std::nullopt;
  const int node = machine_.devices_per_node;
  if (group.inner >= node || node % group.inner != 0) return std::nullopt;
  const GroupShape inside{.inner = group.inner, .size = node / group.inner};
  if (group.size <= inside.size || group.size % inside.size != 0) return std::nullopt;
  // A measured rate is that of the form which a run chooses.
  if (measured(machine_, group, start.operation)) return std::nullopt;
  if (auto cost = measured_in_form(machine_, group, start, CollectivesKind::two_level)) {
    cost->leaves_node = true;
    return cost;
  }
  const GroupShape across{.inner = node, .size = group.size / inside.size};

  // Each member exchanges its part with those of the same place on other nodes; all members of a
  // node then have its share of the parts.
  const auto ring = [&](const GroupShape& level, bool leaves, double bytes) {
    const Link link = link_of(machine_, level, leaves, start.operation);
    const double hops = level.size - 1;
    return CollectiveCost{.latency_s = hops * link.latency_s,
                          .link_s = hops / level.size * bytes / link.bytes_per_s};
  };
  const double bytes = real(start.bytes);
  const CollectiveCost in = ring(inside, false, bytes),
                       out = ring(across, true, bytes / inside.size);
  const double order_s = 2 * bytes / machine_.memory_bytes_per_s;  // of the parts, read and written
  const double times = sum ? 2 : 1;
  // Only the second part of it uses the node's links.
  return CollectiveCost{.latency_s = times * (time_of(in) + out.latency_s + order_s),
                        .link_s = times * out.link_s,
                        .leaves_node = true};
}

void check_disk(const Machine& machine) {
  if (machine.disk_bytes_per_s > 0) return;
  refuse("machine ", machine.name, " has no disk_bytes_per_s, so the time of [offload] cannot be ",
         "predicted; set the figure in its file (axonn probe --disk DIR measures it)");
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
  need(machine.products(dtype).flops_per_s > 0, concat("rate of products in ", name_of(dtype)));
  const BlockProducts type = machine.program.products;
  need(machine.products(type, dtype).flops_per_s > 0,
       concat("rate of products in ", kBlockProducts[static_cast<std::size_t>(type)]));
  need(machine.attention_flops_per_s > 0, "attention_flops_per_s");
  need(machine.node_bytes_per_s > 0 || devices <= machine.devices_per_node,
       "node_bytes_per_s, the links between nodes");
  need(machine.device_bytes_per_s > 0 || machine.devices_per_node == 1,
       "device_bytes_per_s, the links between devices of a node");
}

}  // namespace axonn
