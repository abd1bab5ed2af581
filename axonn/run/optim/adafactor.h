#pragma once

#include <memory>

#include "axonn/run/optim/optimizer.h"

namespace axonn {

/// Adafactor: of the second moments of a matrix only the means over its rows and columns are kept.
/// In update t, counted from 1, with g the gradient of a matrix W or a vector:
///
///   d = t^beta2_decay;  R = (1 - d) · R + d · (mean of g² over each row);  C likewise, of columns
///   V[i, j] = R[i] · C[j] / (mean of R);  of a vector V = R
///   U = g / sqrt(V), divided by max(1, RMS(U) / clip_threshold)
///   a = min(lr, 1 / sqrt(t)) · max(eps2, RMS(W))    (without relative_step: lr; without
///                                                    scale_parameter: no second factor)
///   M = adafactor_beta1 · M + (1 - adafactor_beta1) · a · U;  W -= M + weight_decay · a · W
///
/// AdafactorForm::paper adds eps1 to every square; pytorch has it as the least mean of R and the
/// least sqrt(V), and its weight decay is lr · weight_decay.
///
/// Every parameter is a matrix or a vector of its own. On a grid, each rank sums the squares of the
/// elements that it owns in its piece; a reduce-scatter over all ranks gives each the sums of its
/// piece of R and C (FactorLayout), and an all-gather the new R and C to all. One all-reduce brings
/// the squares of U and W.
///
/// Communication of a group with N rows and columns: 8 N bytes, and 16 for each parameter. Memory:
/// 4 N bytes while it is updated.
///
/// Sources: Shazeer and Stern, 2018, arXiv:1804.04235, algorithms 4 to 6; the forms are those of
/// transformers 5 and PyTorch 2.
std::unique_ptr<Optimizer> make_adafactor(const OptimizerConfig& config);

}  // namespace axonn
