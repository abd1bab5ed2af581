#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "axonn/foundation/grid/grid_shape.h"
#include "axonn/plan/planner/machine/machine.h"
#include "axonn/plan/planner/simulate.h"
#include "axonn/run/config/config.h"

namespace axonn {

/// Seconds of operations and collectives on a machine and a grid, by the formulas of
/// docs/planning-model.md. All groups of an axis are assumed to run at once, like that of rank 0.
class MachineCosts final : public Costs {
 public:
  /// `collectives`: with `automatic`, each takes the faster of its two forms. The machine's
  /// program, if it is another, has only flat ones. machine must outlive it. One thread may use it
  /// at a time. Throws if the machine has no memory_bytes_per_s or devices_per_node. The other
  /// rates must be there as well: check_rates().
  MachineCosts(const Machine& machine, const GridShape& grid,
               CollectivesKind collectives = CollectivesKind::flat);

  double compute_s(const Recording::Compute& operation) const override;
  CollectiveCost collective(const Recording::Start& start) const override;
  double lateness_s(double computed_s, double collectives) const override;
  Slowdowns slowdowns() const override {
    return {machine_.overlap_slowdown, machine_.collective_slowdown};
  }

 private:
  /// Of a disk, which all ranks of a node use at once.
  CollectiveCost transfer(const Recording::Start& start) const;
  CollectiveCost flat(const GroupShape& group, const Recording::Start& start) const;
  /// Inside the nodes and across them; none if that does not suit the operation or the group.
  std::optional<CollectiveCost> two_level(const GroupShape& group,
                                          const Recording::Start& start) const;
  double mean_s(const Recording::Compute& operation) const;
  /// Of a product's operands from bf16 to this type.
  double conversion_s(const Recording::Compute& product, BlockProducts type) const;

  const Machine& machine_;
  const GridShape grid_;
  const CollectivesKind collectives_;
  const double latest_;  // of all ranks: standard deviations above the mean
  mutable std::unordered_map<std::string, double> rowwise_rates_;  // known so far, by operation
};

/// Throws UsageError if the machine lacks disk_bytes_per_s, which plans with [offload] need.
void check_disk(const Machine& machine);

/// Throws UsageError, with the missing figure, if the machine lacks one that plans in this type for
/// `devices` devices need.
void check_rates(const Machine& machine, DType dtype, int devices);

}  // namespace axonn
