#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/network/model/model.h"
#include "axonn/run/config/config.h"
#include "axonn/run/records/metric.h"

namespace axonn {

struct StepInput;

/// The graph_obstacle() of a loss of answers.
inline constexpr const char* kWeighsInStep =
    "the weights of answers are only known in the step, and a graph cannot wait for them";

/// A term of the training loss besides the losses of tokens, or anything else that a step sums over
/// all ranks and reports. A TrainStep calls the functions in the order below, those of a pass for
/// each micro-batch. Evaluation does without.
class LossTerm {
 public:
  virtual ~LossTerm() = default;

  /// Number of f64 that a step sums over all ranks, in the all-reduce of the loss.
  virtual std::int64_t count() const = 0;
  /// Why a step with this term cannot be captured as a graph; empty if it can.
  virtual std::string graph_obstacle() const { return {}; }

  /// Whether the term wants score() before the first pass of a step.
  virtual bool scores() const { return false; }
  /// Reads the losses of a micro-batch's targets, in a pass without a tape. Called in their order.
  virtual void score(const Context&, Model&, const Tokens&, int /*micro*/) {}
  /// Called after the last of them. May communicate.
  virtual void finish_scores(const Context&, const StepInput&) {}
  virtual void begin_step(const StepInput&) {}
  /// Begins the forward pass of a micro-batch of these rows: attaches to its context what layers
  /// find there (Context::find). They may add to sums, (1, count()) f64, which are 0 when the step
  /// begins. A graph runs this only when it is captured, with sums at the address of all steps.
  virtual void begin_pass(Context& ctx, const Rows& rows, const View& sums) = 0;
  /// Ends the forward pass; backward may begin.
  virtual void finish_pass(const Context&) {}
  /// Adds this rank's summands that are in host memory to sums; the sum over ranks follows.
  virtual void finish_sums(const Context&, const View& /*sums*/) {}
  /// The loss of a step, from the sums over all ranks, in place of the mean loss of its tokens.
  virtual std::optional<double> loss(std::span<const double> /*sums*/, const StepInput&) const {
    return {};
  }
  /// The figures of a step, from the sums over all ranks.
  virtual std::vector<Metric> metrics(std::span<const double> sums,
                                      const StepInput& input) const = 0;
  /// Called before the parameters are updated, unless the step is skipped.
  virtual void before_update(const Context&, std::span<ParameterGroup* const>,
                             std::span<const double> /*sums*/) {}
};

using LossTerms = std::vector<std::unique_ptr<LossTerm>>;

/// The terms of a training of this model. Throws UsageError if the config moves biases that the
/// model does not have.
LossTerms make_loss_terms(const Model& model, const TrainingConfig& config);

}  // namespace axonn
