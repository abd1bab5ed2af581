#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/tensor.h"

/// Helpers of the probes of a machine and of its network.

namespace axonn {

/// Seconds per call of run, over as many calls as take about `seconds`, after one untimed call.
double seconds_of_one(Backend& backend, double seconds, const std::function<void()>& run);

/// A matrix of equal small numbers: a CPU may be faster on zeros, and sums must stay finite.
Tensor filled(Backend& backend, Arena& arena, std::int64_t rows, std::int64_t cols, DType dtype);

/// The middle value, of an even number the larger of the two; 0 if there are none.
double median(std::vector<double> values);

}  // namespace axonn
