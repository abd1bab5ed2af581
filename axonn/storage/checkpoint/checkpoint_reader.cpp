#include "axonn/storage/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/hash.h"
#include "axonn/comm/self.h"
#include "axonn/comm/texts.h"
#include "axonn/storage/checkpoint/checkpoint_folder.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

// 10,000 ranks with 300 slices each make an index of about 150 MB.
constexpr std::int64_t kMostIndexBytes = std::int64_t{8} << 30;

/// A checkpoint whose index, texts and file sizes have been checked.
struct Opened {
  std::string folder;
  std::string index_text;
  CheckpointIndex index;
  StateTexts texts;
};

Opened open_step(const std::string& folder) {
  const std::string path = concat(folder, '/', kIndexName);
  Opened out;
  out.folder = folder;
  out.index_text = read_text(path, kMostIndexBytes);
  out.index = parse_index(out.index_text, path);
  for (const auto& [name, stored] : out.index.texts) {
    const std::string file = concat(folder, '/', name);
    std::string contents = read_text(file);
    if (static_cast<std::int64_t>(contents.size()) != stored.bytes ||
        xxh3(contents) != stored.checksum)
      refuse(file, " is altered: its size or checksum is not the one in the index");
    out.texts[name] = std::move(contents);
  }
  for (const StoredFile& stored : out.index.files) {
    const std::string file = concat(folder, '/', stored.name);
    const std::int64_t bytes = InputFile(file).bytes();
    if (bytes != stored.bytes)
      refuse(file, " has ", bytes, " bytes instead of ", stored.bytes,
             bytes < stored.bytes ? ": it is cut short" : ": it is altered");
  }
  return out;
}

std::string last_name(const std::string& path) {
  fs::path at(path);
  return (at.has_filename() ? at : at.parent_path()).filename().string();
}

/// The steps to try, best first: the one that `latest` names and those before it. Later steps
/// belong to an abandoned run and are tried only if `latest` is missing or unusable.
std::vector<std::int64_t> candidates(const std::string& folder,
                                     std::vector<std::string>& warnings) {
  std::vector<std::int64_t> steps = steps_in(folder);
  const std::string path = concat(folder, '/', kLatestName);
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return steps;
  std::string name;
  const std::string fault = fault_of([&] { name = read_text(path, 100); });
  if (name.ends_with('\n')) name.pop_back();
  const std::int64_t latest = step_of(name);
  if (!fault.empty())
    warnings.push_back(fault);
  else if (latest < 0)
    warnings.push_back(path + " is altered: it does not name a checkpoint");
  else if (std::ranges::find(steps, latest) == steps.end())
    warnings.push_back(concat(path, " names ", name, ", which does not exist"));
  else
    std::erase_if(steps, [&](std::int64_t step) { return step > latest; });
  return steps;
}

Opened open_newest(const std::string& folder, std::vector<std::string>& warnings) {
  const auto steps = candidates(folder, warnings);
  if (steps.empty())
    refuse(folder, " holds no checkpoint (no folder step-N); give the path of another folder");
  for (std::int64_t step : steps) {
    std::optional<Opened> opened;
    const std::string fault =
        fault_of([&] { opened = open_step(concat(folder, '/', step_name(step))); });
    if (opened) return *std::move(opened);
    warnings.push_back(concat("checkpoint ", step_name(step), " is skipped: ", fault));
  }
  std::string all;
  for (const std::string& warning : warnings) all += "\n  " + warning;
  refuse(folder, " holds no intact checkpoint:", all);
}

Opened open_path(std::string path, std::vector<std::string>& warnings) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    refuse(path, " is not a folder of checkpoints",
           fs::exists(path, ignored) ? "" : ": no such path");
  const bool is_step =
      fs::exists(path + '/' + std::string(kIndexName), ignored) || step_of(last_name(path)) >= 0;
  return is_step ? open_step(path) : open_newest(path, warnings);
}

}  // namespace

CheckpointReader::CheckpointReader(Communicator& world, const std::string& path) {
  // Broadcast by rank 0: folder, index, number of texts, each name and text, warnings. If it
  // failed: the error message alone.
  std::vector<std::string> told;
  if (world.rank() == 0) {
    const std::string fault = fault_of([&] {
      Opened opened = open_path(path, warnings_);
      told = {opened.folder, std::move(opened.index_text), concat(opened.texts.size())};
      for (auto& [name, contents] : opened.texts) told.insert(told.end(), {name, contents});
      told.insert(told.end(), warnings_.begin(), warnings_.end());
      index_ = std::move(opened.index);
    });
    if (!fault.empty()) told = {fault};
  }
  told = broadcast_texts(world, std::move(told));
  if (told.size() == 1) refuse(told.front());
  folder_ = told.at(0);
  if (world.rank() != 0) index_ = parse_index(told.at(1), folder_);
  const std::size_t texts = std::stoul(told.at(2));
  for (std::size_t i = 0; i < texts; ++i) texts_[told.at(3 + 2 * i)] = told.at(4 + 2 * i);
  warnings_.assign(told.begin() + 3 + static_cast<std::ptrdiff_t>(2 * texts), told.end());
}

CheckpointReader::CheckpointReader(const std::string& path)
    : CheckpointReader(*make_self(), path) {}

const std::string& CheckpointReader::text(const std::string& name) const {
  const auto found = texts_.find(name);
  if (found == texts_.end()) refuse(folder_, " has no ", name);
  return found->second;
}

}  // namespace axonn
