#include "axonn/plan/planner/machine/machine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <span>
#include <utility>

#include "axonn/compute/ops/backend.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/options/options.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/run/config/config_options.h"

namespace axonn {

/// The files of machines/: name without .toml, and text. Defined in machine_files.cpp,
/// which CMake writes.
std::span<const std::pair<std::string_view, std::string_view>> machine_files();

namespace {

/// The memory-bound operations that are not row-wise: one of Backend and those of Device.
constexpr std::array<std::string_view, 5> kOtherOperations = {
    CachedAttention::kName, "copy", "fill_zero", "copy_to_host", "copy_from_host"};

constexpr std::array<std::string_view, 4> kGroupOperations = {"", "all_gather", "reduce_scatter",
                                                              "all_reduce"};

/// Adds a figure that is at least 0.
void add_figure(OptionList& list, std::string_view name, double& value, std::string_view help,
                std::string_view unit = {}) {
  list.add(name, &value, {.help = help, .unit = unit, .min = 0});
}

void list_products(ProductRate& rate, OptionList& list, std::string_view section,
                   std::string_view help) {
  list.section(section, help);
  add_figure(list, "flops_per_s", rate.flops_per_s,
             "rate of a large product; 0: unknown, and plans in this type are refused", "flop/s");
  add_figure(list, "half_m", rate.half_m, "number of rows that halves the rate");
  add_figure(list, "half_n", rate.half_n, "number of columns that halves the rate");
  add_figure(list, "half_k", rate.half_k, "inner size that halves the rate");
}

void list_devices(Machine& machine, OptionList& list) {
  list.section("machine", "The machine and its devices");
  list.add("name", &machine.name, {.help = "name of the machine"});
  list.add("device", &machine.device, {.help = "device of one rank"});
  list.add("source", &machine.source, {.help = "origin of the figures"});
  list.add("fitted", &machine.fitted,
           {.help = "figures that were fitted, and to what; \"nothing\" if none was"});
  list.add("backend", machine.backend, kDeviceKinds,
           {.help = "parallelism.device of the steps that plans predict; auto: a processor"});
  list.add("devices_per_node", &machine.devices_per_node,
           {.help = "ranks that share a node's links", .min = 1, .also = "gpus_per_node"});
  add_figure(list, "memory_bytes", machine.memory_bytes, "memory of a device", "bytes");
  add_figure(list, "reserve_bytes", machine.reserve_bytes,
             "part of memory_bytes that plans leave free: for the driver, the communication "
             "library's buffers, other libraries and fragmentation",
             "bytes");
  add_figure(list, "memory_bytes_per_s", machine.memory_bytes_per_s,
             "bandwidth of a device's memory, reads and writes together", "bytes/s");
  add_figure(list, "advertised_flops_per_s", machine.advertised_flops_per_s,
             "a device's peak in bf16 or f16, dense; 0: unknown", "flop/s");
  add_figure(list, "attention_flops_per_s", machine.attention_flops_per_s,
             "rate of attention, of its causal half", "flop/s");
  add_figure(list, "disk_bytes_per_s", machine.disk_bytes_per_s,
             "rate of a node's disk with [offload], reads and writes together; 0: unknown, and "
             "plans of runs that offload are refused",
             "bytes/s");
  add_figure(list, "launch_s", machine.launch_s, "least time of any operation", "s");
  add_figure(
      list, "device_spread", machine.device_spread,
      "standard deviation of the devices' speeds over their mean; the slowest sets the pace");
  add_figure(list, "jitter_s", machine.jitter_s,
             "variance of a rank's computing time for each second of it; ranks that exchange data "
             "wait for the last one",
             "s");
  add_figure(list, "overlap_slowdown", machine.overlap_slowdown,
             "each collective under way makes compute take so much longer, as a fraction");
  add_figure(list, "collective_slowdown", machine.collective_slowdown,
             "a collective takes 1 + this times as long during compute");
}

void list_links(Machine& machine, OptionList& list) {
  list.section("links", "Links between devices, for groups without a [[group]]");
  add_figure(list, "node_bytes_per_s", machine.node_bytes_per_s,
             "bandwidth of all links of a node together, one direction; 0: only one node",
             "bytes/s");
  list.add("adapters_per_node", &machine.adapters_per_node,
           {.help = "network adapters of a node; 0: as many as devices", .min = 0});
  list.add("shared_adapters_share", &machine.shared_adapters_share,
           {.help = "share of node_bytes_per_s that is left while more groups than adapters leave "
                    "a node",
            .above = 0});
  add_figure(list, "node_latency_s", machine.node_latency_s, "latency of one hop between nodes",
             "s");
  add_figure(list, "device_bytes_per_s", machine.device_bytes_per_s,
             "bandwidth of a device to others of its node", "bytes/s");
  add_figure(list, "device_latency_s", machine.device_latency_s, "latency of one hop within a node",
             "s");
  list.add("inside_share", &machine.inside_share,
           {.help = "share of the rates inside a node, which are those of large messages alone, "
                    "that the collectives of a step reach",
            .above = 0});
  add_figure(list, "paper_node_bytes_per_s", machine.paper_node_bytes_per_s,
             "node_bytes_per_s of the paper's communication model (--cost paper); 0: the same",
             "bytes/s");
}

void list_options(Machine& machine, OptionList& list) {
  list_devices(machine, list);
  list_products(machine.bf16, list, "products_bf16", "Matrix products in bf16, or f16");
  list_products(machine.f32, list, "products_f32", "Matrix products in f32");
  list_products(machine.fp8, list, "products_fp8", "Matrix products of 8-bit floats");
  list_products(machine.fp4, list, "products_fp4", "Matrix products of 4-bit floats");
  list_links(machine, list);
  list_options(machine.program, list);
  add_figure(list, "error", machine.error,
             "a step is expected to take at most so much less than predicted, as a fraction; 0: "
             "unknown");
  add_figure(list, "slower", machine.slower, "and at most so much more; 0: as error");
  list.section("rowwise", "Operations whose rate differs from memory_bytes_per_s");
  const auto add = [&](std::string_view operation) {
    add_figure(list, operation, machine.rowwise_bytes_per_s[std::string(operation)],
               "rate over all operands", "bytes/s");
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
  list.add("form", group.form, kCollectivesKinds,
           {.help = "the form that was measured; auto: the one that a run chooses"});
  list.add("inner", &group.inner,
           {.help = "ranks from one member to the next", .min = 1, .required = true});
  list.add("size", &group.size, {.help = "number of members", .min = 2, .required = true});
  add_figure(list, "latency_s", group.latency_s, "latency of one hop", "s");
  list.add(
      "bytes_per_s", &group.bytes_per_s,
      {.help = "rate of one member's ring; needed without a form", .unit = "bytes/s", .min = 0});
  list.add("bytes", &group.bytes, {.help = "sizes of measured collectives, ascending"});
  list.add("nanoseconds", &group.nanoseconds, {.help = "their times, one for each size"});
}

/// `place`: the name of the machine or its file, for messages.
void validate(const Machine& machine, const std::string& place) {
  const auto need = [&](bool is_set, const char* what) {
    if (!is_set)
      refuse("no plan can be made for the machine ", place, ": ", what,
             "; `axonn probe` writes a complete file");
  };
  need(machine.memory_bytes > 0, "[machine] memory_bytes is missing");
  need(machine.usable_bytes() > 0, "[machine] reserve_bytes leaves nothing of memory_bytes");
  need(machine.memory_bytes_per_s > 0, "[machine] memory_bytes_per_s is missing");
  need(machine.bf16.flops_per_s > 0 || machine.f32.flops_per_s > 0,
       "flops_per_s is missing, in [products_bf16] and in [products_f32]");
  need(machine.attention_flops_per_s > 0, "[machine] attention_flops_per_s is missing");
  need(machine.node_bytes_per_s > 0 || machine.device_bytes_per_s > 0 || !machine.groups.empty(),
       "it has no bandwidth; set [links] node_bytes_per_s and device_bytes_per_s");
  need(machine.devices_per_node == 1 || machine.device_bytes_per_s > 0 ||
           std::ranges::any_of(machine.groups,
                               [&](const GroupRate& group) {
                                 return group.inner * group.size <= machine.devices_per_node;
                               }),
       "the bandwidth between devices of a node is missing; set [links] device_bytes_per_s");
  for (const GroupRate& group : machine.groups) {
    const bool has_form = group.form != CollectivesKind::automatic;
    need(group.bytes_per_s > 0 || has_form, "a [[group]] has no bytes_per_s");
    need(!has_form || !group.bytes.empty(), "a [[group]] with a form has no measured bytes");
    need(group.bytes.size() == group.nanoseconds.size() &&
             std::ranges::adjacent_find(group.bytes, std::greater_equal()) == group.bytes.end(),
         "a [[group]] needs as many nanoseconds as bytes, and bytes in ascending order");
  }
}

OptionList options_of(Machine& machine) {
  OptionList list;
  list_options(machine, list);
  list.repeated("group", "Groups of one shape that run at once", machine.groups, list_options);
  return list;
}

/// Reads the file of the name or path into `list`.
void read_file(const OptionList& list, const std::string& name_or_file) {
  Origins origins;
  const auto known =
      std::ranges::find(machine_files(), name_or_file, [](const auto& file) { return file.first; });
  if (known != machine_files().end()) {
    read_toml_text(list, known->second, name_or_file, origins);
  } else if (name_or_file.ends_with(".toml") || name_or_file.find('/') != std::string::npos ||
             path_exists(name_or_file)) {
    read_toml(list, name_or_file, origins);
  } else {
    const std::vector<std::string> names = machine_names(), guesses = nearest(name_or_file, names);
    refuse("there is no machine '", name_or_file, "'",
           guesses.empty()
               ? "; the known machines are " + join(names) + ", and a file's name ends in .toml"
               : did_you_mean(guesses));
  }
}

/// Reads the file over the figures of `machine`. Returns the name that it gives for `like`.
std::string read_over(Machine& machine, const std::string& name_or_file) {
  OptionList list = options_of(machine);
  std::string like;
  list.section("like", "A file that gives only what differs from another machine");
  list.add("machine", &like, {.help = "name or file of that machine"});
  read_file(list, name_or_file);
  return like;
}

}  // namespace

void list_options(OtherProgram& program, OptionList& list) {
  list.section("program", "The program whose steps the figures describe");
  list.add("name", &program.name, {.help = "its name; empty: axonn"});
  list.add("weight_collectives", &program.weight_collectives,
           {.help = "collectives that it starts for each gather or scatter of a block's weights",
            .min = 1});
  list.add(
      "rowwise_passes", &program.rowwise_passes,
      {.help = "bytes that its row-wise operations move for each byte of axonn's", .above = 0});
  list.add("gather_bytes", &program.gather_bytes,
           {.help = "bytes of an element of weights that are gathered over z", .above = 0});
  list.add("attention_speed", &program.attention_speed,
           {.help = "rate of its attention, in rates of axonn's", .above = 0});
  list.add("node_rows", &program.node_rows,
           {.help = "share of what leaves a node in exchanges of rows with experts that its "
                    "exchanges send",
            .above = 0});
  list.add("sums_over_z", &program.sums_over_z,
           {.help = "sums of gradients over z for each of axonn's", .above = 0});
  list.add("products", program.products, kBlockProducts,
           {.help = "type in which it multiplies inside blocks"});
  list.add("weights_once", &program.weights_once,
           {.help = "whether it converts weights to that type once a step, not for each product"});
  list.add("weight_casts", &program.weight_casts,
           {.help = "conversions of a weight for each product with it", .min = 0});
  list.add("gradient_bytes", &program.gradient_bytes,
           {.help = "bytes of an element of the gradients that are summed over ranks", .above = 0});
}

GroupShape group_along(const GridShape& grid, Axis axis) {
  GroupShape group{.inner = 1, .size = grid.extent(axis)};
  for (const Axis before : kAxes)
    if (before < axis) group.inner *= grid.extent(before);
  return group;
}

std::vector<CollectiveAlgorithm> algorithms_of(std::string_view operation, int size,
                                               std::int64_t bytes) {
  const bool sum = operation == "all_reduce";
  const double g = size, passes = sum ? 2 : 1, whole = static_cast<double>(bytes);
  if (operation == "recv") return {{1, whole}};
  if (operation == "send") return {{0, 0}};  // its receiver pays
  std::vector<CollectiveAlgorithm> found{{passes * (g - 1), passes * (g - 1) / g * whole}};
  const double depth = std::bit_width(static_cast<unsigned>(size - 1));  // ceil(log2 g)
  if (sum) found.push_back({.hops = 2 * depth, .bytes = 2 * whole, .ring = false});
  return found;
}

Machine read_machine(const std::string& name_or_file) {
  std::vector<std::string> files = {name_or_file};  // each is like the next
  Machine machine;
  for (std::string like; !(like = read_over(machine, files.back())).empty(); machine = {}) {
    if (std::ranges::find(files, like) != files.end())
      refuse("the machine ", files.back(), " is like ", like, ", which is like ", name_or_file,
             "; [like] machine must lead to a complete file");
    files.push_back(like);
  }
  for (files.pop_back(); !files.empty(); files.pop_back()) read_over(machine, files.back());
  std::erase_if(machine.rowwise_bytes_per_s, [](const auto& rate) { return rate.second == 0; });
  validate(machine, name_or_file);
  return machine;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const auto& [name, text] : machine_files()) names.emplace_back(name);
  std::ranges::sort(names);
  return names;
}

std::string to_toml(const Machine& machine) {
  Machine shown = machine;
  const OptionList list = options_of(shown);
  AXONN_CHECK(list.find("rowwise")->options.size() == shown.rowwise_bytes_per_s.size(),
              "to_toml: the machine '", machine.name,
              "' has a rate of an unknown row-wise operation");
  return to_toml(list, [](const Option& option) {
    const OptionInfo& info = option.info();
    return TomlNote{.comment = info.unit.empty() ? std::string(info.help)
                                                 : concat(info.help, " (", info.unit, ')'),
                    .disabled = option.section() == "rowwise" && option.text() == "0.0"};
  });
}

}  // namespace axonn
