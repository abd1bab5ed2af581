#include "axonn/train/optimizer.h"

#include "axonn/train/adamw.h"
#include "axonn/train/sgd.h"

namespace axonn {

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config) {
  if (config.kind == OptimizerKind::adamw) return std::make_unique<AdamW>(config);
  return std::make_unique<Sgd>(config);
}

void OptimizerState::allocate(const Context& ctx) {
  const std::size_t names = optimizer_->state_names().size();
  for (const ParameterGroup* group : groups_) {
    std::vector<Tensor>& buffers = state_.emplace_back();
    for (std::size_t i = 0; i < names; ++i)
      buffers.push_back(ctx.zeros(1, group->piece_size(), DType::f32, MemoryUse::optimizer));
  }
}

void OptimizerState::add_squared_norm(const Context& ctx, const View& out) const {
  for (const ParameterGroup* group : groups_)
    for (const auto& [begin, end] : group->owned_ranges())
      ctx.backend.run(ops::SquaredSum{out, group->gradient().col_range(begin, end - begin)});
}

void OptimizerState::update(const Context& ctx, std::int64_t step, double lr, const View& scale) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    ParameterGroup& group = *groups_[i];
    ctx.backend.mark(group.name());
    std::vector<View> state;
    for (const Tensor& buffer : state_[i]) state.push_back(buffer.view());
    optimizer_->update(ctx, group, {.step = step, .lr = lr, .scale = scale, .state = state});
    group.publish(ctx);
  }
}

std::vector<std::pair<std::string, float*>> OptimizerState::buffers(std::size_t i) const {
  std::vector<std::pair<std::string, float*>> all{{"master", groups_[i]->master().as<float>()}};
  const std::vector<std::string> names = optimizer_->state_names();
  for (std::size_t k = 0; k < names.size(); ++k)
    all.emplace_back(names[k], state_[i][k].view().as<float>());
  return all;
}

}  // namespace axonn
