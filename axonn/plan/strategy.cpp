#include "axonn/plan/strategy.h"

namespace axonn {

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
