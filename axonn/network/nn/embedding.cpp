#include "axonn/network/nn/embedding.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

namespace {

constexpr double kEmbeddingStd = 1;  // of an adapter's A, as in PEFT, whose B is 0

}  // namespace

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
  const std::string module = names.tokens.substr(0, names.tokens.rfind('.'));
  if (options.adapters)
    options.adapters->add_to(adapters_, {module, table_->spec().layout, *table_, 0, kEmbeddingStd});
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

/// What backward needs of a chunk's forward pass.
struct Embedding::Rest {
  Tensor ids;
  Rows rows;
  std::int64_t first, reach;  // of this rank's rows of the table; the longest sequence
};

/// d_out are all rows of a chunk.
void Embedding::backward(const Context& ctx, const Rest& rest, const Tensor& d_out) const {
  if (!table_->frozen())
    ctx.backend.run(
        ops::EmbeddingBackward{table_->gradient(ctx), d_out.view(), rest.ids.view(), rest.first});
  for (const Adapter& adapter : adapters_)
    adapter.add_row_gradients(ctx, d_out.view(), rest.ids.view(), rest.first);
  if (!positions_ || positions_->frozen()) return;
  const View d_learned = positions_->gradient(ctx).row_range(options_.unused_positions, rest.reach);
  const Tensor& positions = rest.rows.position;
  if (positions.empty())
    ctx.backend.run(ops::PositionsBackward{d_learned, d_out.view()});
  else
    ctx.backend.run(ops::EmbeddingBackward{d_learned, d_out.view(), positions.view(), 0});
}

/// The rows of the table, of codes if it is kept as such.
void Embedding::look_up(const Context& ctx, ops::Embedding rows) const {
  const auto codes = table_->codes();
  if (!codes) {
    rows.table = table_->weight();
    return ctx.backend.run(rows);
  }
  const auto values_in = [&](const View& out) {
    ctx.backend.run(ops::DequantizeRows{out, rows.ids, codes->records, codes->form, rows.first});
  };
  if (!rows.learned.data) return values_in(rows.out);
  const Tensor found = ctx.empty(rows.out.rows, rows.out.cols, rows.out.dtype);
  values_in(found.view());
  std::vector<std::int32_t> in_order(rows.out.rows);
  std::iota(in_order.begin(), in_order.end(), 0);
  const Tensor ids = ctx.on_device(in_order);
  rows.ids = ids.view();
  rows.table = found.view();
  rows.first = 0;
  ctx.backend.run(rows);
}

Var Embedding::operator()(const Context& ctx, const Tokens& tokens) const {
  const std::int64_t reach = tokens.rows.most_positions();
  AXONN_CHECK(!positions_ || reach <= options_.positions, "embedding: sequences of ", reach,
              " tokens, but ", positions_->spec().name, " has ", options_.positions, " positions");
  const std::int64_t chunks =
      std::min<std::int64_t>(ctx.scheduling().run.chunks, tokens.rows.sequences);
  const std::int64_t first = vocabulary_piece(ctx.grid, options_.vocab).first,
                     length = tokens.rows.positions;
  Var outs;
  for (std::int64_t c = 0; c < chunks; ++c) {
    const std::int64_t begin = c * tokens.rows.sequences / chunks,
                       end = (c + 1) * tokens.rows.sequences / chunks;
    const Rows rows = tokens.rows.part(begin, end);
    const Tensor ids = tokens.ids.col_range(begin * length, rows.count());
    Tensor value = ctx.empty(rows.count(), table_->local_cols(), ctx.dtype);
    const bool adds_positions = positions_ && ctx.grid.coord(Axis::x) == 0;  // once in the sum
    const View learned =
        adds_positions ? positions_->weight().row_range(options_.unused_positions, reach) : View{};
    look_up(ctx, {.out = value.view(),
                  .ids = ids.view(),
                  .table = {},
                  .first = first,
                  .learned = learned,
                  .positions = rows.position.view()});
    for (const Adapter& adapter : adapters_) adapter.add_rows(ctx, value.view(), ids.view(), first);
    const Cut cut = row_cut(ctx, rows.count(), Axis::x);
    sum_over(ctx, value, Axis::x, cut, {});
    Placement placement{{Axis::z, Axis::data}, Axis::y};
    if (cut == Cut::rows) placement.rows = placement.rows | Axis::x;
    Chunk out = make_chunk(ctx, {.value = {}, .placement = {}, .rows = rows, .gradient = {}}, value,
                           placement);
    if (learns()) need_gradient(ctx, out);
    outs.push_back(out);
    if (!out.gradient) continue;
    const Rest rest{ids, rows, first, reach};
    ctx.tape->lane(c).record([this, ctx, rest, cut, gradient = out.gradient] {
      backward(ctx, rest, Gather(ctx, gradient->take(), Axis::x, cut).whole(ctx, {}));
    });
  }
  return outs;
}

}  // namespace axonn
