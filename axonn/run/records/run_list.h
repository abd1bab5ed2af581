#pragma once

#include <string>
#include <vector>

namespace axonn {

/// Folders of steps that were not finite (train/nonfinite.h): output.dir/nonfinite-step-N.
inline constexpr const char* kNonfiniteStep = "nonfinite-step-";

/// Whether the folder holds a run: config.toml or metrics.jsonl.
bool is_run_folder(const std::string& folder);

/// The folder if it holds a run, and the runs in its folders and in their folders, sorted; not what
/// belongs to a run, as its checkpoints, which have a config.toml too. A folder that cannot be read
/// has none.
std::vector<std::string> runs_below(const std::string& folder);

/// The same for several paths, each of which must have a run. Throws UsageError, naming the path,
/// if one has none.
std::vector<std::string> need_runs(const std::vector<std::string>& paths);

}  // namespace axonn
