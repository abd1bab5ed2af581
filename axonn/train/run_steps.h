#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace axonn {

/// The figures of one step of a run, by the names of their series, such as "loss/train". All that
/// shows or exports a run's series takes them from here.
struct RunStep {
  std::int64_t step = 0;                               ///< counted from 1
  double time = 0;                                     ///< seconds since 1970
  std::vector<std::pair<std::string, double>> values;  ///< a loss may be NaN
};

/// Reads a line of metrics.jsonl; empty if it is not one, as when a crash has cut it short. A line
/// of an older version has no time: then it is 0.
std::optional<RunStep> parse_run_step(std::string_view line);

/// Calls `take` for every step in FOLDER/metrics.jsonl, in order. Steps without a time get the
/// seconds of training before them. Returns the number of steps. Throws UsageError if there is no
/// such file, or no step in it.
std::int64_t read_run_steps(const std::string& folder,
                            const std::function<void(const RunStep&)>& take);

}  // namespace axonn
