#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "axonn/model/model.h"
#include "axonn/nn/routing.h"

namespace axonn {

/// How busy the experts of a model were in a step.
struct ExpertLoad {
  double balance = 0;   ///< the balance loss without its weight; see Routing
  double z = 0;         ///< the same of the z-loss
  double max_load = 0;  ///< rows of the busiest expert of a layer over the mean of that layer
};

/// Keeps the experts of a model equally busy during its training: gives the routers what they
/// share, sums over ranks what they counted, and moves their biases.
class ExpertBalance {
 public:
  /// Throws UsageError if the config moves biases that the model does not have.
  ExpertBalance(const Routers& routers, const BalanceConfig& config);

  Routing& routing() { return routing_; }

  /// Number of f64 that a step sums over all ranks.
  std::int64_t count() const { return kLosses + layers() * routers_.experts; }
  /// This rank's summands.
  std::vector<double> sums() const;
  /// The load of a step, from the sums over all ranks.
  ExpertLoad load(std::span<const double> sums) const;
  /// Raises the biases of experts that were chosen less often than the mean of their layer by
  /// BalanceConfig::bias, and lowers those of the others. To be called before the update of the
  /// parameters, which publishes the values.
  void move_biases(const Context& ctx, std::span<ParameterGroup* const> groups,
                   std::span<const double> sums) const;

 private:
  static constexpr std::int64_t kLosses = 2;
  std::int64_t layers() const { return std::ssize(routers_.biases); }
  /// The counts of a layer (E).
  std::span<const double> counts(std::span<const double> sums, std::int64_t layer) const {
    return sums.subspan(kLosses + layer * routers_.experts, routers_.experts);
  }

  Routers routers_;
  BalanceConfig config_;
  Routing routing_;
};

}  // namespace axonn
