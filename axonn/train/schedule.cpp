#include "axonn/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace axonn {

double learning_rate(const Config& config, std::int64_t step) {
  const ScheduleConfig& schedule = config.lr_scheduler;
  const double lr = config.optimizer.lr, low = schedule.min_lr;
  const std::int64_t steps = config.training.steps, warmup = schedule.warmup_steps;
  if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);

  // The fraction, 0 to 1, of the decay between step `from` and the last step that is done.
  const auto done = [&](std::int64_t from) {
    const double span = static_cast<double>(std::max<std::int64_t>(1, steps - 1 - from));
    return std::clamp(static_cast<double>(step - from) / span, 0.0, 1.0);
  };
  switch (schedule.kind) {
    case ScheduleKind::constant:
      return lr;
    case ScheduleKind::linear:
      return lr + (low - lr) * done(warmup);
    case ScheduleKind::cosine:
      return low + (lr - low) * 0.5 * (1 + std::cos(std::numbers::pi * done(warmup)));
    case ScheduleKind::wsd:
      return lr + (low - lr) * done(std::max(warmup, steps - 1 - schedule.decay_steps));
  }
  return lr;
}

}  // namespace axonn
