#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/corpus/packing.h"
#include "axonn/data/corpus/sampler.h"
#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/network/nn/attention/attention.h"
#include "axonn/network/nn/loss.h"
#include "axonn/run/load/loaded_model.h"

namespace axonn {

/// A sequence of tokens, of which the last are targets.
struct ScoredSequence {
  std::vector<std::int32_t> tokens;
  std::int64_t scored = 0;  ///< number of targets; fewer than tokens
  /// Number of positions to compute, at least tokens - 1. The rest is padding at the end, so that
  /// products have few different shapes.
  std::int64_t positions = 0;
  /// If it has inputs, these with their targets and documents are scored in place of `tokens`.
  Sequence divided = {};
};

/// Sequences whose likelihood a model is to score, the same on every rank.
struct ScoredSequences {
  std::int64_t count = 0;
  std::function<ScoredSequence(std::int64_t n)> at;
};

/// The score of one sequence.
struct SequenceScore {
  double nats = 0;  ///< sum of the losses of its targets
  std::int64_t targets = 0;
  std::int64_t greedy = 0;  ///< targets that greedy decoding takes

  bool operator==(const SequenceScore&) const = default;
};

struct ScoreOptions {
  std::int64_t batch = 1;  ///< sequences that a (z, data) coordinate computes at a time
  /// Called on rank 0 with the number of sequences that are done.
  std::function<void(std::int64_t done)> report = {};
  KeptForm kept = {};  ///< attention sees keys and values as a cache of this form keeps them
};

/// Returns the score of every sequence, the same on every rank of the model. Each (z, data)
/// coordinate computes other batches of `batch` consecutive sequences. The losses of a sequence are
/// added in f64 in the order of its positions, whatever the grid and the batch.
///
/// Collective over the model's ranks. Communication in addition to the forward passes: an
/// all-reduce of 24 bytes per sequence over all ranks. Throws Error if a loss is NaN or infinite,
/// and if a sequence has fewer tokens or positions than it needs, or a token that the model does
/// not have.
std::vector<SequenceScore> score(LoadedModel& model, const ScoredSequences& sequences,
                                 const ScoreOptions& options);

/// The scores of a sequence's targets, in their order.
struct TargetScores {
  std::vector<float> losses;  ///< nats
  std::vector<bool> greedy;   ///< whether greedy decoding takes it
};

/// The scores of every target of every sequence, of whose losses score() has the sums. Collective;
/// throws as score() does, but for losses that are not finite, which it returns; throws Error for a
/// sequence with ScoredSequence::divided. Communication: an all-reduce of 8 bytes per target.
std::vector<TargetScores> score_targets(LoadedModel& model, const ScoredSequences& sequences,
                                        const ScoreOptions& options);

/// The record of a target: see TokenRecords.
struct TargetRecord {
  double log_p = 0;          ///< nats
  std::int64_t rank = 1;     ///< 1: greedy decoding takes it
  double mean = 0;           ///< of log p under p
  double variance = 0;       ///< likewise
  std::vector<float> log_q;  ///< by policy; minus infinity: it never draws the target
};

/// The records of every target of every sequence, those of a sequence in order. Collective; throws
/// as score_targets() does, and UsageError if the model makes no records. Memory and communication,
/// an all-reduce: 16 bytes per target, and 4 more per policy.
std::vector<std::vector<TargetRecord>> record_targets(LoadedModel& model,
                                                      const ScoredSequences& sequences,
                                                      std::span<const SamplingPolicy> policies,
                                                      const ScoreOptions& options);

/// Sequences of this length, of `count` in all, that a (z, data) coordinate computes at a time
/// unless somebody chooses: about 2,048 rows, but no more than its share.
std::int64_t usual_batch(const Grid& grid, std::int64_t length, std::int64_t count);

/// A text to evaluate a model on, as tokens. The first token is only input; every other one is a
/// target, but for the first tokens of documents that are not joined.
struct EvaluationText {
  std::shared_ptr<const TokenSource> tokens;  ///< null if there are examples
  /// Bytes of text that the targets stand for; empty if no tokenizer is known.
  std::optional<std::int64_t> target_bytes;
  DocumentRule documents = {};
  /// Conversations, or prompts with completions, of which the answers are targets.
  DocumentRange examples = {};
  ExcessLength excess_length = ExcessLength::split;  ///< of these
};

/// Opens a text file or a token file, for a model with this tokenizer (for a token file it may be
/// null) and this vocabulary.
///
/// A text is encoded by the tokenizer, with the beginning-of-text token in front if the tokenizer
/// has one, so that every token of the text is a target. Without one, the first token is only
/// input. target_bytes is the size of the file, less the bytes of such a first token. Each line of
/// JSON (is_json_lines()) is a document, with its end-of-text token as a target. For such files and
/// for compressed ones, and for a token
/// file, which is used as it is, target_bytes are the bytes of the targets' text, where special
/// tokens have none. Unless [data] joins documents, their first tokens are no targets, and
/// target_bytes are always those of the targets' text.
///
/// A JSONL file of conversations or of prompts with completions (holds_answers()) becomes
/// `examples`, encoded as training would with `data`; target_bytes are then empty.
///
/// Throws UsageError if the file cannot be read, has fewer than 2 tokens, holds a token that is
/// not below vocab, or does not say where its documents end and [data] does not join them.
EvaluationText open_evaluation_text(const std::string& path,
                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                    std::int64_t vocab, const DataConfig& data = {},
                                    const TokenizeReport& report = {});

/// How well a model predicts a text.
struct TextScore {
  double nats = 0;          ///< sum of the losses of all targets
  std::int64_t tokens = 0;  ///< targets
  std::optional<std::int64_t> bytes;

  double loss() const { return nats / static_cast<double>(tokens); }  ///< nats per token
  double perplexity() const { return std::exp(loss()); }
  std::optional<double> bits_per_byte() const;  ///< nats / ln 2 / bytes, if bytes are known
};

/// Scores a text in consecutive windows of seq_len inputs and seq_len targets, shifted by one:
/// every token but the first is a target once, and sees only the tokens before it in its window.
/// The last window may be shorter. Windows are summed in order, in f64. Documents that are not
/// joined are treated as in Windows, and packed ones are in the sequences of PackedStream. Examples
/// are in those of PackedDocuments.
///
/// Collective over the model's ranks. Throws UsageError if seq_len is not positive or exceeds the
/// model's positions, or no token is a target, Error if the text has no tokens; also throws as
/// score() does.
TextScore evaluate(LoadedModel& model, const EvaluationText& text, std::int64_t seq_len,
                   const ScoreOptions& options);

/// Returns the number of windows of a text, or of sequences of its packed documents or examples.
std::int64_t evaluation_windows(const EvaluationText& text, std::int64_t seq_len);

}  // namespace axonn
