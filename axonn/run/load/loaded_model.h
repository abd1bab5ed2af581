#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/foundation/base/log.h"
#include "axonn/network/model/model.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

class OwnCores;

/// A model on a grid: this rank's device, memory, communicators and part of the parameters, which
/// training, generation and evaluation share.
class LoadedModel {
 public:
  struct Options {
    bool trainable = true;         ///< false: parameters are frozen and have no master copies
    ProgressTarget progress = {};  ///< shows on rank 0 how far reading parameters is
  };

  /// The model of a program that generates or evaluates, on this rank's device; not trainable.
  LoadedModel(const PreparedRun& run, Communicator& world)
      : LoadedModel(run, world, nullptr, {.trainable = false, .progress = {}}) {}
  /// Collective over world, which must outlive it. Allocates parameters, whose values are not yet
  /// set. Throws UsageError if the grid cannot cut the model, and Error if
  /// activation_checkpoint.budget was not applied. backend null: this rank's device and cores as
  /// the config says; the rank's own thread must then create, use and destroy it.
  LoadedModel(const PreparedRun& run, Communicator& world, std::unique_ptr<Backend> backend,
              Options options);
  ~LoadedModel();

  /// Sets the parameters that training starts from: those at model.path, or initial values from the
  /// seed. Adapters are read from lora.path, or get initial values. Returns what reading cost this
  /// rank. Collective. Throws as axonn::initialise() does.
  LoadCost initialise();
  /// Does the same for frozen parameters only: those of the base model of adapters, which a
  /// checkpoint does not hold. Does nothing without adapters. Collective.
  LoadCost initialise_frozen();

  /// Sets the number of steps of a config that has epochs. Throws as with_steps().
  void set_steps(std::int64_t steps);

  /// Sets the micro-batch and the recomputation of later steps. Parameters stay as they are.
  void set_step(std::int64_t micro_batch, const RecomputeConfig& recompute) {
    config_.training.micro_batch = micro_batch;
    config_.activation_checkpoint = recompute;
  }

  /// Waits for everything that a step leaves in flight: the device's work and the gather of its
  /// updated weights over data.
  void settle() const;

  Context context() const { return context_on(*backend_); }
  /// The context with another backend, such as one that records operations.
  Context context_on(Backend& backend) const;

  /// The config, with the model's sizes complete.
  const Config& config() const { return config_; }
  Model& model() { return *model_; }
  /// The parameters that are trained.
  const std::vector<ParameterGroup*>& trained() const { return trained_; }
  const Grid& grid() const { return *grid_; }
  Backend& backend() const { return *backend_; }
  /// Compute threads of a backend that it made itself; else 0.
  int threads() const;
  Arena& arena() { return backend_->arena(); }
  /// That of the options on rank 0, on others none.
  const ProgressTarget& progress() const { return progress_; }

 private:
  Config config_;
  ScheduleConfig schedule_;          // as given: what follows from steps is not yet filled in
  std::unique_ptr<OwnCores> cores_;  // null if the backend was given
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Communicator> device_world_;  // null if world can send the device's memory
  std::unique_ptr<Grid> grid_;
  std::unique_ptr<Model> model_;
  std::vector<ParameterGroup*> trained_;  // the groups of model_ that are trained
  ProgressTarget progress_;
};

/// The name of a rank's progress while it reads parameters.
inline constexpr const char* kLoading = "loading, rank 0";

}  // namespace axonn
