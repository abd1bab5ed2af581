#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/grid/sequence_cut.h"
#include "axonn/parallel/context.h"
#include "axonn/parallel/overlap.h"

namespace axonn {

class ParameterGroup;

/// Values of a block that backward can make again instead of keeping them. The same operations make
/// them from the same values as in forward, so the bits of all results stay the same.
enum class Remade : std::uint8_t {
  norms,        ///< outputs of norms
  activations,  ///< outputs of activation functions
  heads,        ///< queries, keys and values after the norms of queries and keys
  attention,    ///< outputs of attention
  qkv,          ///< outputs of products that make queries, keys and values
  up,           ///< outputs of the first products of MLPs and experts
  residual,     ///< outputs of products whose input is cut over x, and sums of two values
  exchanged,    ///< rows that experts got from other ranks
};
inline constexpr std::array<std::string_view, 8> kRemadeNames = {
    "norms", "activations", "heads", "attention", "qkv", "up", "residual", "exchanged"};

/// What backward computes again of a block.
class Recompute {
 public:
  constexpr Recompute() = default;  ///< nothing
  constexpr Recompute(std::initializer_list<Remade> values) {
    for (const Remade value : values) bits_ |= bit(value);
  }
  /// Everything but the block's input: the block's forward pass runs again.
  static constexpr Recompute all() {
    Recompute everything;
    everything.bits_ = kAll;
    return everything;
  }
  /// Values that one pass over memory makes again from large ones that are kept.
  static constexpr Recompute light() { return {Remade::norms, Remade::activations}; }

  constexpr bool is_all() const { return bits_ == kAll; }
  constexpr bool has(Remade value) const { return !is_all() && (bits_ & bit(value)) != 0; }
  constexpr void add(Remade value) { bits_ |= bit(value); }
  /// A number from which of_bits() makes the same.
  constexpr std::int64_t bits() const { return bits_; }
  static constexpr Recompute of_bits(std::int64_t bits) {
    Recompute same;
    same.bits_ = static_cast<std::uint32_t>(bits);
    return same;
  }
  bool operator==(const Recompute&) const = default;

 private:
  static constexpr std::uint32_t kAll = ~0U;
  static constexpr std::uint32_t bit(Remade value) { return 1U << static_cast<unsigned>(value); }
  std::uint32_t bits_ = 0;
};

/// What the blocks of a model compute again, counted from the first. The last blocks keep most,
/// because their backward comes first and frees it.
struct RecomputedBlocks {
  std::int64_t first = 0;   ///< the first so many
  Recompute of_first = {};  ///< ... compute this again
  Recompute of_others = {};

  Recompute of(std::int64_t block) const { return block < first ? of_first : of_others; }
};

/// What stays the same during a run.
struct RunSettings {
  Overlap overlap = {};
  DType reduce_dtype = DType::f32;  ///< in which weight gradients are sent
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
  bool last_micro_batch = false;  ///< of the step: gradients are complete after its backward
};

/// Which of the two runs of checkpoint() a pass belongs to. The first keeps nothing, and backward
/// repeats it with a tape.
enum class Rerun : std::uint8_t { none, first_run, second_run };

/// What holds inside a block, and is as before outside it.
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
