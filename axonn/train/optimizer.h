#pragma once

#include <string>
#include <utility>
#include <vector>

#include "axonn/parallel/parameters.h"
#include "axonn/train/config.h"

namespace axonn {

/// Updates the pieces of parameters that this rank keeps: one launch a block. The moments are f32
/// and lie as the master copies do, cut over x, y, z and data.
class Optimizer {
 public:
  Optimizer(std::vector<ParameterGroup*> groups, const OptimizerConfig& config);

  /// Makes room for the moments, zero. The groups are allocated.
  void allocate(const Context& ctx);

  /// out (1, 1) f64 += squares of the gradients that this rank owns. Summed over all ranks it is
  /// the squared global norm: every element is counted once.
  void add_squared_norm(const Context& ctx, const View& out) const;

  /// One step, `step` counted from 0, and the pieces' way back to the other data coordinates.
  /// scale (1, 1) f32 multiplies the gradients.
  void update(const Context& ctx, std::int64_t step, double lr, const View& scale);

  const std::vector<ParameterGroup*>& groups() const { return groups_; }
  /// The state of group i in f32 buffers of piece_size(): ("master", ...), ("exp_avg", ...), ...
  std::vector<std::pair<std::string, float*>> state(std::size_t i) const;

 private:
  std::vector<ParameterGroup*> groups_;
  OptimizerConfig config_;
  std::vector<Tensor> first_, second_;  // (1, P) a group; none for sgd
};

}  // namespace axonn
