#include "axonn/run/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "axonn/data/corpus/batch_stages.h"
#include "axonn/run/config/batch_ramp.h"

namespace axonn {

namespace {

/// The share of the peak rate above the lowest that is left when a share `done` of a decay is.
double left_after(DecayShape shape, double done) {
  if (shape == DecayShape::cosine) return 0.5 * (1 + std::cos(std::numbers::pi * done));
  return 1 - std::sqrt(done);
}

}  // namespace

double learning_rate(const Config& config, std::int64_t step) {
  if (!config.lr_scheduler.counts_samples()) return learning_rate(config, step, 0);
  return learning_rate(config, step,
                       BatchStages(batch_stages(config.training)).consumed_before(step));
}

double learning_rate(const Config& config, std::int64_t step, std::int64_t samples) {
  const ScheduleConfig& schedule = config.lr_scheduler;
  const double lr = config.optimizer.lr, low = schedule.min_lr;
  const bool by_samples = schedule.counts_samples();
  // Where the run is, and the ends of warm-up and run, in steps or in samples.
  const std::int64_t now = by_samples ? samples : step,
                     last = by_samples ? schedule.total_samples : config.training.steps - 1,
                     warmup = by_samples ? schedule.warmup_samples : warmup_steps(config);
  if (now < warmup)
    return lr * static_cast<double>(by_samples ? now : now + 1) / static_cast<double>(warmup);

  const bool only_step = !by_samples && config.training.steps == 1;
  if (schedule.kind == ScheduleKind::constant || only_step) return lr;
  const bool wsd = schedule.kind == ScheduleKind::wsd;
  const std::int64_t decay = by_samples ? schedule.decay_samples : schedule.decay_steps,
                     begin = wsd ? std::max(warmup, last - decay) : warmup;
  // The fraction, 0 to 1, of the decay that is done.
  double done = now < last ? 0 : 1;
  if (now > begin && now < last)
    done = static_cast<double>(now - begin) / static_cast<double>(last - begin);
  const DecayShape shape = wsd                                     ? schedule.decay
                           : schedule.kind == ScheduleKind::cosine ? DecayShape::cosine
                                                                   : DecayShape::linear;
  if (shape == DecayShape::linear) return lr + (low - lr) * done;
  return low + (lr - low) * left_after(shape, done);
}

}  // namespace axonn
