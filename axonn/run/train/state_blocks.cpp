#include "axonn/run/train/state_blocks.h"

#include "axonn/compute/tensor/address.h"
#include "axonn/network/model/model_files.h"
#include "axonn/run/optim/small_state.h"

namespace axonn {

namespace {

/// Appends a copy of the block with other buffers, which have these slices.
void add_block(std::vector<StateBlock>& blocks, StateBlock block, std::vector<StateBuffer> buffers,
               const std::vector<NamedSlice>& slices) {
  block.buffers = std::move(buffers);
  for (StateParameter& parameter : block.parameters) {
    parameter.slices.clear();
    for (const auto& [spec, slice] : slices)
      if (spec->name == parameter.stored.name) parameter.slices.push_back(slice);
  }
  std::erase_if(block.parameters, [](const StateParameter& one) { return one.slices.empty(); });
  blocks.push_back(std::move(block));
}

/// Appends the state in few bits, and that of the same kinds that stays f32.
void add_small(std::vector<StateBlock>& blocks, const StateBlock& like,
               const OptimizerState& optimizer, const SmallState& state) {
  const std::vector<std::string> names = optimizer.state_names();
  std::vector<StateBuffer> small, full;
  for (std::size_t k = 0; k < state.size(); ++k) {
    const auto& [sign, values, absmax, rest] = state[k];
    const ValueCode code = state.type() == MomentType::bf16 ? ValueCode::bf16
                           : sign == StateSign::any         ? ValueCode::dynamic
                                                            : ValueCode::dynamic_unsigned;
    small.push_back({names[k], values.view().data, code, address<float>(absmax.view())});
    full.push_back({names[k], rest.view().data});
  }
  StateBlock block = like;
  block.name += ".small";
  block.count = state.layout().count(true);
  add_block(blocks, block, std::move(small), state.layout().slices(true));
  block.name = like.name + ".full";
  block.count = state.layout().count(false);
  add_block(blocks, block, std::move(full), state.layout().slices(false));
}

/// Lets a part of one of the tensors go to its file; null if none is in one.
std::function<void(const std::byte*, std::int64_t)> putting_away(std::vector<Tensor> tensors) {
  std::erase_if(tensors, [](const Tensor& one) { return !one.in_file(); });
  if (tensors.empty()) return {};
  return [tensors](const std::byte* from, std::int64_t bytes) {
    for (const Tensor& one : tensors) {
      const auto* const begin = static_cast<const std::byte*>(one.raw_view().data);
      const std::int64_t size = bytes_of(one.dtype());
      if (from >= begin && from + bytes <= begin + one.bytes())
        one.col_range((from - begin) / size, bytes / size).put_away();
    }
  };
}

}  // namespace

std::int64_t checkpoint_bytes(std::span<ParameterGroup* const> trained, const StateForm& form) {
  std::int64_t bytes = 0;
  for (const ParameterGroup* group : trained) bytes += checkpoint_bytes(*group, form);
  return bytes;
}

std::int64_t piece_bytes(std::span<ParameterGroup* const> trained, const StateForm& form) {
  std::int64_t bytes = 0;
  for (const ParameterGroup* group : trained) bytes += piece_bytes(*group, form);
  return bytes;
}

std::vector<StateBlock> state_blocks(const LoadedModel& model, const OptimizerState& optimizer) {
  std::vector<StateBlock> blocks;
  for (std::size_t i = 0; i < model.trained().size(); ++i) {
    ParameterGroup* group = model.trained()[i];
    StateBlock block{.name = group->name(),
                     .count = group->piece_size(),
                     .device = &model.backend().device(),
                     .put_away = putting_away(optimizer.offloadable(i))};
    for (const StoredParameter& stored : stored_parameters({&group, 1})) {
      StateParameter& parameter = block.parameters.emplace_back(stored);
      for (const auto& [spec, slice] : group->piece_slices())
        if (spec->name == stored.name) parameter.slices.push_back(slice);
    }
    for (const auto& [kind, data] : optimizer.buffers(i))
      block.buffers.push_back({kind, address<float>(data)});
    const StateBlock like = block;
    blocks.push_back(std::move(block));
    if (const SmallState* small = optimizer.small(i)) add_small(blocks, like, optimizer, *small);
    for (const auto& [kind, piece, slices] : optimizer.factors(i)) {
      StateBlock of_factors = like;
      of_factors.count = piece.cols;
      add_block(blocks, of_factors, {{kind, address<float>(piece)}}, *slices);
    }
  }
  return blocks;
}

}  // namespace axonn
