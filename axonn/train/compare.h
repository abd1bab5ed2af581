#pragma once

#include <string>
#include <vector>

#include "axonn/comm/communicator.h"
#include "axonn/model/model.h"
#include "axonn/ops/backend.h"
#include "axonn/train/config.h"
#include "axonn/train/gradient_norms.h"

namespace axonn {

/// What a short run computed; the same on every rank.
struct GridTrace {
  GridShape grid;
  std::vector<double> losses, norms;  ///< of each step
  NamedNorms parameter_norms;         ///< of the first step's gradients
  /// The first parameter of which ranks that should hold the same bits do not; "": none.
  std::string differing_replica;
};

/// Runs the first `steps` steps of config on its grid, which fits world. Collective.
GridTrace trace_run(const Config& config, Communicator& world, std::unique_ptr<Backend> backend,
                    int steps, const ModelMaker& make_model = axonn::make_model);

/// How far two grids may differ, relative. Sums are made in another order on another grid; the
/// figures are derived in docs/correctness.md.
struct Tolerance {
  double loss, norm, parameter;
  /// Norms below this share of the largest are zero by nature (a key's bias) and rounding noise.
  double floor;
};
Tolerance tolerance_of(DType dtype);

/// One grid against the reference.
struct GridComparison {
  GridShape grid;
  double loss = 0, norm = 0, parameter = 0;  ///< the largest relative differences
  int loss_step = -1;                        ///< the first step, from 0, whose loss differs; -1
  std::string first_parameter;               ///< the first that differs, in the model's order
  std::string differing_replica;
  bool agrees = true;
};
GridComparison compare(const GridTrace& reference, const GridTrace& other,
                       const Tolerance& tolerance);

/// A line a grid, and what differs where something does.
std::string comparison_table(const std::vector<GridComparison>& comparisons,
                             const Tolerance& tolerance);

}  // namespace axonn
