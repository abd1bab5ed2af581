#pragma once

#include <string>
#include <vector>

#include "axonn/plan/search.h"

namespace axonn {

/// The effect of one setting on the time of a plan's step.
struct Saving {
  std::string setting;  ///< "overlap_weights"
  double seconds = 0;   ///< that it saves, or would save
  bool set = true;      ///< whether the plan has the setting; false: it would save `seconds`
};

/// The time that each overlap that is on saves, with the others unchanged; and the time that
/// cutting a micro-batch into chunks saves or would save. Estimates the step again for each. Leaves
/// out settings without effect on this grid.
std::vector<Saving> savings(const Config& config, const Machine& machine, const Plan& plan);

/// Why other is slower than best: "+4.0 %: 0.8 s more of exposed z reduce_scatter, 0.3 s more of
/// products".
std::string why_behind(const Plan& best, const Plan& other);

}  // namespace axonn
