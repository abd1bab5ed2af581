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
  const auto part = [&](const View& piece) { return piece.col_range(range.begin, range.count); };
  ops::AdamW step{.master = part(group.master()),
                  .first = part(update.state[0]),
                  .second = part(update.state[update.state.size() - 1]),
                  .gradient = part(group.gradient()),
                  .out = part(group.piece_of_compute()),
                  .scale = update.scale,
                  .lr = static_cast<float>(update.lr * range.rate),
                  .beta1 = static_cast<float>(config.beta1),
                  .beta2 = static_cast<float>(config.beta2),
                  .eps = static_cast<float>(config.eps),
                  .weight_decay = static_cast<float>(config.weight_decay / range.rate),
                  .step = update.step + 1,
                  .decayed = range.decayed};
  if (config.kind == OptimizerKind::ademamix) {
    const SlowMean slow = slow_mean(config, update.step);
    step.slow = part(update.state[1]);
    step.beta3 = slow.beta3;
    step.alpha = static_cast<float>(slow.alpha);
  }
  ctx.backend.run(step);
}

namespace {

class AdamW final : public Optimizer {
 public:
  explicit AdamW(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override {
    if (config_.kind == OptimizerKind::ademamix) return {"exp_avg", "exp_avg_slow", "exp_avg_sq"};
    return {"exp_avg", "exp_avg_sq"};
  }
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
