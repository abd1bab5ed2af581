#pragma once

#include <axonn/axonn.h>

/// Signum: the update is the sign of a mean of gradients, so every weight moves by lr.
/// Source: Bernstein et al., "signSGD: Compressed Optimisation for Non-Convex Problems", 2018,
/// arXiv:1802.04434.
class Signum : public axonn::Optimizer {
 public:
  struct Options {
    double beta = 0.9, weight_decay = 0;
  };
  explicit Signum(const Options& options) : options_(options) {}

  std::vector<std::string> state_names() const override { return {"exp_avg"}; }
  void update(const axonn::Context& ctx, const axonn::ParameterGroup& group,
              const Update& update) const override;

 private:
  Options options_;
};

/// Makes "signum" a value of optimizer.kind, with the key signum.beta. Throws Error if it is called
/// twice.
void register_signum();
