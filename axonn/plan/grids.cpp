#include "axonn/plan/grids.h"

#include "axonn/base/check.h"

namespace axonn {

namespace {

std::vector<int> divisors_of(int number) {
  std::vector<int> small, large;
  for (int i = 1; i <= number / i; ++i) {
    if (number % i != 0) continue;
    small.push_back(i);
    if (i != number / i) large.push_back(number / i);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

}  // namespace

std::vector<GridShape> grids_of(int ranks) {
  AXONN_CHECK(ranks > 0, "grids_of: got ", ranks, " ranks, wanted at least 1");
  std::vector<GridShape> grids;
  for (const int x : divisors_of(ranks))
    for (const int y : divisors_of(ranks / x))
      for (const int z : divisors_of(ranks / x / y))
        grids.push_back({.x = x, .y = y, .z = z, .data = ranks / x / y / z});
  return grids;
}

bool allows(Strategy strategy, const GridShape& grid, int devices_per_node) {
  switch (strategy) {
    case Strategy::fsdp:
      return grid.x == 1 && grid.y == 1 && grid.data == 1;
    case Strategy::hsdp:
      return grid.x == 1 && grid.y == 1;
    case Strategy::megatron:
      return grid.y == 1 && devices_per_node % grid.x == 0;
    case Strategy::grid_4d:
      return true;
  }
  return false;
}

}  // namespace axonn
