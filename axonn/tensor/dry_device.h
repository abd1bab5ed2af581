#pragma once

#include <memory>

#include "axonn/tensor/device.h"
#include "axonn/tensor/schedule.h"

namespace axonn {

/// A device without memory: it hands out addresses at which there is nothing, never twice the same,
/// copies nothing, and what is read from it is zero. An arena on it counts what an arena on a real
/// device would, so a step of any size can be run for what it would take.
///
/// Copies and fills are noted in the schedule, if one is given; it must outlive the device.
std::unique_ptr<Device> make_dry_device(Schedule* schedule = nullptr);

}  // namespace axonn
