#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

inline constexpr std::string_view kLatestName = "latest";

/// "step-200".
std::string step_name(std::int64_t step);
/// -1 unless name is that of a step.
std::int64_t step_of(std::string_view name);

/// The steps that folder holds, by their names, highest first; none if it cannot be read.
std::vector<std::int64_t> steps_in(const std::string& folder);

/// Removes what a job that died left half written. Errors: none; it leaves what it cannot remove.
void remove_leftovers(const std::string& folder);

/// Removes the checkpoints before `step` beyond the newest `keep` (0: none), of which `step` is
/// one. Those after it are of a run that was given up, and stay. Returns a line for each that could
/// not be removed.
std::vector<std::string> prune(const std::string& folder, std::int64_t step, std::int64_t keep);

}  // namespace axonn
