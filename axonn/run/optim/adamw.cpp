#include "axonn/run/optim/adamw.h"

#include <algorithm>
#include <cmath>

namespace axonn {

SlowMean slow_mean(const OptimizerConfig& config, std::int64_t step) {
  const auto t = static_cast<double>(step + 1);
  SlowMean slow{config.alpha, config.beta3};
  if (config.alpha_warmup > 0)
    slow.alpha *= std::min(1.0, t / static_cast<double>(config.alpha_warmup));
  if (step + 1 < config.beta3_warmup) {
    const double r = t / static_cast<double>(config.beta3_warmup), fast = std::log(config.beta1),
                 last = std::log(config.beta3);
    slow.beta3 = std::exp(fast * last / ((1 - r) * last + r * fast));
  }
  return slow;
}

void update_adamw(const Context& ctx, const OptimizerConfig& config, const ParameterGroup& group,
                  const Optimizer::Update& update, const UpdateRange& range) {
  const bool slow = config.kind == OptimizerKind::ademamix;
  for_parts(ctx, update.state, range, slow ? 3 : 2, [&](const UpdateRange& at, Views states) {
    const auto part = [&](const View& piece) { return piece.col_range(at.begin, at.count); };
    ops::AdamW step{.master = part(group.master()),
                    .first = states.front(),
                    .second = states.back(),
                    .gradient = part(group.gradient()),
                    .out = part(group.piece_of_compute()),
                    .scale = update.scale,
                    .lr = static_cast<float>(update.lr * at.rate),
                    .beta1 = static_cast<float>(config.beta1),
                    .beta2 = static_cast<float>(config.beta2),
                    .eps = static_cast<float>(config.eps),
                    .weight_decay = static_cast<float>(config.weight_decay / at.rate),
                    .step = update.step + 1,
                    .decayed = at.decayed};
    if (slow) {
      const SlowMean mean = slow_mean(config, update.step);
      step.slow = states[1];
      step.beta3 = mean.beta3;
      step.alpha = static_cast<float>(mean.alpha);
    }
    ctx.backend.run(step);
  });
}

namespace {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override {
    if (config_.kind == OptimizerKind::ademamix) return {"exp_avg", "exp_avg_slow", "exp_avg_sq"};
    return {"exp_avg", "exp_avg_sq"};
  }
  std::vector<StateSign> state_signs() const override {
    std::vector<StateSign> signs(state_names().size(), StateSign::any);
    signs.back() = StateSign::non_negative;
    return signs;
  }
  bool updates_by_parts() const override { return true; }
  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    const std::int64_t all = group.piece_size(), decayed = group.decayed();
    if (group.rate() == 1)
      return update_adamw(ctx, config_, group, update, {.count = all, .decayed = decayed});
    update_adamw(ctx, config_, group, update,
                 {.count = decayed, .decayed = decayed, .rate = group.rate()});
    update_adamw(ctx, config_, group, update, {.begin = decayed, .count = all - decayed});
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config) {
  return std::make_unique<AdamW>(config);
}

}  // namespace axonn
