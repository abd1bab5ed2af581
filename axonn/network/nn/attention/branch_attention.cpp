#include "axonn/network/nn/attention/branch_attention.h"

namespace axonn {

namespace {

/// The sequences of a chunk on this rank, each as two.
class BranchedRows {
 public:
  BranchedRows(const Context& ctx, const Chunk& chunk)
      : ctx_(ctx),
        copy_rows_(ctx.empty(chunk.value.rows(), 2, DType::i32)),
        weights_(ctx.empty(chunk.value.rows(), 2, DType::f32)) {
    const Rows& rows = chunk.rows;
    const std::int64_t here = chunk.value.rows() / rows.positions;
    rows_ = {.sequences = 2 * here, .positions = rows.positions};
    rows_.start = ctx.empty(1, rows_.count(), DType::i32);
    const std::int64_t first =
        chunk.placement.rows.has(Axis::y) ? ctx.grid.coord(Axis::y) * here : 0;
    ctx.backend.run(
        ops::BranchCopies{.copy_rows = copy_rows_.view(),
                          .weights = weights_.view(),
                          .starts = rows_.start.view(),
                          .branches = rows.branches.view().col_range(3 * first, 3 * here)});
  }

  /// Two copies of each row of a tensor (R, C).
  Tensor copies(const Tensor& of) const {
    Tensor all = empty_copies(of);
    ctx_.backend.run(ops::SpreadRows{all.view(), of.view(), copy_rows_.view()});
    return all;
  }
  Tensor empty_copies(const Tensor& of) const {
    return ctx_.empty(2 * of.rows(), of.cols(), of.dtype());
  }
  /// The copies of queries, keys and values as a chunk of sequences of one branch each.
  Chunk sequences(const Chunk& qkv) const {
    return {.value = copies(qkv.value), .placement = {.cols = qkv.placement.cols}, .rows = rows_};
  }
  /// Sets each row to its copy in its own branch.
  void choose(const Tensor& to, const Tensor& all) const {
    ctx_.backend.run(ops::CombineRows{to.view(), all.view(), copy_rows_.view(), weights_.view()});
  }
  /// Sets each row to the sum of its copies.
  void add(const Tensor& to, const Tensor& all) const {
    ctx_.backend.run(ops::CombineRows{to.view(), all.view(), copy_rows_.view()});
  }
  /// The gradient of choose(): that of a row for the copy in its own branch, 0 for the other one.
  /// `all`: the copies that were chosen from.
  Tensor chosen(const Tensor& d, const Tensor& all) const {
    Tensor d_all = ctx_.like(all);
    const Tensor d_weights = ctx_.like(weights_);
    ctx_.backend.run(ops::CombineRowsBackward{.d_inp = d_all.view(),
                                              .d_weights = d_weights.view(),
                                              .d_out = d.view(),
                                              .inp = all.view(),
                                              .copy_rows = copy_rows_.view(),
                                              .weights = weights_.view()});
    return d_all;
  }

 private:
  const Context& ctx_;
  Tensor copy_rows_, weights_;
  Rows rows_;
};

}  // namespace

AttentionKernels branch_kernels(const Context& ctx, const AttentionKernels& whole) {
  const auto forward = [ctx, of = whole.forward](const Chunk& qkv, const Tensor& out,
                                                 const Tensor& stats) {
    const BranchedRows branched(ctx, qkv);
    const Tensor all_out = branched.empty_copies(out), all_stats = branched.empty_copies(stats);
    of(branched.sequences(qkv), all_out, all_stats);
    branched.choose(out, all_out);
    branched.choose(stats, all_stats);
  };
  const auto backward = [ctx, of = whole.backward](const Chunk& qkv, const Tensor& out,
                                                   const Tensor& stats, const Tensor& d_out,
                                                   const Tensor& d_qkv) {
    const BranchedRows branched(ctx, qkv);
    const Tensor all_out = branched.copies(out), d_all = branched.chosen(d_out, all_out);
    const Chunk all = branched.sequences(qkv);
    const Tensor d_all_qkv = ctx.like(all.value);
    of(all, all_out, branched.copies(stats), d_all, d_all_qkv);
    branched.add(d_qkv, d_all_qkv);
  };
  return {forward, backward};
}

}  // namespace axonn
