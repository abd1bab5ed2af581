#include "axonn/train/checkpoints.h"

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/comm/texts.h"
#include "axonn/storage/checkpoint/checkpoint_folder.h"
#include "axonn/train/pretrained.h"

namespace axonn {

namespace {

constexpr const char* kStateFile = "state.json";

/// Describes the part of a group's parameters that this rank holds, without buffers.
StateBlock block_of(const ParameterGroup& group, Device& device) {
  StateBlock block{.name = group.name(),
                   .count = group.piece_size(),
                   .parameters = {},
                   .buffers = {},
                   .device = &device};
  for (const auto& parameter : group.parameters()) {
    const ParameterSpec& spec = parameter->spec();
    StateParameter entry{
        .name = spec.name, .rows = spec.layout.rows, .cols = spec.layout.cols, .slices = {}};
    for (const auto& [owner, slice] : group.piece_slices())
      if (owner == &spec) entry.slices.push_back(slice);
    block.parameters.push_back(std::move(entry));
  }
  return block;
}

LoadCost load_state(const LoadedModel& model, const OptimizerState& optimizer,
                    const CheckpointReader& reader) {
  LoadCost cost;
  agree_on_loading(model.grid().world(), reader,
                   [&] { cost = reader.load(state_blocks(model, &optimizer)); });
  for (ParameterGroup* group : model.trained()) group->publish_values(model.context());
  return cost;
}

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

std::vector<StateBlock> state_blocks(const LoadedModel& model, const OptimizerState* optimizer) {
  std::vector<StateBlock> blocks;
  for (std::size_t i = 0; i < model.trained().size(); ++i) {
    const ParameterGroup& group = *model.trained()[i];
    StateBlock& block = blocks.emplace_back(block_of(group, model.backend().device()));
    if (!optimizer)
      block.buffers.push_back({"master", group.master().as<float>()});
    else
      for (const auto& [kind, data] : optimizer->buffers(i)) block.buffers.push_back({kind, data});
  }
  return blocks;
}

StateTexts to_texts(const RunState& state, const Config& config, std::string config_toml) {
  const OutlierFilter::State& means = state.outliers;
  const nlohmann::json json = {
      {"steps_done", state.steps_done},
      {"samples_done", state.steps_done * config.training.global_batch},
      {"tokens_seen", state.tokens_seen},
      {"seed", config.training.seed},
      {"outliers", {{"loss", means.loss}, {"norm", means.norm}, {"steps", means.steps}}}};
  StateTexts texts{{kStateFile, json.dump(2) + "\n"}, {"config.toml", std::move(config_toml)}};
  if (!state.products.products.empty()) texts.emplace(kProductsFile, to_json(state.products));
  return texts;
}

RunState read_run_state(const CheckpointReader& reader, const Config& config) {
  const auto json = nlohmann::json::parse(reader.text(kStateFile), nullptr, false);
  if (!json.is_object() || !json.contains("steps_done") || !json["steps_done"].is_number_integer())
    refuse(reader.folder(), "/", kStateFile, " does not state how many steps were done");
  RunState state{.steps_done = json["steps_done"]};
  const TrainingConfig& t = config.training;
  state.tokens_seen = json.value("tokens_seen", state.steps_done * t.global_batch * t.seq_len);
  const auto means = json.value("outliers", nlohmann::json::object());
  state.outliers = {means.value("loss", 0.0), means.value("norm", 0.0), means.value("steps", 0.0)};
  if (t.tune && reader.has_text(kProductsFile))
    state.products = parse_matmul_choices(reader.text(kProductsFile),
                                          concat(reader.folder(), '/', kProductsFile));
  return state;
}

Resumed resume(const LoadedModel& model, const OptimizerState& optimizer, const std::string& path) {
  Communicator& world = model.grid().world();
  std::optional<CheckpointReader> reader(std::in_place, world, path);
  std::vector<std::string> warnings = reader->warnings(), older;
  if (holds_several(path, reader->folder()))
    older =
        older_ones(world, std::filesystem::path(reader->folder()).parent_path(), reader->step());
  std::string folder = reader->folder(), first_fault;
  for (std::size_t next = 0;; ++next) {
    try {  // a failure is the same on all ranks
      if (!reader) reader.emplace(world, folder);
      const LoadCost cost = load_state(model, optimizer, *reader);
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
