#pragma once

#include <functional>

#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/training.h"

namespace axonn::testing_support {

/// Expects dry_step() to predict the memory of every rank after two real steps, with one thread per
/// rank: the peak and what is live, and the parts of both, to the byte. `before` is called before
/// the first step of each rank.
void expect_dry_peak(const PreparedRun& run, const std::function<void(Training&)>& before = {});

}  // namespace axonn::testing_support
