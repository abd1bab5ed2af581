#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/network/nn/embedding.h"
#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

/// Attached to a pass, adds weight · lse² of each row that counts to the loss; lse, the log-sum-exp
/// of its logits, stays small. Source: Chowdhery et al., "PaLM", 2022, arXiv:2204.02311.
struct OutputZLoss {
  float weight = 0;
  View total = {};  ///< (1, 1) f64 += this rank's part of the sum of lse²
};

/// Attached to a pass, multiplies the loss of each row, and with it its gradient, by a weight of
/// either sign: the gradient of any loss that is a function of the log-probabilities of targets,
/// such as one of preferences, is that of a sum with such weights. The terms of an OutputZLoss are
/// multiplied in the gradient, and not in its total.
struct RowWeights {
  Tensor weights;     ///< (R, 1) f32, one for each target of this rank
  Tensor bonus = {};  ///< (R, 2) f32: of the entropy, see CrossEntropyBackward; empty: none
};

/// Attached to a pass of a LanguageModel, multiplies all logits, which must not be capped: those of
/// a temperature have its inverse. With factor 2, the log of the sum of all squared probabilities
/// is the loss less twice that of factor 1.
struct LogitFactor {
  float factor = 1;
};

/// Attached to a pass of LanguageModel::target_losses(), makes its result (R, 3): the third column
/// is the entropy, in nats, of the distribution of each target; 0 of a negative one.
struct TargetEntropies {};

/// How tokens are drawn from logits; the meaning is that of ops::PolicyLogProbability.
struct SamplingPolicy {
  double temperature = 1;  ///< 0: greedy
  std::int64_t top_k = 0;  ///< 0: all
  double top_p = 1;

  bool operator==(const SamplingPolicy&) const = default;
};

/// Attached to a pass of LanguageModel::target_losses(), makes its result (R, kFigures + number of
/// policies) f32: a record of each target. The figures are those of ops::TokenRecord: log p, rank,
/// and mean and variance of log p under p; then comes the log-probability by each policy. A record
/// of a negative target is 0.
struct TokenRecords {
  static constexpr std::int64_t kFigures = 4;
  std::vector<SamplingPolicy> policies = {};

  std::int64_t columns() const { return kFigures + std::ssize(policies); }
};

/// Softmax cross-entropy of the logits hidden · tableᵀ, with the vocabulary cut over x. The logits
/// of all rows never exist at once: product, reduction, loss and gradient run on blocks of rows.
///
/// Communication for a block of r rows: logits (r, V/Gx) f32 summed over y, and three f32 per row
/// all-gathered on x. For a chunk of R rows: d_hidden (R, C/Gy) summed over x. Sums are
/// all-reduces. With RunSettings::sequence_parallel they are reduce-scatters of rows; then hidden
/// is first all-gathered on x, and d_logits, in the compute type, on y, where each rank computes
/// the softmax of its own rows. Padded columns take no part. A block's collectives overlap the
/// products of later blocks, and one block of logits is alive per collective in this pipeline.
///
/// Where Gx is 1 and a gradient is wanted, a row's loss and gradient are one operation, in place if
/// the logits have the compute type; they may have it where Gy is 1, too (RunSettings::logits).
class CrossEntropy {
 public:
  struct Options {
    std::int64_t vocab = 0;
    /// Rows in a block; 0: by the device. Each block reads and writes the gradient of the whole
    /// table.
    std::int64_t rows_at_once = 0;
    double cap = 0;  ///< logits l become cap · tanh(l / cap), as in Gemma 2; 0: they stay
    Adapters* adapters = nullptr;  ///< of the block of the output layer; null: none
    std::string name = "lm_head";  ///< of the output layer
  };

  /// `table` is (vocab, C) with vocabulary_layout: the embedding's, or an output layer's weight,
  /// which may have an adapter.
  CrossEntropy(const Parameter& table, const Options& options);

