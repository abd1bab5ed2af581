#pragma once

#include <cstdint>

#include "axonn/run/config/config.h"

namespace axonn {

/// The scale of the loss of a training in f16, and which steps overflowed: what a checkpoint keeps.
struct LossScaleState {
  double scale = 0;                ///< of the next step; 0: not begun
  std::int64_t steps = 0;          ///< without overflow since the scale last changed
  std::int64_t overflows = 0;      ///< in a row, the last step's among them
  std::int64_t hysteresis = 0;     ///< overflows left that do not lower the scale, and one
  std::int64_t skipped_total = 0;  ///< overflows in the whole run

  bool operator==(const LossScaleState&) const = default;
};

/// Keeps gradients within the range of f16, whose smallest size is 6e-8 and whose largest 65504.
/// The loss is multiplied by a scale before the backward pass, and the gradients are divided by it
/// after they are summed over all ranks. A step whose gradients then are not finite overflowed: it
/// changes no weight.
///
/// A dynamic scale begins with config.initial. It doubles after config.window steps in a row
/// without overflow. An overflow halves it if it is the config.hysteresis-th, or a later one, since
/// the scale last doubled. A config.fixed scale never changes.
///
/// Source: Micikevicius et al., "Mixed Precision Training", ICLR 2018.
class LossScale {
 public:
  /// Inactive unless training.dtype is f16.
  explicit LossScale(const TrainingConfig& training);

  bool active() const { return active_; }
  /// The scale of the next step; 1 if inactive.
  double scale() const { return active_ ? state_.scale : 1; }
  /// Notes whether a step overflowed, and sets the scale of the next one. Gives the same on every
  /// rank. Does nothing if inactive.
  void update(bool overflow);
  /// Whether the run must end: the last step overflowed at a scale that cannot be halved, because
  /// it would be below config.min, or as the training.skip_most-th in a row with a fixed scale.
  bool exhausted() const { return exhausted_; }

  const LossScaleState& state() const { return state_; }
  /// Continues with the state of a checkpoint. A scale that has not begun, as in a checkpoint of a
  /// run in another type, begins; a fixed scale stays.
  void set_state(const LossScaleState& state);

 private:
  LossScaleConfig config_;
  std::int64_t skip_most_;
  bool active_, exhausted_ = false;
  LossScaleState state_;
};

}  // namespace axonn
