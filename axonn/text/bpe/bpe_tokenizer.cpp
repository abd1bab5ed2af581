#include "axonn/text/bpe/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/base/utf8.h"
#include "axonn/text/bpe/bpe_merger.h"
#include "axonn/text/pool.h"
#include "axonn/text/text_files.h"
#include "axonn/text/text_steps.h"
#include "axonn/text/word_cache.h"
#include "axonn/text/word_pattern.h"

namespace axonn {

namespace {

/// The state of one encoding thread.
struct Worker {
  explicit Worker(const WordPattern* pattern) {
    if (pattern) matcher.emplace(*pattern);
  }
  std::optional<WordPattern::Matcher> matcher;
  WordCache cache;
  BpeMerger::Scratch scratch;
  TextBuffers normalized, spaced;
};

bool marks_only_in_front(const BpeVocab& vocab) {
  return std::ranges::none_of(vocab.merges, [&](const BpeMerge& merge) {
    return has_inner_mark(vocab.tokens[merge.result]);
  });
}

/// Gives the initial tokens of a word, before merges: one for each byte or for each character.
class WordTokens {
 public:
  /// Keeps a reference to the vocabulary.
  explicit WordTokens(const BpeVocab& vocab);

  enum class State { mergeable, whole };

  /// Appends the initial tokens. `whole`: the word is a token itself, which was appended instead.
  State append(std::string_view word, std::vector<std::int32_t>& tokens) const;

 private:
  void append_characters(std::string_view word, std::vector<std::int32_t>& tokens) const;

  const BpeVocab& vocab_;
  std::array<std::int32_t, 128> ascii_{};  ///< token of each one-byte character; -1: none
  std::unordered_map<std::string_view, std::int32_t> words_;
};

WordTokens::WordTokens(const BpeVocab& vocab) : vocab_(vocab) {
  ascii_.fill(-1);
  for (const auto& [character, token] : vocab.characters)
    if (character.size() == 1 && static_cast<unsigned char>(character[0]) < ascii_.size())
      ascii_[static_cast<unsigned char>(character[0])] = token;
  if (!vocab.words_first) return;
  for (std::size_t i = 0; i < vocab.tokens.size(); ++i)
    words_.emplace(vocab.tokens[i], static_cast<std::int32_t>(i));
  for (const AddedToken& token : vocab.added_tokens) words_.erase(token.content);
}

WordTokens::State WordTokens::append(std::string_view word,
                                     std::vector<std::int32_t>& tokens) const {
  if (!words_.empty()) {
    if (const auto found = words_.find(word); found != words_.end()) {
      tokens.push_back(found->second);
      return State::whole;
    }
  }
  if (!vocab_.characters.empty()) {
    append_characters(word, tokens);
  } else {
    for (char c : word) tokens.push_back(vocab_.byte_tokens[static_cast<unsigned char>(c)]);
  }
  return State::mergeable;
}

void WordTokens::append_characters(std::string_view word, std::vector<std::int32_t>& tokens) const {
  bool after_unknown = false;
  while (!word.empty()) {
    const Utf8Front front = utf8_front(word);
    const auto first = static_cast<unsigned char>(word[0]);
    std::int32_t token = -1;
    if (first < ascii_.size()) {
      token = ascii_[first];
    } else if (const auto found = vocab_.characters.find(std::string(word.substr(0, front.bytes)));
               front.kind == Utf8Front::Kind::complete && found != vocab_.characters.end()) {
      token = found->second;
    }
    const bool unknown = token < 0 && vocab_.byte_tokens.empty();
    if (token >= 0) {
      tokens.push_back(token);
    } else if (!unknown) {
      for (char c : word.substr(0, front.bytes))
        tokens.push_back(vocab_.byte_tokens[static_cast<unsigned char>(c)]);
    } else if (!after_unknown || !vocab_.fuse_unknown) {
      tokens.push_back(vocab_.unknown);
    }
    after_unknown = unknown;
    word.remove_prefix(front.bytes);
  }
}

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeVocab vocab)
      : vocab_(std::move(vocab)), merger_(vocab_.merges), words_(vocab_) {
    if (vocab_.words == BpeWords::pattern)
      pattern_ = std::make_unique<WordPattern>(vocab_.pattern, vocab_.name);
    marks_in_front_ =
        vocab_.characters.contains(std::string(kSpaceMark)) && marks_only_in_front(vocab_);
    newlines_apart_ = marks_in_front_ && never_merged("\n");
    specials_.resize(vocab_.tokens.size());
    for (const AddedToken& token : vocab_.added_tokens) {
      specials_[token.id] = token.special;
      ids_.emplace(token.content, token.id);
      if (token.normalized) {
        TextBuffers buffers;
        const auto content =
            apply_steps(vocab_.normalizer, token.content, Before::nothing, buffers);
        if (!content.empty()) normalized_tokens_.add(std::string(content), token.id);
      } else {
        raw_tokens_.add(token.content, token.id);
      }
    }
    choose_cuts();
  }

