#include "axonn/network/nn/loss.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

namespace {

/// Softmax statistics (Gx · n, columns) f32 of the rows of logits (n, V/Gx), those of each piece of
/// the vocabulary, stacked; their all-gather over x has started. columns: as in
/// CrossEntropy::gather_stats().
Tensor gathered_stats(const Context& ctx, const View& logits, const View& targets,
                      std::int64_t vocab, std::int64_t columns) {
  Communicator& across = ctx.grid.along(Axis::x);
  const Tensor all = ctx.empty(across.size() * logits.rows, columns, DType::f32);
  const View mine = all.view().row_range(across.rank() * logits.rows, logits.rows);
  ctx.backend.run(ops::SoftmaxStats{mine, logits, targets, vocabulary_piece(ctx.grid, vocab)});
  Tensor gathered = all;
  gathered.set_pending(across.all_gather(buffer_of(all.raw_view()), buffer_of(mine), "loss"));
  return gathered;
}

/// n rows of a view, or none if it has none.
View rows_of_view(const View& all, std::int64_t first, std::int64_t n) {
  return all.rows > 0 ? all.row_range(first, n) : View{};
}

}  // namespace

CrossEntropy::CrossEntropy(const Parameter& table, const Options& options)
    : table_(table), options_(options) {
  if (options.adapters)
    options.adapters->add_to(adapters_, {options.name, table.spec().layout, table});
}

std::int64_t CrossEntropy::rows_at_once(const Context& ctx, std::int64_t rows) const {
  // Logits of 256 x 50,304 in f32 take 49 MiB. GPUs have memory for more, and the gradient of the
  // table takes longer to read and write than its product with 256 rows.
  constexpr std::int64_t kFewest = 256, kMost = 8192, kMostBytes = 1 << 30;
  if (options_.rows_at_once > 0) return options_.rows_at_once;
  if (ctx.device().operation_size() != OperationSize::large) return kFewest;
  const DType type = logits_type(ctx);
  const std::int64_t row = bytes_of(type) + (in_place(ctx) ? 0 : bytes_of(ctx.dtype)),
                     fit = kMostBytes / (stride(ctx) * row),
                     most = std::clamp(fit / kFewest * kFewest, kFewest, kMost),
                     blocks = std::max<std::int64_t>((rows + most - 1) / most, 1);
  return ((rows + blocks - 1) / blocks + kFewest - 1) / kFewest * kFewest;  // of even sizes
}

bool CrossEntropy::one_pass(const Context& ctx) const {
  return ctx.tape && ctx.grid.extent(Axis::x) == 1;
}

DType CrossEntropy::logits_type(const Context& ctx) const {
  // Ranks of y add their logits, and pieces over x are compared: both in f32.
  if (!one_pass(ctx) || ctx.grid.extent(Axis::y) > 1) return DType::f32;
  if (const auto chosen = ctx.scheduling().run.logits) return *chosen;
  return ctx.device().operation_size() == OperationSize::large ? ctx.dtype : DType::f32;
}

bool CrossEntropy::in_place(const Context& ctx) const {
  // The gradient of capped logits is computed from these.
  return one_pass(ctx) && logits_type(ctx) == ctx.dtype && options_.cap == 0;
}

void CrossEntropy::cap(const Context& ctx, const Tensor& logits) const {
  if (options_.cap == 0) return;
  const View all = logits.view().col_range(0, table_.local_rows());
  ctx.backend.run(ops::SoftCap{all, all, static_cast<float>(options_.cap)});
}

std::int64_t CrossEntropy::stride(const Context& ctx) const {
  // GPUs load 16 bytes at once where all rows are aligned to them; 64 elements of bf16 are a line
  // of the cache.
  constexpr std::int64_t kAligned = 64;
  const std::int64_t V = table_.local_rows();
  if (ctx.device().operation_size() != OperationSize::large) return V;
  return (V + kAligned - 1) / kAligned * kAligned;
}

Tensor CrossEntropy::product(const Context& ctx, const View& hidden, Cut cut, Tensor out) const {
  const View logits = out.view().col_range(0, table_.local_rows());
  if (const auto of_codes = table_.product_of_codes(ctx, logits, hidden, {}))
    ctx.backend.quantized_product(*of_codes);
  else
    ctx.backend.matmul(
        {.out = logits, .a = hidden, .b = table_.weight(), .b_transposed = true, .bias = {}});
  for (const Adapter& adapter : adapters_) adapter.add(ctx, out.view(), hidden);
  sum_over(ctx, out, Axis::y, cut, {});
  return out;
}

Tensor CrossEntropy::logits(const Context& ctx, const View& hidden, Cut cut) const {
  const Tensor out = product(
      ctx, hidden, cut, ctx.empty(hidden.rows, table_.local_rows(), DType::f32, MemoryUse::logits));
  cap(ctx, out);
  return out;
}

