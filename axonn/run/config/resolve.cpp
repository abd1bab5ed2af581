#include "axonn/run/config/resolve.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/run/config/batch_ramp.h"
#include "axonn/run/config/preference.h"
#include "axonn/run/config/validate.h"

namespace axonn {

std::int64_t largest_micro_batch(const TrainingConfig& training, std::int64_t coordinates) {
  std::int64_t divisor = 0;
  for (const BatchStage& stage : batch_stages(training))
    divisor = std::gcd(divisor, batch_share(stage.batch, coordinates));
  return divisor;
}

std::int64_t micro_batch_count(const Config& config) {
  const TrainingConfig& training = config.training;
  return batch_share(training.global_batch,
                     training.micro_batch * batch_coordinates(config.parallelism.grid()));
}

std::int64_t padding_sequences(const Config& config) {
  const TrainingConfig& training = config.training;
  return micro_batch_count(config) * training.micro_batch *
             batch_coordinates(config.parallelism.grid()) -
         training.global_batch;
}

std::string padding_text(const Config& config) {
  const std::int64_t padding = padding_sequences(config);
  return padding == 0 ? "" : concat(" and ", padding, " of padding");
}

Config with_named_grid(Config config) {
  ParallelismConfig& parallelism = config.parallelism;
  if (parallelism.named_grid.empty() || parallelism.automatic()) return config;
  parallelism.set_grid(parse_grid(parallelism.named_grid));
  parallelism.named_grid.clear();
  return config;
}

namespace {

/// Fills in the values of the schedule that follow from the number of steps.
void resolve_schedule(Config& config) {
  const std::int64_t steps = config.training.steps;
  ScheduleConfig& schedule = config.lr_scheduler;
  if (steps == 0) return;  // until the data give them: with_steps()
  if (schedule.counts_samples()) {
    std::int64_t& total = schedule.total_samples;
    if (total == 0) total = BatchStages(batch_stages(config.training)).consumed_before(steps);
    if (schedule.kind == ScheduleKind::wsd && schedule.decay_samples == 0)
      schedule.decay_samples =
          std::clamp<std::int64_t>(total - schedule.warmup_samples, 0, total / 10);
  } else if (schedule.kind == ScheduleKind::wsd && schedule.decay_steps == 0) {
    schedule.decay_steps =
        std::min(std::max<std::int64_t>(steps / 10, 1), steps - warmup_steps(config));
  }
}

}  // namespace

Config with_steps(Config config, std::int64_t steps) {
  config.training.steps = steps;
  validate_length(config);
  resolve_schedule(config);
  return config;
}

Config resolved(Config given) {
  Config config = with_named_grid(std::move(given));
  const GridShape grid = config.parallelism.grid();
  for (const int extent : {grid.x, grid.y, grid.z, grid.data, grid.context, grid.experts})
    AXONN_CHECK(extent > 0, "resolved: [parallelism] has an extent of ", extent,
                "; call validate(config) before");
  config.data.answers = answer_data(config);
  config.model = resolved(config.model, 0, config.training.seq_len);
  if (config.training.micro_batch == 0)
    config.training.micro_batch = largest_micro_batch(config.training, batch_coordinates(grid));
  resolve_schedule(config);
  return config;
}

}  // namespace axonn
