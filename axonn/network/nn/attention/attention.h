#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "axonn/foundation/grid/layout.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

class Sinks;

/// Features of a product that makes heads: so many for each query head, or for each key-value head.
struct HeadFeatures {
  std::int64_t width = 0;
  bool of_keys = false;  ///< of key-value heads
};

/// The global heads of an attention layer. Layers that get them throw Error unless heads, kv_heads
/// and head_dim are positive and kv_heads divides heads.
struct Heads {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads; equal to it for plain multi-head attention
  std::int64_t head_dim = 0;
  std::int64_t window = 0;  ///< keys that a query sees, its own included; 0: all up to its own
  /// Positions are in chunks of `window`, and a query sees keys of its own chunk alone (Llama 4).
  bool chunks = false;
  /// muP: scores are multiplied by the root of this and divided by head_dim; 0: head_dim.
  std::int64_t base_head_dim = 0;
  double scale = 0;  ///< of scores, without muP's; 0: 1 / sqrt(head_dim)
  double cap = 0;    ///< scaled scores s become cap · tanh(s / cap), as in Gemma 2; 0: they stay
  /// Of a product that does not make queries, keys and values of head_dim columns: what it makes,
  /// cut as the heads are.
  std::vector<HeadFeatures> features = {};
  /// The layer, counted from 0, whose keys a KeyValueCache has for this one, too; -1: its own.
  std::int64_t cached_by = -1;

  /// Query heads that each of `ways` ranks computes, those beyond `heads` included.
  std::int64_t query_heads(int ways) const { return (heads + ways - 1) / ways; }
  /// `features`, or those of queries, keys and values.
  std::vector<HeadFeatures> made() const {
    if (!features.empty()) return features;
    return {{head_dim}, {head_dim, true}, {head_dim, true}};
  }
  bool makes_keys() const {
    return features.empty() || std::ranges::any_of(features, &HeadFeatures::of_keys);
  }
  /// Output features of the fused QKV product, or of that of `features`.
  std::int64_t qkv_width() const;
  /// Columns of the attention's output.
  std::int64_t out_width() const { return heads * head_dim; }
  /// How these features are cut over x: each rank has as many query heads, of which those beyond
  /// `heads` are zero, and the key-value heads that they read.
  std::vector<Segment> qkv_segments() const;
  /// The widths of q, k and v on one x coordinate, or of all features together.
  Runs qkv_runs(const Grid& grid) const;
  /// Whether x · y divides the key-value heads, so that heads can be cut over y as well.
  bool divide_over_y(const Grid& grid) const {
    return kv_heads % (grid.extent(Axis::x) * grid.extent(Axis::y)) == 0;
  }
  /// How attention is shared among the ranks of y: by heads if divide_over_y(), else by whole
  /// sequences with RunSettings::sequence_parallel if y divides them, else not. With a cache of
  /// keys it is shared by heads or not at all, so that each sequence's keys stay on one rank.
  Cut cut_over_y(const Context& ctx, const Rows& rows) const;
};

/// The heads on this rank, and views of them in one fused (R, (h + 2k)·D) tensor of queries, keys
/// and values. k (`room`) is the largest number of key-value heads that any rank reads.
struct LocalHeads {
  std::int64_t heads, room, dim, group, first_query, window, cached_by;
  std::int64_t real_heads, real_room;  ///< without those that are padding, which are the last ones
  bool chunks;
  bool keys_are_values = false;  ///< a KeyValueCache keeps one for both
  float scale, cap;              ///< of scores

  /// `over`: the axes that cut the columns, x or x and y.
  LocalHeads(const Context& ctx, const Heads& all, AxisSet over);

  std::int64_t width() const { return (heads + 2 * room) * dim; }
  View q(const View& qkv) const { return qkv.col_range(0, heads * dim); }
  View k(const View& qkv) const { return qkv.col_range(heads * dim, room * dim); }
  View qk(const View& qkv) const { return qkv.col_range(0, (heads + room) * dim); }
  View v(const View& qkv) const { return qkv.col_range((heads + room) * dim, room * dim); }
};

