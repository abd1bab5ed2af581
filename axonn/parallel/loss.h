#pragma once

#include <memory>
#include <span>

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
/// no part. They run under the next rows' products: as many blocks of rows as there are collectives
/// one after another have logits at a time.
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

  /// Of each target (R, 2) f32, the same on every rank of x and y: its loss in nats, and 1 where no
  /// token is likelier, else 0; both 0 where it is negative. Without a tape. Communication besides
  /// the forward pass': where rows are cut over y, two f32 a row all-gathered there.
  Tensor each(const Context& ctx, const Var& hidden, const Tensor& targets) const;

  /// (R, V/Gx) f32 of some rows (R, C/Gy) of hidden, summed over y; cut may leave each rank of y
  /// with a run of them.
  Tensor logits(const Context& ctx, const View& hidden, Cut cut = Cut::same) const;

  /// (n, V/Gx) f32 of n rows of a value of one chunk.
  Tensor logits_of_rows(const Context& ctx, const Var& hidden,
                        std::span<const std::int64_t> rows) const;

  const Parameter& table() const { return table_; }

 private:
  /// Some rows' logits, or this rank of y's run of them, and what all of x know of their softmax.
  struct Softmax {
    Tensor logits;  ///< (n, V/Gx) f32
    Tensor stats;   ///< (Gx · n, 3) f32, the pieces one after another
    View targets;   ///< (1, n) i32
    Cut cut;        ///< rows: this rank of y has the run of them that is its own
  };
  /// The logits alone, and then the rest.
  Softmax start(const Context& ctx, const View& hidden, const View& targets) const;
  void gather_stats(const Context& ctx, Softmax& softmax) const;
  /// All rows of a chunk of hidden. Errors: it does not lie as it has to.
  Tensor rows_of(const Context& ctx, const Chunk& chunk) const;

  /// Some rows of a chunk on their way through the loss, stage by stage.
  struct Block {
    Tensor hidden;                     // the chunk's rows
    std::shared_ptr<Tensor> d_hidden;  // the same; null: not wanted
    std::int64_t row, count;           // the block's in the chunk
    View targets;                      // the block's
    Cut cut;                           // of the chunk over x
    int stage = 0;                     // the next one
    Softmax softmax = {};
    std::unique_ptr<Gather> d_logits = {};  // while it is on its way
  };
  struct Sum {
    float scale;
    const Tensor& total;
  };
  void advance(const Context& ctx, Block& block, const Sum& sum) const;
  void start_gradient(const Context& ctx, Block& block, const Sum& sum) const;
  void finish(const Context& ctx, Block& block) const;

  const Parameter& table_;
  Options options_;
};

}  // namespace axonn
