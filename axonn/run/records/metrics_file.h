#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "axonn/run/records/metric.h"
#include "axonn/run/records/record_file.h"

namespace axonn {

/// One line of metrics.jsonl.
struct StepMetrics {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::int64_t step = 0;  ///< counted from 1
  double time = 0;        ///< at its end, in seconds since 1970
  double loss = 0;
  bool has_loss = true;  ///< false: no target of the step counts; the loss is written as null
  double grad_norm = 0, lr = 0;
  std::int64_t tokens = 0;  ///< seen so far, over all ranks, without padding
  double epoch = 0;         ///< how often the run has read its data, or those of its stage
  double step_ms = 0, tokens_per_s = 0;
  double model_tflops = 0;     ///< of all ranks, counting the causal half of attention
  double mfu = kNone;          ///< fraction of the peak, if that is known
  double exposed_comm_ms = 0;  ///< time that rank 0's compute waited for collectives
  /// exposed_comm_ms by axis and kind: ("z all_gather", 1.2), without kinds that took no time.
  std::vector<std::pair<std::string, double>> exposed_by = {};
  std::int64_t memory_bytes = 0;     ///< rank 0's peak
  double val_loss = kNone;           ///< if it was evaluated after this step
  double val_loss_ema = kNone;       ///< the same of the averaged weights, if there are any
  double kept = kNone;               ///< fraction of the targets that the goldfish loss keeps
  std::vector<Metric> metrics = {};  ///< of the loss terms
  /// Of the held-out data, if they were evaluated after this step; written as "val_" and the name.
  std::vector<Metric> val_metrics = {};
  std::int64_t batch = 0;          ///< sequences of the step; 0: those of all steps
  std::string stage = {};          ///< of the data; "": the run has none
  bool skipped = false;            ///< an outlier, which changed no weight
  std::int64_t save_failures = 0;  ///< checkpoints that could not be written, of this run so far
};

/// The step as a line of metrics.jsonl, without its end.
std::string to_line(const StepMetrics& metrics);

/// Losses over steps, in nats per token, without those that are not finite.
struct LossCurves {
  using Curve = std::vector<std::pair<double, double>>;
  Curve training, validation;
  Curve averages;  ///< validation of the averaged weights
};

/// Writes output.dir/metrics.jsonl, one line per step, on rank 0.
class MetricsFile {
 public:
  /// Keeps the lines of an earlier run up to `after_step` and drops later ones, whose steps will
  /// run again. after_step 0 starts a new file. Throws UsageError if the file cannot be written,
  /// Error if the disk is full. most_waiting: as for RecordFile; the default is about 40,000 lines.
  MetricsFile(const std::string& path, std::int64_t after_step,
              std::size_t most_waiting = RecordFile::kMostWaiting);

  /// Adds a line. Returns as RecordFile::append() does.
  std::string write(const StepMetrics& metrics);
  RecordFile& records() { return file_; }

  /// The losses of all lines, including those of earlier runs.
  const LossCurves& losses() const { return losses_; }

 private:
  std::int64_t keep(const std::string& path, std::int64_t after_step);

  LossCurves losses_;  // before file_, whose initializer fills them
  RecordFile file_;
};

/// Draws the training loss, its smoothed curve, and the validation losses over steps. Standalone
/// SVG, readable on light and dark backgrounds.
std::string loss_svg(const std::string& title, const LossCurves& losses);

}  // namespace axonn
