#include "axonn/plan/planner/paper_model.h"

#include <algorithm>
#include <array>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr double kPaperElementBytes = 2;  // bf16

/// One product of a block.
struct Product {
  double k, n;
  bool transposed;
};

std::array<Product, 4> products_of(const ModelConfig& model) {
  const auto h = static_cast<double>(model.hidden), f = static_cast<double>(model.ffn),
             d = static_cast<double>(model.head_width()), heads = static_cast<double>(model.heads),
             kv_heads = static_cast<double>(model.kv_heads);
  const double into_mlp = model.has_gate() ? 2 * f : f;  // gate and up
  return {{{.k = h, .n = (heads + 2 * kv_heads) * d, .transposed = false},
           {.k = heads * d, .n = h, .transposed = true},
           {.k = h, .n = into_mlp, .transposed = false},
           {.k = f, .n = h, .transposed = true}}};
}

/// Seconds for each element that a member of the axis' ring sends; 0 for a group of one.
double per_element(const Machine& machine, const GridShape& grid, Axis axis) {
  return grid.extent(axis) == 1 ? 0 : kPaperElementBytes / paper_bandwidth(machine, grid, axis);
}

/// (g−1)/g
double share_sent(int g) { return static_cast<double>(g - 1) / g; }

}  // namespace

double paper_bandwidth(const Machine& machine, const GridShape& grid, Axis axis) {
  const GroupShape group = group_along(grid, axis);
  const int node = machine.devices_per_node;
  const bool inside = group.inner * group.size <= node;
  const auto measured = std::ranges::find_if(machine.groups, [&](const GroupRate& rate) {
    return rate.operation.empty() && rate.inner == group.inner && rate.size == group.size;
  });
  const double links = machine.paper_node_bytes_per_s > 0 ? machine.paper_node_bytes_per_s
                                                          : machine.node_bytes_per_s;
  const double rate = !inside                            ? links / std::min(node, group.inner)
                      : measured != machine.groups.end() ? measured->bytes_per_s
                                                         : machine.device_bytes_per_s;
  if (rate <= 0)
    refuse("the machine ", machine.name, " has no bandwidth ", inside ? "inside" : "between",
           " nodes, which groups along ", name_of(axis), " of the grid ", to_string(grid),
           " need; set [links] ", inside ? "device" : "node", "_bytes_per_s in its file");
  return rate;
}

PaperSeconds paper_seconds(const ModelConfig& model, const PaperBatch& batch,
                           const Machine& machine, const GridShape& grid) {
  AXONN_CHECK(model.ffn > 0 && model.kv_heads > 0,
              "paper_seconds: the model is not resolved; its ffn is ", model.ffn,
              " and its kv_heads ", model.kv_heads);
  const double gx = grid.x, gy = grid.y, gz = grid.z,
               m = static_cast<double>(batch.tokens) / grid.data, forward = batch.recompute ? 2 : 1,
               along_x = per_element(machine, grid, Axis::x),
               along_y = per_element(machine, grid, Axis::y),
               along_z = per_element(machine, grid, Axis::z),
               along_data = per_element(machine, grid, Axis::data);
  PaperSeconds sum;
  for (const auto& [k, n, transposed] : products_of(model)) {
    // The sizes that are cut over x and over y: in a normal layer n over x and k over y.
    const double over_x = transposed ? k : n, over_y = transposed ? n : k;
    const double forward_x = transposed ? forward : 1, forward_y = transposed ? 1 : forward;
    sum.gather_z += along_z * forward * (gz - 1) * k * n / (gx * gy * gz);
    sum.scatter_z += along_z * share_sent(grid.z) * k * n / (gx * gy);
    sum.reduce_y += along_y * forward_y * 2 * share_sent(grid.y) * m * over_x / (gz * gx);
    sum.reduce_x += along_x * forward_x * 2 * share_sent(grid.x) * m * over_y / (gz * gy);
    sum.reduce_data += along_data * 2 * share_sent(grid.data) * k * n / (gx * gy * gz);
  }
  const auto layers = static_cast<double>(model.layers);
  for (double* part :
       {&sum.gather_z, &sum.scatter_z, &sum.reduce_y, &sum.reduce_x, &sum.reduce_data})
    *part *= layers;
  return sum;
}

}  // namespace axonn
