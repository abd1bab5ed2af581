#pragma once

#include <memory>

#include "axonn/ops/backend.h"
#include "axonn/tensor/schedule.h"

namespace axonn {

/// A Backend on a dry device: operations compute nothing. If a schedule is given, it records them
/// there, with shapes, layer and the flops of products and attention. The schedule must outlive it.
std::unique_ptr<Backend> make_dry_backend(Schedule* schedule = nullptr);

}  // namespace axonn
