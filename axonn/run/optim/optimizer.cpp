#include "axonn/run/optim/optimizer.h"

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/optim/adafactor.h"
#include "axonn/run/optim/adamw.h"
#include "axonn/run/optim/muon.h"
#include "axonn/run/optim/schedule_free.h"

namespace axonn {

namespace {

/// Gradient descent, with momentum if sgd_momentum is set. Its first step adds all of a gradient to
/// the momentum, whatever the dampening, as PyTorch does.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override {
    if (config_.sgd_momentum > 0) return {"momentum_buffer"};
    return {};
  }
  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    ops::Sgd step{.master = group.master(),
                  .gradient = group.gradient(),
                  .out = group.piece_of_compute(),
                  .scale = update.scale,
                  .lr = static_cast<float>(update.lr),
                  .weight_decay = static_cast<float>(config_.weight_decay),
                  .decayed = group.decayed()};
    if (config_.sgd_momentum > 0) {
      step.momentum = update.state[0];
      step.beta = static_cast<float>(config_.sgd_momentum);
      step.added = static_cast<float>(update.step == 0 ? 1 : 1 - config_.sgd_dampening);
      step.nesterov = config_.sgd_nesterov;
    }
    ctx.backend.run(step);
  }

 private:
  OptimizerConfig config_;
};

/// A step against the sign of a mean of gradients, with decoupled weight decay: ops::Lion.
class Lion final : public Optimizer {
 public:
  explicit Lion(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {"exp_avg"}; }
  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    ctx.backend.run(ops::Lion{.master = group.master(),
                              .mean = update.state[0],
                              .gradient = group.gradient(),
                              .out = group.piece_of_compute(),
                              .scale = update.scale,
                              .lr = static_cast<float>(update.lr),
                              .beta1 = static_cast<float>(config_.beta1),
                              .beta2 = static_cast<float>(config_.beta2),
                              .weight_decay = static_cast<float>(config_.weight_decay),
                              .decayed = group.decayed()});
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

const View& StateViews::operator[](std::size_t i) const {
  AXONN_CHECK(i < views_.size(), "state[", i, "]: the rule's state_names() has ", views_.size(),
              " names");
  return views_[i];
}

OptimizerConfig optimizer_of(const Config& config) {
  OptimizerConfig scaled = config.optimizer;
  scaled.eps /= config.model.width_factor();
  return scaled;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config) {
  if (const OptimizerRule* own = optimizer_rule_of(config.kind)) {
    std::unique_ptr<Optimizer> rule = own->make(config);
    AXONN_CHECK(rule, "optimizer.kind '", own->name, "': its function `make` returned null");
    return rule;
  }
  if (config.kind == OptimizerKind::sgd) return std::make_unique<Sgd>(config);
  if (config.kind == OptimizerKind::lion) return std::make_unique<Lion>(config);
  if (config.kind == OptimizerKind::muon) return make_muon(config);
  if (config.kind == OptimizerKind::schedule_free_adamw) return make_schedule_free(config);
  if (config.kind == OptimizerKind::adafactor) return make_adafactor(config);
  return make_adamw(config);
}

std::vector<std::string> state_kinds(const OptimizerConfig& config) {
  std::vector<std::string> kinds = make_optimizer(config)->state_names();
  kinds.insert(kinds.begin(), kWeightsKind);
  if (config.ema_decay > 0) kinds.emplace_back(kAveragesKind);
  return kinds;
}

bool keeps_factors(const OptimizerConfig& config) {
  return make_optimizer(config)->keeps_factors();
}

std::vector<std::string> stored_kinds(const OptimizerConfig& config) {
  std::vector<std::string> kinds = state_kinds(config);
  if (keeps_factors(config)) kinds.insert(kinds.end(), kFactorKinds.begin(), kFactorKinds.end());
  return kinds;
}

}  // namespace axonn
