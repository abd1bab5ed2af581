#include "axonn/storage/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <filesystem>
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

std::string last_name(const std::string& path) {
  fs::path at(path);
  return (at.has_filename() ? at : at.parent_path()).filename().string();
}

/// The steps below `before` to try, best first: the one that `latest` names and those before it.
/// Later steps belong to an abandoned run and are tried only if `latest` is missing or unusable.
std::vector<std::int64_t> candidates(const std::string& folder, std::int64_t before,
                                     std::vector<std::string>& warnings) {
  std::vector<std::int64_t> steps = steps_in(folder);
  std::erase_if(steps, [&](std::int64_t step) { return step >= before; });
  const std::string path = concat(folder, '/', kLatestName);
  std::error_code ignored;
  if (before != CheckpointReader::kAnyStep || !fs::exists(path, ignored)) return steps;
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

}  // namespace

/// Reads and checks index and texts of DIR/step-N, and the sizes of its files. Returns the index's
/// text.
std::string CheckpointReader::open_step(const std::string& folder) {
  const std::string path = concat(folder, '/', kIndexName);
  std::string text = read_text(path, kMostIndexBytes);
  CheckpointIndex index = parse_index(text, path);
  StateTexts texts;
  for (const auto& [name, stored] : index.texts) {
    const std::string file = concat(folder, '/', name);
    const std::string& contents = texts[name] = read_text(file);
    if (std::ssize(contents) != stored.bytes || xxh3(contents) != stored.checksum)
      refuse(file, " is altered: its size or checksum is not the one in the index");
  }
  for (const StoredFile& stored : index.files) {
    const std::string file = concat(folder, '/', stored.name);
    const std::int64_t bytes = InputFile(file).bytes();
    if (bytes != stored.bytes)
      refuse(file, " has ", bytes, " bytes instead of ", stored.bytes,
             bytes < stored.bytes ? ": it is cut short" : ": it is altered");
  }
  folder_ = folder;
  index_ = std::move(index);
  texts_ = std::move(texts);
  return text;
}

std::string CheckpointReader::open_newest(const std::string& folder, std::int64_t before) {
  const auto steps = candidates(folder, before, warnings_);
  if (steps.empty())
    refuse(folder, " holds no checkpoint (no folder step-N); give the path of another folder");
  for (std::int64_t step : steps) {
    std::string text;
    const std::string fault =
        fault_of([&] { text = open_step(concat(folder, '/', step_name(step))); });
    if (fault.empty()) return text;
    warnings_.push_back(concat("checkpoint ", step_name(step), " is skipped: ", fault));
  }
  std::string all;
  for (const std::string& warning : warnings_) all += "\n  " + warning;
  refuse(folder, " holds no intact checkpoint:", all);
}

/// Does the same for a path of either kind.
std::string CheckpointReader::open(std::string path, std::int64_t before) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    refuse(path, " is not a folder of checkpoints",
           fs::exists(path, ignored) ? "" : ": no such path");
  const bool is_step =
      fs::exists(path + '/' + std::string(kIndexName), ignored) || step_of(last_name(path)) >= 0;
  return is_step ? open_step(path) : open_newest(path, before);
}

CheckpointReader::CheckpointReader(Communicator& world, const std::string& path,
                                   std::int64_t before) {
  std::vector<std::string> told, contents;  // told by rank 0: folder and index, or its fault
  if (world.rank() == 0) {
    std::string index;
    const std::string fault = fault_of([&] { index = open(path, before); });
    told = fault.empty() ? std::vector{folder_, std::move(index)} : std::vector{fault};
    for (const auto& [name, text] : texts_) contents.push_back(text);
  }
  told = broadcast_texts(world, std::move(told));
  if (told.size() == 1) refuse(told.front());
  folder_ = told[0];
  if (world.rank() != 0) index_ = parse_index(told[1], folder_);
  one_of_several_ = last_name(path) != last_name(folder_);
  contents = broadcast_texts(world, std::move(contents));
  for (auto text = contents.begin(); const auto& [name, stored] : index_.texts)
    texts_[name] = *text++;
  warnings_ = broadcast_texts(world, std::move(warnings_));
}

CheckpointReader::CheckpointReader(const std::string& path)
    : CheckpointReader(*make_self(), path) {}

const std::string& CheckpointReader::text(const std::string& name) const {
  const auto found = texts_.find(name);
  if (found == texts_.end()) refuse(folder_, " has no ", name);
  return found->second;
}

}  // namespace axonn
