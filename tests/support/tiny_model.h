#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "axonn/network/model/config.h"
#include "axonn/network/model/model.h"
#include "axonn/network/nn/experts/routing.h"
#include "axonn/ranks/comm/grid.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/run/optim/gradient_norms.h"
#include "axonn/run/optim/optimizer.h"
#include "axonn/run/train/step.h"

namespace axonn::testing_support {

/// Settings of a run of a few steps of a small model on random tokens, on one grid.
struct TinyRun {
  GridShape grid;
  std::int64_t sequences = 24, positions = 8, vocab = 251;
  int steps = 10, accumulation = 1;
  DType dtype = DType::f32;
  OptimizerKind optimizer = OptimizerKind::adamw;
  double lr = 1e-3, eps = 1e-8;  ///< of the optimizer
  Overlap overlap = {};
  SequenceCut sequence_cut = {};
  int chunks = 1;
  bool sequence_parallel = true;
  bool recompute = false, keep_dispatch = false;  ///< all blocks in full
  std::uint64_t seed = 1;
  std::int64_t counted = 0;         ///< first positions of a sequence whose targets count; 0: all
  bool packed = false;              ///< sequences hold two documents each, as in PackedRows
  bool repeat_batch = false;        ///< every step uses the tokens of the first step
  BalanceConfig balance = {};       ///< of a model with experts
  RoutingRecord* replay = nullptr;  ///< the choices of its routers; null: they choose
  RoutingRecord* record = nullptr;  ///< receives them; null: none
  int max_delay_us = 0;             ///< random delays in every collective
  std::function<std::unique_ptr<Model>(const Grid&)> make_model;
  std::function<std::unique_ptr<Backend>()> make_backend = [] { return make_cpu_backend(1); };
  /// Called on every rank before the first step and after the last one.
  std::function<void(const Context&, Model&)> before = {};
  std::function<void(const Context&, Model&)> after = {};
};

/// The metrics of the experts of a step.
struct ExpertLoad {
  double balance = 0, z = 0, max_load = 0;
};

/// The results of a run. All but `memory` are the same on every rank.
struct TinyTrace {
  std::vector<double> losses, norms;
  NamedNorms parameter_norms;         ///< norms of the first step's gradients
  std::vector<ExpertLoad> experts;    ///< of each step; empty without experts
  std::vector<std::int64_t> weights;  ///< a hash of each rank's piece of the final weights
  std::vector<ArenaStats> memory;     ///< this rank's memory after each step
};

/// Compares two runs with the tolerances of `axonn check`. Returns "" if they agree, otherwise the
/// table that it would print.
std::string difference(const TinyTrace& want, const TinyTrace& got, DType dtype);

/// What a run overlaps and whether it recomputes its blocks; neither changes a bit.
struct Switches {
  std::string name;
  Overlap overlap = {};
  bool recompute = false;
};
/// Nothing overlaps.
Switches no_overlap();
/// Nothing overlaps; everything does; everything does and blocks are recomputed.
std::vector<Switches> all_or_nothing();
/// Each field of Overlap alone, then all_or_nothing().
std::vector<Switches> each_overlap();
TinyRun with(const Switches& switches, TinyRun run);

/// Compares a model with experts on one rank with these grids, where the routers repeat its
/// choices. Returns what difference_on_grids() does.
std::string difference_replayed(TinyRun run, const std::vector<GridShape>& grids);

/// The inputs of its first step: sequences times positions.
std::vector<std::int32_t> first_ids(const TinyRun& run);

/// Runs it with one thread per rank.
TinyTrace run_tiny(const TinyRun& run);
/// Runs it on the ranks of world. For MPI tests.
TinyTrace run_tiny(const TinyRun& run, Communicator& world);

/// Compares the run on one rank with the run on each of these grids. Returns "" if all agree,
/// otherwise the table of the first grid that does not.
std::string difference_on_grids(TinyRun run, const std::vector<GridShape>& grids);

std::function<std::unique_ptr<Model>(const Grid&)> model_of(const ModelConfig& config);

/// The configuration of tiny_gpt().
ModelConfig tiny_config(std::int64_t kv_heads, bool tied);

/// A GPT of width 96, 24 heads, MLP width 384 and 2 layers, so that every grid of up to 8 ranks is
/// possible.
std::function<std::unique_ptr<Model>(const Grid&)> tiny_gpt(std::int64_t kv_heads, bool tied);

/// A Llama of the same sizes, but MLP width 192, with one key-value head for every six query heads.
ModelConfig tiny_llama();

/// tiny_llama() with 8 experts of width 48 in each layer, two for each token.
ModelConfig tiny_mixtral();

}  // namespace axonn::testing_support
