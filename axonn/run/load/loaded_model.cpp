#include "axonn/run/load/loaded_model.h"

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/model_files.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/load/devices.h"

namespace axonn {

namespace {

/// See RunSettings::logits.
std::optional<DType> logits_type(const TrainingConfig& training) {
  if (training.logits_dtype == LogitsType::automatic) return {};
  return training.logits_dtype == LogitsType::f32 ? DType::f32 : training.dtype;
}

/// The window that all layers have; 0: some see all positions before their own.
std::int64_t window_of_all_layers(const ModelConfig& model) {
  return model.is_llama() && model.delta_layers.empty() ? model.widest_window() : 0;
}

/// Lets the arena keep in a file what [offload] says.
void offload(const OffloadConfig& config, Arena& arena) {
  if (config.dir.empty()) return;
  std::vector<MemoryUse> uses;
  if (config.parameters) uses.push_back(MemoryUse::parameters);
  if (config.gradients) uses.push_back(MemoryUse::gradients);
  if (config.optimizer) uses.push_back(MemoryUse::optimizer);
  arena.offload(config.dir, uses);
}

}  // namespace

LoadedModel::LoadedModel(const PreparedRun& run, Communicator& world,
                         std::unique_ptr<Backend> backend, Options options)
    : config_(run.config()),
      schedule_(config_.lr_scheduler),
      cores_(backend ? nullptr : std::make_unique<OwnCores>(config_, world)),
      backend_(backend ? std::move(backend) : make_backend(config_, world, cores_->threads())),
      device_world_(make_device_world(config_.parallelism, world, backend_->arena())),
      grid_(std::make_unique<Grid>(device_world_ ? *device_world_ : world,
                                   config_.parallelism.grid())),
      progress_(world.rank() == 0 ? std::move(options.progress) : ProgressTarget{}) {
  const RecomputeConfig& recompute = config_.activation_checkpoint;
  AXONN_CHECK(recompute.budget == 0 || recompute.peak_bytes > 0,
              "LoadedModel: activation_checkpoint.budget was not applied, as within_budget() does; "
              "set mode, blocks and values instead");
  offload(config_.offload, backend_->arena());
  model_ = make_model(config_.model, *grid_);
  trained_ = trained_groups(*model_);
  const Context ctx = context();
  for (ParameterGroup* group : model_->groups()) {
    if (!options.trainable) group->freeze();
    group->allocate(ctx);
  }
}

LoadedModel::~LoadedModel() = default;

int LoadedModel::threads() const { return cores_ ? cores_->threads() : 0; }

Context LoadedModel::context_on(Backend& backend) const {
  const ParallelismConfig& p = config_.parallelism;
  Context ctx(backend, backend.arena(), *grid_, config_.training.dtype);
  ctx.seed = static_cast<std::uint64_t>(config_.training.seed);
  ctx.own_scheduling().run = {
      .overlap = p.overlap,
      .keep_weights = p.keep_weights,
      .reduce_dtype = p.reduce_dtype,
      .logits = logits_type(config_.training),
      .sequence_parallel = p.sequence_parallel,
      .sequence_cut = {p.context_layout, window_of_all_layers(config_.model)},
      .chunks = p.chunks,
      .recompute = recomputed_blocks(config_.activation_checkpoint),
      .keep_dispatch = config_.activation_checkpoint.keep_dispatch};
  return ctx;
}

LoadCost LoadedModel::initialise() {
  ProgressLine line(progress_, kLoading);
  return axonn::initialise(context(), *model_, trained_, config_.model, config_.model_files,
                           std::ref(line));
}

LoadCost LoadedModel::initialise_frozen() {
  ProgressLine line(progress_, kLoading);
  return axonn::initialise_frozen(context(), *model_, trained_, config_.model, config_.model_files,
                                  std::ref(line));
}

void LoadedModel::set_steps(std::int64_t steps) {
  config_.lr_scheduler = schedule_;
  config_ = with_steps(std::move(config_), steps);
}

void LoadedModel::settle() const {
  for (const ParameterGroup* group : model_->groups()) group->piece_of_compute();
  backend_->device().compute().synchronize();
}

}  // namespace axonn
