#include "axonn/run/records/run_list.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostFolders = 1000;  // looked into, of one folder
constexpr int kLevels = 2;

bool is_part_of_run(const std::string& name) {
  return name == "checkpoints" || name == "logs" || name.starts_with(kNonfiniteStep);
}

/// The folders of a folder, sorted; none if it cannot be read.
std::vector<std::string> folders_of(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;  // then there are none
  for (fs::directory_iterator at(folder, error), end;
       !error && at != end && found.size() < kMostFolders; at.increment(error))
    if (is_folder(at->path())) found.push_back(at->path());
  std::ranges::sort(found);
  return found;
}

void add_runs_below(const std::string& folder, int levels, std::vector<std::string>& runs) {
  const bool is_run = is_run_folder(folder);
  if (is_run) runs.push_back(folder);
  if (levels == 0) return;
  for (const std::string& inner : folders_of(folder))
    if (!is_run || !is_part_of_run(fs::path(inner).filename()))
      add_runs_below(inner, levels - 1, runs);
}

}  // namespace

bool is_run_folder(const std::string& folder) {
  return is_plain_file(folder + "/config.toml") || is_plain_file(folder + "/metrics.jsonl");
}

std::vector<std::string> runs_below(const std::string& folder) {
  std::vector<std::string> runs;
  add_runs_below(folder, kLevels, runs);
  return runs;
}

std::vector<std::string> need_runs(const std::vector<std::string>& paths) {
  std::vector<std::string> runs;
  for (const std::string& path : paths) {
    const std::vector<std::string> found = runs_below(path);
    if (found.empty())
      refuse(path, path_exists(path) ? " holds no run" : " does not exist",
             "; name a run's output.dir, or a folder of runs");
    for (const std::string& run : found)
      if (std::ranges::find(runs, run) == runs.end()) runs.push_back(run);
  }
  return runs;
}

}  // namespace axonn
