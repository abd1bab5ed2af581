#pragma once

#include <memory>

#include "axonn/ops/backend.h"
#include "axonn/tensor/schedule.h"

namespace axonn {

/// A Backend on a dry device: its operations do nothing and are noted in the schedule, if one is
/// given, with shapes, flops and the layer they belong to. The schedule must outlive it.
std::unique_ptr<Backend> make_dry_backend(Schedule* schedule = nullptr);

}  // namespace axonn
