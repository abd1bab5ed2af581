#pragma once

#include <memory>
#include <string>

#include "axonn/base/log.h"
#include "axonn/comm/grid.h"
#include "axonn/storage/checkpoint/checkpoint_saver.h"
#include "axonn/train/metrics.h"
#include "axonn/train/training.h"

namespace axonn {

/// What a run tells its user: the terminal and log files, metrics.jsonl and loss.svg. Every rank
/// has one; only rank 0 writes more than its own log file.
class RunLog {
 public:
  RunLog(const LogOptions& options, Communicator& world) : world_(world), log_(options) {}

  void info(const std::string& line) { log_.info(line); }
  void warn(const std::string& line) { log_.warn(line); }
  /// Describes model, grid and data on rank 0. `threads`: of the CPU backend.
  void describe(Training& training, int threads);

  /// Begins the figures of a run whose next step is first_step, counted from 0.
  void begin(const Config& config, std::int64_t first_step, std::int64_t tokens_seen);

  /// Time of a step on this rank.
  struct StepTime {
    double seconds = 0;
    NamedSeconds waited = {};  ///< for collectives, by kind
  };
  /// Notes a step that is done: prints its line and names a slow rank every output.log_every steps.
  /// Collective.
  void step(Training& training, const StepInput& input, const StepResult& result,
            const StepTime& time);
  /// Notes a validation after the step that was noted last.
  void validated(double loss, std::int64_t windows, double seconds);
  /// Writes the last step's line of metrics.jsonl.
  void write_metrics();
  /// Notes a saved checkpoint, and draws loss.svg.
  void saved(const SaveCost& cost);
  /// Draws loss.svg and reports the goldfish loss at the end of a run.
  void finish();

  /// Of the run, over all ranks, without padding.
  std::int64_t tokens_seen() const { return line_.tokens; }

 private:
  bool first() const { return world_.rank() == 0; }
  void draw();
  void print_step(double share);

  Communicator& world_;
  Log log_;
  Config config_;
  std::unique_ptr<MetricsFile> metrics_;  // on rank 0
  StepMetrics line_;                      // of the last step
  std::int64_t first_step_ = 0;
  std::int64_t counted_ = 0, targets_ = 0;  // in the loss, and in all, since begin()
  double began_ = 0;
  double seconds_since_print_ = 0;
  std::int64_t steps_since_print_ = 0;
};

}  // namespace axonn
