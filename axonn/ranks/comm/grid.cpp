#include "axonn/ranks/comm/grid.h"

#include "axonn/foundation/base/check.h"

namespace axonn {

Grid::Grid(Communicator& world, GridShape shape) : world_(world), shape_(shape) {
  for (Axis axis : kAxes)
    if (shape.extent(axis) < 1) refuse("grid ", to_string(shape), " has an extent below 1");
  for (const auto& [key, factor] :
       {std::pair{"context", shape.context}, std::pair{"experts", shape.experts}})
    if (factor < 1 || shape.z % factor != 0)
      refuse("[parallelism] ", key, " = ", factor, " does not divide z = ", shape.z,
             "; set it to a divisor of z");
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
  const int step = shape.x * shape.y;  // between neighbours along z
  if (shape.context > 1)
    context_ = world.split(world.rank() - context_part(shape, coords_) * step, "context");
  if (shape.experts == 1) return;
  const int part = experts_part(shape, coords_), z = coord(Axis::z);
  experts_ = world.split(world.rank() - part * step, "experts");
  same_experts_ = world.split(world.rank() - (z - part) * step, "same experts");
}

std::string Grid::describe() const {
  return concat("rank ", world_.rank(), " (x ", coord(Axis::x), ", y ", coord(Axis::y), ", z ",
                coord(Axis::z), ", data ", coord(Axis::data), ')');
}

NamedSeconds WaitClock::so_far() const {
  NamedSeconds all;
  const auto add = [&](std::string_view group, const CommStats& stats) {
    for (int i = 0; i < kOperations; ++i)
      all.emplace_back(concat(group, ' ', name_of(static_cast<Operation>(i))),
                       stats.waited_seconds_by[i]);
  };
  for (Axis axis : kAxes) add(name_of(axis), grid_->along(axis).stats());
  if (grid_->shape().context > 1) add("context", grid_->context().stats());
  if (grid_->shape().experts > 1) {
    add("experts", grid_->experts().stats());
    add("same experts", grid_->same_experts().stats());
  }
  add("world", grid_->world().stats());
  return all;
}

NamedSeconds WaitClock::by_kind() const {
  NamedSeconds since = so_far();
  for (std::size_t i = 0; i < since.size(); ++i) since[i].second -= start_[i].second;
  return since;
}

double WaitClock::seconds() const {
  double sum = 0;
  for (const auto& [kind, seconds] : by_kind()) sum += seconds;
  return sum;
}

NamedSeconds mean_waits(Communicator& world, const NamedSeconds& seconds, double steps) {
  std::vector<double> sums;
  for (const auto& [kind, here] : seconds) sums.push_back(here);
  world.all_reduce(buffer(std::span(sums)), "waits").wait();
  NamedSeconds mean;
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (sums[i] > 0) mean.emplace_back(seconds[i].first, sums[i] / world.size() / steps);
  return mean;
}

}  // namespace axonn
