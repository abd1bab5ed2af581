#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "axonn/model/model.h"
#include "axonn/train/optimizer.h"
#include "axonn/train/step_graphs.h"

namespace axonn {

/// What a step is at. The optimizer's phase begins when all gradients have arrived.
enum class Phase { forward, backward, optimizer };

/// What one step is given: the same on every rank, but for the tokens and the flags.
struct StepInput {
  std::int64_t step = 0;    ///< counted from 0
  int micro_batches = 1;    ///< of this rank
  std::int64_t tokens = 0;  ///< targets of the whole step that count, over all ranks
  /// The same and those that the goldfish loss leaves out.
  std::int64_t all_targets = 0;
  double lr = 0;
  double max_norm = 0;  ///< 0: no clipping
  std::function<Tokens(int micro)> tokens_of;
  bool stop = false;  ///< this rank was asked to stop
  bool busy = false;  ///< this rank still writes a checkpoint
  /// Whether a finite step shall be applied; the same answer on every rank. Empty: always.
  std::function<bool(double loss, double norm)> accept = {};
  /// Called when a phase begins; with several micro-batches forward and backward take turns.
  std::function<void(Phase)> on_phase = {};
};

struct StepResult {
  double loss = 0;       ///< mean over the step's tokens, nats
  double grad_norm = 0;  ///< global, before clipping
  bool finite = true;    ///< loss and norm; if not, no parameter was changed
  bool applied = true;
  bool stop = false;  ///< some rank was asked to stop: all of them end after this step
  bool busy = false;  ///< some rank still writes
};

/// One training step on any grid: forward and backward of every micro-batch, the sum over data, the
/// norm, the clipped update. The loss and the flags travel in the norm's all-reduce.
class TrainStep {
 public:
  TrainStep(Model& model, Optimizer& optimizer) : model_(model), optimizer_(optimizer) {}

  /// From the second step on everything up to the norm is captured as graphs of the device, once,
  /// and launched. No bit changes. Errors: UsageError where that cannot be.
  void use_graphs(const Context& ctx);
  /// Null without use_graphs().
  const StepGraphs* graphs() const { return graphs_ ? &*graphs_ : nullptr; }

  StepResult run(Context ctx, const StepInput& input);

  /// Forward and backward of the first micro-batch, whose products write gradients, and of the
  /// second, whose add to them, for what the backend learns from it: no parameter changes.
  void rehearse(Context ctx, const StepInput& input);

  /// The block in which NaN or infinity first arises on this rank, forward before backward; "" if
  /// nowhere here. Runs the step again without updating anything.
  std::string diagnose(Context ctx, const StepInput& input);

  /// Mean loss over these batches, which are `tokens` targets over all ranks.
  double evaluate(Context ctx, const StepInput& input);

 private:
  using TokensOf = std::function<Tokens(int micro)>;

  /// Adds this rank's losses to total and leaves the gradients in their shards, summed over data.
  void gradients(Context& ctx, const StepInput& input, const Tensor& total);
  void begin_step(const Context& ctx, const StepInput& input);
  /// Forward and backward of one micro-batch.
  void pass(Context& ctx, const StepInput& input, int micro, const TokensOf& tokens_of,
            const Tensor& total);
  /// Adds the squared norm to sums_, sums them over all ranks, and makes the clip factor.
  void finish_sums(const Context& ctx, const StepInput& input);
  /// gradients() and finish_sums() from graphs.
  void launch_graphs(Context& ctx, const StepInput& input);

  Model& model_;
  Optimizer& optimizer_;
  Prefetcher training_, evaluation_;
  // Of one step, or, with graphs, at the same addresses in all.
  Tensor sums_;   // (1, 4) f64: loss, squared norm, flags; summed over all ranks
  Tensor scale_;  // (1, 1) f32: the clip factor
  std::optional<StepGraphs> graphs_;
  bool warm_ = false;  // a step was done: memory is there, and the order of gathers is known
};

}  // namespace axonn
