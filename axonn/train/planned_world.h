#pragma once

#include <memory>

#include "axonn/comm/communicator.h"
#include "axonn/comm/grid.h"

namespace axonn {

/// The world as one rank of a grid sees it, without the other ranks: it says where it is, and its
/// splits along the grid's axes do. So a rank of any grid can be planned on one core, at no cost.
///
/// Errors: everything that would need the others throws Error.
std::unique_ptr<Communicator> make_planned_world(const GridShape& shape, int rank);

}  // namespace axonn
