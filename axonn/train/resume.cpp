#include "axonn/train/resume.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "axonn/base/check.h"
#include "axonn/storage/checkpoint/checkpoint_folder.h"
#include "axonn/storage/checkpoint/checkpoint_source.h"
#include "axonn/train/session.h"

namespace axonn {

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
  std::vector<std::string> warnings;
  std::string first_fault;
  for (std::int64_t before = CheckpointReader::kAnyStep;;) {  // a failure is the same on all ranks
    std::optional<CheckpointReader> reader;
    try {
      reader.emplace(session.grid().world(), path, before);
      std::ranges::copy(reader->warnings(), std::back_inserter(warnings));
      const LoadCost cost = session.load(*reader);
      return {*std::move(reader), cost, std::move(warnings)};
    } catch (const UsageError& error) {
      if (first_fault.empty()) first_fault = error.what();
      if (!reader || !reader->one_of_several()) refuse(first_fault);
      warnings.push_back(concat("checkpoint ", reader->folder(), " is skipped: ", error.what()));
      before = reader->step();
    }
  }
}

}  // namespace axonn
