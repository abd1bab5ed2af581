#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "axonn/foundation/grid/sequence_cut.h"
#include "axonn/ranks/parallel/context.h"
#include "axonn/ranks/parallel/overlap.h"
#include "axonn/ranks/parallel/recompute.h"

namespace axonn {

class ParameterGroup;

/// Settings that stay the same during a run.
struct RunSettings {
  Overlap overlap = {};
  KeepWeights keep_weights = KeepWeights::none;
  DType reduce_dtype = DType::f32;  ///< in which weight gradients are sent
  /// Type of the logits of a training pass, where no rank adds to them or has a piece of them (else
  /// f32). None: on GPUs the compute type, on CPUs f32.
  std::optional<DType> logits = {};
  /// Between products, cut rows over the axis (x or y) on which values would be replicated.
  bool sequence_parallel = true;
  SequenceCut sequence_cut = {};  ///< among ranks that share sequences
  int chunks = 1;  ///< of a micro-batch's rows; one's collectives overlap another's compute
  RecomputedBlocks recompute = {};
  bool keep_dispatch = false;  ///< of blocks that recompute all, keep the rows that experts got
};

/// Remembers the order in which groups are acquired, so that later passes gather the next group
/// while one computes.
class Prefetcher {
 public:
  void begin_pass();
  /// The group that will be acquired after this one, or nullptr while that is not known.
  ParameterGroup* after(ParameterGroup& group);

 private:
  std::vector<ParameterGroup*> order_;
  std::size_t position_ = 0;
  bool known_ = false;
};

/// State that the blocks of one pass share. Each kind of pass (training, evaluation) has its own.
struct StepState {
  Prefetcher prefetcher = {};  ///< gathers the next block's parameters early
  /// The group whose reduce-scatter is in flight: at most one at a time, so memory stays bounded.
  ParameterGroup* reducing = nullptr;
  /// Other micro-batches follow with the same weights. After the backward of the last one the
  /// step's gradients are complete.
  bool more_micro_batches = false;
};

/// Which of the two runs of checkpoint() a pass belongs to. The first keeps nothing, and backward
/// repeats it with a tape.
enum class Rerun : std::uint8_t { none, first_run, second_run };

/// State of the block that runs; outside of it, it is as before.
struct BlockScope {
  std::string_view label = {};  ///< names the block in collectives, for the watchdog and traces
  /// Parameters stay gathered from forward to backward: backward follows at once.
  bool hold_parameters = false;
  /// To be called at the end of the block, before its parameters are released.
  std::vector<std::function<void()>>* before_release = nullptr;
  Rerun rerun = Rerun::none;
  Recompute recompute = {};  ///< see let_remake()
};

/// The part of a Context that models do not see: how collectives and compute are scheduled. Only
/// the sources that gather, reduce or cut values read it, and the loops that run passes set it.
struct Scheduling {
  RunSettings run = {};
  StepState* step = nullptr;  ///< null: nothing is left in flight between blocks
  BlockScope scope = {};
};

}  // namespace axonn
