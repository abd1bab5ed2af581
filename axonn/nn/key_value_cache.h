#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/nn/attention.h"

namespace axonn {

/// The keys and values of all attention layers, for sequences that are being generated. With
/// Context::cache set, attention() stores those of its rows here and reads those of earlier passes.
/// A model needs no code for it, provided that its rows see one another only through attention().
///
/// A slot holds the last `entries` positions of one sequence; with a window, these suffice. A rank
/// stores the sequences of its own (z, data) coordinate. Heads are cut as in attention(): over
/// x · y if that divides the key-value heads, else over x, and then they are the same on y. Layers
/// are identified by their order in a pass; each allocates its memory in the first pass.
///
///   keys, values  (slots · k · entries, D) each, of every layer
class KeyValueCache {
 public:
  struct Options {
    std::int64_t slots = 1;
    std::int64_t entries = 0;  ///< positions that a slot holds
  };
  /// The keys and values that attention() reads in a pass.
  enum class Reads {
    own_rows,  ///< those of the pass, as without a cache: sequences begin in this pass
    kept,      ///< the cached ones, which include those of the pass
  };

  explicit KeyValueCache(const Options& options) : options_(options) {}

  /// Begins a pass. Row r belongs to slot slots[r] (negative: padding, not stored); `positions` are
  /// those of the pass's tokens. Of each slot's rows the last `entries` are stored. With
  /// Reads::kept, no row may overwrite one that a row of the pass still sees: without a window, a
  /// sequence may have at most `entries` positions; with one, a slot may have at most
  /// entries - window + 1 rows per pass.
  void begin_pass(const Context& ctx, std::span<const std::int32_t> slots,
                  std::span<const std::int32_t> positions, Reads reads);

  /// Stores the keys and values of a layer's qkv. With Reads::kept, also computes attention into
  /// `out` (R, h·D) and returns true; else returns false.
  bool attend(const Context& ctx, const LocalHeads& at, const Chunk& qkv, const View& out);

  /// Elements that one position of one layer takes on this rank.
  static std::int64_t elements(const Heads& heads, const Grid& grid);

 private:
  struct Layer {
    Tensor keys, values;
  };
  Layer& next_layer(const Context& ctx, const LocalHeads& at);

  Options options_;
  std::vector<Layer> layers_;
  std::size_t next_ = 0;
  Tensor slots_, kept_slots_;  // (1, R) i32 each; negative in kept_slots_: not stored
  Reads reads_ = Reads::own_rows;
};

}  // namespace axonn
