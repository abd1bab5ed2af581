#pragma once

#include <string>

#include "axonn/comm/communicator.h"
#include "axonn/train/config.h"
#include "axonn/train/session.h"

namespace axonn {

/// A phase of a step, in seconds; mean over ranks and steps.
struct PhaseCost {
  double compute_s = 0;
  double comm_s = 0;     ///< that the rank's compute waited for collectives
  NamedSeconds comm_by;  ///< the same by axis and kind, without those that took nothing
};

/// A step, phase by phase. The optimizer's begins when all gradients have arrived.
struct StepCost {
  PhaseCost forward, backward, optimizer;
  double step_s = 0;  ///< of the slowest rank, steps following one another at once
  /// Processor time of a rank's progress thread over the time of the steps: of one core.
  double progress_share = 0;
};

/// What overlap gains: the same steps with nothing overlapped, where every collective is waited
/// for where it starts, and as the config has it.
struct OverlapReport {
  GridShape grid;
  int chunks = 1;  ///< of the second; the first has 1
  StepCost off, on;

  /// What perfect overlap would take: in each phase the longer of compute and communication as
  /// measured without, and the optimizer's compute.
  double ideal_s() const;
  /// How much longer than that the step with overlap is.
  double ratio() const { return on.step_s / ideal_s(); }
};

/// Collective. config is validated and resolved.
OverlapReport overlap_benchmark(const Config& config, Communicator& world);

/// The report for people, and as JSON.
std::string to_text(const OverlapReport& report);
std::string to_json(const OverlapReport& report);

}  // namespace axonn
