#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "axonn/parallel/parameters.h"
#include "axonn/train/config.h"

namespace axonn {

/// The buffers that a rule keeps of a group, in the order of its state_names(). Does not own them.
class StateViews {
 public:
  StateViews() = default;
  StateViews(Views views) : views_(views) {}                     // NOLINT: a list of views is one
  StateViews(const std::vector<View>& views) : views_(views) {}  // NOLINT

  /// (1, P) f32. Throws Error, with the number of buffers, if there is no i-th.
  const View& operator[](std::size_t i) const;
  std::size_t size() const { return views_.size(); }
  auto begin() const { return views_.begin(); }
  auto end() const { return views_.end(); }

 private:
  Views views_;
};

/// An update rule. It names the buffers that it needs beside the weights, and updates one group of
/// parameters at a time; allocation, clipping, communication and checkpoints are not its concern.
/// The rules of make_optimizer() implement it, and so does a user's own: register_optimizer(), or
/// TrainingOptions::make_optimizer for one Training.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Names of the buffers that the rule keeps for each weight, as checkpoints call them:
  /// {"exp_avg", "exp_avg_sq"}; not "master" or "ema". They are f32, start at zero and lie as the
  /// master weights do, cut over x, y, z and data.
  virtual std::vector<std::string> state_names() const = 0;

  struct Update {
    std::int64_t step = 0;  ///< number of updates before this one
    double lr = 0;          ///< learning rate of this step
    View scale = {};        ///< (1, 1) f32, multiplies the gradients: the clip factor
    StateViews state = {};  ///< one (1, P) f32 for each of state_names()
  };
  /// Called once, by OptimizerState::allocate(), on all ranks: lets a rule whose updates need other
  /// ranks plan its communication. The groups are all that are trained, and outlive the rule.
  virtual void prepare(const Context& /*ctx*/, std::span<ParameterGroup* const> /*groups*/) {}
  /// Called once a step, on all ranks, before update() of each group: for updates that need several
  /// groups or other ranks. `states` has the state of each group of prepare(); that of `update` is
  /// empty.
  virtual void update_together(const Context& /*ctx*/, const Update& /*update*/,
                               std::span<const std::vector<View>> /*states*/) const {}
  /// Computes this rank's piece (P elements) of the group's new weights from group.gradient(), and
  /// stores it in group.master() and, in the compute type, in group.piece_of_compute(). Dry runs
  /// and plans call it on a device without values: code of the host belongs in Backend::on_host().
  virtual void update(const Context& ctx, const ParameterGroup& group,
                      const Update& update) const = 0;
};

/// The kinds of f32 values that a run keeps of each trained weight, as checkpoints call them: the
/// weight itself, the rule's state, and its average if there is one.
std::vector<std::string> state_kinds(const OptimizerConfig& config);

using OptimizerMaker = std::function<std::unique_ptr<Optimizer>(const OptimizerConfig& config)>;

/// The settings of [optimizer] for the width of the config's model: with muP, all gradients are
/// smaller by m than those of the base, because the logits are, and so eps is divided by m.
OptimizerConfig optimizer_of(const Config& config);

/// Makes the rule that optimizer.kind names, of this library or registered. Throws Error if the
/// maker of a registered one returns null.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config);

/// An update rule that a program adds to those of this library. Its own keys are those of a section
/// [name] of the config.
struct OptimizerRule {
  std::string name;  ///< the value of optimizer.kind
  std::string help;  ///< of the section [name], one line
  std::vector<OwnKey> keys = {};
  /// The keys of [optimizer] that it reads besides kind, lr and ema_decay; a run that sets others
  /// is told that they have no effect.
  std::vector<std::string> reads = {"weight_decay"};
  /// Throws UsageError for keys that do not fit one another. Empty: all fit.
  std::function<void(const OptimizerConfig&)> validate = {};
  OptimizerMaker make;
};

/// Adds a rule, so that every command and config of this process knows it: `optimizer.kind = name`.
/// Call it at the beginning of main(), before a config is read. Throws Error if it has no `make`,
/// if a name is taken or not one of small letters, digits and '_', or if [optimizer] has no key
/// that it reads.
void register_optimizer(OptimizerRule rule);

