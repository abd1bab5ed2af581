#include "axonn/plan/measure/dry_step.h"

#include <algorithm>
#include <utility>

#include "axonn/compute/ops/dry_backend.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/dry_world.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/train/training.h"

namespace axonn {

namespace {

/// Takes the events of the last step out of the recording. All steps end with the same work in
/// flight, so a wait for work of the step before becomes a wait for the same work at the end of
/// this one.
Recording taken_step(Recording& recording) {
  const std::size_t first = recording.taken, count = recording.events.size();
  Recording step{.events = std::exchange(recording.events, {})};
  recording.taken += count;
  for (Recording::Event& event : step.events) {
    auto* const wait = std::get_if<Recording::Wait>(&event);
    if (!wait) continue;
    const std::size_t at = wait->started - first + (wait->started < first ? count : 0);
    AXONN_CHECK(at < count && std::holds_alternative<Recording::Start>(step.events[at]),
                "dry_step: two steps end differently, at event ", wait->started, " of ", first);
    wait->started = at;
  }
  return step;
}

Config for_dry_steps(Config config) {
  config.training.cuda_graph = false;       // graphs launch the same work, and there is no GPU here
  config.activation_checkpoint.budget = 0;  // within_budget() itself counts with dry steps
  return config;
}

}  // namespace

struct DrySteps::Model {
  Model(const Config& config, int rank)
      : world(make_dry_world(config.parallelism.grid(), rank, &recording)),
        training(still_prepared(config), *world,
                 make_dry_backend(&recording, planned_attention(config)), {.data = false}) {
    run(1);
    taken_step(recording);
  }

  /// Runs a step with at most so many micro-batches. Returns the bytes that are allocated before
  /// its last backward.
  std::int64_t run(int most_micro_batches) {
    StepInput input = made_up_input(training.model);
    input.micro_batches = std::min(input.micro_batches, most_micro_batches);
    std::int64_t kept = 0;
    input.on_phase = [&](Phase phase) {
      if (phase == Phase::backward) kept = training.model.arena().stats().live_bytes;
    };
    training.step.run(training.model.context(), input);
    return kept;
  }

  Recording recording;  // outlives world and training, whose destructors record waits
  std::unique_ptr<Communicator> world;
  Training training;
};

DrySteps::DrySteps(int rank) : rank_(rank) {}

DrySteps::~DrySteps() = default;

DryStep DrySteps::step(const Config& given, const DryStepOptions& options) {
  const Config config = for_dry_steps(given);
  std::unique_ptr<Model>& model = models_[config.model.layers];
  if (!model) model = std::make_unique<Model>(config, rank_);
  LoadedModel& loaded = model->training.model;
  loaded.set_step(config.training.micro_batch, config.activation_checkpoint);
  loaded.arena().reset_peak();
  const std::int64_t kept = model->run(options.most_micro_batches);
  DryStep result{.memory = loaded.arena().stats(),
                 .kept_bytes = kept,
                 .recording = taken_step(model->recording)};
  if (!options.recording) result.recording = {};
  return result;
}

DryStep dry_step(const Config& config, int rank, const DryStepOptions& options) {
  return DrySteps(rank).step(config, options);
}

}  // namespace axonn
