#include "axonn/run/records/loss_scale.h"

#include <cmath>

namespace axonn {

namespace {

// As in torch.amp.GradScaler and Megatron-LM. Powers of two round no gradient.
constexpr double kGrowth = 2, kBackoff = 0.5;

}  // namespace

LossScale::LossScale(const TrainingConfig& training)
    : config_(training.loss_scale),
      skip_most_(training.skip_most),
      active_(training.dtype == DType::f16) {
  set_state({});
}

void LossScale::set_state(const LossScaleState& state) {
  state_ = state;
  if (!active_) return;
  if (state_.scale == 0) {
    state_.scale = config_.initial;
    state_.hysteresis = config_.hysteresis;
  }
  if (config_.fixed > 0) state_.scale = config_.fixed;
}

void LossScale::update(bool overflow) {
  if (!active_) return;
  const bool dynamic = config_.fixed == 0;
  state_.overflows = overflow ? state_.overflows + 1 : 0;
  state_.skipped_total += overflow ? 1 : 0;
  exhausted_ = !dynamic && state_.overflows >= skip_most_;
  if (!dynamic) return;
  if (overflow) {
    state_.steps = 0;
    if (--state_.hysteresis > 0) return;
    exhausted_ = state_.scale * kBackoff < config_.min;
    if (!exhausted_) state_.scale *= kBackoff;
    return;
  }
  if (++state_.steps < config_.window) return;
  state_.steps = 0;
  state_.hysteresis = config_.hysteresis;
  if (std::isfinite(static_cast<float>(state_.scale * kGrowth))) state_.scale *= kGrowth;
}

}  // namespace axonn
