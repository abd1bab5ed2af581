#include "axonn/network/nn/attention/shared_attention.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/attention/key_exchange.h"
#include "axonn/ranks/parallel/scheduling.h"

// A piece of the heads travels while the piece before it computes, in forward and again in
// backward, and its gradients while the next one does. See Llama Team, "The Llama 3 Herd of
// Models", 2024, 3.3.2, for why gathering beats a ring of steps: documents and windows need no
// further code.

namespace axonn {

namespace {

static_assert(kContextBlock == kSequenceBlock, "blocks that are never cut are those of attention");

/// Pieces of the key-value heads with RunSettings::overlap.context: 1/4 of the exchange is exposed.
constexpr std::int64_t kMostPieces = 4;

/// Consecutive key-value heads and the query heads that read them.
struct Piece {
  std::int64_t first_kv, kv_heads, first, heads;
};

/// The sequences of a chunk on this rank, which it shares with the ranks of Grid::context().
class SharedSequences {
 public:
  SharedSequences(const Context& ctx, const LocalHeads& at, const Chunk& qkv, Tensor out,
                  Tensor stats)
      : ctx_(ctx),
        at_(at),
        qkv_(qkv),
        out_(std::move(out)),
        stats_(std::move(stats)),
        share_(*qkv.rows.share) {
    sequences_ = qkv.value.rows() / qkv.rows.positions;
    const std::int64_t first =
        qkv.placement.rows.has(Axis::y) ? ctx.grid.coord(Axis::y) * sequences_ : 0;
    const auto part = [&](const Tensor& all) {
      if (all.empty()) return View{};
      const std::int64_t each = all.cols() / qkv.rows.sequences;
      return all.view().col_range(first * each, sequences_ * each);
    };
    blocks_ = part(share_.blocks);
    exchange_ = make_key_exchange(ctx, share_, sequences_, part(share_.slots));
    const std::int64_t each = qkv.rows.positions / kContextBlock;
    const auto numbers = std::span(share_.numbers).subspan(first * each, sequences_ * each);
    runs_ = QueryRuns::of(numbers, sequences_, share_.first_key);
    pairs_ = attention_pairs(numbers, at.window);
    starts_ = first_seen(ctx, at, qkv.rows);
    const std::int64_t pieces =
        ctx.scheduling().run.overlap.context ? std::min(at.room, kMostPieces) : 1;
    for (std::int64_t i = 0; i < pieces; ++i)
      pieces_.push_back(piece(i * at.room / pieces, (i + 1) * at.room / pieces));
  }

  /// Computes out and stats.
  void forward() const {
    for_each_piece([&](const Piece& piece, const View& keys_values) {
      ctx_.backend.attention(attention(piece, keys_values));
    });
  }

  void backward(const View& d_out, const View& d_qkv) const {
    KeyExchange::Sum sum;  // of the piece before
    const Piece* summing = nullptr;
    const auto finish = [&] {
      if (summing) store(d_qkv, *summing, exchange_->finish_sum(std::exchange(sum, {})));
    };
    for_each_piece([&](const Piece& piece, const View& keys_values) {
      Tensor d = ctx_.empty(keys_values.rows, keys_values.cols, DType::f32);
      const std::int64_t width = keys_values.cols / 2;
      ctx_.backend.attention_backward({.forward = attention(piece, keys_values),
                                       .d_out = queries(d_out, piece, at_.dim),
                                       .d_q = queries(at_.q(d_qkv), piece, at_.dim),
                                       .d_k = d.view().col_range(0, width),
                                       .d_v = d.view().col_range(width, width)});
      finish();
      sum = exchange_->begin_sum(std::move(d));
      summing = &piece;
    });
    finish();
  }

 private:
  /// Calls compute(piece, keys and values) for each piece; the next one's travel meanwhile.
  void for_each_piece(auto compute) const {
    Fetch next = fetch(pieces_.front());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const Tensor here = ordered(std::exchange(next, {}));
      if (i + 1 < pieces_.size()) next = fetch(pieces_[i + 1]);
      compute(pieces_[i], here.view());
    }
  }

  /// Keys and values of a piece on their way: this rank's (R, 2·k·D), and those of others.
  struct Fetch {
    Tensor mine, fetched;
  };
  Fetch fetch(const Piece& piece) const {
    const View all = qkv_.value.view();
    const std::int64_t width = piece.kv_heads * at_.dim;
    const Tensor mine = ctx_.empty(qkv_.value.rows(), 2 * width, ctx_.dtype);
    ctx_.backend.run(ops::Cast{mine.view().col_range(0, width), keys(at_.k(all), piece)});
    ctx_.backend.run(ops::Cast{mine.view().col_range(width, width), keys(at_.v(all), piece)});
    return {mine, exchange_->fetch(mine)};
  }