  std::string name() const override { return vocab_.name; }
  std::int64_t vocab_size() const override { return std::ssize(vocab_.tokens); }
  std::optional<std::int32_t> begin_of_text() const override { return vocab_.begin_of_text; }
  std::optional<std::int32_t> end_of_text() const override { return vocab_.end_of_text; }
  std::uint64_t fingerprint() const override { return vocab_.fingerprint; }
  bool puts_space() const override { return vocab_.puts_space; }

  bool is_special(std::int32_t token) const override {
    return token >= 0 && token < std::ssize(specials_) && specials_[token];
  }

  std::optional<std::int32_t> added_token(std::string_view content) const override {
    const auto found = ids_.find(std::string(content));
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }

  std::size_t cut(std::string_view text, std::size_t wanted) const override {
    std::size_t at = cuts_ ? safe_cut(text, wanted, *cuts_) : text.size();
    // Text after an added token may get a space before it; text after other text does not.
    while (at < text.size() && ends_in_added_token(text.substr(0, at)))
      at = safe_cut(text, at + 1, *cuts_);
    return at;
  }

 private:
  void append_tokens(std::string_view text, std::vector<std::int32_t>& tokens,
                     const EncodeOptions& options) const override {
    std::unique_ptr<Worker> worker =
        workers_.take([&] { return std::make_unique<Worker>(pattern_.get()); });
    const Before before = options.continues ? Before::text : Before::nothing;
    if (options.added_tokens) {
      split(raw_tokens_, text, before, tokens, [&](std::string_view piece, Before b) {
        const std::string_view normalized =
            apply_steps(vocab_.normalizer, piece, b, worker->normalized);
        split(normalized_tokens_, normalized, b, tokens,
              [&](std::string_view p, Before c) { encode_plain(*worker, p, c, tokens); });
      });
    } else {
      encode_plain(*worker, apply_steps(vocab_.normalizer, text, before, worker->normalized),
                   before, tokens);
    }
    workers_.give_back(std::move(worker));
  }

  std::string_view bytes_of_valid(std::int32_t token) const override {
    return vocab_.tokens[token];
  }

  bool ends_in_added_token(std::string_view text) const {
    return std::ranges::any_of(vocab_.added_tokens, [&](const AddedToken& token) {
      return text.ends_with(token.content);
    });
  }

  /// Appends the added tokens in the text, and calls on_piece for the text between them.
  template <typename OnPiece>
  static void split(const AddedTokenFinder& finder, std::string_view text, Before before,
                    std::vector<std::int32_t>& tokens, const OnPiece& on_piece) {
    while (!text.empty()) {
      const auto match = finder.find(text);
      const std::size_t end = match ? match->begin : text.size();
      if (end > 0) on_piece(text.substr(0, end), before);
      if (!match) break;
      tokens.push_back(match->token);
      text.remove_prefix(end + match->bytes);
      before = Before::added_token;
    }
  }

  void encode_plain(Worker& worker, std::string_view text, Before before,
                    std::vector<std::int32_t>& tokens) const {
    text = apply_steps(vocab_.spacing, text, before, worker.spaced);
    if (worker.matcher) return encode_matches(worker, text, tokens);
    while (!text.empty()) {
      const std::size_t bytes = first_word_by_marks(text);
      encode_word(worker, text, bytes, tokens);
      text.remove_prefix(bytes);
    }
  }

