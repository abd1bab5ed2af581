#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "axonn/network/model/model.h"
#include "axonn/ranks/comm/self.h"

#include "tests/support/reference.h"

namespace axonn::testing_support {

/// The master weights of a model on one rank, by name; vectors have one row.
reference::Weights weights_of(const std::vector<ParameterGroup*>& groups);

/// A model on one rank in f32, with random weights and a batch of random tokens. All weights,
/// including those of norms and biases, are large enough to affect the results.
class OneRankModel {
 public:
  using Weights = reference::Weights;
  using Matrix = reference::Matrix;
  static constexpr std::int64_t kSequences = 3, kPositions = 9;

  explicit OneRankModel(const ModelConfig& config);

  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return weights_; }
  const std::vector<std::int32_t>& ids() const { return ids_; }
  const std::vector<std::int32_t>& targets() const { return targets_; }

  /// Sets the weights that the map names.
  void set(const Weights& weights);

  /// Logits of the last position of sequence s.
  std::vector<float> logits(std::int64_t s);

  /// (R, 2): the result of Model::target_losses, with logits times the factor.
  Matrix target_losses(float factor = 1);

  /// Adds the losses of routers to what backward() differentiates.
  void set_balance(const BalanceConfig& balance) { balance_ = balance; }
  /// Adds the losses of further tokens, if the model predicts some, with this weight.
  void set_mtp(float weight) { mtp_weight_ = weight; }
  /// The sum of the losses of further tokens of the last backward(), without the weight.
  double mtp_loss() const { return mtp_loss_; }
  /// The balance loss and the z-loss of the last backward(), without their weights.
  std::pair<double, double> router_losses() const { return router_losses_; }

  /// Returns the sum of the losses without those of routers, and the gradients of all trained
  /// parameters.
  std::pair<double, Weights> backward();
  /// The same for the tokens that make(ctx) returns.
  std::pair<double, Weights> backward(const std::function<Tokens(const Context&)>& make);

 private:
  ModelConfig config_;
  std::unique_ptr<Communicator> world_ = make_self();
  Grid grid_{*world_, {}};
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  Arena arena_{backend_->device()};
  Context ctx_{*backend_, arena_, grid_};
  std::unique_ptr<Model> model_;
  std::vector<std::int32_t> ids_, targets_;
  Weights weights_;
  std::optional<BalanceConfig> balance_;
  std::pair<double, double> router_losses_;
  float mtp_weight_ = 0;
  double mtp_loss_ = 0;
};

}  // namespace axonn::testing_support
