#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "axonn/comm/grid.h"
#include "axonn/model/model.h"
#include "axonn/train/gradient_norms.h"

namespace axonn::testing_support {

/// A few steps of a small model on random tokens, on one grid.
struct TinyRun {
  GridShape grid;
  std::int64_t sequences = 24, positions = 8, vocab = 251;
  int steps = 10, accumulation = 1;
  DType dtype = DType::f32;
  OptimizerKind optimizer = OptimizerKind::adamw;
  double lr = 1e-3;
  Overlap overlap = {};
  int chunks = 1;
  bool recompute = false;
  std::uint64_t seed = 1;
  bool repeat_batch = false;  ///< every step sees the tokens of the first
  int max_delay_us = 0;       ///< random delays in every collective
  std::function<std::unique_ptr<Model>(const Grid&)> make_model;
};

/// What a run computed: the same on every rank.
struct TinyTrace {
  std::vector<double> losses, norms;
  NamedNorms parameter_norms;  ///< of the first step's gradients
};

/// Runs it on threads, one a rank.
TinyTrace run_tiny(const TinyRun& run);
/// Runs it on the ranks of world; for MPI tests.
TinyTrace run_tiny(const TinyRun& run, Communicator& world);

/// A GPT of width 96, 24 heads, MLP 384, 2 layers, so that no grid of up to 8 ranks is excluded.
std::function<std::unique_ptr<Model>(const Grid&)> tiny_gpt(std::int64_t kv_heads, bool tied);

/// Every way to write `ranks` as x · y · z · data.
std::vector<GridShape> grids_of(int ranks);

}  // namespace axonn::testing_support
