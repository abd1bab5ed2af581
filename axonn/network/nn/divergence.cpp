#include <algorithm>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/loss.h"

namespace axonn {

CrossEntropy::Distribution CrossEntropy::distribution(const Context& ctx, const View& hidden,
                                                      const View& targets) const {
  Softmax softmax{logits(ctx, hidden), {}, targets, Cut::same, 0};
  gather_stats(ctx, softmax, 3);
  Distribution found{.logits = softmax.logits,
                     .losses = ctx.empty(hidden.rows, 1, DType::f32),
                     .lse = ctx.empty(hidden.rows, 1, DType::f32)};
  ctx.backend.run(
      ops::CombineSoftmax{found.losses.view(), found.lse.view(), softmax.stats.view(), targets});
  return found;
}

Tensor CrossEntropy::kth_largest(const Context& ctx, const Tensor& logits, const View& targets,
                                 std::int64_t k) const {
  const std::int64_t pieces = ctx.grid.extent(Axis::x);
  // The exchange is in place, and these logits are read again.
  Tensor copied = logits;
  if (pieces > 1) {
    copied = ctx.like(logits);
    ctx.backend.run(ops::Cast{copied.view(), logits.view()});
  }
  return of_whole_logits(ctx, copied, targets, 1,
                         [&](const View& out, const View& whole, const View& of_part) {
                           ctx.backend.run(ops::KthLargestLogit{.out = out,
                                                                .logits = whole,
                                                                .targets = of_part,
                                                                .vocab = options_.vocab,
                                                                .pieces = pieces,
                                                                .k = k});
                         });
}

void CrossEntropy::diverge(const Context& ctx, const Block& block, const View& taught,
                           const Teacher& teacher, float scale, const View& total) const {
  const Distribution own = distribution(ctx, block.hidden.view().row_range(block.row, block.count),
                                        block.targets),
                     wanted = teacher.output.distribution(teacher.ctx, taught, block.targets);
  const View logits = own.logits.view();
  const Tensor least = teacher.top_k > 0 ? teacher.output.kth_largest(teacher.ctx, wanted.logits,
                                                                      block.targets, teacher.top_k)
                                         : Tensor();
  const View kept = teacher.top_k > 0 ? least.view() : View{};
  const std::int64_t valid = vocabulary_piece(ctx.grid, options_.vocab).valid;
  Tensor terms = ctx.empty(block.count, teacher.top_k > 0 ? 4 : 2, DType::f32);
  ctx.backend.run(ops::DivergenceTerms{.out = terms.view(),
                                       .student = logits,
                                       .teacher = wanted.logits.view(),
                                       .student_lse = own.lse.view(),
                                       .teacher_lse = wanted.lse.view(),
                                       .targets = block.targets,
                                       .valid = valid,
                                       .beta = teacher.beta,
                                       .kept = kept});
  sum_over(ctx, terms, Axis::x, Cut::same, {});
  if (teacher.top_k > 0)
    ctx.backend.run(ops::DivergenceTail{terms.view(), block.targets, teacher.beta});
  if (ctx.grid.coord(Axis::x) == 0 && ctx.grid.coord(Axis::y) == 0) {
    ctx.backend.run(ops::Sum{total, terms.view().col_range(0, 1)});
    ctx.backend.run(ops::Sum{teacher.losses.col_range(0, 1), own.losses.view()});
    ctx.backend.run(ops::Sum{teacher.losses.col_range(1, 1), wanted.losses.view()});
  }
  if (!block.d_hidden) return;
  const Tensor room = ctx.empty(block.count, stride(ctx), ctx.dtype, MemoryUse::logits);
  const View d_logits = room.view().col_range(0, logits.cols);
  ctx.backend.run(ops::DivergenceBackward{.d_logits = d_logits,
                                          .student = logits,
                                          .teacher = wanted.logits.view(),
                                          .student_lse = own.lse.view(),
                                          .teacher_lse = wanted.lse.view(),
                                          .targets = block.targets,
                                          .terms = terms.view(),
                                          .valid = valid,
                                          .beta = teacher.beta,
                                          .scale = scale,
                                          .kept = kept});
  if (options_.cap > 0)
    ctx.backend.run(
        ops::SoftCapBackward{d_logits, d_logits, logits, static_cast<float>(options_.cap)});
  add_gradients(ctx, block, d_logits);
}

void CrossEntropy::divergence(const Context& ctx, const Var& hidden, const Teacher& teacher,
                              const Tensor& targets, float scale, const View& total) const {
  AXONN_CHECK(options_.vocab == teacher.output.options_.vocab, "divergence: ", options_.vocab,
              " tokens and ", teacher.output.options_.vocab, " of the teacher, wanted as many");
  AXONN_CHECK(hidden.size() == teacher.hidden.size(), "divergence: ", hidden.size(), " chunks and ",
              teacher.hidden.size(), " of the teacher, wanted as many");
  std::int64_t first = 0;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const Chunk& chunk = hidden[i];
    ctx.backend.mark("divergence");
    const Cut cut = cut_over(chunk.placement, Axis::x);
    const Tensor whole = rows_of(ctx, chunk),
                 taught = teacher.output.rows_of(teacher.ctx, teacher.hidden[i]);
    AXONN_CHECK(first + whole.rows() <= targets.cols() && whole.rows() == taught.rows(),
                "divergence: ", targets.cols(), " targets, but ", first + whole.rows(),
                " rows or more, ", taught.rows(), " of the teacher's here");
    const auto d_hidden = ctx.tape ? std::make_shared<Tensor>(ctx.like(whole)) : nullptr;
    const std::int64_t at_once = rows_at_once(ctx, whole.rows());
    for (std::int64_t row = 0; row < whole.rows(); row += at_once) {
      const std::int64_t n = std::min(at_once, whole.rows() - row);
      diverge(ctx, {whole, d_hidden, row, n, targets.view().col_range(first + row, n), {}, {}, cut},
              taught.view().row_range(row, n), teacher, scale, total);
    }
    first += whole.rows();
    if (!d_hidden) continue;
    sum_over(ctx, *d_hidden, Axis::x, cut, {});
    if (!chunk.gradient) continue;
    ctx.tape->lane(i).record(
        [d_hidden, to = chunk.gradient, ctx] { to->add(ctx, std::exchange(*d_hidden, Tensor())); });
  }
}

}  // namespace axonn
