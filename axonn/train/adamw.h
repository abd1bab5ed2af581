#pragma once

#include "axonn/train/optimizer.h"

namespace axonn {

/// Adam with decoupled weight decay. Source: Loshchilov and Hutter, "Decoupled Weight Decay
/// Regularization", 2019, arXiv:1711.05101, algorithm 2.
class AdamW final : public Optimizer {
 public:
  explicit AdamW(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(const Context& ctx, const ParameterGroup& group, const Update& update) const override;

 private:
  OptimizerConfig config_;
};

}  // namespace axonn