  /// Adds this rank's part of the sum of losses to total (1, 1) f64; the parts of all ranks add up
  /// to the sum over all rows. With a tape, records the gradient of scale · that sum. With an
  /// OutputZLoss, adds to its total too, and records the gradient of both with its weight. With
  /// RowWeights, the sum is that of losses times weights. Throws if columns of hidden are not those
  /// of the table over y, if its rows are more than the columns of targets (1, R), or if there are
  /// not as many weights as targets.
  void operator()(const Context& ctx, const Var& hidden, const Tensor& targets, float scale,
                  const View& total) const;

  /// A model from whose distributions another one learns, in a pass.
  struct Teacher {
    const CrossEntropy& output;
    const Context& ctx;  ///< in which the weights of output are gathered
    const Var& hidden;   ///< (R, C'/Gy), in the chunks of the student's
    float beta = 0;      ///< see ops::DivergenceTerms
    View losses;         ///< (1, 2) f64 += this rank's part of the losses of student and teacher
    /// So many of the teacher's likeliest tokens, and those as likely as the last of them, count
    /// by themselves, and all others as one; 0: all by themselves.
    std::int64_t top_k = 0;
  };
  /// As operator(), with the divergence of the distributions in place of the losses of targets: a
  /// row counts if its target is not negative. Without weights of rows and output z-loss.
  /// Communicates as operator() does, without overlap and for both models, and sums two f32 of a
  /// row over x, four with top_k, for which the teacher's logits are exchanged as in records().
  /// Throws if the vocabularies differ.
  void divergence(const Context& ctx, const Var& hidden, const Teacher& teacher,
                  const Tensor& targets, float scale, const View& total) const;

  /// Returns (R, 2) f32, a row for each target, the same on every rank of x and y: its loss in
  /// nats, and 1 if greedy decoding takes it (ops::GreedyTargets), else 0. Both are 0 if the target
  /// is negative. With TargetEntropies, (R, 3). Throws with a tape. Communicates as the forward
  /// pass does, with four f32 per row all-gathered on x; and if rows are cut over y, all-gathers
  /// the result there.
  Tensor each(const Context& ctx, const Var& hidden, const Tensor& targets) const;

  /// Returns (R, wanted.columns()) f32, the record of each target, the same on every rank of x and
  /// y. Throws with a tape. Each rank of x computes the records of a part of the rows from their
  /// whole logits, so that no figure depends on the cut and a policy may keep any number of tokens.
  /// Communication for a block of r rows: the logits as in the forward pass; an all-to-all of them
  /// (r, V/Gx) on x; the records all-gathered on x, and on y if rows are cut over it.
  Tensor records(const Context& ctx, const Var& hidden, const Tensor& targets,
                 const TokenRecords& wanted) const;

  /// Logits (R, V/Gx) f32 of rows (R, C/Gy) of hidden, summed over y. With Cut::rows, each rank of
  /// y gets those of its run of the rows.
  Tensor logits(const Context& ctx, const View& hidden, Cut cut = Cut::same) const;

  /// Logits (n, V/Gx) f32 of n rows of hidden. Throws unless hidden has one chunk.
  Tensor logits_of_rows(const Context& ctx, const Var& hidden,
                        std::span<const std::int64_t> rows) const;

  const Parameter& table() const { return table_; }

