#pragma once

namespace axonn {

/// Decides which steps are outliers: loss or gradient norm above `factor` times its running mean
/// over about the last hundred applied steps. The same on every rank, since its inputs are.
class OutlierFilter {
 public:
  struct State {
    double loss = 0, norm = 0;  ///< running means
    double steps = 0;           ///< that they are over
  };

  /// factor 0: nothing is an outlier.
  explicit OutlierFilter(double factor) : factor_(factor) {}
  /// Goes on where an earlier run was.
  OutlierFilter(double factor, State state) : factor_(factor), state_(state) {}

  /// Whether the step shall be applied; if so it enters the means.
  bool accept(double loss, double norm) {
    constexpr double kWarmup = 20, kWindow = 100;  // too few steps say nothing of what is usual
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
