#include "axonn/plan/measure/dry_step.h"

#include <algorithm>

#include "axonn/compute/ops/dry_backend.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/dry_world.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/train/training.h"

namespace axonn {

namespace {

/// Removes the first of two steps, which has `first` events, from the recording. Both steps end
/// with the same work in flight, so a wait for work of the first step becomes a wait for the same
/// work at the end of the second.
void keep_second(Recording& recording, std::size_t first) {
  const std::size_t second = recording.events.size() - first;
  for (std::size_t i = first; i < recording.events.size(); ++i) {
    auto* const wait = std::get_if<Recording::Wait>(&recording.events[i]);
    if (!wait) continue;
    const bool before = wait->started < first;
    const std::size_t like = before ? wait->started + second : wait->started;
    AXONN_CHECK(
        like >= first && recording.events[like].index() == recording.events[wait->started].index(),
        "dry_step: two steps end differently, at event ", wait->started, " of ", first);
    wait->started = like - first;
  }
  recording.events.erase(recording.events.begin(),
                         recording.events.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace

DryStep dry_step(const Config& given, int rank, const DryStepOptions& options) {
  Config config = given;
  config.training.cuda_graph = false;       // graphs launch the same work, and there is no GPU here
  config.activation_checkpoint.budget = 0;  // within_budget() itself counts with dry steps
  Recording recording;
  Recording* const noted = options.recording ? &recording : nullptr;
  const auto world = make_dry_world(config.parallelism.grid(), rank, noted);
  Training training(still_prepared(config), *world,
                    make_dry_backend(noted, planned_attention(config)), {.data = false});
  const Context ctx = training.model.context();
  StepInput input = made_up_input(training.model);
  input.micro_batches = std::min(input.micro_batches, options.most_micro_batches);
  std::int64_t kept = 0;
  input.on_phase = [&](Phase phase) {
    if (phase == Phase::backward) kept = training.model.arena().stats().live_bytes;
  };
  training.step.run(ctx, input);
  const std::size_t first = recording.events.size();
  training.step.run(ctx, input);
  DryStep result{.memory = training.model.arena().stats(),
                 .kept_bytes = kept,
                 .recording = std::move(recording)};
  recording = {};  // the destructor of `training` also records waits
  keep_second(result.recording, first);
  return result;
}

}  // namespace axonn
