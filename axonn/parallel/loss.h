#pragma once

#include "axonn/parallel/embedding.h"
#include "axonn/parallel/exchange.h"
#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// Softmax cross-entropy of the logits hidden · tableᵀ, the vocabulary over x, without ever holding
/// the logits of all rows: product, reduction, loss and gradient go row chunk by row chunk.
///
/// Communication a chunk of r rows: logits (r, V/Gx) f32 summed over y; three f32 a row
/// all-gathered on x; d_hidden (r, C/Gy) summed over x. Sums are all-reduces, or, with
/// ctx.sequence_parallel, reduce-scatters of rows: then hidden is all-gathered on x before, and
/// d_logits on y, in T, after each rank of y has done its part of the softmax. Padded columns take
/// no part.
class CrossEntropy {
 public:
  struct Options {
    std::int64_t vocab = 0;
    /// Rows of logits at once: 256 x 50,304 in f32 are 49 MiB.
    std::int64_t rows_at_once = 256;
  };

  /// `table` is (vocab, C) with vocabulary_layout: the embedding's own, or an output layer's.
  CrossEntropy(const Parameter& table, Options options) : table_(table), options_(options) {}

  /// Adds this rank's part of the sum of losses to total (1, 1) f64, which over all ranks adds up
  /// to the whole, and with a tape records the gradient of scale · that sum.
  void operator()(const Context& ctx, const Var& hidden, const Tensor& targets, float scale,
                  const Tensor& total) const;

  /// (R, V/Gx) f32 of some rows (R, C/Gy) of hidden, summed over y; cut may leave each rank of y
  /// with a run of them.
  Tensor logits(const Context& ctx, const View& hidden, Cut cut = Cut::same) const;

  /// (1, V/Gx) f32 of one row of a value of one chunk.
  Tensor logits_of_row(const Context& ctx, const Var& hidden, std::int64_t row) const;

  const Parameter& table() const { return table_; }

 private:
  void rows(const Context& ctx, const View& hidden, const View& targets, float scale,
            const Tensor& total, const View& d_hidden) const;

  const Parameter& table_;
  Options options_;
};

}  // namespace axonn
