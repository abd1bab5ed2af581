#include "axonn/parallel/embedding.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/parallel/exchange.h"

namespace axonn {

Layout vocabulary_layout(std::int64_t vocab, std::int64_t width) {
  return {.rows = vocab,
          .cols = width,
          .row_axis = Axis::x,
          .col_axis = Axis::y,
          .segments = {{.rows = vocab, .cut = Segment::Cut::padded}}};
}

VocabularyPiece vocabulary_piece(const Grid& grid, std::int64_t vocab) {
  const int ways = grid.extent(Axis::x);
  const std::int64_t each = (vocab + ways - 1) / ways,
                     first = std::min(vocab, grid.coord(Axis::x) * each);
  return {first, std::min(each, vocab - first)};
}

Tokens make_tokens(const Context& ctx, std::span<const std::int32_t> ids,
                   std::span<const std::int32_t> targets, Rows rows) {
  AXONN_CHECK(std::ssize(ids) == rows.count() && (targets.empty() || targets.size() == ids.size()),
              "make_tokens: ", ids.size(), " ids and ", targets.size(), " targets for ",
              rows.sequences, " sequences of ", rows.positions);
  const auto on_device = [&](std::span<const std::int32_t> host) {
    Tensor tensor = ctx.empty(1, std::ssize(host), DType::i32);
    ctx.arena.device().copy_from_host(tensor.view().data, host.data(), tensor.bytes());
    return tensor;
  };
  return {on_device(ids), targets.empty() ? Tensor() : on_device(targets), rows};
}

Embedding::Embedding(ParameterGroup& group, Names names, Options options) : options_(options) {
  table_ = &group.add({.name = names.tokens,
                       .layout = vocabulary_layout(options.vocab, options.width),
                       .init_std = options.init_std,
                       .decays = true});
  if (options.positions == 0) return;
  positions_ = &group.add({.name = names.positions,
                           .layout = {.rows = options.positions,
                                      .cols = options.width,
                                      .row_axis = {},
                                      .col_axis = Axis::y,
                                      .segments = {}},
                           .init_std = options.init_std,
                           .decays = true});
}

Var Embedding::operator()(const Context& ctx, const Tokens& tokens) const {
  AXONN_CHECK(!positions_ || tokens.rows.positions <= options_.positions,
              "embedding: sequences of ", tokens.rows.positions, " tokens, but ",
              positions_->spec().name, " has ", options_.positions, " positions");
  const std::int64_t chunks = std::min<std::int64_t>(ctx.chunks, tokens.rows.sequences);
  const std::int64_t first = vocabulary_piece(ctx.grid, options_.vocab).first,
                     length = tokens.rows.positions;
  const auto learned = [this, length](const View& whole) { return whole.row_range(0, length); };
  Var outs;
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t begin = c * tokens.rows.sequences / chunks,
                       end = (c + 1) * tokens.rows.sequences / chunks;
    const Rows rows{end - begin, length, tokens.rows.first + begin * length};
    const Tensor ids = tokens.ids.col_range(begin * length, rows.count());
    Tensor value = ctx.empty(rows.count(), table_->local_cols(), ctx.dtype);
    const bool adds_positions = positions_ && ctx.grid.coord(Axis::x) == 0;  // once in the sum
    ctx.backend.embedding(value.view(), ids.view(), table_->weight(), first,
                          adds_positions ? learned(positions_->weight()) : View{});
    const Cut cut = row_cut(ctx, rows.count(), Axis::x);
    sum_over(ctx, value, Axis::x, cut, {});
    Placement placement{{Axis::z, Axis::data}, Axis::y};
    if (cut == Cut::rows) placement.rows = placement.rows | Axis::x;
    outs.push_back(make_chunk(ctx, {.value = {}, .placement = {}, .rows = rows, .gradient = {}},
                              value, placement));
    if (!ctx.tape || table_->frozen()) continue;
    ctx.tape->record(
        [this, ctx, ids, first, learned, cut, gradient = outs[outs.size() - 1].gradient] {
          const Tensor d_out = Gather(ctx, gradient->take(), Axis::x, cut).whole(ctx, {});
          ctx.backend.embedding_backward(table_->gradient(ctx), d_out.view(), ids.view(), first);
          if (positions_)
            ctx.backend.positions_backward(learned(positions_->gradient(ctx)), d_out.view());
        });
  }
  return outs;
}

}  // namespace axonn
