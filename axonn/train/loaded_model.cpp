#include "axonn/train/loaded_model.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/parallel/scheduling.h"
#include "axonn/text/tokenizer.h"
#include "axonn/train/devices.h"
#include "axonn/train/pretrained.h"
#include "axonn/train/stored_model.h"

namespace axonn {

Config with_vocab(Config config) {
  if (config.model.vocab > 0) return config;
  config.model.vocab = make_tokenizer(config.data.tokenizer)->vocab_size();
  return config;
}

LoadedModel::LoadedModel(const Config& config, Communicator& world,
                         std::unique_ptr<Backend> backend, Options options)
    : config_(with_vocab(config)),
      backend_(std::move(backend)),
      arena_(std::make_unique<Arena>(backend_->device())),
      device_world_(make_device_world(config.parallelism, world, backend_->device())),
      grid_(std::make_unique<Grid>(device_world_ ? *device_world_ : world,
                                   config.parallelism.grid())) {
  config_.model = resolved(config_.model, config_.model.vocab,
                           std::max<std::int64_t>(config_.training.seq_len, 1));
  model_ = options.make_model(config_.model, *grid_);
  trained_ = trained_groups(*model_);
  const Context ctx = context();
  for (ParameterGroup* group : model_->groups()) {
    if (!options.trainable) group->freeze();
    group->allocate(ctx);
  }
}

Context LoadedModel::context_on(Backend& backend) const {
  const ParallelismConfig& p = config_.parallelism;
  Context ctx(backend, *arena_, *grid_, config_.training.dtype);
  ctx.seed = static_cast<std::uint64_t>(config_.training.seed);
  ctx.own_scheduling().run = {
      .overlap = {p.overlap_input_gradients, p.overlap_weight_gradients, p.overlap_weights,
                  p.overlap_data},
      .reduce_dtype = p.reduce_dtype,
      .sequence_parallel = p.sequence_parallel,
      .chunks = p.chunks,
      .recompute = config_.activation_checkpoint.mode == RecomputeMode::full};
  return ctx;
}

void LoadedModel::initialise(const std::vector<ParameterGroup*>& groups) {
  const Context ctx = context();
  for (ParameterGroup* group : groups)
    group->initialise(ctx, static_cast<std::uint64_t>(config_.training.seed));
}

/// Loads a model without adapters: all of it, or the frozen base of adapters.
LoadCost LoadedModel::load_base(const std::vector<ParameterGroup*>& groups) {
  const std::string& path = config_.model.path;
  if (has_safetensors(path))
    return load_pretrained(context(), groups, SafetensorsFolder(path), base_names(config_.model));
  return load_values(CheckpointReader(grid_->world(), path), groups);
}

LoadCost LoadedModel::load_adapters() {
  const std::string& path = config_.model.lora.path;
  if (is_adapter_folder(path))
    return load_pretrained(context(), trained_, SafetensorsFolder(path, "adapter_model"),
                           adapter_names(config_.model));
  return load_values(CheckpointReader(grid_->world(), path), trained_);
}

LoadCost LoadedModel::initialise() {
  const bool adapters = config_.model.lora.rank > 0;
  if (!adapters && !config_.model.path.empty()) return load_base(trained_);
  LoadCost cost = initialise_frozen();
  if (config_.model.lora.path.empty()) {
    initialise(trained_);
    return cost;
  }
  const LoadCost more = load_adapters();
  return {.bytes = cost.bytes + more.bytes, .seconds = cost.seconds + more.seconds};
}

LoadCost LoadedModel::initialise_frozen() {
  std::vector<ParameterGroup*> groups = model_->groups();
  std::erase_if(groups, [this](ParameterGroup* group) {
    return std::ranges::find(trained_, group) != trained_.end();
  });
  if (groups.empty()) return {};
  if (!config_.model.path.empty()) return load_base(groups);
  initialise(groups);
  return {};
}

LoadCost LoadedModel::load(const CheckpointReader& reader) { return load_values(reader, trained_); }

LoadCost LoadedModel::load_values(const CheckpointReader& reader,
                                  const std::vector<ParameterGroup*>& groups) {
  LoadCost cost;
  agree_on_loading(grid_->world(), reader,
                   [&] { cost = load_parameters(context(), groups, reader); });
  for (ParameterGroup* group : groups) group->publish_values(context());
  return cost;
}

void LoadedModel::settle() const {
  for (const ParameterGroup* group : model_->groups()) group->piece_of_compute();
  backend_->device().compute().synchronize();
}

}  // namespace axonn
