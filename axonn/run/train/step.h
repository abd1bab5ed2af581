#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "axonn/network/model/model.h"
#include "axonn/run/optim/optimizer_state.h"
#include "axonn/run/records/loss_scale.h"
#include "axonn/run/records/metric.h"

namespace axonn {

class Batches;
class LossTerm;
class StepGraphs;
struct MicroBatch;
struct StepState;

/// Copies a micro-batch to the device.
Tokens make_tokens(const Context& ctx, const MicroBatch& batch);

/// The phases of a step. The optimizer phase begins when all gradients have arrived.
enum class Phase { forward, backward, optimizer };

/// The input of one step: the same on every rank, except tokens and flags. Training::input() makes
/// one; a step throws Error if it lacks tokens_of, a micro-batch, or the number of tokens.
struct StepInput {
  std::int64_t step = 0;     ///< counted from 0
  std::int64_t skipped = 0;  ///< earlier steps that changed no weight, so were no updates
  int micro_batches = 1;     ///< number of micro-batches of this rank
  /// Targets of the step that count, over all ranks, or its pairs of answers if these have the
  /// loss; 0: the step has no loss. Negative: not set.
  std::int64_t tokens = -1;
  /// `tokens` plus the targets that the goldfish loss leaves out.
  std::int64_t all_targets = 0;
  std::int64_t inputs = 0;  ///< of the step over all ranks, without padding
  /// Number of the row after the step's last, among all of the training; padding from there on.
  std::int64_t end_row = std::numeric_limits<std::int64_t>::max();
  double lr = 0;
  /// Factor of the loss in the backward pass, by which the gradients are divided after they are
  /// summed: LossScale::scale().
  double loss_scale = 1;
  double max_norm = 0;    ///< 0: no clipping of the norm
  double norm_type = 2;   ///< p of that norm
  double clip_value = 0;  ///< 0: no clipping of elements
  std::function<Tokens(int micro)> tokens_of;
  bool stop = false;  ///< this rank was asked to stop
  bool busy = false;  ///< this rank still writes a checkpoint
  bool save = false;  ///< this rank's clock says that a checkpoint is due
  /// Decides whether to apply a step whose loss and norm are finite; the loss is NaN if the step
  /// has none. Must give the same answer on every rank. Empty: every finite step is applied.
  std::function<bool(double loss, double norm)> accept = {};
  /// Called when a phase begins. With several micro-batches, forward and backward alternate.
  std::function<void(Phase)> on_phase = {};
};

/// Sets how gradients are clipped.
void set_clipping(StepInput& input, const TrainingConfig& training);

struct StepResult {
  double loss = 0;       ///< mean over the step's tokens, nats; NaN if there are none
  double grad_norm = 0;  ///< global, before clipping; infinity of an overflow
  bool has_loss = true;  ///< some target counts
  /// The norm and, if there is one, the loss are finite; if not, no parameter was changed.
  bool finite = true;
  /// The loss is finite but the norm is not, in a run whose loss has a scale: LossScale.
  bool overflow = false;
  bool applied = true;
  bool stop = false;                 ///< some rank was asked to stop: all ranks end after this step
  bool busy = false;                 ///< some rank still writes a checkpoint
  bool save = false;                 ///< some rank asked for a checkpoint
  std::vector<Metric> metrics = {};  ///< of the loss terms, in their order

  /// The value of the metric of this name; NaN if there is none.
  double metric(std::string_view name) const;
};

/// One training step on any grid: forward and backward of every micro-batch, the sum over data, the
/// norm, and the clipped update. Loss, flags and the sums of the loss terms share the all-reduce of
/// the norm. If the weights of a rank have changed in memory until then, they are set right, and
/// the passes are done again.
class TrainStep {
 public:
  TrainStep(Model& model, OptimizerState& optimizer, std::vector<std::unique_ptr<LossTerm>> terms,
            LossScale loss_scale = LossScale(TrainingConfig()));
  ~TrainStep();

