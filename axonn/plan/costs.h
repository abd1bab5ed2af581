#pragma once

#include <string_view>

#include "axonn/comm/grid.h"
#include "axonn/plan/machine.h"
#include "axonn/plan/simulate.h"

namespace axonn {

/// What operations and collectives take on a machine, on one grid: the formulas of
/// docs/planning.md. All groups of an axis are taken to run at once, each as its rank 0 does.
class MachineCosts final : public Costs {
 public:
  /// machine outlives it. Errors: Error if the machine has no rate for what a step of this type
  /// does; see check_rates() for the user's words.
  MachineCosts(const Machine& machine, const GridShape& grid);

  double compute_s(const Schedule::Compute& operation) const override;
  CollectiveCost collective(const Schedule::Start& start) const override;
  double overlap_slowdown() const override { return machine_.overlap_slowdown; }
  double collective_slowdown() const override { return machine_.collective_slowdown; }

 private:
  /// A group of the grid: `size` members, `inner` ranks from one to the next.
  struct Group {
    int inner = 1, size = 1;
  };
  struct Link {
    double latency_s = 0, bytes_per_s = 0;
  };

  Group group_of(std::string_view name, int ranks) const;
  bool leaves_node(const Group& group) const;
  Link link_of(const Group& group, std::string_view operation) const;
  Link inside_node(const Group& group, std::string_view operation) const;
  const GroupRate* measured(const Group& group, std::string_view operation) const;
  double product_s(const Schedule::Compute& operation) const;
  double memory_s(const Schedule::Compute& operation) const;

  const Machine& machine_;
  const GridShape grid_;
};

/// What an operation that is bound by memory reads and writes: what its rate is of.
double moved_bytes(const Schedule::Compute& operation);

/// Errors: UsageError that names what is missing, where no plan of a run in this type can be made
/// for so many of the machine's devices.
void check_rates(const Machine& machine, DType dtype, int devices);

}  // namespace axonn
