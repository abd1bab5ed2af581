#pragma once

#include <memory>

#include "axonn/tensor/device.h"
#include "axonn/tensor/schedule.h"

namespace axonn {

/// A device without memory. It returns a new address for each allocation, which must not be
/// accessed. Copies move nothing, and copies to the host give zeros. An arena on it counts the same
/// bytes as on a real device, so a dry run shows the memory of a step of any size.
///
/// Copies and fills are recorded in the schedule, if one is given. It must outlive the device.
std::unique_ptr<Device> make_dry_device(Schedule* schedule = nullptr);

}  // namespace axonn
