#pragma once

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace axonn {

/// One line of metrics.jsonl.
struct StepMetrics {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::int64_t step = 0;  ///< counted from 1
  double loss = 0, grad_norm = 0, lr = 0;
  std::int64_t tokens = 0;  ///< seen so far, over all ranks, without padding
  double step_ms = 0, tokens_per_s = 0;
  double model_tflops = 0;     ///< of all ranks, by the causal-half convention
  double mfu = kNone;          ///< share of the peak, if one is known
  double exposed_comm_ms = 0;  ///< that rank 0's compute waited for collectives
  /// The same by axis and kind, in ms: ("z all_gather", 1.2), without what took nothing.
  std::vector<std::pair<std::string, double>> exposed_by = {};
  std::int64_t memory_bytes = 0;  ///< rank 0's peak
  double val_loss = kNone;        ///< where it was evaluated
  double kept = kNone;            ///< share of the targets that the goldfish loss keeps
};

/// output.dir/metrics.jsonl: a line a step, written by rank 0 and flushed.
class MetricsFile {
 public:
  /// Keeps what an earlier run wrote up to `after_step` and drops later steps, which will be run
  /// again. after_step 0 starts anew. Errors: UsageError if the file cannot be written, Error if
  /// the disk is full.
  MetricsFile(const std::string& path, std::int64_t after_step);

  /// Errors: Error that names the file and the cause, such as a full disk.
  void write(const StepMetrics& metrics);

  /// (step, value) of what was written, earlier runs included.
  using Curve = std::vector<std::pair<std::int64_t, double>>;
  const Curve& losses() const { return losses_; }
  const Curve& validation() const { return validation_; }

 private:
  void keep_until(const std::string& path, std::int64_t after_step);

  std::string path_;
  std::ofstream file_;
  Curve losses_, validation_;
};

/// A picture of the curves: training loss, smoothed over it, and validation loss; steps along the
/// bottom. Standalone SVG, readable on white and on dark.
std::string loss_svg(const std::string& title, const MetricsFile::Curve& losses,
                     const MetricsFile::Curve& validation);

}  // namespace axonn
