#include "axonn/run/optim/optimizer.h"

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/optim/adamw.h"
#include "axonn/run/optim/muon.h"

namespace axonn {

namespace {

/// Gradient descent without momentum, with decoupled weight decay.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {}; }
  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    ctx.backend.run(ops::Sgd{.master = group.master(),
                             .gradient = group.gradient(),
                             .out = group.piece_of_compute(),
                             .scale = update.scale,
                             .lr = static_cast<float>(update.lr),
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
  if (config.kind == OptimizerKind::muon) return make_muon(config);
  return make_adamw(config);
}

std::vector<std::string> state_kinds(const OptimizerConfig& config) {
  std::vector<std::string> kinds = make_optimizer(config)->state_names();
  kinds.insert(kinds.begin(), kWeightsKind);
  if (config.ema_decay > 0) kinds.emplace_back(kAveragesKind);
  return kinds;
}

}  // namespace axonn