Tensor CrossEntropy::logits_of_rows(const Context& ctx, const Var& hidden,
                                    std::span<const std::int64_t> rows) const {
  AXONN_CHECK(hidden.size() == 1, "logits_of_rows: ", hidden.size(), " chunks, wanted one");
  const Tensor all = whole_rows(ctx, hidden.front(), Axis::x);
  Tensor wanted = ctx.empty(std::ssize(rows), all.cols(), all.dtype());
  for (std::int64_t i = 0; i < wanted.rows(); ++i) {
    AXONN_CHECK(rows[i] >= 0 && rows[i] < all.rows(), "logits_of_rows: row ", rows[i],
                ", wanted 0 or more and less than ", all.rows());
    const View from = all.view().row_range(rows[i], 1), to = wanted.view().row_range(i, 1);
    ctx.device().copy(to.data, from.data, from.cols * bytes_of(from.dtype));
  }
  return logits(ctx, wanted.view());
}

Tensor CrossEntropy::rows_of(const Context& ctx, const Chunk& chunk) const {
  AXONN_CHECK(chunk.placement.cols == AxisSet(Axis::y) && chunk.value.cols() == table_.local_cols(),
              "loss: hidden ", chunk.value.raw_view(), ", wanted ", table_.local_cols(),
              " columns over y");
  return whole_rows(ctx, chunk, Axis::x);
}

void CrossEntropy::operator()(const Context& ctx, const Var& hidden, const Tensor& targets,
                              float scale, const View& total) const {
  // A stage that waits for a collective runs after the next block has started its own.
  const RunSettings& run = ctx.scheduling().run;
  const bool overlaps = run.overlap.input_gradients;
  const int y = overlaps && ctx.grid.extent(Axis::y) > 1,
            x = overlaps && ctx.grid.extent(Axis::x) > 1, cut = run.sequence_parallel ? y : 0;
  const std::array<int, kStages> after{0, y, y + x, y + x + cut};  // blocks that start before it
  const RowWeights* weighted = ctx.find<RowWeights>();
  const View weights = weighted ? weighted->weights.view() : View{};
  const View bonus = weighted && weighted->bonus.rows() > 0 ? weighted->bonus.view() : View{};
  AXONN_CHECK(!weighted || weights.rows == targets.cols(), "loss: row weights are ", weights,
              ", wanted one for each of ", targets.cols(), " targets");
  std::vector<Block> blocks;
  std::size_t unfinished = 0;  // blocks finish in order
  const auto advance_all = [&](std::size_t newest) {
    while (unfinished < blocks.size() && blocks[unfinished].stage == kStages) ++unfinished;
    for (std::size_t i = unfinished; i < blocks.size(); ++i)
      while (blocks[i].stage < kStages && i + after[blocks[i].stage] <= newest)
        advance(ctx, blocks[i], scale, total);
  };
  std::int64_t first = 0;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const Chunk& chunk = hidden[i];
    ctx.backend.mark("loss");
    const Cut cut_x = cut_over(chunk.placement, Axis::x);
    const Tensor whole = rows_of(ctx, chunk);
    AXONN_CHECK(first + whole.rows() <= targets.cols(), "loss: ", targets.cols(), " targets, but ",
                first + whole.rows(), " rows or more");
    const auto d_hidden = ctx.tape ? std::make_shared<Tensor>(ctx.like(whole)) : nullptr;
    const std::int64_t at_once = rows_at_once(ctx, whole.rows());
    for (std::int64_t row = 0; row < whole.rows(); row += at_once) {
      const std::int64_t n = std::min(at_once, whole.rows() - row);
      blocks.push_back({whole, d_hidden, row, n, targets.view().col_range(first + row, n),
                        rows_of_view(weights, first + row, n), rows_of_view(bonus, first + row, n),
                        cut_x});
      advance_all(blocks.size() - 1);
    }
    first += whole.rows();
    if (!ctx.tape || !chunk.gradient) continue;
    ctx.tape->lane(i).record(
        [ctx, d_hidden, to = chunk.gradient] { to->add(ctx, std::exchange(*d_hidden, Tensor())); });
  }
  for (int more = 0; more < after.back(); ++more) advance_all(blocks.size() + more);
}

void CrossEntropy::advance(const Context& ctx, Block& block, float scale, const View& total) const {
  switch (block.stage++) {
    case 0:
      block.softmax =
          start(ctx, block.hidden.view().row_range(block.row, block.count), block.targets);
      return;
    case 1:
      cap(ctx, block.softmax.logits);
      if (!one_pass(ctx)) gather_stats(ctx, block.softmax, 3);
      return;
    case 2:
      return start_gradient(ctx, block, scale, total);
    default:
      return finish(ctx, block);
  }
}

CrossEntropy::Softmax CrossEntropy::start(const Context& ctx, const View& hidden,
                                          const View& targets) const {
  const Cut cut = row_cut(ctx, hidden.rows, Axis::y);
  Tensor scores = product(ctx, hidden, cut,
                          ctx.empty(hidden.rows, stride(ctx), logits_type(ctx), MemoryUse::logits));
  const std::int64_t n = scores.rows(), first = cut == Cut::rows ? ctx.grid.coord(Axis::y) * n : 0;
  return {std::move(scores), {}, targets.col_range(first, n), cut, first};
}

