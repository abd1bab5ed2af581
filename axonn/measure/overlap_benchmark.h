#pragma once

#include <string>

#include "axonn/comm/communicator.h"
#include "axonn/comm/grid.h"
#include "axonn/train/config.h"
#include "axonn/train/training.h"

namespace axonn {

/// Time of one phase of a step, in seconds; mean over ranks and steps.
struct PhaseCost {
  double compute_s = 0;
  double comm_s = 0;     ///< time that compute waited for collectives
  NamedSeconds comm_by;  ///< the same by axis and kind, without kinds that took no time
};

/// Time of a step by phase. The optimizer phase begins when all gradients have arrived.
struct StepCost {
  PhaseCost forward, backward, optimizer;
  double step_s = 0;  ///< of the slowest rank, in consecutive steps
  /// CPU time of a rank's progress thread divided by the time of the steps: 1 is one whole core.
  double progress_share = 0;
};

/// The gain of overlap: the same steps without overlap, where every collective is waited for where
/// it starts, and with the overlap that the config asks for.
struct OverlapReport {
  GridShape grid;
  int chunks = 1;  ///< of `on`; `off` has 1
  StepCost off, on;

  /// Seconds of a step with perfect overlap: in forward and backward the longer of compute and
  /// communication as measured without overlap, plus the optimizer's compute.
  double ideal_s() const;
  /// Measured step with overlap divided by ideal_s().
  double ratio() const { return on.step_s / ideal_s(); }
};

/// Measures both. Collective. config must be validated and resolved.
OverlapReport overlap_benchmark(const Config& config, Communicator& world);

/// The report as text for people, and as JSON.
std::string to_text(const OverlapReport& report);
std::string to_json(const OverlapReport& report);

}  // namespace axonn
