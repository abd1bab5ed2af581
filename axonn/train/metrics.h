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
  double model_tflops = 0;     ///< of all ranks, counting the causal half of attention
  double mfu = kNone;          ///< fraction of the peak, if that is known
  double exposed_comm_ms = 0;  ///< time that rank 0's compute waited for collectives
  /// The same by axis and kind, in ms: ("z all_gather", 1.2), without kinds that took no time.
  std::vector<std::pair<std::string, double>> exposed_by = {};
  std::int64_t memory_bytes = 0;  ///< rank 0's peak
  double val_loss = kNone;        ///< if it was evaluated after this step
  double kept = kNone;            ///< fraction of the targets that the goldfish loss keeps
};

/// Writes output.dir/metrics.jsonl, one line per step, on rank 0; each line is flushed.
class MetricsFile {
 public:
  /// Keeps the lines of an earlier run up to `after_step` and drops later ones, whose steps will
  /// run again. after_step 0 starts a new file. Throws UsageError if the file cannot be written,
  /// Error if the disk is full.
  MetricsFile(const std::string& path, std::int64_t after_step);

  /// Throws Error that names the file and the cause, such as a full disk.
  void write(const StepMetrics& metrics);

  /// (step, value) of all lines, including those of earlier runs.
  using Curve = std::vector<std::pair<std::int64_t, double>>;
  const Curve& losses() const { return losses_; }
  const Curve& validation() const { return validation_; }

 private:
  void keep_until(const std::string& path, std::int64_t after_step);

  std::string path_;
  std::ofstream file_;
  Curve losses_, validation_;
};

/// Draws training loss, its smoothed curve, and validation loss over steps. Standalone SVG,
/// readable on light and dark backgrounds.
std::string loss_svg(const std::string& title, const MetricsFile::Curve& losses,
                     const MetricsFile::Curve& validation);

}  // namespace axonn
