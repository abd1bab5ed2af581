#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

inline constexpr std::string_view kLatestName = "latest";

/// The folder name of a step's checkpoint: "step-200".
std::string step_name(std::int64_t step);
/// The step of such a name, or -1 for any other name.
std::int64_t step_of(std::string_view name);

/// The steps whose checkpoints a folder holds, judged by name, highest first; none if the folder
/// cannot be read.
std::vector<std::int64_t> steps_in(const std::string& folder);

/// Whether DIR holds a checkpoint, intact or not. For resume = "auto": false means a fresh start.
/// Does not throw if the folder does not exist. Call it on rank 0 and broadcast the result.
inline bool has_checkpoint(const std::string& folder) { return !steps_in(folder).empty(); }

/// Removes the temporary files and folders of jobs that died. Never throws; skips those that it
/// cannot remove.
void remove_leftovers(const std::string& folder);

/// Removes older checkpoints so that `keep` remain, counting `step` itself; 0 removes none.
/// Checkpoints of later steps belong to an abandoned run and stay. Returns one warning for each
/// checkpoint that could not be removed.
std::vector<std::string> prune(const std::string& folder, std::int64_t step, std::int64_t keep);

}  // namespace axonn
