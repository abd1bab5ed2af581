#pragma once

#include <string>
#include <vector>

#include "axonn/comm/communicator.h"
#include "axonn/model/flops.h"
#include "axonn/tensor/arena.h"
#include "axonn/train/config.h"
#include "axonn/train/session.h"

namespace axonn {

/// How values lie around their mean.
struct Spread {
  double min = 0, median = 0, max = 0;
  double deviation = 0;  ///< standard, of a sample
};

/// Errors: no values.
Spread spread_of(std::vector<double> values);

/// The arena's peak against dry_step's, on the rank whose peak is the highest.
struct BenchMemory {
  std::int64_t measured_bytes = 0, predicted_bytes = 0;
  MemoryParts parts{};                  ///< of what was measured
  std::int64_t largest_difference = 0;  ///< of any rank's measured and predicted, in bytes
};

/// What `axonn bench` measured: the paper's method, ten iterations and the mean of the last eight.
struct BenchReport {
  GridShape grid;
  int threads = 1;                  ///< compute threads of a rank
  std::int64_t global_batch = 0;    ///< sequences
  std::vector<double> step_s_each;  ///< every iteration, of the slowest rank
  double step_s = 0;                ///< mean of the last eight
  Spread spread;                    ///< of those, in seconds
  double exposed_comm_s = 0;        ///< of step_s, that the mean rank waited for collectives
  NamedSeconds exposed_by;          ///< the same by axis and kind, without those that took nothing
  double tokens_per_s = 0;
  StepFlops flops;  ///< of a step, all ranks
  /// Flop/s of the best product of a fixed list, its median over the run, all ranks at once.
  double product_peak = 0;
  double advertised_peak = 0;  ///< flop/s of all ranks' devices; 0: not known
  BenchMemory memory;
  double loss = 0;  ///< of the last iteration

  double compute_s() const { return step_s - exposed_comm_s; }
  double percent_of_advertised_peak() const { return 100 * flops.model / step_s / advertised_peak; }
  double percent_of_product_peak() const { return 100 * flops.model / step_s / product_peak; }
};

inline constexpr int kBenchIterations = 10, kBenchWarmup = 2;

/// Trains kBenchIterations steps of config, which is validated and resolved, and after each of
/// them times the fixed products, so that both saw the same machine. Collective.
BenchReport benchmark(const Config& config, Communicator& world);

/// The report for people, and as JSON with the keys that the documentation lists.
std::string to_text(const BenchReport& report);
std::string to_json(const BenchReport& report);

}  // namespace axonn
