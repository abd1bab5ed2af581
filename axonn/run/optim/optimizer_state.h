#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "axonn/run/optim/optimizer.h"

namespace axonn {

class StateSums;

/// An optimizer and its state on this rank, for all groups that are trained, and the running
/// averages of their weights.
///
/// The first update() copies the weights w to the averages e, each later one adds
/// (1 - ema_decay) · (w - e), in f32. They lie as the master weights do, cut over x, y, z and data.
class OptimizerState {
 public:
  struct Options {
    double ema_decay = 0;  ///< 0: there are no averages
    /// How the rule's state is kept: but for f32, of rules with Optimizer::state_signs() alone.
    MomentType moments = MomentType::f32;
    std::uint64_t seed = 0;  ///< of the random numbers that bf16 is rounded with
    bool sums = false;       ///< whether checksums of all values are kept from update to update
    std::vector<ParameterGroup*> frozen = {};  ///< also those of these groups
  };
  /// Throws Error without an optimizer, if two of its buffers would have one name in checkpoints,
  /// or if it cannot keep its state so.
  OptimizerState(std::vector<ParameterGroup*> groups, std::unique_ptr<Optimizer> optimizer,
                 const Options& options);
  OptimizerState(std::vector<ParameterGroup*> groups, std::unique_ptr<Optimizer> optimizer)
      : OptimizerState(std::move(groups), std::move(optimizer), Options()) {}
  ~OptimizerState();

  /// Allocates the buffers, which are zero. The groups must have been allocated.
  void allocate(const Context& ctx);

  /// Multiplies the gradients by `factor`.
  void scale_gradients(const Context& ctx, double factor) const;

  /// out (1, 1) f64 += sum of squares of the gradients that this rank owns. Summed over all ranks,
  /// it is the square of the global gradient norm: every element is counted once.
  void add_squared_norm(const Context& ctx, const View& out) const;

  /// With a finite p, out (1, 1) f64 += this rank's part of the sum of PowerSum over the gradients
  /// whose norm has this square, (1, 1) f64; with p = infinity, out = their largest size.
  void add_norm(const Context& ctx, double p, const View& squared_norm, const View& out) const;

  /// Clips each element of the gradients to at most this size.
  void clip_values(const Context& ctx, double limit) const;

  /// Does update `step`, counted from 0, and gathers the updated pieces over data. scale (1, 1) f32
  /// multiplies the gradients. Throws Error before allocate(), and on the rank where a checksum
  /// differs in more than one bit, with the rank, the parameter and which of its values.
  void update(const Context& ctx, std::int64_t step, double lr, const View& scale);

  /// Call it before a step's forward pass: begins the checksums, if values were loaded. Collective.
  void begin_step();
  /// Compares the compute copies of this rank with their checksums, if there are any, when a step
  /// has used them. Returns whether one differed, so that the gradients may be wrong. Collective.
  bool check_copies();
  /// Called then on all ranks, before the step is done again: makes the copies anew that could not
  /// be set right, from the master copies and those of other ranks. Throws Error as update() does.
  void mend_copies(const Context& ctx);
  /// Compares all values with their checksums, if there are any, as an update does. Returns whether
  /// all were right; if not, they are now. Throws Error as update() does. Collective.
  bool check_sums();
  /// What the log should say of bits that were set right since the last call.
  std::vector<std::string> take_remarks();

  const std::vector<ParameterGroup*>& groups() const { return groups_; }
  /// Buffers of group i in a checkpoint, (1, P) f32 each: ("master", ...), those of the optimizer's
  /// state_names() unless they are small(), and ("ema", ...) if has_averages(). "master" are the
  /// weights to evaluate: see Optimizer::training_weights(). Throws Error before allocate(), or if
  /// there is no group i.
  std::vector<std::pair<std::string, View>> buffers(std::size_t i) const;

  /// What the arena may offload of group i, for InMemory: its buffers, and those of its state.
  std::vector<Tensor> offloadable(std::size_t i) const;
  /// The state of group i in few bits, in the order of the optimizer's state_names(); null if it is
  /// f32. Throws as buffers() does.
  const SmallState* small(std::size_t i) const;
  std::vector<std::string> state_names() const { return optimizer_->state_names(); }
  /// All kinds of a group's values in a checkpoint.
  std::vector<std::string> kinds() const;

  /// Factors of group i in a checkpoint: of each of kFactorKinds the parts in this rank's piece,
  /// and the piece, (1, N / ranks) f32. Empty if the rule keeps none. Throws as buffers() does.
  struct Factors {
    std::string kind;
    View piece;
    const std::vector<NamedSlice>* slices = nullptr;
  };
  std::vector<Factors> factors(std::size_t i) const;

  /// Whether the optimizer has number_names().
  bool keeps_numbers() const { return !optimizer_->number_names().empty(); }
  /// Their numbers for a checkpoint, empty before the first update.
  std::map<std::string, double> numbers() const;
  /// Called before buffers() are loaded, with the numbers of the checkpoint. Throws UsageError if
  /// they are not those of this optimizer.
  void set_numbers(const std::map<std::string, double>& stored);

  /// Exchanges the weights of training with those to evaluate, if these are others. A second call
  /// restores all bits. Collective, as exchange_averages().
  void exchange_evaluated(const Context& ctx);

  /// Whether the averages have values: an update was done, or they are loaded.
  bool has_averages() const { return has_averages_; }
  /// Called before buffers() are loaded: whether the checkpoint has averages. If not, the next
  /// update begins them. Has no effect if ema_decay is 0.
  void expect_averages(bool stored);
  /// Exchanges the weights and their averages, for an evaluation of the averages. A second call
  /// restores all bits. Collective: gathers the compute copies over data. Requires has_averages().
  void exchange_averages(const Context& ctx);

 private:
  /// (1, P) each of group i that may be in a file; those and parts of SmallState in memory.
  std::vector<Tensor> pieces(std::size_t i) const;
  bool is_offloaded(std::size_t i) const;
  InMemory parts_in_memory(std::size_t i) const;
  /// Calls f with each run of gradients that this rank owns.
  void for_owned_gradients(const auto& f) const;
  void check_allocated(const char* function) const;
  void update_average(const Context& ctx, std::size_t i) const;
  void make_sums(const Context& ctx);
  std::string changed(const std::string& what) const;
  void refuse_fault(const std::string& fault) const;
  /// Adds to remarks_ what was set right. Returns whether there was something.
  bool note_mended();
  /// The number of the state buffer with the weights to evaluate; none if they are those of
  /// training, as before the first update.
  std::optional<std::size_t> evaluated() const;
  /// Exchanges the master weights of each group i with of_group(i), (1, P).
  void exchange(const Context& ctx, const auto& of_group);

  std::vector<ParameterGroup*> groups_;
  std::unique_ptr<Optimizer> optimizer_;
  Options options_;
  std::vector<std::vector<Tensor>> state_;  // for each group a (1, P) of each name; empty if small
  std::vector<SmallState> small_;           // for each group; empty if the state is f32
  struct FactorState {
    FactorLayout layout;
    Tensor piece;  // (1, N / ranks)
  };
  std::vector<FactorState> factors_;  // for each group; empty if the rule keeps none
  std::vector<double> numbers_;       // empty before the first update
  std::vector<Tensor> averages_;      // for each group a (1, P); empty if ema_decay is 0
  bool has_averages_ = false;
  std::unique_ptr<StateSums> sums_;  // null: none are kept
  std::vector<std::string> remarks_;
};

}  // namespace axonn