  void encode_matches(Worker& worker, std::string_view text,
                      std::vector<std::int32_t>& tokens) const {
    while (!text.empty()) {
      const std::size_t valid = valid_utf8_prefix(text);
      for (std::string_view rest = text.substr(0, valid); !rest.empty();) {
        const std::size_t bytes = worker.matcher->first_word(rest);
        encode_word(worker, rest, bytes, tokens);
        rest.remove_prefix(bytes);
      }
      text.remove_prefix(valid);
      std::size_t invalid = 0;
      while (invalid < text.size() &&
             utf8_front(text.substr(invalid)).kind != Utf8Front::Kind::complete)
        ++invalid;
      if (invalid > 0) encode_word(worker, text, invalid, tokens);
      text.remove_prefix(invalid);
    }
  }

  std::size_t first_word_by_marks(std::string_view text) const {
    std::size_t at = text.starts_with(kSpaceMark) ? kSpaceMark.size() : 0;
    if (vocab_.words == BpeWords::whole) {
      if (!marks_in_front_) return text.size();
      while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
    }
    const bool newlines = newlines_apart_;
    if (newlines && text[0] == '\n') return 1;
    const auto ends = [&](std::size_t i) {
      return (newlines && text[i] == '\n') ||
             (text[i] == kSpaceMark[0] && text.substr(i).starts_with(kSpaceMark));
    };
    at = std::max<std::size_t>(at, 1);
    while (at < text.size() && !ends(at)) ++at;
    return at;
  }

  /// Whether the character is one token, which no merge takes or makes.
  bool never_merged(std::string_view character) const {
    std::vector<std::int32_t> tokens;
    words_.append(character, tokens);
    return tokens.size() == 1 && tokens[0] != vocab_.unknown &&
           std::ranges::none_of(vocab_.merges, [&](const BpeMerge& merge) {
             return merge.left == tokens[0] || merge.right == tokens[0] ||
                    merge.result == tokens[0];
           });
  }

  /// Appends the tokens of the word in the first `bytes` bytes of text.
  void encode_word(Worker& worker, std::string_view text, std::size_t bytes,
                   std::vector<std::int32_t>& tokens) const {
    const WordCache::Key key = WordCache::key_of(text, bytes);
    if (key.bytes > 0) {
      const auto known = worker.cache.find(key);
      if (!known.empty()) {
        tokens.insert(tokens.end(), known.begin(), known.end());
        return;
      }
    }
    const std::size_t before = tokens.size();
    if (words_.append(text.substr(0, bytes), tokens) == WordTokens::State::mergeable) {
      const std::span<std::int32_t> word = std::span(tokens).subspan(before);
      tokens.resize(before + merger_.merge(word, worker.scratch));
    }
    worker.cache.keep(key, std::span(tokens).subspan(before));
  }

  /// Decides where cut() may cut. Without a pattern, text is cut only before marks. A pattern is
  /// tested on all pairs of visible ASCII characters, between which safe_cut() cuts.
  void choose_cuts() {
    const auto blank = [](std::string_view text) { return text.find_first_of(" \n") != text.npos; };
    for (const AddedToken& token : vocab_.added_tokens)
      if (blank(token.content)) return;
    for (const TextStep& step : vocab_.normalizer)
      if (step.from.size() > 1 && blank(step.from)) return;
    if (!pattern_) {
      if (marks_in_front_ || vocab_.words == BpeWords::at_marks) cuts_ = CutAt::space;
      return;
    }
    WordPattern::Matcher matcher(*pattern_);
    const auto cuts_between = [&](const std::string& left, const std::string& right) {
      const std::string text = left + right;
      std::size_t at = 0;
      while (at < left.size()) at += matcher.first_word(std::string_view(text).substr(at));
      return at == left.size();
    };
    for (char a = '!'; a <= '~'; ++a)
      for (char b = '!'; b <= '~'; ++b)
        for (const std::string& left : {std::string{a}, std::string{'x', a}})
          if (!cuts_between(left, {' ', b}) || !cuts_between(left + '\n', {b})) return;
    cuts_ = CutAt::space_or_newline;
  }

  BpeVocab vocab_;
  BpeMerger merger_;
  WordTokens words_;
  std::unique_ptr<WordPattern> pattern_;
  bool marks_in_front_ = false, newlines_apart_ = false;
  std::optional<CutAt> cuts_;
  std::vector<bool> specials_;
  std::unordered_map<std::string, std::int32_t> ids_;
  AddedTokenFinder raw_tokens_, normalized_tokens_;
  mutable Pool<Worker> workers_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeVocab vocab) {
  return std::make_shared<BpeTokenizer>(std::move(vocab));
}

}  // namespace axonn
