#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace axonn {

/// A figure of a step: a key of metrics.jsonl, and of a key that has several ("exposed_comm_ms_by")
/// the part ("z all_gather"), else "".
struct RunValue {
  std::string key, part;
  double value = 0;
};

/// The figures of one step of a run. All that shows or exports a run's series takes them from here.
struct RunStep {
  std::int64_t step = 0;         ///< counted from 1
  double time = 0;               ///< seconds since 1970
  std::vector<RunValue> values;  ///< in the line's order; a loss may be NaN

  /// The value of a key without parts; NaN if there is none.
  double value_of(std::string_view key) const;
};

/// Reads a line of metrics.jsonl; empty if it is not one, as when a crash has cut it short. A line
/// of an older version has no time: then it is 0. Leaves out what is no number, null (NaN) or
/// truth, and names of more than 80 characters. A step without targets ("no_targets") has no loss.
std::optional<RunStep> parse_run_step(std::string_view line);

/// The name under which other tools get the series of a value, such as "loss/train". Tools show
/// series with the same word before the slash together.
std::string series_of(const RunValue& value);

/// Removes the lines of a file of steps that are behind `after_step` or damaged, and writes it
/// anew; 0 removes none, since the file will be. Calls `take` for the others, in order. Returns
/// their bytes. Throws as write_file_atomically().
std::int64_t keep_steps(const std::string& path, std::int64_t after_step,
                        const std::function<void(const RunStep&)>& take = {});

/// Calls `take` for every step in FOLDER/metrics.jsonl, in order. Steps without a time get the
/// seconds of training before them. Returns the number of steps. Throws UsageError if there is no
/// such file, or no step in it.
std::int64_t read_run_steps(const std::string& folder,
                            const std::function<void(const RunStep&)>& take);

}  // namespace axonn
