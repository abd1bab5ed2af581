#pragma once

#include <string>

#include "axonn/comm/grid.h"

namespace axonn {

/// Who holds the others up: a line that names the slowest rank, and the slowest coordinate of each
/// axis, where it computes a quarter longer than the mean of all; else "". `seconds` is this rank's
/// time without its waits. Collective over the grid's world; waits.
std::string stragglers(const Grid& grid, double seconds);

}  // namespace axonn