void CrossEntropy::gather_stats(const Context& ctx, Softmax& softmax, std::int64_t columns) const {
  softmax.stats = gathered_stats(ctx, softmax.logits.view().col_range(0, table_.local_rows()),
                                 softmax.targets, options_.vocab, columns);
}

Tensor losses_of_logits(const Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t vocab) {
  const Tensor stats = gathered_stats(ctx, logits.view(), targets.view(), vocab, 3),
               losses = ctx.empty(logits.rows(), 1, DType::f32), lse = ctx.like(losses);
  ctx.backend.run(ops::CombineSoftmax{losses.view(), lse.view(), stats.view(), targets.view()});
  return losses;
}

void CrossEntropy::start_gradient(const Context& ctx, Block& block, float scale,
                                  const View& total) const {
  const auto [scores, stats, wanted, cut, first] = std::exchange(block.softmax, {});
  const std::int64_t n = scores.rows();
  const View weights = rows_of_view(block.weights, first, n),
             bonus = rows_of_view(block.bonus, first, n);
  const Tensor loss = ctx.empty(n, 1, DType::f32), lse = ctx.empty(n, 1, DType::f32);
  const View logits = scores.view().col_range(0, table_.local_rows());
  const VocabularyPiece piece = vocabulary_piece(ctx.grid, options_.vocab);
  const OutputZLoss* z_loss = ctx.find<OutputZLoss>();
  const float z = z_loss ? z_loss->weight : 0;
  Tensor d_piece;
  if (block.d_hidden)
    d_piece = in_place(ctx) ? scores : ctx.empty(n, stride(ctx), ctx.dtype, MemoryUse::logits);
  const View d_logits = block.d_hidden ? d_piece.view().col_range(0, logits.cols) : View{};
  if (one_pass(ctx)) {
    ctx.backend.run(ops::CrossEntropy{.loss = loss.view(),
                                      .lse = lse.view(),
                                      .d_logits = d_logits,
                                      .logits = logits,
                                      .targets = wanted,
                                      .valid = piece.valid,
                                      .scale = scale,
                                      .z = z,
                                      .weights = weights,
                                      .bonus = bonus});
  } else {
    ctx.backend.run(ops::CombineSoftmax{loss.view(), lse.view(), stats.view(), wanted});
    if (block.d_hidden)
      ctx.backend.run(ops::CrossEntropyBackward{.d_logits = d_logits,
                                                .logits = logits,
                                                .lse = lse.view(),
                                                .targets = wanted,
                                                .piece = piece,
                                                .scale = scale,
                                                .z = z,
                                                .weights = weights,
                                                .bonus = bonus});
  }
  if (block.d_hidden && options_.cap > 0)
    ctx.backend.run(
        ops::SoftCapBackward{d_logits, d_logits, logits, static_cast<float>(options_.cap)});
  const bool first_on_y = cut == Cut::rows || ctx.grid.coord(Axis::y) == 0;
  if (ctx.grid.coord(Axis::x) == 0 && first_on_y) {
    if (weights.rows > 0) ctx.backend.run(ops::Multiply{loss.view(), loss.view(), weights});
    ctx.backend.run(ops::Sum{total, loss.view()});
    if (z_loss) ctx.backend.run(ops::SquaredSum{z_loss->total, lse.view()});
  }
  if (block.d_hidden) block.d_logits = std::make_unique<Gather>(ctx, d_piece, Axis::y, cut);
}

void CrossEntropy::add_gradients(const Context& ctx, const Block& block,
                                 const View& d_logits) const {
  const View d_hidden = block.d_hidden->raw_view().row_range(block.row, block.count),
             hidden = block.hidden.view().row_range(block.row, block.count);
  ctx.backend.matmul({.out = d_hidden, .a = d_logits, .b = table_.weight(), .bias = {}});
  for (const Adapter& adapter : adapters_)
    adapter.add_gradients(ctx, {.d_inp = d_hidden}, d_logits, hidden);
  if (table_.frozen()) return;
  const auto [d_table, accumulate] = table_.gradient_of_all();
  ctx.backend.matmul({.out = d_table,
                      .a = d_logits,
                      .b = hidden,
                      .a_transposed = true,
                      .bias = {},
                      .accumulate = accumulate});
}

void CrossEntropy::finish(const Context& ctx, Block& block) const {
  const Tensor hidden = std::exchange(block.hidden, Tensor());
  const auto d_hidden = std::exchange(block.d_hidden, nullptr);
  if (!d_hidden) return;
  const Tensor d_logits =
      std::exchange(block.d_logits, nullptr)->whole(ctx, {}).col_range(0, table_.local_rows());
  add_gradients(ctx, {hidden, d_hidden, block.row, block.count, {}, {}, {}, block.cut},
                d_logits.view());
  // After the chunk's last rows its sum starts, and overlaps the next chunk's loss.
  if (block.row + block.count < hidden.rows()) return;
  sum_over(ctx, *d_hidden, Axis::x, block.cut, {});
  if (!ctx.scheduling().run.overlap.input_gradients) d_hidden->wait();
}

}  // namespace axonn
