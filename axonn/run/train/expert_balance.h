#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/network/nn/experts/routing.h"
#include "axonn/run/train/loss_term.h"

namespace axonn {

/// Keeps the experts of a model equally busy during its training: gives the routers what they
/// share, sums over ranks what they counted, and moves their biases.
class ExpertBalance final : public LossTerm {
 public:
  /// Throws UsageError if the config moves biases that the model does not have.
  ExpertBalance(const Routers& routers, const BalanceConfig& config);

  Routing& routing() { return *routing_; }

  std::int64_t count() const override { return kLosses + layers() * routers_.experts; }
  std::string graph_obstacle() const override;
  void begin_step(const StepInput& input) override;
  void begin_pass(Context& ctx, const Rows& rows, const View& sums) override;
  void finish_pass(const Context& ctx) override;
  void finish_sums(const Context& ctx, const View& sums) override;
  /// The losses without their weights; and the rows of the busiest expert of a layer, over the mean
  /// of that layer.
  std::vector<Metric> metrics(std::span<const double> sums, const StepInput& input) const override;
  /// Raises the biases of experts that were chosen less often than the mean of their layer by
  /// BalanceConfig::bias, and lowers those of the others. The update publishes the values.
  void before_update(const Context& ctx, std::span<ParameterGroup* const> groups,
                     std::span<const double> sums) override;

 private:
  static constexpr std::int64_t kLosses = 2;
  std::int64_t layers() const { return std::ssize(routers_.biases); }
  /// The counts of a layer (E).
  std::span<const double> counts(std::span<const double> sums, std::int64_t layer) const {
    return sums.subspan(kLosses + layer * routers_.experts, routers_.experts);
  }

  Routers routers_;
  BalanceConfig config_;
  std::shared_ptr<Routing> routing_;
};

}  // namespace axonn
