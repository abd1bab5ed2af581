#include "axonn/infer/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/data/token_file.h"
#include "axonn/data/tokenize.h"

namespace axonn {

namespace {

constexpr std::int64_t kTokensAtOnce = 1 << 16;

/// Calls f(tokens) for all of source, piece by piece.
template <typename F>
void for_each_piece(const TokenSource& source, std::int64_t vocab, const F& f) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t begin = 0; begin < source.size(); begin += std::ssize(tokens)) {
    tokens.resize(std::min(kTokensAtOnce, source.size() - begin));
    source.read_checked(begin, tokens, vocab);
    f(std::span<const std::int32_t>(tokens));
  }
}

/// Returns the bytes of all tokens but the first; empty if the tokenizer does not know one of them.
std::optional<std::int64_t> bytes_of_targets(const TokenSource& source, std::int64_t vocab,
                                             const Tokenizer* tokenizer) {
  std::vector<std::int64_t> bytes;
  for (std::int32_t token = 0; tokenizer && token < tokenizer->vocab_size(); ++token)
    bytes.push_back(tokenizer->is_special(token) ? 0 : std::ssize(tokenizer->bytes_of(token)));
  bool known = tokenizer != nullptr;
  std::int64_t total = 0;
  for_each_piece(source, vocab, [&](std::span<const std::int32_t> tokens) {
    for (const std::int32_t token : tokens) {
      if (token >= std::ssize(bytes)) known = false;
      if (known) total += bytes[token];
    }
  });
  if (!known) return std::nullopt;
  return total - bytes[source.at(0)];
}

/// Returns the tokens of a text after a beginning-of-text token, without an end-of-text token.
std::shared_ptr<const TokenSource> tokens_of_text(const std::string& path,
                                                  const EvaluationTextOptions& options) {
  std::vector<std::int32_t> all;
  const TokenSink sink{[&](std::span<const std::int32_t> tokens) {
                         all.insert(all.end(), tokens.begin(), tokens.end());
                       },
                       [] {}};
  tokenize({path}, *options.tokenizer, sink, {.ends = false});
  return std::make_shared<MemoryTokens>(path, std::move(all));
}

EvaluationText open_text(const std::string& path, const EvaluationTextOptions& options) {
  if (!options.tokenizer)
    refuse(path, " is a text, but the model's tokenizer is not known; name it with --tokenizer");
  check_fits(*options.tokenizer, options.vocab);
  EvaluationText result{.tokens = tokens_of_text(path, options), .target_bytes = {}};
  if (result.tokens->size() == 0) return result;
  const MappedFile file(path);
  const std::int32_t first_token = result.tokens->at(0);
  const std::string first = options.tokenizer->decode({&first_token, 1});
  const std::int64_t before = file.text().starts_with(first) ? std::ssize(first) : 0;
  result.target_bytes = std::ssize(file.text()) - before;
  return result;
}

/// The windows of a text, as sequences to score.
class TextWindows final : public ScoredSequences {
 public:
  TextWindows(const TokenSource& tokens, std::int64_t seq_len, std::int64_t vocab)
      : tokens_(tokens), seq_len_(seq_len), vocab_(vocab) {}

  std::int64_t count() const override { return evaluation_windows(tokens_.size(), seq_len_); }
  std::int64_t length(std::int64_t n) const override {
    return std::min(seq_len_, tokens_.size() - 1 - n * seq_len_);
  }
  void read(std::int64_t n, std::span<std::int32_t> ids,
            std::span<std::int32_t> targets) const override {
    std::vector<std::int32_t> window(length(n) + 1);
    tokens_.read_checked(n * seq_len_, window, vocab_);
    std::copy(window.begin(), window.end() - 1, ids.begin());
    std::copy(window.begin() + 1, window.end(), targets.begin());
  }

 private:
  const TokenSource& tokens_;
  std::int64_t seq_len_, vocab_;
};

}  // namespace

void check_fits(const Tokenizer& tokenizer, std::int64_t vocab) {
  if (tokenizer.vocab_size() > vocab)
    refuse("the tokenizer ", tokenizer.name(), " has ", tokenizer.vocab_size(),
           " tokens, but the model's vocabulary has ", vocab,
           "; name the model's own tokenizer with --tokenizer");
}

EvaluationText open_evaluation_text(const std::string& path, const EvaluationTextOptions& options) {
  EvaluationText result;
  if (TokenFile::recognises(path)) {
    result.tokens = std::make_shared<TokenFile>(path);
    if (result.tokens->size() > 0)
      result.target_bytes = bytes_of_targets(*result.tokens, options.vocab, options.tokenizer);
  } else {
    result = open_text(path, options);
  }
  if (result.tokens->size() < 2)
    refuse(path, " has ", result.tokens->size(),
           " tokens; it needs at least two tokens: one input and one target");
  return result;
}

double TextScore::perplexity() const { return std::exp(loss()); }

std::optional<double> TextScore::bits_per_byte() const {
  if (!bytes || *bytes == 0) return std::nullopt;
  return nats / std::numbers::ln2 / static_cast<double>(*bytes);
}

std::int64_t evaluation_windows(std::int64_t tokens, std::int64_t seq_len) {
  return (tokens - 2) / seq_len + 1;
}

TextScore evaluate(LoadedModel& model, const EvaluationText& text, std::int64_t seq_len,
                   const ScoreOptions& options) {
  const std::int64_t positions = model.config().model.positions;
  if (seq_len < 1 || seq_len > positions)
    refuse("windows of ", seq_len, " tokens (--seq-len) do not fit the model, which has ",
           positions, " positions");
  const TextWindows windows(*text.tokens, seq_len, model.model().vocab());
  TextScore result{.bytes = text.target_bytes};
  for (const SequenceScore& window : score(model, windows, options)) {
    result.nats += window.nats;
    result.tokens += window.targets;
  }
  return result;
}

}  // namespace axonn
