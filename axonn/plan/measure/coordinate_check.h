#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/run/config/config.h"

namespace axonn {

/// How much a layer's outputs change in the first steps of training, at several widths of a model.
struct LayerChange {
  std::string layer;            ///< as traces name it
  std::vector<double> changes;  ///< root mean square, one for each width
  /// Slope of log(change) over log(width): 0 if the change does not depend on the width.
  double slope = 0;
};

/// The coordinate check of muP: trains models that differ in width for some steps, and compares by
/// how much the outputs of their products change. With muP no change grows or vanishes with the
/// width, so a learning rate that suits a narrow model suits a wide one.
///
/// The config's ffn, expert_ffn and heads are scaled with the width; with mup_base_head_dim the
/// width of a head is, instead of the number of heads. The learning rate is optimizer.lr in every
/// step. Runs on one rank of the CPU. Products of experts are left out: rows change experts.
/// Throws UsageError if a width does not suit the heads.
///
/// Source: Yang et al., "Tensor Programs V", 2022, arXiv:2203.03466, section D.1.
std::vector<LayerChange> coordinate_check(const Config& config,
                                          const std::vector<std::int64_t>& widths, int steps);

/// Largest magnitude of a slope with which a layer passes. Without muP the change of a hidden
/// layer grows with a slope of 0.5 to 1.
inline constexpr double kMostSlope = 0.3;

/// A table with a line for each layer.
std::string coordinate_table(const std::vector<LayerChange>& layers,
                             const std::vector<std::int64_t>& widths);

}  // namespace axonn
