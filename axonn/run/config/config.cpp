#include "axonn/run/config/config.h"

#include <cmath>

namespace axonn {

std::vector<Config> stages_of(const Config& config) {
  if (config.stage.empty()) return {config};
  std::vector<Config> all;
  for (const StageConfig& stage : config.stage) {
    Config& one = all.emplace_back(config);
    one.stage.clear();
    one.data.text = stage.text;
    one.data.tokens = stage.tokens;
    one.data.synthetic = stage.synthetic;
    if (stage.seq_len > 0) one.training.seq_len = stage.seq_len;
  }
  return all;
}

std::int64_t warmup_steps(const Config& config) {
  const ScheduleConfig& schedule = config.lr_scheduler;
  if (schedule.warmup_ratio == 0) return schedule.warmup_steps;
  constexpr double kRounding = 1e-9;  // 0.07 * 100 is above 7
  const double steps = schedule.warmup_ratio * static_cast<double>(config.training.steps);
  return static_cast<std::int64_t>(std::ceil(steps * (1 - kRounding)));
}

}  // namespace axonn
