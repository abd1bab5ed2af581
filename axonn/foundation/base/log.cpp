#include "axonn/foundation/base/log.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <system_error>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/files.h"

namespace axonn {

namespace {

/// Truncates the line after the last field that fits. Fields are separated by two spaces.
std::string cut(const std::string& line, int columns) {
  const std::size_t most = std::max(columns, 1);
  if (line.size() <= most) return line;
  return line.substr(0, std::min(most, line.rfind("  ", most)));
}

/// Whether the file's last line has no end, as on a disk that was full.
bool ends_within_a_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char last = '\n';
  return file.seekg(-1, std::ios::end) && file.get(last) && last != '\n';
}

bool is_interactive(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && !(no_color && *no_color) &&
         !(term && std::string_view(term) == "dumb");
}

}  // namespace

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count);
  const std::size_t first = count < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string format_short_count(std::int64_t count) {
  constexpr std::array kUnits = {"", "K", "M", "B", "T"};
  double value = static_cast<double>(count);
  std::size_t unit = 0;
  // From 999.95 on, one decimal would show 1000.0 of the smaller unit.
  while (std::abs(value) >= 999.95 && unit + 1 < kUnits.size()) value /= 1000, ++unit;
  return unit == 0 ? concat(count) : fmt::format("{:.1f}{}", value, kUnits[unit]);
}

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  // From 1023.995 on, two decimals would show 1024.00 of the smaller unit.
  while (std::abs(value) >= 1023.995 && unit + 1 < kUnits.size()) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{}B", bytes) : fmt::format("{:.2f}{}", value, kUnits[unit]);
}

std::string format_duration(double seconds) {
  if (seconds < 59.95) return fmt::format("{:.1f}s", std::max(seconds, 0.0));
  constexpr std::int64_t kMinute = 60, kHour = 60 * kMinute, kDay = 24 * kHour;
  const std::int64_t whole = std::llround(std::min(seconds, 1e15));
  if (whole < kHour) return fmt::format("{}m {:02}s", whole / kMinute, whole % kMinute);
  if (whole < kDay) return fmt::format("{}h {:02}m", whole / kHour, whole % kHour / kMinute);
  return fmt::format("{}d {:02}h", whole / kDay, whole % kDay / kHour);
}

std::string format_step(const StepReport& report) {
  std::string line = fmt::format("step {}", report.step);
  if (report.steps > 0)
    line += fmt::format("/{}  {}%", report.steps, 100 * report.step / report.steps);
  if (report.seconds_left >= 0) line += "  " + format_duration(report.seconds_left) + " left";
  line += fmt::format("  loss {}  grad_norm {:.2f}  tokens/s {}  lr {:.2e}  tokens {}",
                      report.loss ? fmt::format("{:.4f}", *report.loss) : "none (no targets)",
                      report.grad_norm, format_count(std::llround(report.tokens_per_second)),
                      report.lr, format_short_count(report.tokens));
  if (report.epoch) line += fmt::format("  epoch {:.2f}", *report.epoch);
  if (report.best_validation) line += fmt::format("  best val {:.4f}", *report.best_validation);
  line += fmt::format("  tflops {:.2f}", report.tflops);
  if (report.mfu) line += fmt::format("  mfu {:.1f}%", 100 * *report.mfu);
  for (const auto& [name, value] : report.figures) line += fmt::format("  {} {:.2f}", name, value);
  return line + "  memory " + format_bytes(report.memory_bytes);
}

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

bool stdout_is_interactive() { return is_interactive(STDOUT_FILENO); }

ProgressTarget standard_error_progress(bool may_redraw) {
  return {.out = &std::cerr, .redraws = may_redraw && is_interactive(STDERR_FILENO)};
}

ProgressLine::ProgressLine(const ProgressTarget& target, std::string doing, std::string unit)
    : out_(target.out ? target.out->rdbuf() : nullptr),
      redraws_(target.redraws),
      clock_(target.clock ? target.clock : now_seconds),
      doing_(std::move(doing)),
      unit_(std::move(unit)),
      next_(clock_() + 1) {}

void ProgressLine::clear() {
  if (std::exchange(shown_, false) && redraws_) out_ << "\r\x1b[K" << std::flush;
}

