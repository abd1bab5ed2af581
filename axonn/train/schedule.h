#pragma once

#include <cstdint>

#include "axonn/train/config.h"

namespace axonn {

/// Returns the learning rate of `step`, counted from 0.
///
/// It rises linearly over warmup_steps to lr. After that, constant stays at lr; linear and cosine
/// fall to min_lr at the last step; wsd (warm-up, stable, decay) stays at lr and falls linearly to
/// min_lr over the last decay_steps.
double learning_rate(const Config& config, std::int64_t step);

}  // namespace axonn
