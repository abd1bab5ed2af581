#pragma once

#include <cstdint>
#include <vector>

#include "axonn/foundation/grid/grid_shape.h"
#include "axonn/network/model/config.h"
#include "axonn/plan/planner/machine/machine.h"

namespace axonn {

/// The communication model of Singh et al., "Democratizing AI: Open-source Scalable LLM Training on
/// GPU-based Supercomputers", 2024 (arXiv 2502.08145), section V: ring collectives of large
/// messages, no latency, no compute, nothing hidden. It ranks grids; it does not predict a step.
///
/// A layer O = I·W, I (m, k), W (k, n), on the grid Gx, Gy, Gz, Gd, with m the rows that one
/// data-parallel group sees; seconds are elements · 2 bytes / bandwidth of the group:
///
///   all-gather of W over z          (Gz−1) · k·n / (Gx·Gy·Gz)
///   reduce-scatter of dW over z     (Gz−1)/Gz · k·n / (Gx·Gy)
///   all-reduce of O over y          2 · (Gy−1)/Gy · m·n / (Gz·Gx)
///   all-reduce of dI over x         2 · (Gx−1)/Gx · m·k / (Gz·Gy)
///   all-reduce of dW over data      2 · (Gd−1)/Gd · k·n / (Gx·Gy·Gz)
///
/// In transposed layers (attention's projection, the MLP's last) x and y are swapped. The sum runs
/// over the products of all blocks, without embedding and logits.
struct PaperSeconds {
  double gather_z = 0, scatter_z = 0, reduce_y = 0, reduce_x = 0, reduce_data = 0;

  double total() const { return gather_z + scatter_z + reduce_y + reduce_x + reduce_data; }
};

struct PaperBatch {
  std::int64_t tokens = 0;  ///< of a step, over all devices
  bool recompute = false;   ///< all-gathers and forward all-reduces happen twice
};

/// The bandwidth of a group along `axis`, in bytes per second. Let g be its extent and p the
/// product of the extents before it, in the order x, y, z, data. Inside a node it is the machine's
/// rate for (p, g), or else device_bytes_per_s. Unlike MachineCosts, a group of at most a node's
/// size never straddles two nodes. Across nodes, min(devices of a node, p) groups leave a node at
/// once and share its links. Throws UsageError if the machine lacks the rate.
double paper_bandwidth(const Machine& machine, const GridShape& grid, Axis axis);

/// The seconds of one step of a resolved model.
PaperSeconds paper_seconds(const ModelConfig& model, const PaperBatch& batch,
                           const Machine& machine, const GridShape& grid);

}  // namespace axonn
