#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "axonn/comm/grid.h"
#include "axonn/model/config.h"
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
  bool sequence_parallel = true;
  bool recompute = false;
  std::uint64_t seed = 1;
  bool packed = false;        ///< sequences hold two documents each, see PackedRows
  bool repeat_batch = false;  ///< every step sees the tokens of the first
  int max_delay_us = 0;       ///< random delays in every collective
  std::function<std::unique_ptr<Model>(const Grid&)> make_model;
  std::function<std::unique_ptr<Backend>()> make_backend = [] { return make_cpu_backend(1); };
  /// Called on every rank after the last step.
  std::function<void(const Context&, Model&)> after = {};
};

/// What a run computed: the same on every rank, but for the memory.
struct TinyTrace {
  std::vector<double> losses, norms;
  NamedNorms parameter_norms;         ///< of the first step's gradients
  std::vector<std::int64_t> weights;  ///< a hash of each rank's piece of the final weights
  std::vector<ArenaStats> memory;     ///< this rank's after each step
};

/// "" where `got` is as close to `want` as axonn check demands, else its table.
std::string difference(const TinyTrace& want, const TinyTrace& got, DType dtype);

/// The run with the switches of these bits: 1, 2, 4 and 8 are what overlaps, 16 is recomputation.
TinyRun with_switches(TinyRun run, int bits);

/// Runs it on threads, one a rank.
TinyTrace run_tiny(const TinyRun& run);
/// Runs it on the ranks of world; for MPI tests.
TinyTrace run_tiny(const TinyRun& run, Communicator& world);

/// "" where the run has the losses and gradients of one rank on each of these grids, else the table
/// of the first that differs.
std::string difference_on_grids(TinyRun run, const std::vector<GridShape>& grids);

std::function<std::unique_ptr<Model>(const Grid&)> model_of(const ModelConfig& config);

/// The sizes of tiny_gpt.
ModelConfig tiny_config(std::int64_t kv_heads, bool tied);

/// A GPT of width 96, 24 heads, MLP 384, 2 layers, so that no grid of up to 8 ranks is excluded.
std::function<std::unique_ptr<Model>(const Grid&)> tiny_gpt(std::int64_t kv_heads, bool tied);

/// A Llama of the same sizes, MLP 192, with key-value heads of their own for every sixth query
/// head.
ModelConfig tiny_llama();

}  // namespace axonn::testing_support
