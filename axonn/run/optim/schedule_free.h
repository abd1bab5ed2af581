#pragma once

#include <memory>

#include "axonn/run/optim/optimizer.h"

namespace axonn {

/// Schedule-free AdamW: an average x of the weights z of AdamW's steps replaces a falling learning
/// rate. Gradients are taken at y, between the two; x is evaluated and exported. In update k, with
/// g the gradient at y and r the largest learning rate so far:
///
///   exp_avg_sq = beta2 · exp_avg_sq + (1 - beta2) · g²
///   z -= lr · (g / (sqrt(exp_avg_sq / (1 - beta2^k)) + eps) + weight_decay · y)
///   x += r² / (sum of all r² so far) · (z - x);  y = z + beta1 · (x - z)
///
/// The master weights are y; x has a buffer of its own, so that the change between them is exact.
///
/// Source: Defazio et al., "The Road Less Scheduled", 2024, arXiv:2405.15682; the weights of the
/// average are those of the authors' AdamWScheduleFree with weight_lr_power = 2, r = 0.
std::unique_ptr<Optimizer> make_schedule_free(const OptimizerConfig& config);

}  // namespace axonn
