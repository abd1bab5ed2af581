#pragma once

#include <memory>

#include "axonn/comm/communicator.h"
#include "axonn/comm/grid.h"
#include "axonn/tensor/schedule.h"

namespace axonn {

/// The world as one rank of a grid sees it, without the other ranks: it says where it is, and its
/// splits along the grid's axes do. Collectives are checked, move nothing and are done at once, so
/// a rank of any grid can be planned, or its step be run dry, on one core.
///
/// Collectives and waits of groups of more than one rank are noted in the schedule, if one is
/// given, which must outlive the world and all of its Works.
///
/// Errors: Error for a split that is not along an axis, by its name.
std::unique_ptr<Communicator> make_dry_world(const GridShape& shape, int rank,
                                             Schedule* schedule = nullptr);

}  // namespace axonn
