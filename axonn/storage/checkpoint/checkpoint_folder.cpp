#include "axonn/storage/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <system_error>

#include "axonn/base/check.h"
#include "axonn/base/files.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;
constexpr std::string_view kStep = "step-";

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  while (!error && at != fs::directory_iterator()) {
    names.push_back(at->path().filename().string());
    at.increment(error);
  }
  return names;
}

}  // namespace

std::string step_name(std::int64_t step) { return concat(kStep, step); }

std::int64_t step_of(std::string_view name) {
  if (!name.starts_with(kStep)) return -1;
  std::int64_t step = 0;
  const std::string_view digits = name.substr(kStep.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || step < 0 || name != step_name(step)) return -1;
  return step;
}

std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder))
    if (step_of(name) >= 0) steps.push_back(step_of(name));
  std::ranges::sort(steps, std::greater());
  return steps;
}

void remove_leftovers(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    const auto base = std::string_view(name).substr(0, name.find('.'));
    const bool ours = step_of(base) >= 0 || base == kLatestName;
    if (!ours || !is_temporary_name(name, base)) continue;
    std::error_code ignored;
    fs::remove_all(fs::path(folder) / name, ignored);
  }
}

std::vector<std::string> prune(const std::string& folder, std::int64_t step, std::int64_t keep) {
  std::vector<std::string> warnings;
  if (keep == 0) return warnings;
  auto steps = steps_in(folder);
  std::erase_if(steps, [&](std::int64_t other) { return other > step; });
  for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i) {
    const std::string path = concat(folder, '/', step_name(steps[i]));
    try {
      remove_folder(path);
    } catch (const Error& error) {
      warnings.push_back(error.what());
    }
  }
  return warnings;
}

}  // namespace axonn
