#pragma once

#include <string>

#include "axonn/compute/ops/backend.h"

namespace axonn {

/// Compares products in f32, bf16 and f16 and a row-wise operation with the CPU's results, in some
/// milliseconds. Returns what differs; "" if nothing does. Throws as the operations do. Afterwards
/// the calling thread's CPU kernels use one thread, until the next make_cpu_backend().
std::string self_test(Backend& backend);

}  // namespace axonn
