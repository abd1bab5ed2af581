#pragma once

namespace axonn {

/// Decides which steps are outliers: those whose loss or gradient norm exceeds `factor` times its
/// running mean over about the last hundred applied steps. Gives the same answer on every rank if
/// its inputs are the same.
class OutlierFilter {
 public:
  struct State {
    double loss = 0, norm = 0;  ///< running means
    double steps = 0;           ///< number of steps in the means
  };

  /// factor 0: no step is an outlier.
  explicit OutlierFilter(double factor) : factor_(factor) {}
  /// Continues with the means of an earlier run.
  OutlierFilter(double factor, State state) : factor_(factor), state_(state) {}

  /// Returns whether to apply the step. If so, adds it to the means.
  bool accept(double loss, double norm) {
    constexpr double kWarmup = 20, kWindow = 100;  // fewer steps give no reliable mean
    if (factor_ > 0 && state_.steps >= kWarmup &&
        (loss > factor_ * state_.loss || norm > factor_ * state_.norm))
      return false;
    state_.steps += 1;
    const double share = 1 / (state_.steps < kWindow ? state_.steps : kWindow);
    state_.loss += share * (loss - state_.loss);
    state_.norm += share * (norm - state_.norm);
    return true;
  }

  const State& state() const { return state_; }

 private:
  double factor_;
  State state_;
};

}  // namespace axonn
