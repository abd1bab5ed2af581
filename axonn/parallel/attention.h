#pragma once

#include "axonn/parallel/exchange.h"
#include "axonn/parallel/layout.h"

namespace axonn {

/// The heads of an attention layer, global.
struct Heads {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< divides heads; as many for plain multi-head attention
  std::int64_t head_dim = 0;

  /// Output features of the fused QKV product.
  std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  /// How they are cut over x: query heads evenly, key-value heads with who reads them.
  std::vector<Segment> qkv_segments() const;
  /// The widths of q, k and v of one x coordinate.
  Runs qkv_runs(const Grid& grid) const;
  /// What shares attention among the ranks of y: heads where key-value heads divide over x · y,
  /// else whole sequences where they do, else nothing.
  Cut cut_over_y(const Context& ctx, const Rows& rows) const;
};

/// Causal softmax attention within each sequence. Heads lie over x, and those of one x coordinate,
/// or its sequences, over y (Heads::cut_over_y), so there is no communication: a key-value head
/// that query heads of several ranks of x read is there on each of them.
///
///   qkv  (R, (h + 2k)·D)  this rank's query, key and value heads    out  (R, h·D)
Var attention(const Context& ctx, const Var& qkv, const Heads& heads);

}  // namespace axonn
