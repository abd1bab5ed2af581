#include <algorithm>
#include <functional>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/loss.h"

namespace axonn {

Tensor CrossEntropy::score_rows(const Context& ctx, const Var& hidden, const Tensor& targets,
                                std::int64_t columns,
                                const std::function<void(const ScoredRows& rows)>& score) const {
  AXONN_CHECK(!ctx.tape, "CrossEntropy: got a tape, but scores of targets have no gradient");
  const Tensor out = ctx.empty(targets.cols(), columns, DType::f32);
  std::vector<Work> gathers;
  std::int64_t begin = 0;
  for (const Chunk& chunk : hidden) {
    const Tensor whole = rows_of(ctx, chunk);
    const std::int64_t at_once = rows_at_once(ctx, whole.rows());
    for (std::int64_t row = 0; row < whole.rows(); row += at_once) {
      const std::int64_t n = std::min(at_once, whole.rows() - row);
      const View all = out.raw_view().row_range(begin + row, n);
      const bool cut = row_cut(ctx, n, Axis::y) == Cut::rows;
      const std::int64_t count = cut ? n / ctx.grid.extent(Axis::y) : n,
                         first = cut ? ctx.grid.coord(Axis::y) * count : 0;
      const View mine = all.row_range(first, count);
      score({whole.view().row_range(row, n), targets.view().col_range(begin + row, n), first, count,
             mine});
      if (cut)
        gathers.push_back(
            ctx.grid.along(Axis::y).all_gather(buffer_of(all), buffer_of(mine), "loss"));
    }
    begin += whole.rows();
  }
  for (Work& gather : gathers) gather.wait();
  return out;
}

Tensor CrossEntropy::each(const Context& ctx, const Var& hidden, const Tensor& targets) const {
  const bool entropies = ctx.find<TargetEntropies>() != nullptr;
  return score_rows(ctx, hidden, targets, entropies ? 3 : 2, [&](const ScoredRows& rows) {
    Softmax piece = start(ctx, rows.hidden, rows.targets);
    cap(ctx, piece.logits);
    gather_stats(ctx, piece, 4);
    const Tensor lse = ctx.empty(rows.count, 1, DType::f32);
    const View stats = piece.stats.view();
    ctx.backend.run(ops::CombineSoftmax{rows.out.col_range(0, 1), lse.view(), stats.col_range(0, 3),
                                        piece.targets});
    ctx.backend.run(
        ops::GreedyTargets{rows.out.col_range(1, 1), stats, piece.targets, table_.local_rows()});
    if (!entropies) return;
    Tensor terms = ctx.like(lse);
    ctx.backend.run(
        ops::EntropyTerms{.out = terms.view(),
                          .logits = piece.logits.view().col_range(0, table_.local_rows()),
                          .lse = lse.view(),
                          .targets = piece.targets,
                          .valid = vocabulary_piece(ctx.grid, options_.vocab).valid});
    sum_over(ctx, terms, Axis::x, Cut::same, {});
    ctx.backend.run(ops::Cast{rows.out.col_range(2, 1), terms.view()});
  });
}

Tensor CrossEntropy::of_whole_logits(
    const Context& ctx, Tensor pieces, const View& targets, std::int64_t columns,
    const std::function<void(const View& out, const View& logits, const View& targets)>& score)
    const {
  Communicator& across = ctx.grid.along(Axis::x);
  // Of the rows, which may end before the last rank's part does.
  const std::int64_t n = pieces.rows(), each = (n + across.size() - 1) / across.size(),
                     first = std::min(across.rank() * each, n), mine = std::min(each, n - first);
  if (each * across.size() != n) {
    const Tensor padded =
        ctx.empty(each * across.size(), pieces.cols(), DType::f32, MemoryUse::logits);
    const View from = pieces.view();
    ctx.device().copy(padded.view().data, from.data, from.count() * bytes_of(DType::f32));
    pieces = padded;
  }
  const Buffer all = buffer_of(pieces.view());
  pieces.set_pending(across.all_to_all(all, all, "token records"));
  const Tensor found = ctx.empty(each * across.size(), columns, DType::f32);
  score(found.view().row_range(first, mine), pieces.view(), targets.col_range(first, mine));
  across
      .all_gather(buffer_of(found.view()),
                  buffer_of(found.view().row_range(across.rank() * each, each)), "token records")
      .wait();
  return found.row_range(0, n);
}

Tensor CrossEntropy::records(const Context& ctx, const Var& hidden, const Tensor& targets,
                             const TokenRecords& wanted) const {
  const std::int64_t pieces = ctx.grid.extent(Axis::x);
  const auto record = [&](const View& out, const View& logits, const View& of_part) {
    ctx.backend.run(ops::TokenRecord{.out = out.col_range(0, TokenRecords::kFigures),
                                     .logits = logits,
                                     .targets = of_part,
                                     .vocab = options_.vocab,
                                     .pieces = pieces});
    for (std::size_t i = 0; i < wanted.policies.size(); ++i) {
      const SamplingPolicy& policy = wanted.policies[i];
      ctx.backend.run(ops::PolicyLogProbability{
          .out = out.col_range(TokenRecords::kFigures + static_cast<std::int64_t>(i), 1),
          .logits = logits,
          .targets = of_part,
          .vocab = options_.vocab,
          .pieces = pieces,
          .temperature = static_cast<float>(policy.temperature),
          .top_k = policy.top_k,
          .top_p = policy.top_p});
    }
  };
  return score_rows(ctx, hidden, targets, wanted.columns(), [&](const ScoredRows& rows) {
    const Cut cut = row_cut(ctx, rows.hidden.rows, Axis::y);
    const Tensor found =
        of_whole_logits(ctx, logits(ctx, rows.hidden, cut),
                        rows.targets.col_range(rows.first, rows.count), wanted.columns(), record);
    ctx.device().copy(rows.out.data, found.view().data, rows.out.count() * bytes_of(DType::f32));
  });
}

}  // namespace axonn
