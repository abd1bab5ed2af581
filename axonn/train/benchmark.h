#pragma once

#include <string>
#include <vector>

#include "axonn/comm/communicator.h"
#include "axonn/model/flops.h"
#include "axonn/train/config.h"
#include "axonn/train/session.h"

namespace axonn {

/// What `axonn bench` measured: the paper's method, ten iterations and the mean of the last eight.
struct BenchReport {
  GridShape grid;
  std::vector<double> step_s_each;  ///< every iteration, of the slowest rank
  double step_s = 0;                ///< mean of the last eight
  double spread_s = 0;              ///< largest minus smallest of those
  double exposed_comm_s = 0;        ///< of step_s, that the mean rank waited for collectives
  NamedSeconds exposed_by;          ///< the same by axis and kind, without those that took nothing
  double tokens_per_s = 0;
  StepFlops flops;  ///< of a step, all ranks
  /// Flop/s of the best product of a fixed list, its median over the run, all ranks at once.
  double product_peak = 0;
  std::int64_t memory_bytes = 0;  ///< peak of the fullest rank's arena
  double loss = 0;                ///< of the last iteration

  double compute_s() const { return step_s - exposed_comm_s; }
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
