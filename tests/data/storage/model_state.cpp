#include "tests/data/storage/model_state.h"

#include <cstring>
#include <mutex>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"

namespace axonn::test {

namespace {

constexpr std::int64_t kWidth = 24, kHeads = 12, kKvHeads = 4, kHeadWidth = 2, kFfn = 96;
constexpr std::int64_t kAlign = 16;  // floats in 64 bytes
constexpr float kPadding = -1;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

std::vector<Segment> qkv_segments() {
  const Segment shared = {.rows = kKvHeads * kHeadWidth,
                          .unit = kHeadWidth,
                          .kind = Segment::Kind::shared,
                          .readers = kHeads};
  return {{.rows = kHeads * kHeadWidth, .unit = kHeadWidth}, shared, shared};
}

/// Below 2^22, so that quarters are exact in f32.
float value_of(std::size_t kind, std::int64_t parameter, std::int64_t index, float shift) {
  return static_cast<float>(parameter * 10'000 + index) + static_cast<float>(kind) / 4 + shift;
}

/// Calls visit(kind, parameter's number, global index, element) for all elements of all slices.
template <typename Visit>
void for_each_element(const std::vector<StateBlock>& blocks, Visit visit) {
  std::int64_t number = 0;
  for (const StateBlock& block : blocks)
    for (const StateParameter& parameter : block.parameters) {
      ++number;
      for (const Slice& s : parameter.slices)
        for (std::int64_t i = s.begin; i < s.end; ++i)
          for (std::size_t kind = 0; kind < block.buffers.size(); ++kind)
            visit(kind, number, (s.row + i / s.cols) * parameter.stored.cols + s.col + i % s.cols,
                  static_cast<float*>(block.buffers[kind].data)[s.offset + i - s.begin]);
    }
}

}  // namespace

ModelState::ModelState(const GridShape& shape, int rank, ModelStateOptions options)
    : shape_(shape), coords_(coords_of(shape, rank)), options_(std::move(options)) {
  const std::int64_t qkv = (kHeads + 2 * kKvHeads) * kHeadWidth;
  const std::vector<Segment> padded = {
      {.rows = options_.vocab, .unit = 1, .kind = Segment::Kind::padded}};
  add_block("embed", {{"wte.weight", {options_.vocab, kWidth, Axis::x, Axis::y, padded}},
                      {"wpe.weight", {10, kWidth, std::nullopt, Axis::y, {}}}});
  add_block("h.0", {{"h.0.ln_1.weight", {kWidth, 1, Axis::y, std::nullopt, {}}},
                    {"h.0.attn.weight", {qkv, kWidth, Axis::x, Axis::y, qkv_segments()}},
                    {"h.0.attn.bias", {qkv, 1, Axis::x, std::nullopt, qkv_segments()}},
                    {"h.0.up.weight", {kFfn, kWidth, Axis::x, Axis::y, {}}},
                    {"h.0.down.weight", {kWidth, kFfn, Axis::y, Axis::x, {}}}});
  add_block("ln_f", {{"ln_f.weight", {kWidth, 1, Axis::y, std::nullopt, {}}}});
  if (options_.experts == 0) return;
  Layouts experts;
  for (std::int64_t i = 0; i < options_.experts; ++i) {
    const std::string expert = concat("h.0.experts.", i);
    const ExpertNumber number{i, options_.experts};
    experts.push_back({expert + ".up.weight", {kFfn, kWidth, Axis::x, Axis::y, {}, 0, {}, number}});
    experts.push_back(
        {expert + ".down.weight", {kWidth, kFfn, Axis::y, Axis::x, {}, 0, {}, number}});
  }
  add_block("h.0.experts", experts, shape_.z / shape_.experts,
            coords_.at(Axis::z) / shape_.experts);
}

void ModelState::add_block(const std::string& name, const Layouts& parameters, int ways, int at) {
  const auto count_of = [&](const Layout& layout) {
    return layout.held_at(shape_, coords_) ? layout.local_count(shape_) : 0;
  };
  std::int64_t flat = 0;
  for (const auto& [_, layout] : parameters) flat = round_up(flat + count_of(layout), kAlign);
  flat = round_up(flat, kAlign * ways * shape_.data);
  StateBlock block;
  block.name = name;
  block.count = flat / ways / shape_.data;
  const std::int64_t begin = (at * shape_.data + coords_.at(Axis::data)) * block.count;
  std::int64_t offset = 0;
  for (const auto& [parameter, layout] : parameters) {
    layout.check(parameter, shape_);
    auto slices = layout.slices(shape_, coords_);
    for (Slice& slice : slices) slice.offset += offset;
    offset = round_up(offset + count_of(layout), kAlign);
    block.parameters.push_back(
        {{parameter, layout.rows, layout.cols}, clip(slices, begin, begin + block.count)});
    parameter_count_ += layout.count();
  }
  for (const std::string& kind : options_.kinds) {
    auto& values = storage_.emplace_back(static_cast<std::size_t>(block.count), kPadding);
    block.buffers.push_back({kind, values.data()});
  }
  blocks_.push_back(std::move(block));
}

void ModelState::clear() {
  for (auto& values : storage_) std::ranges::fill(values, kPadding);
}

void ModelState::fill(float shift) {
  clear();
  for_each_element(blocks_, [=](std::size_t kind, std::int64_t p, std::int64_t i, float& element) {
    element = value_of(kind, p, i, shift);
  });
}

std::string ModelState::difference(float shift) const {
  std::string found;
  std::int64_t elements = 0;
  for_each_element(blocks_, [&](std::size_t kind, std::int64_t p, std::int64_t i, float element) {
    elements += element != kPadding;
    if (found.empty() && element != value_of(kind, p, i, shift))
      found = concat(options_.kinds[kind], " of parameter ", p, ", element ", i, ": ", element,
                     " instead of ", value_of(kind, p, i, shift));
  });
  for (const auto& values : storage_)
    for (float value : values) elements -= value != kPadding;
  if (found.empty() && elements != 0) return concat(-elements, " elements of padding were written");
  return found;
}

SaveCost save_model(const std::string& folder, const GridShape& shape, std::int64_t step,
                    SaverOptions options, ModelStateOptions model) {
  options.folder = folder;
  SaveCost cost;
  run_ranks(shape.ranks(), [&](Communicator& world) {
    ModelState state(shape, world.rank(), model);
    state.fill(static_cast<float>(step));
    CheckpointSaver saver(options);
    saver.begin(world, step, state.blocks(),
                {{"state.json", concat("{\"step\": ", step, "}")}, {"config.toml", "[model]\n"}});
    const SaveCost mine = saver.finish(world);
    if (world.rank() == 0) cost = mine;
  });
  return cost;
}

std::int64_t load_blocks(const CheckpointReader& reader, std::span<const StateBlock> blocks) {
  std::vector<StoredParameter> parameters;
  std::vector<std::string> kinds;
  std::vector<SliceRequest> wanted;
  std::vector<float*> buffers;
  for (const StateBlock& block : blocks) {
    for (const StateParameter& parameter : block.parameters) parameters.push_back(parameter.stored);
    for (const StateBuffer& buffer : block.buffers) {
      kinds.push_back(buffer.kind);
      for (const auto& [stored, slices] : block.parameters) {
        wanted.push_back({.parameter = stored.name, .kind = buffer.kind, .slices = slices});
        buffers.push_back(static_cast<float*>(buffer.data));
      }
    }
  }
  CheckpointSource source(reader, std::move(parameters), kinds);
  return source.read(wanted, [&](std::size_t i, std::int64_t offset, StoredType, auto values) {
    std::memcpy(buffers[i] + offset, values.data(), values.size());
  });
}

std::string load_model(const std::string& path, const GridShape& shape, ModelStateOptions model) {
  std::string found;
  std::mutex mutex;
  run_ranks(shape.ranks(), [&](Communicator& world) {
    ModelState state(shape, world.rank(), model);
    const CheckpointReader reader(world, path);
    load_blocks(reader, state.blocks());
    const std::string difference = state.difference(static_cast<float>(reader.step()));
    const std::lock_guard lock(mutex);
    if (!difference.empty()) found = concat("rank ", world.rank(), ": ", difference);
  });
  return found;
}

}  // namespace axonn::test
