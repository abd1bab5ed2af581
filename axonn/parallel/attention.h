#pragma once

#include <cmath>

#include "axonn/parallel/exchange.h"
#include "axonn/parallel/layout.h"

namespace axonn {

/// The heads of an attention layer, global.
struct Heads {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads; as many for plain multi-head attention
  std::int64_t head_dim = 0;
  std::int64_t window = 0;  ///< keys that a query sees, its own the last of them; 0: all

  /// Output features of the fused QKV product.
  std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  /// Columns of the attention's output.
  std::int64_t out_width() const { return heads * head_dim; }
  /// How they are cut over x: query heads evenly, key-value heads with who reads them.
  std::vector<Segment> qkv_segments() const;
  /// The widths of q, k and v of one x coordinate.
  Runs qkv_runs(const Grid& grid) const;
  /// What shares attention among the ranks of y: heads where key-value heads divide over x · y,
  /// else whole sequences where they do, else nothing. What is kept for generation is cut by heads
  /// or not at all, so that each sequence stays where it is.
  Cut cut_over_y(const Context& ctx, const Rows& rows) const;
};

/// The heads on this rank, and the views of them in one fused (R, (h + 2k)·D) tensor: queries,
/// keys, values. k is the most key-value heads that any rank reads.
struct LocalHeads {
  std::int64_t heads, room, dim, group, first_query, window;

  /// `over` is what their columns lie over: x, or x and y.
  LocalHeads(const Context& ctx, const Heads& all, AxisSet over);

  std::int64_t width() const { return (heads + 2 * room) * dim; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(dim)); }  ///< of scores
  View q(const View& qkv) const { return qkv.col_range(0, heads * dim); }
  View k(const View& qkv) const { return qkv.col_range(heads * dim, room * dim); }
  View qk(const View& qkv) const { return qkv.col_range(0, (heads + room) * dim); }
  View v(const View& qkv) const { return qkv.col_range((heads + room) * dim, room * dim); }
};

/// Causal softmax attention within each sequence, from the rows' `start` on. Heads lie over x, and
/// those of one x coordinate, or its sequences, over y (Heads::cut_over_y), so there is no
/// communication: a key-value head that query heads of several ranks of x read is there on each of
/// them. With Context::cache, rows see what it has kept of their sequences as well.
///
///   qkv  (R, (h + 2k)·D)  this rank's query, key and value heads    out  (R, h·D)
Var attention(const Context& ctx, const Var& qkv, const Heads& heads);

}  // namespace axonn
