#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "axonn/comm/grid.h"

namespace axonn {

/// Which grids a search looks at: what users run today, or all of them.
enum class Strategy {
  fsdp,      ///< z alone: FSDP, ZeRO-3
  hsdp,      ///< z and data: hybrid sharding, ZeRO++
  megatron,  ///< x within a node, and z and data: tensor parallelism in the node
  grid_4d,   ///< all
};

inline constexpr std::array<std::string_view, 4> kStrategies = {"fsdp", "hsdp", "megatron", "4d"};

/// All grids of so many ranks, each once, for any number: its ordered factorisations into four.
std::vector<GridShape> grids_of(int ranks);

bool allows(Strategy strategy, const GridShape& grid, int devices_per_node);

}  // namespace axonn
