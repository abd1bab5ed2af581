#pragma once

#include <string>
#include <vector>

#include "axonn/compute/tensor/arena.h"
#include "axonn/foundation/base/log.h"
#include "axonn/network/model/counts.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/ranks/comm/grid.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/training.h"

namespace axonn {

/// Spread of values.
struct Spread {
  double min = 0, median = 0, max = 0;
  double deviation = 0;  ///< sample standard deviation
};

/// Throws if values is empty.
Spread spread_of(std::vector<double> values);

/// Peak of the arena and dry_step's prediction, on the rank with the highest peak.
struct BenchMemory {
  std::int64_t measured_bytes = 0, predicted_bytes = 0;
  MemoryParts parts{};                  ///< of measured_bytes, by use
  std::int64_t largest_difference = 0;  ///< largest |measured - predicted| of any rank, in bytes
  bool even_loads = false;  ///< the prediction is for experts that get as many tokens each
};

/// Results of `axonn bench`, with the method of AxoNN's paper: ten iterations and the mean of the
/// last eight.
struct BenchReport {
  GridShape grid;
  int threads = 1;                  ///< compute threads per rank
  std::int64_t global_batch = 0;    ///< sequences
  std::vector<double> step_s_each;  ///< each iteration, on the slowest rank
  double step_s = 0;                ///< mean of the last eight
  Spread spread;                    ///< of the last eight, in seconds
  double exposed_comm_s = 0;        ///< part of step_s waiting for collectives, mean over ranks
  NamedSeconds exposed_by;          ///< the same by axis and kind, without kinds that took no time
  double tokens_per_s = 0;
  StepFlops flops;  ///< of one step, all ranks
  /// Flop/s of the best product of a fixed list: its median over the run, on all ranks at once.
  double product_peak = 0;
  double advertised_peak = 0;  ///< flop/s of all ranks' devices; 0: unknown
  BenchMemory memory;
  double loss = 0;  ///< of the last iteration

  double compute_s() const { return step_s - exposed_comm_s; }
  double percent_of_advertised_peak() const { return 100 * flops.model / step_s / advertised_peak; }
  double percent_of_product_peak() const { return 100 * flops.model / step_s / product_peak; }
};

inline constexpr int kBenchIterations = 10, kBenchWarmup = 2;

/// Trains kBenchIterations steps, and times the fixed products after every few steps, so that both
/// see the machine in the same state. Collective. progress: shows on rank 0 how far tokenising and
/// loading are, here and below.
BenchReport benchmark(const PreparedRun& run, Communicator& world,
                      const ProgressTarget& progress = {});

/// The report as text for people, and as JSON with the keys that docs/performance.md lists.
std::string to_text(const BenchReport& report);
std::string to_json(const BenchReport& report);

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

/// Measures both. Collective.
OverlapReport overlap_benchmark(const PreparedRun& run, Communicator& world,
                                const ProgressTarget& progress = {});

std::string to_text(const OverlapReport& report);
std::string to_json(const OverlapReport& report);

struct MeasureOptions {
  int steps = 3;        ///< timed steps at most; two more run before them
  double seconds = 60;  ///< about the most that they may take; one step runs in any case
};

/// Measured figures of a few steps of a plan.
struct MeasuredSteps {
  double step_s = 0;              ///< median, of the slowest rank
  double waited_s = 0;            ///< waiting for collectives in a step, mean over ranks
  NamedSeconds waited_by;         ///< the same by axis and kind ("z all_gather")
  std::int64_t memory_bytes = 0;  ///< the arena's peak, largest over ranks
};

/// Runs steps of config on arbitrary tokens, so that no data is needed. config must be validated
/// and resolved and have a vocab. Collective. Throws UsageError if the grid cannot cut the model.
MeasuredSteps measure_steps(const PreparedRun& run, Communicator& world,
                            const MeasureOptions& options = {});

}  // namespace axonn
