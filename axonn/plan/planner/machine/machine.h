#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/dtype.h"
#include "axonn/foundation/grid/grid_shape.h"
#include "axonn/run/config/config.h"

namespace axonn {

/// The speed of products in one type, see docs/planning-model.md: 2mnk flops take
/// 2mnk / flops_per_s · (1 + half_m/m) · (1 + half_n/n) · (1 + half_k/k) seconds.
struct ProductRate {
  double flops_per_s = 0;                     ///< of a large product
  double half_m = 0, half_n = 0, half_k = 0;  ///< sizes that halve the rate

  bool operator==(const ProductRate&) const = default;
};

/// A group of a grid: `size` members that are `inner` ranks apart.
struct GroupShape {
  int inner = 1, size = 1;
};

/// The groups along an axis: inner is the product of the extents before it, in the order x, y, z,
/// data.
GroupShape group_along(const GridShape& grid, Axis axis);

/// The cost of one algorithm for a collective: messages one after another, and bytes that pass
/// through a member's links.
struct CollectiveAlgorithm {
  double hops = 0, bytes = 0;
  bool ring = true;  ///< every hop is one to the next member
};

/// A ring; for an all_reduce also a tree. `bytes` are those of the larger buffer, as in
/// Recording::Start.
std::vector<CollectiveAlgorithm> algorithms_of(std::string_view operation, int size,
                                               std::int64_t bytes);

/// The speed of a collective on groups of one shape that all run at once: measured times, and the
/// latency and the rate that fit them, or only these.
struct GroupRate {
  std::string operation = {};  ///< "all_gather"; "": every operation
  /// Which form was measured, CollectivesKind::flat or two_level; automatic: the one that a run
  /// chooses.
  CollectivesKind form = CollectivesKind::automatic;
  int inner = 1;           ///< p: ranks from one member of the group to the next
  int size = 2;            ///< g: members
  double latency_s = 0;    ///< of one hop
  double bytes_per_s = 0;  ///< of one member's ring
  /// Measured times, or none: a collective of bytes[i], of the larger buffer, took nanoseconds[i].
  std::vector<std::int64_t> bytes = {}, nanoseconds = {};

  bool operator==(const GroupRate&) const = default;
};

/// Types in which another program multiplies inside blocks; logits and attention stay in bf16.
/// MXFP8 has a scale for each 32 elements, NVFP4 for each 16, FP8 one for a tensor.
enum class BlockProducts : std::uint8_t { bf16, fp8, mxfp8, nvfp4 };
inline constexpr std::array<std::string_view, 4> kBlockProducts = {"bf16", "fp8", "mxfp8", "nvfp4"};

/// What another program's step does otherwise than this one's, where a machine file describes its
/// steps.
struct OtherProgram {
  std::string name;  ///< "": this program
  /// Collectives for each gather or scatter of a block's weights by this program.
  double weight_collectives = 1;
  /// Bytes that its row-wise operations move for each byte that those of this program move.
  double rowwise_passes = 1;
  double gradient_bytes = 4;   ///< of an element, where gradients are summed over ranks
  double gather_bytes = 2;     ///< of an element of weights that are gathered over z
  double sums_over_z = 1;      ///< of gradients, for each of this program's: fewer if once a step
  double attention_speed = 1;  ///< rate of its attention, in rates of this program's
  /// The share of what leaves a node in exchanges with experts: less than 1 if a row that several
  /// experts of another node want travels there once.
  double node_rows = 1;
  /// Each operand of such a product is read in bf16 and written in this type before it.
  BlockProducts products = BlockProducts::bf16;
  bool weights_once = false;  ///< whether it writes weights in this type once a step
  double weight_casts = 1;    ///< conversions of a weight for each product with it

