#pragma once

#include <string>
#include <vector>

#include "axonn/comm/communicator.h"
#include "axonn/comm/wait_clock.h"
#include "axonn/model/model.h"
#include "axonn/tensor/arena.h"
#include "axonn/train/config.h"
#include "axonn/train/training.h"

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

/// Trains kBenchIterations steps of config, which must be validated and resolved, and times the
/// fixed products after every few steps, so that both see the machine in the same state.
/// Collective.
BenchReport benchmark(const Config& config, Communicator& world);

/// The report as text for people, and as JSON with the keys that docs/performance.md lists.
std::string to_text(const BenchReport& report);
std::string to_json(const BenchReport& report);

}  // namespace axonn
