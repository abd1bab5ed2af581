#pragma once

#include <cstdint>
#include <memory>

#include "axonn/run/optim/optimizer.h"
#include "axonn/run/optim/small_state.h"

namespace axonn {

/// Adam with decoupled weight decay; with kind ademamix, AdEMAMix, which adds a slow mean of
/// gradients. Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019,
/// arXiv:1711.05101, algorithm 2.
std::unique_ptr<Optimizer> make_adamw(const OptimizerConfig& config);

/// Does a step of AdamW, or of AdEMAMix if that is config.kind, on a range of the group's piece.
/// The state is that of the rule: exp_avg, for AdEMAMix exp_avg_slow, and last exp_avg_sq.
void update_adamw(const Context& ctx, const OptimizerConfig& config, const ParameterGroup& group,
                  const Optimizer::Update& update, const UpdateRange& range);

/// AdEMAMix's weight of the slow mean and that mean's decay rate in a step, counted from 0.
/// With warm-ups of Ta and Tb steps, t = step + 1 and r = t / Tb: alpha · min(t / Ta, 1); and for
/// t < Tb exp(ln(beta1) ln(beta3) / ((1 - r) ln(beta3) + r ln(beta1))), later beta3.
/// Source: Pagliardini et al., "The AdEMAMix Optimizer: Better, Faster, Older", 2024,
/// arXiv:2409.03137, section 3.
struct SlowMean {
  double alpha = 0, beta3 = 0;
};
SlowMean slow_mean(const OptimizerConfig& config, std::int64_t step);

}  // namespace axonn
