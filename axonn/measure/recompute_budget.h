#pragma once

#include <cstdint>
#include <functional>

#include "axonn/train/config.h"

namespace axonn {

/// Levels of recomputation of a model of L blocks, 0 to 2 L, by less memory and more time: level i
/// up to L recomputes the first i blocks lightly, level L + i all lightly and the first i in full.
/// Level 2 L is mode full.
std::int64_t most_recomputation(const Config& config);
Config with_recomputation(Config config, std::int64_t level);

/// Returns config with the least level for which fits(config) holds, assuming that it holds from
/// some level on; with the last level if it never does. Calls fits about log2(2 L) times.
Config with_least_recomputation(const Config& config,
                                const std::function<bool(const Config&)>& fits);

/// Returns config with the least recomputation with which the peak of every rank's step is at most
/// activation_checkpoint.budget, by dry steps: the peak is exact. Without a budget, or with an
/// automatic grid, returns config as it is. Depends on config alone, so all ranks choose alike.
///
/// config must be validated and resolved. Throws UsageError if full recomputation does not suffice,
/// with the least budget that does.
Config within_budget(const Config& config);

}  // namespace axonn
