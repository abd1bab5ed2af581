#include "axonn/train/pretrained.h"

#include <algorithm>

#include "axonn/base/clock.h"
#include "axonn/storage/parameter_source.h"
#include "axonn/storage/stored_values.h"

namespace axonn {

LoadCost load_pretrained(const Context& ctx, const std::vector<ParameterGroup*>& groups,
                         const SafetensorsFolder& folder, const TensorNames& names,
                         const CheckpointReader::Progress& progress) {
  std::vector<const ParameterSpec*> specs;
  std::vector<ParameterGroup*> group_of;
  for (ParameterGroup* group : groups)
    for (const auto& parameter : group->parameters()) {
      specs.push_back(&parameter->spec());
      group_of.push_back(group);
    }
  std::vector<WantedSlices> wanted = find_tensors(folder, specs, names);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const ParameterSpec* spec = specs[i];
    if (spec->layout.col_axis) wanted[i].across = &ctx.grid.along(*spec->layout.col_axis);
    for (const auto& [owner, slice] : group_of[i]->piece_slices())
      if (owner == spec) wanted[i].slices.push_back(slice);
  }
  std::vector<float> values;
  const LoadCost cost = load_slices(
      wanted,
      [&](std::size_t i, std::int64_t offset, std::span<const std::byte> stored) {
        const StoredType type = wanted[i].tensor.entry->type;
        const std::size_t count = stored.size() / bytes_of(type);
        if (type == StoredType::bf16 && group_of[i]->takes_bf16())
          return group_of[i]->set_values(ctx, offset,
                                         {reinterpret_cast<const bf16*>(stored.data()), count});
        values.resize(count);
        to_floats(type, stored, values);
        group_of[i]->set_values(ctx, offset, values);
      },
      progress);
  for (ParameterGroup* group : groups) group->publish_values(ctx);
  return cost;
}

LoadCost load_parameters(const Context& ctx, const std::vector<ParameterGroup*>& groups,
                         const CheckpointReader& reader,
                         const CheckpointReader::Progress& progress) {
  constexpr std::int64_t kAtOnce = 2 << 20;  // elements: 8 MiB
  const double began = now_seconds();
  std::vector<CheckpointParameter> model;
  std::int64_t total = 0, done = 0;
  for (const ParameterGroup* group : groups) {
    for (const auto& parameter : group->parameters()) {
      const ParameterSpec& spec = parameter->spec();
      model.push_back({spec.name, spec.layout.rows, spec.layout.cols});
    }
    for (const auto& [spec, slice] : group->piece_slices()) total += slice.count() * 4;
  }
  CheckpointSource source(reader, model);
  std::vector<float> values;
  for (ParameterGroup* group : groups)
    for (const auto& [spec, slice] : group->piece_slices())
      for (Slice part = slice; part.begin < slice.end; part.begin = part.end) {
        part.end = std::min(slice.end, part.begin + kAtOnce);
        values.resize(part.count());
        source.read(spec->name, part, values);
        group->set_values(ctx, slice.offset + part.begin - slice.begin, values);
        done += part.count() * 4;
        if (progress) progress(done, total);
      }
  return {.bytes = source.bytes_read(), .seconds = now_seconds() - began};
}

void agree_on_loading(Communicator& world, const CheckpointReader& reader,
                      const std::function<void()>& load) {
  const std::string fault = fault_of(load);
  try {
    agree(world, "loading " + reader.folder(), fault);
  } catch (const Aborted&) {
    throw;
  } catch (const Error& error) {
    refuse(error.what());  // the files are at fault
  }
}

}  // namespace axonn