  /// Captures everything up to the norm as device graphs in the second step and launches them from
  /// then on. Changes no bit. Throws UsageError if device, transport or a loss term cannot.
  void use_graphs(const Context& ctx);
  /// The loss term of this type (train/loss_term.h); null if there is none.
  template <typename T>
  T* term() const {
    for (const auto& term : terms_)
      if (T* wanted = dynamic_cast<T*>(term.get())) return wanted;
    return nullptr;
  }
  /// Null unless use_graphs() was called.
  const StepGraphs* graphs() const { return graphs_.get(); }

  StepResult run(Context ctx, const StepInput& input);

  /// The scale of the next step's loss, to be its StepInput::loss_scale; run() updates it.
  const LossScale& loss_scale() const { return loss_scale_; }
  void set_loss_scale(const LossScaleState& state) { loss_scale_.set_state(state); }

  /// Runs forward and backward of a step without an update, and without graphs. Leaves the
  /// gradients in their shards, summed over data. Changes no parameter.
  void repeat(Context ctx, const StepInput& input);

  /// Does the same with the first micro-batch, which writes gradients, and the second, which adds
  /// to them, so that the backend can record their products.
  void rehearse(const Context& ctx, StepInput input);

  /// Runs the forward pass of one micro-batch, as in evaluation. Returns this rank's part of the
  /// sum of its losses.
  double forward(Context ctx, const Tokens& tokens);

  /// Returns the mean loss over the steps() of these batches, which have an end. Throws UsageError
  /// if none of their targets counts.
  double evaluate(Context ctx, Batches& batches);

 private:
  using TokensOf = std::function<Tokens(int micro)>;

  /// Adds this rank's summands to sums, which lie as sums_ do, and leaves the gradients in their
  /// shards, summed over data.
  void gradients(const Context& ctx, const StepInput& input, const Tensor& sums);
  void begin_step(const Context& ctx, const StepInput& input);
  /// Calls LossTerm::score() for the terms that want it.
  void score(Context ctx, const StepInput& input);
  /// Number of sums over all ranks.
  std::int64_t sums_count() const;
  /// Calls f(term, begin) for each loss term, whose sums begin there among all.
  template <typename F>
  void for_each_term(const F& f) const;
  /// Runs forward and backward of one micro-batch.
  void pass(const Context& step, const StepInput& input, int micro, const TokensOf& tokens_of,
            const Tensor& sums);
  /// Adds the squared norm to sums_, sums it over all ranks, and computes the clip factor.
  void finish_sums(const Context& ctx, const StepInput& input);
  /// Updates the scale of the loss after the step, and adds its figures to the report.
  void note_loss_scale(const StepInput& input, StepResult& report);
  /// Does the passes of a step, and returns the sums over all ranks.
  std::vector<double> compute_sums(const Context& ctx, const StepInput& input);
  /// The same; does them again if weights had changed in memory. Throws as mend_copies() does.
  std::vector<double> sums_of_whole_weights(const Context& ctx, const StepInput& input);
  /// Does the work of gradients() and finish_sums() by launching graphs.
  void launch_graphs(const Context& ctx, const StepInput& input);

  Model& model_;
  OptimizerState& optimizer_;
  const std::vector<std::unique_ptr<LossTerm>> terms_;
  LossScale loss_scale_;
  std::unique_ptr<StepState> training_, evaluation_;  // of passes in flight
  // For one step; with graphs, at the same addresses in all steps.
  // (1, 6) f64: loss, squared norm, stop, busy, save, ranks whose weights differed from their
  // checksums; then LossTerm::count() of each of terms_; summed over all ranks
  Tensor sums_;
  Tensor scale_;  // (1, 1) f32: the clip factor
  std::unique_ptr<StepGraphs> graphs_;
  bool warm_ = false;  // a step was done: memory is allocated, the order of gathers known
};

}  // namespace axonn