std::string ProgressLine::line(std::int64_t done, std::int64_t total, double now) const {
  const auto amount = [&](double value) {
    const auto whole = std::llround(value);
    if (unit_.empty()) return format_bytes(whole);
    return value < 100 && value != std::floor(value) ? fmt::format("{:.3g}", value)
                                                     : format_count(whole);
  };
  std::string text = fmt::format("{}: {}", doing_, amount(static_cast<double>(done)));
  if (total > 0) text += fmt::format(" of {}", amount(static_cast<double>(total)));
  if (!unit_.empty()) text += ' ' + unit_;
  if (total > 0)
    text += fmt::format(" ({:.0f}%)",
                        std::floor(100 * static_cast<double>(done) / static_cast<double>(total)));
  const double rate = static_cast<double>(done - first_->second) / (now - first_->first);
  if (done > first_->second && now > first_->first) {
    text += fmt::format(", {}/s", amount(rate));
    if (total >= done)
      text += fmt::format(", {} left", format_duration(static_cast<double>(total - done) / rate));
  }
  return text;
}

void ProgressLine::operator()(std::int64_t done, std::int64_t total) {
  constexpr double kRedrawn = 0.5, kLines = 10;  // seconds
  const double now = clock_();
  if (!first_) first_ = {now, done};
  if (!out_ || now < next_) return;
  next_ = now + (redraws_ ? kRedrawn : kLines);
  shown_ = true;
  const std::string text = line(done, total, now);
  out_ << (redraws_ ? fmt::format("\r{}\x1b[K", text) : text + '\n') << std::flush;
}

Log::Log(LogOptions options)
    : options_(std::move(options)),
      terminal_(options_.terminal ? options_.terminal->rdbuf() : nullptr) {
  if (!options_.clock) options_.clock = now_seconds;
  if (options_.file.empty()) return;
  file_.open(options_.file, std::ios::app);
  torn_ = ends_within_a_line(options_.file);
  if (!file_) refuse("cannot write the log file '", options_.file, "': ", std::strerror(errno));
}

Log::~Log() {
  if (on_step_line_) terminal_ << '\n' << std::flush;
}

void Log::info(std::string_view line) {
  const std::scoped_lock lock(mutex_);
  to_file("info", line);
  to_terminal(line);
}

void Log::note(std::string_view line) {
  const std::scoped_lock lock(mutex_);
  to_file("info", line);
}

void Log::warn(std::string_view line) {
  const std::scoped_lock lock(mutex_);
  to_file("warning", line);
  to_terminal(fmt::format("warning: {}", line));
}

void Log::error(std::string_view line) {
  const std::scoped_lock lock(mutex_);
  to_file("error", line);
}

void Log::step(const StepReport& report) {
  const std::scoped_lock lock(mutex_);
  const std::string line = format_step(report);
  to_file("step", line);
  if (!options_.interactive) return to_terminal(line);
  constexpr double kShortest = 1;  // seconds between lines that stay
  const double now = options_.clock();
  const bool stays = !kept_at_ || now - *kept_at_ >= kShortest;
  if (stays) kept_at_ = now;
  show(fmt::format("\r{}\x1b[K{}", cut(line, options_.columns - 1), stays ? "\n" : ""));
  on_step_line_ = !stays;
}

void Log::to_file(std::string_view level, std::string_view line) {
  if (!file_.is_open()) return;
  const auto now = std::chrono::system_clock::now();
  const auto millis =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  file_ << fmt::format("{}{:%Y-%m-%dT%H:%M:%S}.{:03}Z {} {}\n", torn_ ? "\n" : "", parts, millis,
                       level, line)
        << std::flush;
  torn_ = !file_;
  if (file_) return;
  const int error = errno;
  file_.clear();
  if (!std::exchange(file_failed_, true))
    to_terminal(fmt::format("warning: cannot write the log file '{}': {}", options_.file,
                            cause_and_remedy(error)));
}

void Log::to_terminal(std::string_view line) {
  show(fmt::format("{}{}\n", std::exchange(on_step_line_, false) ? "\n" : "", line));
}

void Log::show(std::string_view text) {
  if (!terminal_ || terminal_ << text << std::flush) return;
  to_file("warning", fmt::format("cannot write to the terminal or to the file or program that "
                                 "standard output goes to: {}; the run goes on without it",
                                 std::system_category().message(errno)));
}

}  // namespace axonn
