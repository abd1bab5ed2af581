#pragma once

#include <array>
#include <string_view>

#include "axonn/grid/grid_shape.h"

namespace axonn {

/// Which grids a search considers: those of common kinds of parallelism, or all.
enum class Strategy {
  fsdp,      ///< only z: FSDP, ZeRO-3
  hsdp,      ///< z and data: hybrid sharding, ZeRO++
  megatron,  ///< x within a node, and z and data: tensor parallelism in the node
  grid_4d,   ///< all
};

inline constexpr std::array<std::string_view, 4> kStrategies = {"fsdp", "hsdp", "megatron", "4d"};

bool allows(Strategy strategy, const GridShape& grid, int devices_per_node);

}  // namespace axonn
