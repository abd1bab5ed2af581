#pragma once

#include <string>

#include "axonn/comm/grid.h"

namespace axonn {

/// Finds the rank that slows the others down. Returns a line that names the slowest rank and its
/// coordinates on each axis, with their times relative to the mean, if it computes at least a
/// quarter longer than the mean of all ranks; otherwise "". `seconds` is this rank's time without
/// its waits. Collective over the grid's world; waits.
std::string stragglers(const Grid& grid, double seconds);

}  // namespace axonn
