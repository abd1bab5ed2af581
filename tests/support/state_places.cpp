#include "tests/support/state_places.h"

#include "axonn/compute/tensor/address.h"
#include "axonn/compute/tensor/dynamic_map.h"
#include "axonn/run/optim/small_state.h"

namespace axonn::testing_support {

std::vector<Place> state_places(Training& training, bool copies) {
  std::vector<Place> all;
  const auto add = [&](const View& of, const std::string& kind,
                       const std::vector<NamedSlice>& slices, std::int64_t divisor = 1,
                       bool frozen = false) {
    const std::int64_t size = bytes_of(of.dtype);
    for (const auto& [spec, slice] : slices) {
      const std::int64_t begin = slice.offset / divisor,
                         end = (slice.offset + slice.count() + divisor - 1) / divisor;
      if (begin < end)
        all.push_back({.begin = address<std::byte>(of) + begin * size,
                       .bytes = (end - begin) * size,
                       .name = concat(kind, " of ", spec->name, " changed"),
                       .is_float = of.dtype != DType::u8,
                       .frozen = frozen});
    }
  };
  const OptimizerState& state = training.optimizer;
  for (std::size_t i = 0; i < state.groups().size(); ++i) {
    const ParameterGroup& group = *state.groups()[i];
    for (const auto& [kind, data] : state.buffers(i)) add(data, kind, group.piece_slices());
    for (const auto& [kind, data, slices] : state.factors(i)) add(data, "exp_avg_sq", *slices);
    for (std::size_t k = 0; state.small(i) && k < state.small(i)->size(); ++k) {
      const auto& [sign, few, absmax, full] = (*state.small(i))[k];
      const SmallLayout& layout = state.small(i)->layout();
      const std::string kind = state.state_names()[k];
      if (!few.empty()) add(few.view(), kind, layout.slices(true));
      if (!absmax.empty()) add(absmax.view(), kind, layout.slices(true), DynamicMap::kBlock);
      if (!full.empty()) add(full.view(), kind, layout.slices(false));
    }
  }
  if (!copies) return all;
  const Grid& grid = training.model.grid();
  for (const ParameterGroup* group : training.model.model().groups())
    for (int data = 0; data < grid.extent(Axis::data); ++data) {
      Coords at = grid.coords();
      at.at_axis[static_cast<int>(Axis::data)] = data;
      const bool is_master = !group->frozen() && group->shard().dtype == DType::f32;
      if (is_master && data == grid.coord(Axis::data)) continue;
      const std::int64_t piece = group->piece_of_compute().cols;
      std::vector<NamedSlice> slices = group->layout().piece_slices(at, group->layout().sizes(at));
      if (group->quantization() != Quantization::none) slices.clear();
      add(group->shard().col_range(data * piece, piece), "the compute copy", slices, 1,
          group->frozen());
    }
  return all;
}

}  // namespace axonn::testing_support
