#pragma once

#include <string>
#include <utility>
#include <vector>

#include "axonn/parallel/parameters.h"
#include "axonn/train/config.h"

namespace axonn {

/// Updates the pieces of the parameters that this rank keeps, with one kernel launch per block. The
/// moments are f32 and are laid out as the master copies: cut over x, y, z and data.
class Optimizer {
 public:
  Optimizer(std::vector<ParameterGroup*> groups, const OptimizerConfig& config);

  /// Allocates the moments and sets them to zero. The groups must be allocated.
  void allocate(const Context& ctx);

  /// out (1, 1) f64 += the squares of the gradients that this rank owns. Summed over all ranks this
  /// is the squared global norm, with every element counted once.
  void add_squared_norm(const Context& ctx, const View& out) const;

  /// Does one update, `step` counted from 0, and starts the all-gather of the updated pieces over
  /// data. scale (1, 1) f32 multiplies the gradients.
  void update(const Context& ctx, std::int64_t step, double lr, const View& scale);

  const std::vector<ParameterGroup*>& groups() const { return groups_; }
  /// Returns the state of group i as f32 buffers of piece_size(): ("master", ...), ("exp_avg",
  /// ...), ...
  std::vector<std::pair<std::string, float*>> state(std::size_t i) const;

 private:
  std::vector<ParameterGroup*> groups_;
  OptimizerConfig config_;
  std::vector<Tensor> first_, second_;  // (1, P) per group; empty for sgd
};

}  // namespace axonn
