#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "axonn/base/files.h"
#include "axonn/base/log.h"
#include "axonn/comm/grid.h"
#include "axonn/storage/checkpoint/checkpoint_saver.h"
#include "axonn/train/training.h"

namespace axonn {

/// One line of metrics.jsonl.
struct StepMetrics {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::int64_t step = 0;  ///< counted from 1
  double loss = 0, grad_norm = 0, lr = 0;
  std::int64_t tokens = 0;  ///< seen so far, over all ranks, without padding
  double step_ms = 0, tokens_per_s = 0;
  double model_tflops = 0;     ///< of all ranks, counting the causal half of attention
  double mfu = kNone;          ///< fraction of the peak, if that is known
  double exposed_comm_ms = 0;  ///< time that rank 0's compute waited for collectives
  /// The same by axis and kind, in ms: ("z all_gather", 1.2), without kinds that took no time.
  std::vector<std::pair<std::string, double>> exposed_by = {};
  std::int64_t memory_bytes = 0;   ///< rank 0's peak
  double val_loss = kNone;         ///< if it was evaluated after this step
  double kept = kNone;             ///< fraction of the targets that the goldfish loss keeps
  bool skipped = false;            ///< an outlier, which changed no weight
  std::int64_t save_failures = 0;  ///< checkpoints that could not be written, of this run so far
};

/// Writes output.dir/metrics.jsonl, one line per step, on rank 0, without a buffer. Lines that
/// cannot be written are kept in memory and written with the next one; if they become too many, the
/// oldest are dropped.
class MetricsFile {
 public:
  /// Keeps the lines of an earlier run up to `after_step` and drops later ones, whose steps will
  /// run again. after_step 0 starts a new file. Throws UsageError if the file cannot be written,
  /// Error if the disk is full.
  /// most_waiting: bytes of lines that are kept; the default is about 40,000 lines.
  MetricsFile(const std::string& path, std::int64_t after_step,
              std::size_t most_waiting = 16 << 20);

  /// Adds a line. Returns why it, or an earlier one, is not in the file, such as a full disk; "" if
  /// all are.
  std::string write(const StepMetrics& metrics);
  /// Tries to write the lines that are not in the file. Returns as write() does.
  std::string write_rest();
  /// The number of lines that were dropped so far.
  std::int64_t dropped() const { return dropped_; }

  /// (step, value) of all lines, including those of earlier runs.
  using Curve = std::vector<std::pair<double, double>>;
  const Curve& losses() const { return losses_; }
  const Curve& validation() const { return validation_; }

 private:
  void drop_oldest();

  std::string path_;
  std::size_t most_waiting_;
  FileHandle file_;
  std::int64_t written_ = 0;  // bytes
  std::string rest_;          // not yet written
  bool within_line_ = false;  // whether rest_ begins there
  std::int64_t dropped_ = 0;
  Curve losses_, validation_;
};

/// Draws training loss, its smoothed curve, and validation loss over steps. Standalone SVG,
/// readable on light and dark backgrounds.
std::string loss_svg(const std::string& title, const MetricsFile::Curve& losses,
                     const MetricsFile::Curve& validation);

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

  /// Notes a step that took this rank `seconds`, of which it waited for collectives as `waits`
  /// says. Prints its line and names a slow rank every output.log_every steps. Collective.
  void step(Training& training, const StepInput& input, const StepResult& result, double seconds,
            const NamedSeconds& waits);
  /// Notes a validation after the step that was noted last.
  void validated(double loss, std::int64_t windows, double seconds);
  /// Writes the last step's line of metrics.jsonl. If it cannot be written, warns once.
  void write_metrics();
  /// Notes a saved checkpoint, and draws loss.svg.
  void saved(const SaveCost& cost);
  /// Notes a checkpoint that could not be written although the run goes on.
  void save_failed(const std::string& why);
  /// Draws loss.svg, and reports the goldfish loss, skipped steps and failed checkpoints at the end
  /// of a run. Throws Error if lines of metrics.jsonl could not be written.
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
  std::string metrics_fault_;             // of the last line
  std::int64_t save_failures_ = 0, skipped_ = 0;
  std::int64_t first_step_ = 0;
  std::int64_t counted_ = 0, targets_ = 0;  // in the loss, and in all, since begin()
  double began_ = 0;
  double seconds_since_print_ = 0;
  std::int64_t steps_since_print_ = 0;
};

}  // namespace axonn
