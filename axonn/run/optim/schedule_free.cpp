#include "axonn/run/optim/schedule_free.h"

#include <algorithm>

namespace axonn {

namespace {

class ScheduleFree final : public Optimizer {
 public:
  explicit ScheduleFree(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {"exp_avg_sq", "z", "y"}; }
  std::string training_weights() const override { return "y"; }
  std::vector<std::string> number_names() const override { return {"largest_lr", "weight_sum"}; }

  void change_numbers(const Update& update, std::span<double> numbers) const override {
    numbers[0] = std::max(numbers[0], update.lr);
    numbers[1] += numbers[0] * numbers[0];
  }

  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    const double largest = update.numbers[0], sum = update.numbers[1];
    ctx.backend.run(ops::ScheduleFreeAdamW{
        .master = group.master(),
        .z = update.state[1],
        .average = update.state[2],
        .second = update.state[0],
        .gradient = group.gradient(),
        .out = group.piece_of_compute(),
        .scale = update.scale,
        .lr = static_cast<float>(update.lr),
        .beta1 = static_cast<float>(config_.beta1),
        .beta2 = static_cast<float>(config_.beta2),
        .eps = static_cast<float>(config_.eps),
        .weight_decay = static_cast<float>(config_.weight_decay),
        .share = static_cast<float>(sum > 0 ? largest * largest / sum : 0),  // 0: all rates were 0
        .step = update.step + 1,
        .decayed = group.decayed()});
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_schedule_free(const OptimizerConfig& config) {
  return std::make_unique<ScheduleFree>(config);
}

}  // namespace axonn
