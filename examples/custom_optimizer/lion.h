#pragma once

#include <axonn/axonn.h>

/// Lion: the update is the sign of a mean of gradients, so every weight moves by lr.
/// Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023 (arXiv 2302.06675).
class Lion : public axonn::Optimizer {
 public:
  struct Options {
    double beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  };
  explicit Lion(const Options& options) : options_(options) {}

  std::vector<std::string> state_names() const override { return {"exp_avg"}; }
  void update(const axonn::Context& ctx, const axonn::ParameterGroup& group,
              const Update& update) const override;

 private:
  Options options_;
};

/// Makes "lion" a value of optimizer.kind, with the keys lion.beta1 and lion.beta2. Throws Error if
/// it is called twice.
void register_lion();
