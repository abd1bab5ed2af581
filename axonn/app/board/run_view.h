#pragma once

#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/app/board/run_answers.h"
#include "axonn/app/board/run_rows.h"
#include "axonn/app/board/run_samples.h"

namespace axonn {

/// The keys of a run's config.toml, "training.steps", and their values as they are written there;
/// also training.steps in a comment, where training.epochs gives it.
std::map<std::string, std::string> parse_run_config(std::string_view text);

enum class RunPhase { waiting, starting, running, stalled, ended, stopped, failed };

std::string_view name_of(RunPhase state);

/// State of a run by the files of its folder (output.dir), also while they are being written.
/// Only reads, and only files with fixed names. Nothing throws: what is missing is empty.
class RunView {
 public:
  /// `name`: what pages and messages call the run.
  RunView(const std::string& folder, std::string name);

  /// Reads new lines for about `seconds`. Returns whether there are more. `now`: in seconds
  /// since 1970.
  bool read(double seconds, std::time_t now);

  const std::string& folder() const { return folder_; }
  const std::string& name() const { return name_; }
  const RunRows& rows() const { return rows_; }
  const RunSamples& samples() const { return samples_; }
  const RunAnswers& answers() const { return answers_; }
  RunPhase state() const { return state_; }
  const std::string& reason() const { return reason_; }  ///< of the state; "" if that says it all
  const std::map<std::string, std::string>& config() const { return config_; }
  int config_version() const { return config_version_; }  ///< changes when config() does
  std::int64_t steps() const;                             ///< of the whole run; 0: unknown
  double seconds_since_line(std::time_t now) const;       ///< negative: there is no line
  double seconds_left() const;                            ///< negative: unknown
  /// The last lines of rank 0's log: warnings, and the one that names the slowest rank, each with
  /// its time.
  const std::vector<std::string>& warnings() const { return warnings_; }
  const std::string& slowest() const { return slowest_; }
  const std::vector<std::int64_t>& checkpoints() const { return checkpoints_; }  ///< highest first

 private:
  void read_config();
  void take_log_line(std::string_view line);
  void judge(std::time_t now);
  std::string why_it_failed() const;

  std::string folder_, name_;
  RunRows rows_;
  RunSamples samples_;
  RunAnswers answers_;
  LineTail log_;
  std::map<std::string, std::string> config_;
  std::string config_text_, reason_, slowest_;
  int config_version_ = 0;
  std::vector<std::string> warnings_;
  std::vector<std::int64_t> checkpoints_;
  RunPhase state_ = RunPhase::waiting;
};

}  // namespace axonn
