#pragma once

#include <cstdint>
#include <fstream>
#include <iosfwd>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace axonn {

/// What one training step tells the user.
struct StepReport {
  std::int64_t step = 0;
  std::int64_t steps = 0;  ///< of the whole run; 0: unknown, no bar
  double loss = 0;
  double grad_norm = 0;
  std::int64_t memory_bytes = 0;
  double tokens_per_second = 0;
  double tflops = 0;          ///< model flops, 1e12 per second
  std::optional<double> mfu;  ///< share of the peak, 0 to 1; empty: no peak is known
  double seconds_left = -1;   ///< below 0: unknown
};

/// "step: 10  loss: 4.2113  grad_norm: 1.34  memory: 2.65GiB  tps: 1,772  tflops: 0.51  mfu: 48.1%"
std::string format_step(const StepReport& report);

/// "[########------------]  40%  3m 12s left", `width` signs between the brackets.
std::string format_progress(const StepReport& report, int width = 20);

/// 1,234,567.
std::string format_count(std::int64_t count);
/// 512B, 1.50KiB, 2.65GiB: powers of 1024, two digits after the point.
std::string format_bytes(std::int64_t bytes);
/// 3.2s, 3m 12s, 2h 05m, 4d 03h.
std::string format_duration(double seconds);

/// Whether the standard output is a terminal on which lines may be redrawn and coloured: not where
/// it is a file or a pipe, TERM is "dumb", or NO_COLOR is set to anything (https://no-color.org).
bool stdout_is_interactive();

/// Width of the terminal behind the standard output; 100 if it has none.
int terminal_columns();

struct LogOptions {
  std::string file;                  ///< of this rank; "": none. Its folder must exist.
  std::ostream* terminal = nullptr;  ///< rank 0's; not owned
  bool interactive = false;          ///< the step line is redrawn in place
  int columns = 100;                 ///< of the terminal; a longer step line loses its last fields
};

/// What one rank says: to its own file, each line with the time, and on rank 0 to the terminal too.
/// Calls from several threads of the rank are safe. Writing never throws after the constructor:
/// training does not end because a log cannot be written.
class Log {
 public:
  /// Errors: UsageError if the file cannot be written.
  explicit Log(LogOptions options);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void info(std::string_view line);
  void warn(std::string_view line);  ///< "warning: ..."
  void step(const StepReport& report);

 private:
  void to_file(std::string_view level, std::string_view line);
  void to_terminal(std::string_view line);
  void leave_step_line();

  LogOptions options_;
  std::mutex mutex_;
  std::ofstream file_;
  bool on_step_line_ = false;
};

}  // namespace axonn
