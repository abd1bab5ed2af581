#pragma once

#include "axonn/parallel/embedding.h"
#include "axonn/parallel/parameters.h"
#include "axonn/parallel/var.h"

namespace axonn {

/// Softmax cross-entropy of the logits hidden · tableᵀ, the vocabulary over x, without ever holding
/// the logits of all rows: product, reduction, loss and gradient go row chunk by row chunk.
///
/// Communication a chunk of r rows: logits (r, V/Gx) f32 all-reduced on y; three f32 a row
/// all-gathered on x; d_hidden (r, C/Gy) all-reduced on x. Padded columns take no part.
class CrossEntropy {
 public:
  struct Options {
    std::int64_t vocab = 0;
    /// Rows of logits at once: 256 x 50,304 in f32 are 49 MiB.
    std::int64_t rows_at_once = 256;
  };

  /// `table` is (vocab, C) with vocabulary_layout: the embedding's own, or an output layer's.
  CrossEntropy(const Parameter& table, Options options) : table_(table), options_(options) {}

  /// Adds this rank's sum of losses to total (1, 1) f64, and with a tape records the gradient of
  /// scale · that sum. Every rank of x and y adds the same.
  void operator()(const Context& ctx, const Var& hidden, const Tensor& targets, float scale,
                  const Tensor& total) const;

  /// (R, V/Gx) f32 of the given rows of a chunk, summed over y. For generation.
  Tensor logits(const Context& ctx, const View& hidden) const;

  const Parameter& table() const { return table_; }

 private:
  void rows(const Context& ctx, const View& hidden, const View& targets, float scale,
            const Tensor& total, const View& d_hidden) const;

  const Parameter& table_;
  Options options_;
};

}  // namespace axonn
