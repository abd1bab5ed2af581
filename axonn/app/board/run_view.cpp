#include "axonn/app/board/run_view.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <optional>

#include <unistd.h>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/run/records/run_end.h"
#include "axonn/run/records/run_folder.h"
#include "axonn/run/records/run_list.h"

namespace axonn {

namespace {

constexpr std::size_t kWarnings = 20;
constexpr std::size_t kLongestLine = 1000;                      // of the log, to show
constexpr std::int64_t kLongestConfig = std::int64_t{1} << 20;  // bytes

/// The text of a small file; "" if it cannot be read.
std::string small_file(const std::string& path, std::int64_t most) {
  if (!is_plain_file(path)) return {};
  try {
    return read_text(path, most);
  } catch (const UsageError&) {
    return {};
  }
}

std::int64_t whole_number(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Whether the process of a run still runs; empty if it is not known, because it ran on another
/// host.
std::optional<bool> still_runs(const RunProcess& writer) {
  std::array<char, 256> host{};
  if (writer.process <= 0 || ::gethostname(host.data(), host.size() - 1) != 0 ||
      writer.host != host.data())
    return std::nullopt;
  return ::kill(static_cast<pid_t>(writer.process), 0) == 0 || errno == EPERM;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t\r"), to = text.find_last_not_of(" \t\r");
  return from == text.npos ? std::string_view() : text.substr(from, to - from + 1);
}

}  // namespace

std::map<std::string, std::string> parse_run_config(std::string_view text) {
  std::map<std::string, std::string> config;
  std::string section;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (section == "training." && line.starts_with("# steps = "))
      line = trimmed(line.substr(2, line.find('#', 1) - 2));
    if (line.starts_with('[') && line.ends_with(']')) {
      section = concat(line.substr(1, line.size() - 2), '.');
    } else if (const std::size_t equals = line.find('=');
               equals != line.npos && !line.starts_with('#')) {
      config[concat(section, trimmed(line.substr(0, equals)))] = trimmed(line.substr(equals + 1));
    }
  }
  return config;
}

std::string_view name_of(RunPhase state) {
  constexpr std::array<std::string_view, 7> kNames = {"waiting", "starting", "running", "stalled",
                                                      "ended",   "stopped",  "failed"};
  return kNames[static_cast<std::size_t>(state)];
}

RunView::RunView(const std::string& folder, std::string name)
    : folder_(folder),
      name_(std::move(name)),
      rows_(folder + "/metrics.jsonl"),
      samples_(concat(folder, '/', kSamplesFile)),
      answers_(concat(folder, '/', kRolloutsFolder)),
      log_(folder + "/logs/rank-0.log") {}

void RunView::read_config() {
  std::string text = small_file(folder_ + "/config.toml", kLongestConfig);
  if (text == config_text_) return;
  config_text_ = std::move(text);
  config_ = parse_run_config(config_text_);
  ++config_version_;
}

/// Lines are "2026-11-22T02:58:14.751Z LEVEL TEXT".
void RunView::take_log_line(std::string_view line) {
  const std::size_t space = line.find(' '), end = line.find(' ', space + 1);
  if (space == line.npos || end == line.npos) return;
  const std::string_view level = line.substr(space + 1, end - space - 1),
                         text = line.substr(end + 1, kLongestLine);
  const auto with_time = [&] { return concat(line.substr(0, space), ' ', text); };
  if (level != "warning") return;
  if (text.starts_with("slowest: ")) {
    slowest_ = with_time();
    return;
  }
  if (warnings_.size() == kWarnings) warnings_.erase(warnings_.begin());
  warnings_.push_back(with_time());
}

bool RunView::read(double seconds, std::time_t now) {
  read_config();
  checkpoints_ = steps_in(folder_ + "/checkpoints");
  const auto begin_anew = [this] {
    warnings_.clear();
    slowest_.clear();
  };
  const bool more = rows_.read(seconds);
  const bool more_log = log_.read(
      begin_anew, [this](std::string_view line, std::int64_t) { take_log_line(line); },
      seconds / 4);
  const bool more_samples = samples_.read(seconds / 4);
  answers_.read();
  judge(now);
  return more || more_log || more_samples;
}

std::int64_t RunView::steps() const {
  const auto found = config_.find("training.steps");
  return found == config_.end() ? 0 : whole_number(found->second);
}

double RunView::seconds_since_line(std::time_t now) const {
  const std::time_t written = rows_.file().written();
  if (written == 0 || rows_.rows() == 0) return -1;
  return std::max(0.0, std::difftime(now, written));  // a file server's clock may be ahead
}

double RunView::seconds_left() const {
  if (rows_.rows() == 0 || steps() == 0) return -1;
  const std::int64_t left = std::max<std::int64_t>(0, steps() - rows_.last().step);
  return rows_.seconds() / static_cast<double>(rows_.rows()) * static_cast<double>(left);
}

std::string RunView::why_it_failed() const {
  std::error_code error;  // then there is no such folder
  for (std::filesystem::directory_iterator at(folder_, error), end; !error && at != end;
       at.increment(error))
    if (const std::string name = at->path().filename(); name.starts_with(kNonfiniteStep))
      return concat(
          "step ",
          whole_number(std::string_view(name).substr(std::string_view(kNonfiniteStep).size())),
          " was not finite; axonn replay ", name_, '/', name, " repeats it");
  return concat("its process has ended without a word: it was killed, or its memory, its disk or ",
                "its node gave out; see what it printed, and ", name_, "/logs/rank-0.log");
}

void RunView::judge(std::time_t now) {
  // A validation, a checkpoint or the first step may take long.
  constexpr double kShortestStall = 120, kStalledSteps = 20;
  const std::int64_t step = rows_.last().step;
  const auto is = [this](RunPhase state, std::string reason = "") {
    state_ = state;
    reason_ = std::move(reason);
  };
  if (!is_run_folder(folder_))
    return is(RunPhase::waiting,
              concat(name_, is_folder(folder_) ? " holds no run yet" : " does not exist yet"));
  const RunProcess writer = read_run_process(folder_);
  if (writer.end == RunEnd::finished) return is(RunPhase::ended);
  if (writer.end == RunEnd::stopped) return is(RunPhase::stopped, writer.why);
  if (writer.end == RunEnd::failed)
    return is(RunPhase::failed, concat(writer.when, ": ", writer.why));
  const std::optional<bool> runs = still_runs(writer);
  if (steps() > 0 && step >= steps() && !runs.value_or(false)) return is(RunPhase::ended);
  if (!runs.value_or(true)) return is(RunPhase::failed, why_it_failed());
  const double age = seconds_since_line(now), step_ms = rows_.last_of("step_ms");
  if (age < 0) return is(RunPhase::starting, "no step yet");
  const double limit =
      std::max(kShortestStall, std::isfinite(step_ms) ? kStalledSteps * step_ms / 1e3 : 0);
  if (age > limit) return is(RunPhase::stalled);
  is(RunPhase::running);
}

}  // namespace axonn
