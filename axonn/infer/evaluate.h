#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "axonn/data/token_file.h"
#include "axonn/infer/score.h"
#include "axonn/text/tokenizer.h"

namespace axonn {

/// A text to evaluate a model on, as tokens. The first token is only input; every other one is a
/// target.
struct EvaluationText {
  std::shared_ptr<const TokenSource> tokens;
  /// Bytes of text that the targets stand for; empty if no tokenizer is known.
  std::optional<std::int64_t> target_bytes;
};

struct EvaluationTextOptions {
  /// The model's; may be null for a token file.
  const Tokenizer* tokenizer = nullptr;
  std::int64_t vocab = 0;  ///< of the model: every token must be below it
};

/// Opens a text file or a token file.
///
/// A text is encoded by the tokenizer, with the beginning-of-text token in front if the tokenizer
/// has one, so that every token of the text is a target. Without one, the first token is only
/// input. target_bytes is the size of the file, less the bytes of such a first token. A token file
/// is used as it is; its target_bytes are the bytes of the targets' text, where special tokens have
/// none.
///
/// Throws UsageError if the file cannot be read, has fewer than 2 tokens, or holds a token that is
/// not below vocab.
EvaluationText open_evaluation_text(const std::string& path, const EvaluationTextOptions& options);

/// Throws UsageError if the tokenizer has more tokens than the model's vocabulary.
void check_fits(const Tokenizer& tokenizer, std::int64_t vocab);

/// How well a model predicts a text.
struct TextScore {
  double nats = 0;          ///< sum of the losses of all targets
  std::int64_t tokens = 0;  ///< targets
  std::optional<std::int64_t> bytes;

  double loss() const { return nats / static_cast<double>(tokens); }  ///< nats per token
  double perplexity() const;                                          ///< exp(loss())
  std::optional<double> bits_per_byte() const;  ///< nats / ln 2 / bytes, if bytes are known
};

/// Scores a text in consecutive windows of seq_len inputs and seq_len targets, shifted by one:
/// every token but the first is a target once, and sees only the tokens before it in its window.
/// The last window may be shorter. Windows are summed in order, in f64.
///
/// Collective over the model's ranks. Throws UsageError if seq_len is not positive or exceeds the
/// model's positions; also throws as score() does.
TextScore evaluate(LoadedModel& model, const EvaluationText& text, std::int64_t seq_len,
                   const ScoreOptions& options);

/// Returns the number of windows of a text of `tokens` tokens.
std::int64_t evaluation_windows(std::int64_t tokens, std::int64_t seq_len);

}  // namespace axonn