/// Causal softmax attention within each sequence; a row sees keys from its Rows::start on. Heads
/// are cut over x, and those of one x coordinate, or its sequences, over y (Heads::cut_over_y). No
/// communication: each rank of x that reads a key-value head has a copy of it. With a
/// KeyValueCache, rows also see the cached keys and values of their sequences. Throws Error if the
/// columns of qkv are not those of the heads over x, or over x and y. `sinks`, if there are any,
/// outlives the result.
///
///   qkv  (R, (h + 2k)·D)  this rank's query, key and value heads    out  (R, h·D)
Var attention(const Context& ctx, const Var& qkv, const Heads& heads, const Sinks* sinks = nullptr);

/// How keys and values are kept. Attached to a pass without a KeyValueCache, attention() sees them
/// as a cache would keep them: rounded to the values of their codes (HeadCodes). Not with a tape.
struct KeptForm {
  Quantization kind = Quantization::none;  ///< none: in the compute type; or q8_0

  /// Bytes of a head's keys, or values, of a position.
  std::int64_t bytes(std::int64_t head_dim, DType dtype) const;
};

/// The keys and values of all attention layers, for sequences that are being generated. If it is
/// attached to a pass, attention() stores those of its rows and reads those of earlier passes. A
/// model needs no code for it, provided that its rows see one another only through attention().
///
/// A slot holds the last `entries` positions of one sequence; with a window, these suffice. A rank
/// stores the sequences of its own (z, data) coordinate. Heads are cut as in attention(): over
/// x · y if that divides the key-value heads, else over x, and then they are the same on y. Layers
/// are identified by their order in a pass; each allocates its memory in the first pass.
///
/// Layers that keep a state of each slot in place of keys and values, whatever its positions, are
/// identified in the same way: recurrent(). With Options::latents, LatentAttention keeps latents by
/// itself, and attention() sees the rows of its pass alone.
///
/// With Options::form, keys and values are kept as codes. All rows of a sequence see their values,
/// those of the pass that makes them, too, so that no result depends on how passes are cut.
///
///   keys, values  (slots · k · entries, D) each, of every layer; codes: HeadCodes::bytes(D) of u8
class KeyValueCache {
 public:
  struct Options {
    std::int64_t slots = 1;
    std::int64_t entries = 0;  ///< positions that a slot holds
    /// Positions whose inputs a recurrent layer keeps beside its states (DeltaNet::kept_inputs()).
    std::int64_t inputs = 0;
    bool latents = false;
    KeptForm form = {};  ///< not with latents
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

  /// The slots of a pass's rows, (1, R) i32 each; negative: of no sequence, in `kept` not stored.
  /// `last`: those of the last Options::inputs rows of each slot, others negative.
  struct RowSlots {
    Tensor all, kept, last;
  };
  const RowSlots& slots() const { return slots_; }
  const Options& options() const { return options_; }
  Reads reads() const { return reads_; }
  /// Has the rest of the pass read the same slots elsewhere.
  void use_slots(RowSlots slots) { slots_ = std::move(slots); }

  /// Stores the keys and values of a layer's qkv. With Reads::kept, also computes attention into
  /// `out` (R, h·D), and the log of its sum of exponentials into `stats` (R, h) f32, and returns
  /// true; else returns false.
  bool attend(const Context& ctx, const LocalHeads& at, const Chunk& qkv, const View& out,
              const View& stats);

  /// What a layer keeps of each slot.
  struct Recurrent {
    Tensor states;  ///< (slots · heads, width) f32
    Tensor inputs;  ///< (slots · Options::inputs, channels)
  };
  /// That of the next such layer of the pass, with as many heads, columns of a head's state, and
  /// channels.
  const Recurrent& recurrent(const Context& ctx, std::int64_t heads, std::int64_t width,
                             std::int64_t channels);

  /// Gives a slot what another one holds of its first `positions`, in all layers. Between passes.
  void copy_slot(const Context& ctx, std::int32_t from, std::int32_t to,
                 std::int64_t positions) const;

  /// Heads of keys and of values that one position of one layer has on this rank.
  static std::int64_t kept_heads(const Heads& heads, const Grid& grid);

 private:
  struct Layer {
    Tensor keys, values;  // may be the same
  };

  Options options_;
  std::vector<Layer> layers_;
  std::vector<Recurrent> recurrent_;
  std::size_t next_ = 0, next_recurrent_ = 0;
  RowSlots slots_;
  Reads reads_ = Reads::own_rows;
};

}  // namespace axonn
