#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/parallel/attention.h"

namespace axonn {

/// Keys and values of the sequences that a model generates, of every attention layer: with
/// Context::cache set, attention() keeps those of the rows that it sees, and reads those of earlier
/// passes. A model needs to know nothing of it, as long as its rows see others through attention()
/// alone.
///
/// A slot holds a sequence, as many positions of it as there are entries: the last ones, which are
/// all that is needed where heads have a window. Sequences are this (z, data) coordinate's own.
/// Heads lie as attention's do: over x, or over x · y where key-value heads divide, else the ranks
/// of y keep the same. Layers are known by the order in which a pass comes to them; each takes its
/// memory in the first pass.
///
///   keys, values  (slots · k · entries, D) each, of every layer
class KeyValueCache {
 public:
  struct Options {
    std::int64_t slots = 1;
    std::int64_t entries = 0;  ///< of a slot
  };
  /// What attention() reads in a pass.
  enum class Reads {
    own_rows,  ///< the pass itself, as without a cache: rows have no others before them
    kept,      ///< what is kept, with the pass' own
  };

  explicit KeyValueCache(const Options& options) : options_(options) {}

  /// A pass begins whose row r belongs to slot slots[r] (negative: none, as what only fills up);
  /// its positions are those of the tokens. Of a slot's rows the last `entries` are kept. Where
  /// kept ones are read, none that a row still sees may be overwritten by a later row: of a slot
  /// without a window at most `entries` positions, with one at most entries - window + 1 rows a
  /// pass.
  void begin_pass(const Context& ctx, std::span<const std::int32_t> slots,
                  std::span<const std::int32_t> positions, Reads reads);

  /// Keeps the keys and values of a layer's qkv, and, where kept ones are read, writes attention's
  /// `out` (R, h·D). Returns whether it did.
  bool attend(const Context& ctx, const LocalHeads& at, const Chunk& qkv, const View& out);

  const Options& options() const { return options_; }

  /// Elements of one position in one layer on this rank.
  static std::int64_t elements(const Heads& heads, const Grid& grid);

 private:
  struct Layer {
    Tensor keys, values;
  };
  Layer& next_layer(const Context& ctx, const LocalHeads& at);

  Options options_;
  std::vector<Layer> layers_;
  std::size_t next_ = 0;
  Tensor slots_, kept_slots_;  // (1, R) i32 each; negative in kept_slots_: not to be kept
  Reads reads_ = Reads::own_rows;
};

}  // namespace axonn
