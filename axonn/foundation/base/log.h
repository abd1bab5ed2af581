#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace axonn {

/// The figures of one training step that the user sees.
struct StepReport {
  std::int64_t step = 0;
  std::int64_t steps = 0;           ///< number of steps of the run; 0: unknown
  std::optional<double> loss = {};  ///< empty: no target of the step counts
  double grad_norm = 0;
  double lr = 0;
  std::int64_t tokens = 0;                     ///< seen so far
  std::optional<double> epoch = {};            ///< how often the run has read its data
  std::optional<double> best_validation = {};  ///< lowest validation loss so far
  std::vector<std::pair<std::string_view, double>> figures = {};  ///< further ones, with names
  std::int64_t memory_bytes = 0;
  double tokens_per_second = 0;
  double tflops = 0;          ///< model flops, 1e12 per second
  std::optional<double> mfu;  ///< model flops utilisation, 0 to 1; empty: the peak is unknown
  double seconds_left = -1;   ///< negative: unknown
};

/// "step 10/40  25%  3m 12s left  loss 4.2113  grad_norm 1.34  tokens/s 1,772  lr 2.00e-04  tokens
/// 1.2M  epoch 0.10  best val 4.3012  tflops 0.51  mfu 48.1%  memory 2.65GiB": first what a narrow
/// terminal should show.
std::string format_step(const StepReport& report);

/// 1,234,567.
std::string format_count(std::int64_t count);
/// 999, 1.2K, 51.2M, 1.3T: thousands, one decimal.
std::string format_short_count(std::int64_t count);
/// 512B, 1.50KiB, 2.65GiB: powers of 1024, two decimals.
std::string format_bytes(std::int64_t bytes);
/// 3.2s, 3m 12s, 2h 05m, 4d 03h.
std::string format_duration(double seconds);

/// Whether lines on standard output may be redrawn and coloured: it is a terminal, TERM is not
/// "dumb", and NO_COLOR is unset or empty (https://no-color.org).
bool stdout_is_interactive();

/// Width of the terminal on standard output; 100 if standard output is not a terminal.
int terminal_columns();

/// Where the progress of slow work is shown: on rank 0 standard error.
struct ProgressTarget {
  std::ostream* out = nullptr;         ///< null: nowhere
  bool redraws = false;                ///< whether a line can be redrawn in place, as on a terminal
  std::function<double()> clock = {};  ///< seconds; empty: now_seconds()
};

/// Standard error, redrawn in place if `may_redraw` and it is a terminal.
ProgressTarget standard_error_progress(bool may_redraw);

/// Says what slow work does, how far it is and how fast:
///
///   loading: 3.10GiB of 16.10GiB (19%), 1.90GiB/s, 6.8s left
///
/// Silent for the first second, so that quick work shows nothing. Then a terminal's line is redrawn
/// every half second, and cleared at the end; elsewhere there is a line every 10 s.
class ProgressLine {
 public:
  /// unit: what is counted, in the plural; "": bytes. An output that cannot be written is no error.
  ProgressLine(const ProgressTarget& target, std::string doing, std::string unit = "");
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// `done` of `total` is done; 0: unknown. The speed is that since the first call.
  void operator()(std::int64_t done, std::int64_t total);
  /// Clears a terminal's line, for other output.
  void clear();

 private:
  std::string line(std::int64_t done, std::int64_t total, double now) const;

  std::ostream out_;  // of its own, which never throws
  bool redraws_;
  std::function<double()> clock_;
  std::string doing_, unit_;
  double next_;  // when it is shown again
  bool shown_ = false;
  std::optional<std::pair<double, std::int64_t>> first_ = {};  // time and what was done
};

struct LogOptions {
  std::string file;                  ///< this rank's log file; "": none. Its folder must exist.
  std::ostream* terminal = nullptr;  ///< set on rank 0 only; not owned
  /// Redraw the step line in place and cut its last fields to the terminal's width, `columns`. A
  /// line stays if it comes a second or more after the last one that stays.
  bool interactive = false;
  int columns = 100;
  std::function<double()> clock = {};  ///< seconds; empty: now_seconds()
};

/// Writes one rank's messages to its own file, with a timestamp on each line, and on rank 0 also to
/// the terminal. Several threads of the rank may call it. A failed write does not throw after the
/// constructor, so training does not end because a log cannot be written: the file says that the
/// terminal is gone, and the terminal that the file cannot be written, which each line tries again.
class Log {
 public:
  /// Throws UsageError if the file cannot be opened for writing.
  explicit Log(LogOptions options);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void info(std::string_view line);
  void warn(std::string_view line);   ///< "warning: ..."
  void note(std::string_view line);   ///< as info(), to the file alone
  void error(std::string_view line);  ///< to the file alone: the program prints its error itself
  void step(const StepReport& report);

 private:
  void to_file(std::string_view level, std::string_view line);
  void to_terminal(std::string_view line);
  void show(std::string_view text);

  LogOptions options_;
  std::ostream terminal_;  // of its own, which never throws; fails from the first failed write on
  std::mutex mutex_;
  std::ofstream file_;
  std::optional<double> kept_at_;  // by options_.clock: the last step line that stays
  bool on_step_line_ = false, file_failed_ = false;
  bool torn_ = false;  // whether half a line may be at the end of the file
};

}  // namespace axonn