  Tensor ordered(const Fetch& fetch) const { return exchange_->keys(fetch.mine, fetch.fetched); }

  /// Stores the gradients of a piece's keys and values, (R, 2·k·D), in d_qkv.
  void store(const View& d_qkv, const Piece& piece, const Tensor& mine) const {
    const std::int64_t width = piece.kv_heads * at_.dim;
    ctx_.backend.run(ops::Cast{keys(at_.k(d_qkv), piece), mine.view().col_range(0, width)});
    ctx_.backend.run(ops::Cast{keys(at_.v(d_qkv), piece), mine.view().col_range(width, width)});
  }

  /// The columns of a piece's query heads in a value with `dim` columns for each head.
  static View queries(const View& all, const Piece& piece, std::int64_t dim) {
    return all.col_range(piece.first * dim, piece.heads * dim);
  }

  /// The attention of a piece's query heads; keys_values as KeyExchange::keys() returns it.
  Attention attention(const Piece& piece, const View& keys_values) const {
    const std::int64_t width = piece.kv_heads * at_.dim;
    return {.q = queries(at_.q(qkv_.value.view()), piece, at_.dim),
            .k = keys_values.col_range(0, width),
            .v = keys_values.col_range(width, width),
            .out = queries(out_.view(), piece, at_.dim),
            .stats = queries(stats_.view(), piece, 1),
            .positions = share_.keys,
            .heads = piece.heads,
            .head_dim = at_.dim,
            .group = at_.group,
            .first_query = piece.first_kv == 0 ? at_.first_query : 0,
            .window = at_.window,
            .scale = at_.scale,
            .cap = at_.cap,
            .starts = of_rows_here(ctx_, qkv_, starts_),
            .query_blocks = blocks_,
            .runs = runs_,
            .pairs = pairs_};
  }

  Piece piece(std::int64_t first_kv, std::int64_t end_kv) const {
    const auto query = [&](std::int64_t kv) {
      return std::clamp<std::int64_t>(kv * at_.group - at_.first_query, 0, at_.heads);
    };
    return {first_kv, end_kv - first_kv, query(first_kv), query(end_kv) - query(first_kv)};
  }

  View keys(const View& all, const Piece& piece) const {
    return all.col_range(piece.first_kv * at_.dim, piece.kv_heads * at_.dim);
  }

  const Context& ctx_;
  const LocalHeads& at_;
  const Chunk& qkv_;
  Tensor out_, stats_, starts_;
  const SequenceShare& share_;
  std::int64_t sequences_, pairs_;
  View blocks_;  // of these sequences
  QueryRuns runs_;
  std::unique_ptr<KeyExchange> exchange_;
  std::vector<Piece> pieces_;
};

}  // namespace

Tensor first_seen(const Context& ctx, const LocalHeads& at, const Rows& rows) {
  if (!at.chunks) return rows.start;
  Tensor starts = ctx.empty(1, rows.count(), DType::i32);
  ctx.backend.run(ops::ChunkStarts{.out = starts.view(),
                                   .positions = rows.position.view(),
                                   .starts = rows.start.view(),
                                   .blocks = rows.share ? rows.share->blocks.view() : View{},
                                   .chunk = at.window,
                                   .length = rows.positions});
  return starts;
}

Chunk shared_attention(const Context& ctx, const LocalHeads& at, const Chunk& qkv,
                       const Sinks* sinks) {
  AXONN_CHECK(!ctx.find<KeyValueCache>(),
              "attention: a cache needs whole sequences on each rank; generate with ",
              "parallelism.context = 1");
  return attention_chunk(
      ctx, at, qkv, sinks,
      {.forward = [ctx, at](
                      const Chunk& inp, const Tensor& out,
                      const Tensor& stats) { SharedSequences(ctx, at, inp, out, stats).forward(); },
       .backward =
           [ctx, at](const Chunk& inp, const Tensor& out, const Tensor& stats, const Tensor& d_out,
                     const Tensor& d_qkv) {
             SharedSequences(ctx, at, inp, out, stats).backward(d_out.view(), d_qkv.view());
           }});
}

}  // namespace axonn