/// The rule that was registered for this kind; null for the library's own. Throws Error for a value
/// that is no kind.
const OptimizerRule* optimizer_rule_of(OptimizerKind kind);

/// Returns the learning rate of `step`, counted from 0, before which `samples` sequences were
/// consumed. config must be resolved.
///
/// It rises linearly over warmup_steps to lr. After that, constant stays at lr; linear and cosine
/// fall to min_lr at the last step; wsd (warm-up, stable, decay) stays at lr and falls to min_lr
/// over the last decay_steps. With r the share of the decay that is done, wsd's shapes are 1 - r,
/// (1 + cos(pi r)) / 2 and 1 - sqrt(r). The last step has min_lr unless it belongs to the warm-up
/// or is the only one; then it has lr.
///
/// If the schedule counts samples s, the rate is lr s / w up to the end w of the warm-up, so that
/// the first step has a rate of 0, and is min_lr from s = total_samples on.
double learning_rate(const Config& config, std::int64_t step, std::int64_t samples);
/// The same of a run that has not changed its batches.
double learning_rate(const Config& config, std::int64_t step);

/// An optimizer and its state on this rank, for all groups that are trained, and the running
/// averages of their weights.
///
/// The first update() copies the weights w to the averages e, each later one adds
/// (1 - ema_decay) · (w - e), in f32. They lie as the master weights do, cut over x, y, z and data.
class OptimizerState {
 public:
  /// ema_decay 0: there are no averages. Throws Error without an optimizer, or if two of its
  /// buffers would have one name in checkpoints.
  OptimizerState(std::vector<ParameterGroup*> groups, std::unique_ptr<Optimizer> optimizer,
                 double ema_decay = 0);

  /// Allocates the buffers, which are zero. The groups must have been allocated.
  void allocate(const Context& ctx);

  /// out (1, 1) f64 += sum of squares of the gradients that this rank owns. Summed over all ranks,
  /// it is the square of the global gradient norm: every element is counted once.
  void add_squared_norm(const Context& ctx, const View& out) const;

  /// Does update `step`, counted from 0, and gathers the updated pieces over data. scale (1, 1) f32
  /// multiplies the gradients. Throws Error before allocate().
  void update(const Context& ctx, std::int64_t step, double lr, const View& scale);

  const std::vector<ParameterGroup*>& groups() const { return groups_; }
  /// What a checkpoint holds of group i, (1, P) f32 each: ("master", ...), those of the optimizer's
  /// state_names(), and ("ema", ...) if has_averages(). Throws Error before allocate(), or if there
  /// is no group i.
  std::vector<std::pair<std::string, View>> buffers(std::size_t i) const;

  /// Whether the averages have values: an update was done, or they are loaded.
  bool has_averages() const { return has_averages_; }
  /// Called before buffers() are loaded: whether the checkpoint has averages. If not, the next
  /// update begins them. Has no effect if ema_decay is 0.
  void expect_averages(bool stored) { has_averages_ = stored && ema_decay_ > 0; }
  /// Exchanges the weights and their averages, for an evaluation of the averages. A second call
  /// restores all bits. Collective: gathers the compute copies over data. Requires has_averages().
  void exchange_averages(const Context& ctx);

 private:
  void check_allocated(const char* function) const;
  void update_average(const Context& ctx, std::size_t i) const;

  std::vector<ParameterGroup*> groups_;
  std::unique_ptr<Optimizer> optimizer_;
  double ema_decay_;
  std::vector<std::vector<Tensor>> state_;  // for each group a (1, P) of each name
  std::vector<Tensor> averages_;            // for each group a (1, P); empty if ema_decay_ is 0
  bool has_averages_ = false;
};

/// Norms by parameter name, in the model's order.
using NamedNorms = std::vector<std::pair<std::string, double>>;

/// Returns the norm of every parameter's own gradient, summed over all ranks. Call it while the
/// gradients of a step are in their shards, for example in StepInput::accept. Collective; waits.
NamedNorms gradient_norms(const Context& ctx, const OptimizerState& optimizer);

}  // namespace axonn