  bool operator==(const OtherProgram&) const = default;
};

class OptionList;
/// Adds the keys of [program].
void list_options(OtherProgram& program, OptionList& list);

/// The figures of a machine that plans use. Plain data; SI units, per device unless stated
/// otherwise.
struct Machine {
  std::string name, device;
  std::string source;  ///< origin of the figures: publications, data sheets or a probe
  std::string fitted;  ///< figures that were fitted, and to what; "nothing"; "": unknown
  /// On which plans are made: a GPU computes more rows at once than a processor, and keeps logits
  /// in the compute type. automatic: a processor.
  DeviceKind backend = DeviceKind::automatic;
  int devices_per_node = 1;
  double memory_bytes = 0;            ///< of a device
  double reserve_bytes = 0;           ///< of those, for what is not in a rank's arena
  double advertised_flops_per_s = 0;  ///< in bf16, dense; 0: unknown
  ProductRate bf16, f32;
  ProductRate fp8, fp4;  ///< of OtherProgram::products; 0: unknown
  /// f16 has the rate of bf16, as it does on GPUs that multiply both; a machine whose GPUs have no
  /// bf16 states that of f16 as bf16.
  const ProductRate& products(DType dtype) const { return is_half(dtype) ? bf16 : f32; }
  /// Of products inside the blocks of a program that computes in `dtype`.
  const ProductRate& products(BlockProducts type, DType dtype) const {
    if (type == BlockProducts::bf16) return products(dtype);
    return type == BlockProducts::nvfp4 ? fp4 : fp8;
  }
  double attention_flops_per_s = 0;  ///< of the causal half, as Recording counts
  double memory_bytes_per_s = 0;
  std::map<std::string, double>
      rowwise_bytes_per_s;   ///< by Backend's function, or "other"; else memory_bytes_per_s
  double launch_s = 0;       ///< least time of any operation
  double device_spread = 0;  ///< standard deviation of devices' speeds, as a fraction of the mean
  /// Variance of a rank's computing time, for each second of it: s² / s.
  double jitter_s = 0;
  double overlap_slowdown = 0;     ///< of compute, by each collective under way
  double collective_slowdown = 0;  ///< a collective takes 1 + this times as long during compute
  /// The share of the rates inside a node, which are those of large messages alone, that the
  /// collectives of a step reach.
  double inside_share = 1;
  double node_bytes_per_s = 0;  ///< of all a node's links together, one direction
  int adapters_per_node = 0;    ///< 0: as many as devices
  /// The share of node_bytes_per_s that is left while more groups than adapters leave a node.
  double shared_adapters_share = 1;
  double node_latency_s = 0;  ///< of one hop between nodes
  /// Of a node's disk, for the file of [offload] of all its ranks, reads and writes together.
  double disk_bytes_per_s = 0;
  double device_bytes_per_s = 0;  ///< between devices of a node, for groups without a rate
  double device_latency_s = 0;
  /// node_bytes_per_s of the paper's communication model, if it is another; else 0.
  double paper_node_bytes_per_s = 0;
  std::vector<GroupRate> groups;
  OtherProgram program;  ///< whose steps the figures describe
  /// A step is expected to take at most so much less than predicted, as a fraction; 0: unknown.
  double error = 0;
  double slower = 0;  ///< and at most so much more; 0: as `error`

  bool operator==(const Machine&) const = default;

  /// Bytes that a rank's arena may have.
  double usable_bytes() const { return memory_bytes - reserve_bytes; }
  /// The least and the largest time to expect where one is predicted.
  std::pair<double, double> range_of(double seconds) const {
    return {seconds * (1 - error), seconds * (1 + (slower > 0 ? slower : error))};
  }
};

/// Reads a machine by name ("frontier") or from a TOML file.
/// Throws UsageError for an unknown name (with a similar one, or all), a file that cannot be read,
/// an unknown key, and a machine without the memory or the rates that plans need.
Machine read_machine(const std::string& name_or_file);

/// The names of the machines that come with the program.
std::vector<std::string> machine_names();

/// The text of a file that read_machine() reads back unchanged.
std::string to_toml(const Machine& machine);

}  // namespace axonn
