#pragma once

#include <string>
#include <vector>

#include "axonn/plan/search.h"

namespace axonn {

/// What one setting does for a plan's step.
struct Saving {
  std::string setting;  ///< "overlap_weights"
  double seconds = 0;   ///< that it saves, or would save
  bool set = true;      ///< false: it would, if it were set so
};

/// What each overlap that is on saves, the others being on; and what cutting a micro-batch into two
/// chunks saves, or would. Each is the same step estimated again. Settings without effect on this
/// grid are left out.
std::vector<Saving> savings(const Config& config, const Machine& machine, const Plan& plan);

/// Why other is behind best: "+4 %: 0.80 s more of exposed z reduce_scatter, 0.10 s of products".
std::string why_behind(const Plan& best, const Plan& other);

}  // namespace axonn
