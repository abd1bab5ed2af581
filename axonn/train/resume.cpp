#include "axonn/train/resume.h"

#include <filesystem>
#include <optional>

#include "axonn/base/check.h"
#include "axonn/comm/texts.h"
#include "axonn/storage/checkpoint/checkpoint_folder.h"
#include "axonn/storage/checkpoint/checkpoint_source.h"
#include "axonn/train/session.h"

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

std::string resume_path(const Config& config) {
  if (config.checkpoint.resume != "auto") return config.checkpoint.resume;
  const std::string own = config.output.dir + "/checkpoints";
  return has_checkpoint(own) ? own : "";
}

std::vector<StateBlock> state_of(const OptimizerState& optimizer, Device& device) {
  std::vector<StateBlock> blocks;
  for (std::size_t i = 0; i < optimizer.groups().size(); ++i) {
    ParameterGroup* group = optimizer.groups()[i];
    StateBlock block{.name = group->name(), .count = group->piece_size(), .device = &device};
    for (const StoredParameter& stored : stored_parameters({&group, 1})) {
      StateParameter& parameter = block.parameters.emplace_back(stored);
      for (const auto& [spec, slice] : group->piece_slices())
        if (spec->name == stored.name) parameter.slices.push_back(slice);
    }
    for (const auto& [kind, data] : optimizer.buffers(i)) block.buffers.push_back({kind, data});
    blocks.push_back(std::move(block));
  }
  return blocks;
}

LoadCost load_state(const Context& ctx, const OptimizerState& optimizer,
                    const CheckpointReader& reader) {
  std::vector<Destination> to;
  std::vector<std::string> kinds;
  for (std::size_t i = 0; i < optimizer.groups().size(); ++i)
    for (const auto& [kind, data] : optimizer.buffers(i)) {
      to.push_back({optimizer.groups()[i], kind, data});
      if (i == 0) kinds.push_back(kind);
    }
  CheckpointSource source(reader, stored_parameters(optimizer.groups()), kinds);
  return load(ctx, to, source);
}

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
      const LoadCost cost = session.load(*reader);
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
