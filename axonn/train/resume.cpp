#include "axonn/train/resume.h"

#include <filesystem>
#include <optional>

#include "axonn/base/check.h"
#include "axonn/comm/texts.h"
#include "axonn/storage/checkpoint/checkpoint_folder.h"

namespace axonn {

namespace {

/// Returns the folders of the checkpoints in DIR before `step`, newest first, as rank 0 sees them.
std::vector<std::string> older_ones(Communicator& world, const std::string& folder,
                                    std::int64_t step) {
  std::vector<std::string> found;
  if (world.rank() == 0)
    for (const std::int64_t other : steps_in(folder))
      if (other < step) found.push_back(concat(folder, '/', step_name(other)));
  return broadcast_texts(world, std::move(found));
}

/// Whether `path` is the folder that holds the checkpoint `taken`, rather than that checkpoint.
bool holds_several(std::filesystem::path path, const std::string& taken) {
  if (!path.has_filename()) path = path.parent_path();  // "DIR/"
  return std::filesystem::path(taken).parent_path() == path;
}

}  // namespace

Resumed resume(Session& session, const std::string& path) {
  Communicator& world = session.grid().world();
  std::optional<CheckpointReader> reader(std::in_place, world, path);
  std::vector<std::string> warnings = reader->warnings(), older;
  if (holds_several(path, reader->folder()))
    older =
        older_ones(world, std::filesystem::path(reader->folder()).parent_path(), reader->step());
  std::string folder = reader->folder(), first_fault;
  for (std::size_t next = 0;; ++next) {
    try {  // a failure is the same on all ranks
      if (!reader) reader.emplace(world, folder);
      const LoadCost cost = session.load(*reader, Session::Load::everything);
      return {*std::move(reader), cost, std::move(warnings)};
    } catch (const UsageError& error) {
      if (next == 0) first_fault = error.what();
      warnings.push_back(concat("checkpoint ", folder, " is skipped: ", error.what()));
    }
    if (next == older.size()) refuse(first_fault);
    folder = older[next];
    reader.reset();
  }
}

}  // namespace axonn
