#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "axonn/data/token_source.h"
#include "axonn/data/tokenizer.h"
#include "axonn/train/score.h"

namespace axonn {

/// A text that a model is evaluated on, as tokens: the first is input alone, each other a target.
struct EvaluationText {
  std::shared_ptr<const TokenSource> tokens;
  /// Of the text that the targets stand for; nothing where no tokenizer knows.
  std::optional<std::int64_t> target_bytes;
};

struct EvaluationTextOptions {
  /// The model's; null where it is not known, which is all right for a token file.
  const Tokenizer* tokenizer = nullptr;
  std::int64_t vocab = 0;  ///< of the model: every token is below it
};

/// path is a text file or a token file.
///
/// A text's tokens are the tokenizer's, with its beginning of text before them, if it has one, so
/// that the model is asked for every token of the text; without one, the first token is input
/// alone. Its target_bytes are the file's, less those of such a first token. A token file is taken
/// as it lies; its bytes are those of the targets' characters, special tokens having none.
///
/// Errors: UsageError if the file cannot be read, has fewer than 2 tokens, or holds one that is not
/// below vocab.
EvaluationText open_evaluation_text(const std::string& path, const EvaluationTextOptions& options);

/// Errors: UsageError if the tokenizer has tokens that a model with such a vocabulary has not.
void check_fits(const Tokenizer& tokenizer, std::int64_t vocab);

/// How well a model predicts a text.
struct TextScore {
  double nats = 0;          ///< the sum of all targets' losses
  std::int64_t tokens = 0;  ///< targets
  std::optional<std::int64_t> bytes;

  double loss() const { return nats / static_cast<double>(tokens); }  ///< nats a token
  double perplexity() const;                                          ///< e to that power
  std::optional<double> bits_per_byte() const;  ///< nats / ln 2 / bytes, where bytes are known
};

/// Scores a text in consecutive windows of seq_len inputs and as many targets, shifted by one:
/// every token but the first is a target once, and sees those before it in its window alone. The
/// last window is shorter. The sum is made window by window in their order, in f64.
///
/// Collective over the session's ranks. Errors: UsageError if seq_len is beyond the model's
/// positions or not positive; as score().
TextScore evaluate(Session& session, const EvaluationText& text, std::int64_t seq_len,
                   const ScoreOptions& options);

/// The windows of so many tokens.
std::int64_t evaluation_windows(std::int64_t tokens, std::int64_t seq_len);

}  // namespace axonn
