#pragma once

#include "axonn/train/optimizer.h"

namespace axonn {

/// Gradient descent without momentum, with decoupled weight decay.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {}; }
  void update(const Context& ctx, const ParameterGroup& group, const Update& update) const override;

 private:
  OptimizerConfig config_;
};

}  // namespace axonn
