#include "axonn/comm/wait_clock.h"

#include "axonn/base/check.h"

namespace axonn {

NamedSeconds WaitClock::so_far() const {
  NamedSeconds all;
  const auto add = [&](std::string_view group, const CommStats& stats) {
    for (int i = 0; i < kOperations; ++i)
      all.emplace_back(concat(group, ' ', name_of(static_cast<Operation>(i))),
                       stats.waited_seconds_by[i]);
  };
  for (Axis axis : kAxes) add(name_of(axis), grid_->along(axis).stats());
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
