#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "axonn/comm/self.h"
#include "axonn/model/model.h"

#include "tests/support/reference.h"

namespace axonn::testing_support {

/// A model on one rank, in f32, with random weights, norms and biases included, that are large
/// enough to matter, and a batch of random tokens.
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

  /// Those of the names given become these.
  void set(const Weights& weights);

  /// Logits of the last position of sequence s.
  std::vector<float> logits(std::int64_t s);

  /// (R, 2): what Model::target_losses says of each target.
  Matrix target_losses();

  /// The sum of the losses, and the gradient of every parameter that is trained.
  std::pair<double, Weights> backward();
  /// The same of tokens that make(ctx) makes.
  std::pair<double, Weights> backward(const std::function<Tokens(const Context&)>& make);

 private:
  ModelConfig config_;
  std::unique_ptr<Communicator> world_ = make_self();
  Grid grid_{*world_, {}};
  std::unique_ptr<Backend> backend_ = make_cpu_backend(1);
  Arena arena_{backend_->device()};
  Context ctx_{.backend = *backend_, .arena = arena_, .grid = grid_};
  std::unique_ptr<Model> model_;
  std::vector<std::int32_t> ids_, targets_;
  Weights weights_;
};

}  // namespace axonn::testing_support
