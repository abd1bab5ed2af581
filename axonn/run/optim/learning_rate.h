#pragma once

#include <cstdint>

#include "axonn/run/config/config.h"

namespace axonn {

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
/// The rate of step `step` in a run that has not changed its batches.
double learning_rate(const Config& config, std::int64_t step);

}  // namespace axonn
