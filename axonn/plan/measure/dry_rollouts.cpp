#include "axonn/plan/measure/dry_rollouts.h"

#include <algorithm>
#include <vector>

#include "axonn/compute/ops/dry_backend.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/dry_world.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/train/training.h"
#include "axonn/use/rewards/rollout_sampler.h"

namespace axonn {

DryRollouts dry_rollouts(const PreparedRun& given, int rank, const DryRolloutOptions& options) {
  const PreparedRun run = for_dry_steps(given);
  const Config& config = run.config();
  const std::int64_t room = config.training.seq_len - config.rl.max_tokens + 1,
                     size = options.prompt_tokens > 0 ? options.prompt_tokens
                                                      : std::max<std::int64_t>(room, 1);
  Recording recording{.events = {}, .paused = true};  // outlives world and training
  const auto world = make_dry_world(config.parallelism.grid(), rank, &recording);
  Training training(run, *world, make_dry_backend(&recording, planned_attention(config)),
                    {.data = false});
  LoadedModel& model = training.model;
  training.step.run(model.context(), made_up_input(model));
  RolloutWriting writing = rollout_writing(config, size);
  writing.answers.max_tokens = std::min(config.rl.max_tokens, options.answer_tokens);
  const std::int64_t answers = config.training.global_batch * config.rl.steps_per_generation;
  model.arena().reset_peak();
  DryRollouts result;
  {
    Generator generator(model, writing.generator);
    result.at_once = std::min(answers, generator.reserve(static_cast<std::size_t>(answers)));
    const std::size_t before = recording.started;
    recording.paused = !options.recording;
    generator.generate(std::vector(result.at_once, std::vector<std::int32_t>(size)),
                       writing.answers);
    recording.paused = true;
    if (options.recording) result.recording = taken_events(recording, before);
  }
  result.memory = model.arena().stats();
  return result;
}

}  // namespace axonn
