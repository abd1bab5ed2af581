#pragma once

#include "axonn/plan/planner/machine/machine.h"

namespace axonn::testing_support {

/// A machine with round figures, so that times can be calculated by hand: 4 devices per node, with
/// slower links between nodes than inside.
inline Machine round_machine() {
  return {.name = "Round",
          .device = "R1",
          .devices_per_node = 4,
          .memory_bytes = 1e12,
          .advertised_flops_per_s = 2e14,
          .bf16 = {.flops_per_s = 1e14},
          .f32 = {.flops_per_s = 1e13},
          .attention_flops_per_s = 1e13,
          .memory_bytes_per_s = 1e12,
          .node_bytes_per_s = 4e10,
          .node_latency_s = 1e-5,
          .device_bytes_per_s = 1e11,
          .device_latency_s = 1e-6};
}

}  // namespace axonn::testing_support
