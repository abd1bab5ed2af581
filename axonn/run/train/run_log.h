#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_saver.h"
#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/grid.h"
#include "axonn/run/records/event_file.h"
#include "axonn/run/records/metrics_file.h"
#include "axonn/run/records/run_state.h"
#include "axonn/run/records/sample_file.h"
#include "axonn/run/train/training.h"

namespace axonn {

/// The records of a run for its user: terminal, log files, metrics.jsonl, TensorBoard's event file
/// and loss.svg. Every rank has one; only rank 0 writes more than its own log file.
class RunLog {
 public:
  RunLog(const LogOptions& options, Communicator& world) : world_(world), log_(options) {}

  void info(const std::string& line) { log_.info(line); }
  void warn(const std::string& line) { log_.warn(line); }
  void error(const std::string& line) { log_.error(line); }
  /// Describes model, grid and data on rank 0; `shown`: also on the terminal. `threads`: of the CPU
  /// backend.
  void describe(Training& training, int threads, bool shown = true);

  /// Begins the figures of a run that goes on from this state. config_text: for the event file;
  /// none: the run has nothing to do, so that its files stay as they are.
  void begin(const Config& config, const std::optional<std::string>& config_text,
             const RunState& state);

  /// Notes a step that took this rank `seconds`, of which it waited for collectives as `waits`
  /// says. Prints its line and names a slow rank every output.log_every steps. Collective.
  void step(Training& training, const StepInput& input, const StepResult& result, double seconds,
            const NamedSeconds& waits);
  /// Notes a validation after the step that was noted last: the loss of the weights, and of their
  /// running averages if there are any.
  void validated(double loss, std::optional<double> of_averages, std::int64_t windows,
                 double seconds);
  /// Notes its other figures.
  void validated_figures(std::vector<Metric> figures);
  /// Writes the texts that the model wrote after that step to samples.jsonl and the event file.
  void sampled(std::vector<TextSample> samples, double seconds);
  /// Writes the last step to metrics.jsonl and the event file. If it cannot be written, warns once.
  void write_metrics();
  /// Notes a saved checkpoint, and draws loss.svg.
  void saved(const SaveCost& cost);
  /// Notes a checkpoint that could not be written although the run goes on.
  void save_failed(const std::string& why);
  /// Draws loss.svg, and reports the goldfish loss, skipped steps and failed checkpoints at the end
  /// of a run. Throws Error if steps could not be written to metrics.jsonl or the event file.
  void finish();

  /// Of the run, over all ranks, without padding.
  std::int64_t tokens_seen() const { return line_.tokens; }

 private:
  bool first() const { return world_.rank() == 0; }
  void say(const std::string& line);
  std::vector<RecordFile*> files();
  void draw();
  void print_step(double share);
  void note_skipped(std::int64_t step, const StepInput& input, const StepResult& result,
                    double next_scale);
  void note_without_loss(std::int64_t step);

  Communicator& world_;
  Log log_;
  Config config_;
  std::unique_ptr<MetricsFile> metrics_;  // on rank 0
  std::unique_ptr<EventFile> events_;     // on rank 0, if output.tensorboard
  std::unique_ptr<SamplesFile> samples_;  // on rank 0, if there are any
  std::string description_;               // of model, grid and data
  bool shows_description_ = true;
  StepMetrics line_;  // of the last step
  BestLoss best_;     // of the validations
  std::int64_t save_failures_ = 0, outliers_ = 0, overflows_ = 0, without_loss_ = 0;
  std::int64_t first_step_ = 0;
  std::int64_t counted_ = 0, targets_ = 0;  // in the loss, and in all, since begin()
  double began_ = 0;
  double seconds_since_print_ = 0;
  std::int64_t steps_since_print_ = 0;
};

}  // namespace axonn
