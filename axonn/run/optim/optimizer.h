#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/ranks/parallel/parameters.h"
#include "axonn/run/config/config.h"
#include "axonn/run/config/optimizer_rules.h"
#include "axonn/run/optim/factors.h"

namespace axonn {

class SmallState;
struct GroupSums;

/// Whether values of a rule's state may be negative.
enum class StateSign : std::uint8_t { any, non_negative };

/// The buffers that a rule keeps of a group, in the order of its state_names(). Does not own them.
class StateViews {
 public:
  StateViews() = default;
  StateViews(Views views) : views_(views) {}                     // NOLINT: a list of views is one
  StateViews(const std::vector<View>& views) : views_(views) {}  // NOLINT

  StateViews(const SmallState& small) : small_(&small) {}  // NOLINT: so is this, in few bits

  /// (1, P) f32. Throws Error, with the number of buffers, if there is no i-th.
  const View& operator[](std::size_t i) const;
  std::size_t size() const { return views_.size(); }
  auto begin() const { return views_.begin(); }
  auto end() const { return views_.end(); }
  /// The state in few bits, of a rule with state_signs(); null: it is f32. See for_parts().
  const SmallState* small() const { return small_; }
  /// The same views for a rule that updates_by_parts(); their checksums (state_sums.h).
  StateViews with(const GroupSums& sums) const {
    StateViews copy = *this;
    copy.sums_ = &sums;
    return copy;
  }
  const GroupSums* sums() const { return sums_; }
  /// The same views for a rule that updates_by_parts(); what of the group may be in a file, (1, P)
  /// each, is put away part by part.
  StateViews with(const std::vector<Tensor>& offloaded) const {
    StateViews copy = *this;
    copy.offloaded_ = &offloaded;
    return copy;
  }
  const std::vector<Tensor>* offloaded() const { return offloaded_; }

 private:
  Views views_;
  const SmallState* small_ = nullptr;
  const GroupSums* sums_ = nullptr;
  const std::vector<Tensor>* offloaded_ = nullptr;
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

  /// The sign of each of state_names(), of a rule whose updates take the state from for_parts()
  /// (small_state.h), so that optimizer.moments may keep it in few bits. Empty: it is f32.
  virtual std::vector<StateSign> state_signs() const { return {}; }

  /// Whether update() reads and writes weights and state only where for_parts() (small_state.h)
  /// gives them, so that their checksums may be computed part by part.
  virtual bool updates_by_parts() const { return false; }

  /// Whether it keeps factored second moments: one f32 for each row of each parameter, and one for
  /// each column of a matrix. They start at zero, are cut over all ranks (FactorLayout), and
  /// checkpoints call them kFactorKinds.
  virtual bool keeps_factors() const { return false; }

  /// For a rule that evaluates other weights than those that training computes with: the one of
  /// state_names() that checkpoints call the latter. In memory that buffer holds the weights to
  /// evaluate, and master() those of training. Checkpoints have them the other way round, so that
  /// "master" are the weights to evaluate and to export. Empty: they are the same.
  virtual std::string training_weights() const { return {}; }

  /// Names of the numbers that the rule keeps of a run beside its buffers, as checkpoints call
  /// them. They start at zero.
  virtual std::vector<std::string> number_names() const { return {}; }

  struct Update {
    std::int64_t step = 0;  ///< number of updates before this one
    double lr = 0;          ///< learning rate of this step
    View scale = {};        ///< (1, 1) f32, multiplies the gradients: the clip factor
    StateViews state = {};  ///< one (1, P) f32 for each of state_names()
    /// If keeps_factors(): this rank's piece (1, N / ranks) f32, and where it lies.
    View factors = {};
    const FactorLayout* factor_layout = nullptr;
    std::span<const double> numbers = {};  ///< one for each of number_names(), of this update
  };
  /// Called once a step, before all else: changes the numbers to those of this update.
  virtual void change_numbers(const Update& /*update*/, std::span<double> /*numbers*/) const {}
  /// Called once, by OptimizerState::allocate(), on all ranks: lets a rule whose updates need other
  /// ranks plan its communication. The groups are all that are trained, and outlive the rule.
  virtual void prepare(const Context& /*ctx*/, std::span<ParameterGroup* const> /*groups*/) {}
  /// Called once a step, on all ranks, before update() of each group: for updates that need several
  /// groups or other ranks. `states` has the state of each group of prepare(); that of `update` is
  /// empty.
  virtual void update_together(const Context& /*ctx*/, const Update& /*update*/,
                               std::span<const StateViews> /*states*/) const {}
  /// Computes this rank's piece (P elements) of the group's new weights from group.gradient(), and
  /// stores it in group.master() and, in the compute type, in group.piece_of_compute(). Dry runs
  /// and plans call it on a device without values: code of the host belongs in Backend::on_host().
  virtual void update(const Context& ctx, const ParameterGroup& group,
                      const Update& update) const = 0;
};

/// The kinds of f32 values that a run keeps of each trained weight, as checkpoints call them: the
/// weight itself, the rule's state, and its average if there is one.
std::vector<std::string> state_kinds(const OptimizerConfig& config);

/// What a run keeps of the trained weights in memory and in checkpoints.
struct StateForm {
  std::int64_t f32 = 1;    ///< values of each element: the weight, the rule's state, the average
  bool factors = false;    ///< and those of FactorLayout
  std::int64_t small = 0;  ///< states of the rule in few bits (SmallLayout)
  MomentType type = MomentType::f32;  ///< of these
};
StateForm state_form(const OptimizerConfig& config);
/// Bytes of a rank's buffers of a group, and of a checkpoint of it: of all ranks' files, without
/// their headers. Sizes alone count.
std::int64_t piece_bytes(const ParameterGroup& group, const StateForm& form);
std::int64_t checkpoint_bytes(const ParameterGroup& group, const StateForm& form);

/// Whether the rule keeps factors of the trained weights beside state_kinds().
bool keeps_factors(const OptimizerConfig& config);
/// state_kinds(), and kFactorKinds if it does: all that a checkpoint of the run holds.
std::vector<std::string> stored_kinds(const OptimizerConfig& config);

/// The settings of [optimizer] for the width of the config's model: with muP, all gradients are
/// smaller by m than those of the base, because the logits are, and so eps is divided by m.
OptimizerConfig optimizer_of(const Config& config);

/// Makes the rule that optimizer.kind names, of this library or registered. Throws Error if the
/// maker of a registered one returns null.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config);

}  // namespace axonn
