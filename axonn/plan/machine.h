#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace axonn {

/// How fast products of one type run, see docs/planning.md: 2mnk flops take
/// 2mnk / flops_per_s · (1 + half_m/m) · (1 + half_n/n) · (1 + half_k/k) seconds.
struct ProductRate {
  double flops_per_s = 0;                     ///< of a large product
  double half_m = 0, half_n = 0, half_k = 0;  ///< sizes that halve the rate

  bool operator==(const ProductRate&) const = default;
};

/// What a collective gets of the links, on groups of one shape that all run at once.
struct GroupRate {
  std::string operation = {};  ///< "all_gather"; "": every operation
  int inner = 1;               ///< p: ranks from one member of the group to the next
  int size = 2;                ///< g: members
  double latency_s = 0;        ///< of one hop
  double bytes_per_s = 0;      ///< of one member's ring

  bool operator==(const GroupRate&) const = default;
};

/// What a plan knows of a machine. Plain data; rates in SI units, of one device unless they say
/// otherwise.
struct Machine {
  std::string name, device;
  std::string source;  ///< where the figures come from: published, fitted to what, or probed when
  int devices_per_node = 1;
  double memory_bytes = 0;            ///< of a device, that a run may use
  double advertised_flops_per_s = 0;  ///< in bf16, dense; 0: not known
  ProductRate bf16, f32;
  double attention_flops_per_s = 0;  ///< of the causal half, as Schedule counts
  double memory_bytes_per_s = 0;
  std::map<std::string, double>
      rowwise_bytes_per_s;         ///< by Backend's name, or "other"; else memory's
  double launch_s = 0;             ///< of any operation
  double overlap_slowdown = 0;     ///< computing takes 1 + this as long while a collective runs
  double collective_slowdown = 0;  ///< and a collective, while the device computes
  double node_bytes_per_s = 0;     ///< of all a node's links together, one direction
  double node_latency_s = 0;       ///< of one hop between nodes
  double device_bytes_per_s = 0;   ///< between devices of a node, where no group has a rate
  double device_latency_s = 0;
  std::vector<GroupRate> groups;

  bool operator==(const Machine&) const = default;
};

/// A machine by name ("frontier"), or of a TOML file.
/// Errors: UsageError for no such name or file (it lists the names), an unknown key, and a machine
/// that no plan can be made for: no devices, no memory, no rates.
Machine read_machine(const std::string& name_or_file);

/// The names of those that come with the program.
std::vector<std::string> machine_names();

/// The file that read_machine() reads back to the same.
std::string to_toml(const Machine& machine);

}  // namespace axonn
