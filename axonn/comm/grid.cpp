#include "axonn/comm/grid.h"

#include "axonn/base/check.h"

namespace axonn {

Grid::Grid(Communicator& world, GridShape shape) : world_(world), shape_(shape) {
  for (Axis axis : kAxes)
    if (shape.extent(axis) < 1) refuse("grid ", to_string(shape), " has an extent below 1");
  if (shape.ranks() != world.size())
    refuse("grid ", to_string(shape), " needs ", shape.ranks(), " ranks, but there are ",
           world.size(), "; start as many as it needs, or change [parallelism] x, y, z and data");
  coords_ = coords_of(shape, world.rank());
  int stride = 1;
  for (Axis axis : kAxes) {
    // Ranks that differ in this axis only get the same color: the rank that is 0 on this axis.
    const int color = world.rank() - coord(axis) * stride;
    groups_[static_cast<int>(axis)] = world.split(color, std::string(name_of(axis)));
    stride *= extent(axis);
  }
}

std::string Grid::describe() const {
  return concat("rank ", world_.rank(), " (x ", coord(Axis::x), ", y ", coord(Axis::y), ", z ",
                coord(Axis::z), ", data ", coord(Axis::data), ')');
}

}  // namespace axonn
