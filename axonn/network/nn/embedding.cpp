#include "axonn/network/nn/embedding.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

Layout vocabulary_layout(std::int64_t vocab, std::int64_t width) {
  return {.rows = vocab,
          .cols = width,
          .row_axis = Axis::x,
          .col_axis = Axis::y,
          .segments = {{.rows = vocab, .kind = Segment::Kind::padded}}};
}

VocabularyPiece vocabulary_piece(const Grid& grid, std::int64_t vocab) {
  const int ways = grid.extent(Axis::x);
  const std::int64_t each = (vocab + ways - 1) / ways,
                     first = std::min(vocab, grid.coord(Axis::x) * each);
  return {first, std::min(each, vocab - first)};
}

Embedding::Embedding(ParameterGroup& group, Names names, Options options) : options_(options) {
  table_ = &group.add({.name = names.tokens,
                       .layout = vocabulary_layout(options.vocab, options.width),
                       .init_std = options.init_std,
                       .decays = true});
  if (options.positions == 0) return;
  positions_ = &group.add({.name = names.positions,
                           .layout = {.rows = options.unused_positions + options.positions,
                                      .cols = options.width,
                                      .row_axis = {},
                                      .col_axis = Axis::y,
                                      .segments = {}},
                           .init_std = options.init_std,
                           .decays = true});
}

Var Embedding::operator()(const Context& ctx, const Tokens& tokens) const {
  const std::int64_t reach = tokens.rows.most_positions();
  AXONN_CHECK(!positions_ || reach <= options_.positions, "embedding: sequences of ", reach,
              " tokens, but ", positions_->spec().name, " has ", options_.positions, " positions");
  const std::int64_t chunks =
      std::min<std::int64_t>(ctx.scheduling().run.chunks, tokens.rows.sequences);
  const std::int64_t first = vocabulary_piece(ctx.grid, options_.vocab).first,
                     length = tokens.rows.positions;
  const auto learned = [reach, first_row = options_.unused_positions](const View& whole) {
    return whole.row_range(first_row, reach);
  };
  Var outs;
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t begin = c * tokens.rows.sequences / chunks,
                       end = (c + 1) * tokens.rows.sequences / chunks;
    const Rows rows = tokens.rows.part(begin, end);
    const Tensor ids = tokens.ids.col_range(begin * length, rows.count());
    Tensor value = ctx.empty(rows.count(), table_->local_cols(), ctx.dtype);
    const bool adds_positions = positions_ && ctx.grid.coord(Axis::x) == 0;  // once in the sum
    ctx.backend.run(
        ops::Embedding{.out = value.view(),
                       .ids = ids.view(),
                       .table = table_->weight(),
                       .first = first,
                       .learned = adds_positions ? learned(positions_->weight()) : View{},
                       .positions = rows.position.view()});
    const Cut cut = row_cut(ctx, rows.count(), Axis::x);
    sum_over(ctx, value, Axis::x, cut, {});
    Placement placement{{Axis::z, Axis::data}, Axis::y};
    if (cut == Cut::rows) placement.rows = placement.rows | Axis::x;
    Chunk out = make_chunk(ctx, {.value = {}, .placement = {}, .rows = rows, .gradient = {}}, value,
                           placement);
    if (!table_->frozen()) need_gradient(ctx, out);
    outs.push_back(out);
    if (!out.gradient) continue;
    ctx.tape->lane(c).record([this, ctx, ids, rows, first, learned, cut, gradient = out.gradient] {
      const Tensor d_out = Gather(ctx, gradient->take(), Axis::x, cut).whole(ctx, {});
      ctx.backend.run(
          ops::EmbeddingBackward{table_->gradient(ctx), d_out.view(), ids.view(), first});
      if (!positions_) return;
      const View d_learned = learned(positions_->gradient(ctx));
      if (rows.position.empty())
        ctx.backend.run(ops::PositionsBackward{d_learned, d_out.view()});
      else
        ctx.backend.run(ops::EmbeddingBackward{d_learned, d_out.view(), rows.position.view(), 0});
    });
  }
  return outs;
}

}  // namespace axonn
