#include "axonn/run/optim/optimizer.h"

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/optim/adafactor.h"
#include "axonn/run/optim/adamw.h"
#include "axonn/run/optim/muon.h"
#include "axonn/run/optim/schedule_free.h"
#include "axonn/run/optim/small_state.h"

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
  std::vector<StateSign> state_signs() const override {
    return std::vector<StateSign>(state_names().size(), StateSign::any);
  }
  bool updates_by_parts() const override { return true; }
  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    const UpdateRange all{.count = group.piece_size(), .decayed = group.decayed()};
    const bool moves = config_.sgd_momentum > 0;
    for_parts(ctx, update.state, all, moves ? 1 : 0, [&](const UpdateRange& at, Views states) {
      const auto part = [&](const View& piece) { return piece.col_range(at.begin, at.count); };
      ops::Sgd step{.master = part(group.master()),
                    .gradient = part(group.gradient()),
                    .out = part(group.piece_of_compute()),
                    .scale = update.scale,
                    .lr = static_cast<float>(update.lr),
                    .weight_decay = static_cast<float>(config_.weight_decay),
                    .decayed = at.decayed};
      if (moves) {
        step.momentum = states.front();
        step.beta = static_cast<float>(config_.sgd_momentum);
        step.added = static_cast<float>(update.step == 0 ? 1 : 1 - config_.sgd_dampening);
        step.nesterov = config_.sgd_nesterov;
      }
      ctx.backend.run(step);
    });
  }

 private:
  OptimizerConfig config_;
};

/// A step against the sign of a mean of gradients, with decoupled weight decay: ops::Lion.
class Lion final : public Optimizer {
 public:
  explicit Lion(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {"exp_avg"}; }
  std::vector<StateSign> state_signs() const override { return {StateSign::any}; }
  bool updates_by_parts() const override { return true; }
  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    const UpdateRange all{.count = group.piece_size(), .decayed = group.decayed()};
    for_parts(ctx, update.state, all, 1, [&](const UpdateRange& at, Views states) {
      const auto part = [&](const View& piece) { return piece.col_range(at.begin, at.count); };
      ctx.backend.run(ops::Lion{.master = part(group.master()),
                                .mean = states.front(),
                                .gradient = part(group.gradient()),
                                .out = part(group.piece_of_compute()),
                                .scale = update.scale,
                                .lr = static_cast<float>(update.lr),
                                .beta1 = static_cast<float>(config_.beta1),
                                .beta2 = static_cast<float>(config_.beta2),
                                .weight_decay = static_cast<float>(config_.weight_decay),
                                .decayed = at.decayed});
    });
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

StateForm state_form(const OptimizerConfig& config) {
  StateForm form{.f32 = std::ssize(state_kinds(config)), .factors = keeps_factors(config)};
  const std::int64_t small = std::ssize(make_optimizer(config)->state_signs());
  if (config.moments == MomentType::f32 || small == 0) return form;
  form.f32 -= small;
  form.small = small;
  form.type = config.moments;
  return form;
}

std::int64_t piece_bytes(const ParameterGroup& group, const StateForm& form) {
  std::int64_t elements = group.sizes().piece * form.f32, small = 0;
  if (form.factors) elements += FactorLayout(group).piece();
  if (form.small > 0)
    small = form.small * SmallLayout(group, form.type, group.grid().coords()).bytes();
  return elements * kElementBytes + small;
}

std::int64_t checkpoint_bytes(const ParameterGroup& group, const StateForm& form) {
  std::int64_t elements = 0, small = 0;
  for (const auto& parameter : group.parameters())
    elements += parameter->spec().layout.rows * parameter->spec().layout.cols * form.f32;
  if (form.factors) elements += FactorLayout(group).count();
  const GridShape& shape = group.grid().shape();
  for (int rank = 0; form.small > 0 && rank < shape.ranks(); ++rank)
    small += form.small * SmallLayout(group, form.type, coords_of(shape, rank)).stored_bytes();
  return elements * kElementBytes + small;
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
