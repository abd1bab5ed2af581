#include "axonn/train/optimizer.h"

namespace axonn {

Optimizer::Optimizer(std::vector<ParameterGroup*> groups, const OptimizerConfig& config)
    : groups_(std::move(groups)), config_(config) {}

void Optimizer::allocate(const Context& ctx) {
  if (config_.kind != OptimizerKind::adamw) return;
  for (const ParameterGroup* group : groups_) {
    first_.push_back(ctx.zeros(1, group->piece_size(), DType::f32, MemoryUse::optimizer));
    second_.push_back(ctx.zeros(1, group->piece_size(), DType::f32, MemoryUse::optimizer));
  }
}

void Optimizer::add_squared_norm(const Context& ctx, const View& out) const {
  for (const ParameterGroup* group : groups_)
    for (const auto& [begin, end] : group->owned_ranges())
      ctx.backend.squared_sum(out, group->gradient().col_range(begin, end - begin));
}

void Optimizer::update(const Context& ctx, std::int64_t step, double lr, const View& scale) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    ParameterGroup& group = *groups_[i];
    ctx.backend.mark(group.name());
    if (config_.kind == OptimizerKind::adamw)
      ctx.backend.adamw({.master = group.master(),
                         .first = first_[i].view(),
                         .second = second_[i].view(),
                         .gradient = group.gradient(),
                         .out = group.piece_of_compute(),
                         .scale = scale,
                         .lr = static_cast<float>(lr),
                         .beta1 = static_cast<float>(config_.beta1),
                         .beta2 = static_cast<float>(config_.beta2),
                         .eps = static_cast<float>(config_.eps),
                         .weight_decay = static_cast<float>(config_.weight_decay),
                         .step = step + 1,
                         .decayed = group.decayed()});
    else
      ctx.backend.sgd({.master = group.master(),
                       .gradient = group.gradient(),
                       .out = group.piece_of_compute(),
                       .scale = scale,
                       .lr = static_cast<float>(lr),
                       .weight_decay = static_cast<float>(config_.weight_decay),
                       .decayed = group.decayed()});
    group.publish(ctx);
  }
}

std::vector<std::pair<std::string, float*>> Optimizer::state(std::size_t i) const {
  std::vector<std::pair<std::string, float*>> buffers{{"master", groups_[i]->master().as<float>()}};
  if (first_.empty()) return buffers;
  buffers.emplace_back("exp_avg", first_[i].view().as<float>());
  buffers.emplace_back("exp_avg_sq", second_[i].view().as<float>());
  return buffers;
}

}  // namespace axonn
