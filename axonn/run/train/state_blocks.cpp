#include "axonn/run/train/state_blocks.h"

#include "axonn/compute/tensor/address.h"
#include "axonn/network/model/model_files.h"

namespace axonn {

std::int64_t checkpoint_bytes(std::span<ParameterGroup* const> trained, const StoredState& state) {
  std::int64_t elements = 0;
  for (const StoredParameter& parameter : stored_parameters(trained))
    elements += parameter.count() * state.kinds;
  for (const ParameterGroup* group : trained)
    if (state.factors) elements += FactorLayout(*group).count();
  return elements * kElementBytes;
}

std::int64_t piece_bytes(std::span<ParameterGroup* const> trained, const StoredState& state) {
  std::int64_t elements = 0;
  for (const ParameterGroup* group : trained) {
    elements += group->sizes().piece * state.kinds;
    if (state.factors) elements += FactorLayout(*group).piece();
  }
  return elements * kElementBytes;
}

std::vector<StateBlock> state_blocks(const LoadedModel& model, const OptimizerState& optimizer) {
  std::vector<StateBlock> blocks;
  for (std::size_t i = 0; i < model.trained().size(); ++i) {
    ParameterGroup* group = model.trained()[i];
    StateBlock block{
        .name = group->name(), .count = group->piece_size(), .device = &model.backend().device()};
    for (const StoredParameter& stored : stored_parameters({&group, 1})) {
      StateParameter& parameter = block.parameters.emplace_back(stored);
      for (const auto& [spec, slice] : group->piece_slices())
        if (spec->name == stored.name) parameter.slices.push_back(slice);
    }
    for (const auto& [kind, data] : optimizer.buffers(i))
      block.buffers.push_back({kind, address<float>(data)});
    StateBlock of_factors = block;
    blocks.push_back(std::move(block));
    for (const auto& [kind, piece, slices] : optimizer.factors(i)) {
      of_factors.count = piece.cols;
      of_factors.buffers = {{kind, address<float>(piece)}};
      for (StateParameter& parameter : of_factors.parameters) {
        parameter.slices.clear();
        for (const auto& [spec, slice] : *slices)
          if (spec->name == parameter.stored.name) parameter.slices.push_back(slice);
      }
      blocks.push_back(of_factors);
    }
  }
  return blocks;
}

}  // namespace axonn
