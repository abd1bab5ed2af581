#pragma once

#include "axonn/run/config/config.h"

namespace axonn {

/// Throws UsageError, naming the keys and the remedy, if values are missing (all of them in one
/// error), out of range, or contradict one another. Does not check whether the grid can cut the
/// model: the layers do.
void validate(const Config& config);

/// Throws UsageError if the steps are too many tokens to count, or too few for the schedule.
void validate_length(const Config& config);

/// Throws UsageError, with the remedy, if this build or this machine has no such device.
void validate_device(DeviceKind device);

}  // namespace axonn
