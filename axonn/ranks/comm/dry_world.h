#pragma once

#include <memory>

#include "axonn/compute/tensor/recording.h"
#include "axonn/foundation/grid/grid_shape.h"
#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// Makes the world of one rank of a grid without the other ranks. The world and the groups split
/// from it by Grid know this rank's coordinates and their size. Collectives are checked,
/// move nothing and are done at once. So one core can plan, or dry-run a step of, a rank of any
/// grid.
///
/// Collectives and waits of groups of more than one rank are added to the recording, if one is
/// given. It must outlive the world and all of its Works.
///
/// Throws Error if `rank` is not in the grid. split() throws if the name is not that of an axis or
/// "context".
std::unique_ptr<Communicator> make_dry_world(const GridShape& shape, int rank,
                                             Recording* recording = nullptr);

}  // namespace axonn
