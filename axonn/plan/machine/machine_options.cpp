#include "axonn/plan/machine/machine_options.h"

#include <algorithm>
#include <array>

#include "axonn/ops/backend.h"

namespace axonn {

namespace {

/// The memory-bound operations that are not row-wise: one of Backend and those of Device.
constexpr std::array<std::string_view, 5> kOtherOperations = {
    CachedAttention::kName, "copy", "fill_zero", "copy_to_host", "copy_from_host"};

constexpr std::array<std::string_view, 4> kGroupOperations = {"", "all_gather", "reduce_scatter",
                                                              "all_reduce"};

void list_products(ProductRate& rate, OptionList& list, std::string_view section,
                   std::string_view help) {
  list.section(section, help);
  list.add("flops_per_s", &rate.flops_per_s,
           {.help = "rate of a large product; 0: unknown, and plans in this type are refused",
            .unit = "flop/s",
            .min = 0});
  list.add("half_m", &rate.half_m, {.help = "number of rows that halves the rate", .min = 0});
  list.add("half_n", &rate.half_n, {.help = "number of columns that halves the rate", .min = 0});
  list.add("half_k", &rate.half_k, {.help = "inner size that halves the rate", .min = 0});
}

void list_links(Machine& machine, OptionList& list) {
  list.section("links", "Links between devices, for groups without a [[group]]");
  list.add("node_bytes_per_s", &machine.node_bytes_per_s,
           {.help = "bandwidth of all links of a node together, one direction; 0: only one node",
            .unit = "bytes/s",
            .min = 0});
  list.add("node_latency_s", &machine.node_latency_s,
           {.help = "latency of one hop between nodes", .unit = "s", .min = 0});
  list.add("device_bytes_per_s", &machine.device_bytes_per_s,
           {.help = "bandwidth of a device to others of its node", .unit = "bytes/s", .min = 0});
  list.add("device_latency_s", &machine.device_latency_s,
           {.help = "latency of one hop within a node", .unit = "s", .min = 0});
}

}  // namespace

void list_options(Machine& machine, OptionList& list) {
  list.section("machine", "The machine and its devices");
  list.add("name", &machine.name, {.help = "name of the machine"});
  list.add("device", &machine.device, {.help = "device of one rank"});
  list.add("source", &machine.source, {.help = "origin of the figures"});
  list.add("devices_per_node", &machine.devices_per_node,
           {.help = "ranks that share a node's links", .min = 1, .also = "gpus_per_node"});
  list.add("memory_bytes", &machine.memory_bytes,
           {.help = "device memory that a run may use", .unit = "bytes", .min = 0});
  list.add("memory_bytes_per_s", &machine.memory_bytes_per_s,
           {.help = "bandwidth of a device's memory, reads and writes together",
            .unit = "bytes/s",
            .min = 0});
  list.add("advertised_flops_per_s", &machine.advertised_flops_per_s,
           {.help = "a device's peak in bf16, dense; 0: unknown", .unit = "flop/s", .min = 0});
  list.add("attention_flops_per_s", &machine.attention_flops_per_s,
           {.help = "rate of attention, of its causal half", .unit = "flop/s", .min = 0});
  list.add("launch_s", &machine.launch_s,
           {.help = "least time of any operation", .unit = "s", .min = 0});
  list.add("overlap_slowdown", &machine.overlap_slowdown,
           {.help = "compute takes 1 + this times as long during a collective", .min = 0});
  list.add("collective_slowdown", &machine.collective_slowdown,
           {.help = "a collective takes 1 + this times as long during compute", .min = 0});
  list_products(machine.bf16, list, "products_bf16", "Matrix products in bf16");
  list_products(machine.f32, list, "products_f32", "Matrix products in f32");
  list_links(machine, list);
  list.section("rowwise", "Operations whose rate differs from memory_bytes_per_s");
  const auto add = [&](std::string_view operation) {
    list.add(operation, &machine.rowwise_bytes_per_s[std::string(operation)],
             {.help = "rate over all operands", .unit = "bytes/s", .min = 0});
  };
  add("other");  // operations without a rate of their own
  std::ranges::for_each(kRowwiseNames, add);
  std::ranges::for_each(kOtherOperations, add);
}

void list_options(GroupRate& group, OptionList& list) {
  list.section("group", "Groups of one shape that run at once");
  list.add("operation",
           Choice{kGroupOperations,
                  [&group] {
                    return static_cast<int>(std::ranges::find(kGroupOperations, group.operation) -
                                            kGroupOperations.begin());
                  },
                  [&group](int i) { group.operation = kGroupOperations[i]; }},
           {.help = "the collective; empty: all"});
  list.add("inner", &group.inner,
           {.help = "ranks from one member to the next", .min = 1, .required = true});
  list.add("size", &group.size, {.help = "number of members", .min = 2, .required = true});
  list.add("latency_s", &group.latency_s, {.help = "latency of one hop", .unit = "s", .min = 0});
  list.add("bytes_per_s", &group.bytes_per_s,
           {.help = "rate of one member's ring", .unit = "bytes/s", .above = 0, .required = true});
}

}  // namespace axonn