 private:
  /// Logits of a block of rows, or of this rank's run of them on y, and softmax statistics.
  struct Softmax {
    Tensor logits;       ///< (n, stride), of which V/Gx columns count
    Tensor stats;        ///< (Gx · n, 3) f32, those of each piece of the vocabulary, stacked
    View targets;        ///< (1, n) i32
    Cut cut;             ///< of the rows over y
    std::int64_t first;  ///< of these rows, in the block
  };
  /// start() computes the logits; gather_stats() then starts the all-gather of the statistics.
  Softmax start(const Context& ctx, const View& hidden, const View& targets) const;
  /// Caps logits whose sum is complete.
  void cap(const Context& ctx, const Tensor& logits) const;
  /// The logits of hidden, in the first columns of `out`, summed as logits() are.
  Tensor product(const Context& ctx, const View& hidden, Cut cut, Tensor out) const;
  /// Of a chunk of so many rows.
  std::int64_t rows_at_once(const Context& ctx, std::int64_t rows) const;
  /// Whether this pass computes losses together with their gradients.
  bool one_pass(const Context& ctx) const;
  /// The type of a block's logits.
  DType logits_type(const Context& ctx) const;
  /// Whether the gradient of a block's logits takes their place.
  bool in_place(const Context& ctx) const;
  /// Elements from a row of a block's logits to the next.
  std::int64_t stride(const Context& ctx) const;
  /// columns: those of SoftmaxStats, 3, or 4 for greedy targets.
  void gather_stats(const Context& ctx, Softmax& softmax, std::int64_t columns) const;
  /// Some rows of hidden and their targets, of which this rank computes `count` from `first` on and
  /// writes their results into `out`.
  struct ScoredRows {
    View hidden, targets;  ///< (n, C/Gy) and (1, n)
    std::int64_t first, count;
    View out;  ///< (count, columns) f32
  };
  /// Calls score for blocks of all rows, and returns its results (R, columns) of all ranks of y.
  Tensor score_rows(const Context& ctx, const Var& hidden, const Tensor& targets,
                    std::int64_t columns,
                    const std::function<void(const ScoredRows& rows)>& score) const;
  /// All rows of a chunk of hidden. Throws if its columns are not cut over y alone.
  Tensor rows_of(const Context& ctx, const Chunk& chunk) const;

  /// Some rows of a chunk in the pipeline of stages.
  struct Block {
    Tensor hidden;                     // all rows of the chunk
    std::shared_ptr<Tensor> d_hidden;  // likewise; null without a tape
    std::int64_t row, count;           // the block's first row in the chunk, and its rows
    View targets, weights;             // of the block; no weights: all are 1
    View bonus;                        // likewise; none: no entropy counts
    Cut cut;                           // of the chunk over x
    int stage = 0;                     // the next stage to run
    Softmax softmax = {};
    std::unique_ptr<Gather> d_logits = {};  // in flight
  };
  /// Logits (n, V/Gx) f32 of rows of hidden, and the targets' losses (n, 1) and the lse (n, 1).
  struct Distribution {
    Tensor logits, losses, lse;
  };
  Distribution distribution(const Context& ctx, const View& hidden, const View& targets) const;
  /// Exchanges logits (n, V/Gx) over x so that each rank has whole logits of a part of the rows,
  /// calls `score` with them, that part's targets and results, and returns the results (n, columns)
  /// f32 of all parts.
  Tensor of_whole_logits(
      const Context& ctx, Tensor pieces, const View& targets, std::int64_t columns,
      const std::function<void(const View& out, const View& logits, const View& targets)>& score)
      const;
  /// The k-th largest logit (n, 1) f32 of each row of logits (n, V/Gx) f32.
  Tensor kth_largest(const Context& ctx, const Tensor& logits, const View& targets,
                     std::int64_t k) const;
  void diverge(const Context& ctx, const Block& block, const View& taught, const Teacher& teacher,
               float scale, const View& total) const;
  /// Adds to the gradients of a block's hidden rows and of the table.
  void add_gradients(const Context& ctx, const Block& block, const View& d_logits) const;
  void advance(const Context& ctx, Block& block, float scale, const View& total) const;
  void start_gradient(const Context& ctx, Block& block, float scale, const View& total) const;
  void finish(const Context& ctx, Block& block) const;

  static constexpr int kStages = 4;  // logits, softmax statistics, d_logits, d_hidden and d_table

  const Parameter& table_;
  Options options_;
  std::vector<Adapter> adapters_;
};

/// Returns (n, 1) f32, the losses in nats of targets (1, n) by logits (n, V/Gx) f32 of a vocabulary
/// of so many tokens, found as CrossEntropy::each() finds them; 0 of a negative target. Collective
/// over x: all-gathers three f32 of each row.
Tensor losses_of_logits(const Context& ctx, const Tensor& logits, const Tensor& targets,
                        std::int64_t vocab);

}  // namespace axonn
