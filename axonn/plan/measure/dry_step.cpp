#include "axonn/plan/measure/dry_step.h"

#include <algorithm>
#include <utility>

#include "axonn/compute/ops/dry_backend.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/dry_world.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/train/training.h"

namespace axonn {

Recording taken_events(Recording& recording, std::size_t before) {
  Recording step{.events = std::exchange(recording.events, {})};
  recording.events.reserve(step.events.size());  // the next step is likely to be similar
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < step.events.size(); ++i)
    if (std::holds_alternative<Recording::Start>(step.events[i])) starts.push_back(i);
  for (Recording::Event& event : step.events) {
    auto* const wait = std::get_if<Recording::Wait>(&event);
    if (!wait) continue;
    const std::size_t at = wait->started - before + (wait->started < before ? starts.size() : 0);
    AXONN_CHECK(at < starts.size(), "dry run: two steps end differently, at start ", wait->started,
                " of ", before);
    wait->started = starts[at];
  }
  return step;
}

PreparedRun for_dry_steps(const PreparedRun& run) {
  AXONN_CHECK(!run->parallelism.automatic(), "a dry step needs a grid, not \"auto\"");
  return run.with([](Config& config) {
    config.training.cuda_graph = false;  // graphs launch the same work, and there is no GPU here
    config.activation_checkpoint.budget = 0;  // within_budget() itself counts with dry steps
  });
}

struct DrySteps::Model {
  Model(const PreparedRun& prepared, int rank)
      : world(make_dry_world(prepared->parallelism.grid(), rank, &recording)),
        training(prepared, *world,
                 make_dry_backend(&recording, planned_attention(prepared.config())),
                 {.data = false}) {
    run(1);
  }

  /// Runs a step of at most so many micro-batches. Returns the bytes that are allocated before its
  /// last backward.
  std::int64_t run(int most_micro_batches) {
    const std::int64_t sequences = training.model.config().training.micro_batch;
    if (std::exchange(input_sequences, sequences) != sequences)
      input = made_up_input(training.model);
    StepInput some = input;
    some.micro_batches = std::min(some.micro_batches, most_micro_batches);
    std::int64_t kept = 0;
    some.on_phase = [&](Phase phase) {
      if (phase == Phase::backward) kept = training.model.arena().stats().live_bytes;
    };
    training.step.run(training.model.context(), some);
    return kept;
  }

  Recording recording{.events = {}, .paused = true};  // outlives world and training
  std::unique_ptr<Communicator> world;
  Training training;
  StepInput input;                   // with all micro-batches
  std::int64_t input_sequences = 0;  // in a micro-batch of it
};

DrySteps::DrySteps(int rank) : rank_(rank) {}

DrySteps::~DrySteps() = default;

DryStep DrySteps::step(const PreparedRun& given, const DryStepOptions& options) {
  const RecomputedBlocks recomputed = recomputed_blocks(given->activation_checkpoint);
  const Key key{given->model.layers, given->training.micro_batch, options.most_micro_batches,
                recomputed.first,    recomputed.of_first.bits(),  recomputed.of_others.bits()};
  const auto known = known_.find(key);
  if (known != known_.end() && !options.recording) return known->second;
  std::unique_ptr<Model>& model = models_[given->model.layers];
  if (!model) model = std::make_unique<Model>(for_dry_steps(given), rank_);
  LoadedModel& loaded = model->training.model;
  RecomputeConfig recompute = given->activation_checkpoint;
  recompute.budget = 0;
  loaded.set_step(given->training.micro_batch, recompute);
  loaded.arena().reset_peak();
  const std::size_t before = model->recording.started;
  model->recording.paused = !options.recording;
  const std::int64_t kept = model->run(options.most_micro_batches);
  model->recording.paused = true;
  DryStep result{.memory = loaded.arena().stats(), .kept_bytes = kept, .recording = {}};
  known_.insert_or_assign(key, result);
  if (options.recording) result.recording = taken_events(model->recording, before);
  return result;
}

DryStep dry_step(const PreparedRun& run, int rank, const DryStepOptions& options) {
  return DrySteps(rank).step(run, options);
}

}  // namespace axonn
