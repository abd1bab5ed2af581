#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

struct EncodeOptions {
  /// Whether the characters of an added token, such as "<|im_end|>", become that token. If not,
  /// they are encoded as plain text, so a user cannot end a turn by typing them.
  bool added_tokens = true;
  /// Whether other text precedes this one: then no space is put before it.
  bool continues = false;
  /// Whether an added token precedes it. Some tokenizers put a space before such text, others not.
  bool after_token = false;
};

struct DecodeOptions {
  bool skip_special = false;  ///< whether to leave out special tokens, except those in `shown`
  std::vector<std::int32_t> shown = {};
  /// Whether other tokens precede these: then a space at the front belongs to the text.
  bool continues = false;
};

/// Converts text to tokens and back. All functions are const and thread-safe.
///
/// decode(encode(s)) == s for every string of bytes, valid UTF-8 or not, except where the
/// tokenizer's files require otherwise: with NFC (Qwen), s comes back in composed form; U+2581,
/// which stands for a space in Llama 2's vocabulary, comes back as a space; a tokenizer that puts a
/// space before text also puts one after each added token in it; and if a vocabulary has no byte
/// tokens, unknown characters become the unknown token.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// The name for messages: "bytes", or "gpt2 (FOLDER)".
  const std::string& name() const { return name_; }

  /// Tokens are 0 .. vocab_size() - 1.
  std::int64_t vocab_size() const { return std::ssize(tokens_); }

  /// The rows that a model's embedding needs: tokens from here on are added ones, which no text has
  /// unless it writes their characters.
  std::int64_t needed_rows() const;

  /// The tokens that the model expects before a text: none, one, or several, as GLM's have.
  /// encode() does not add them.
  const std::vector<std::int32_t>& begin_of_text() const { return begin_; }

  /// Puts begin_of_text() before the tokens from index `start` on, unless they begin with it.
  void add_begin(std::vector<std::int32_t>& tokens, std::size_t start = 0) const;

  /// The token that ends a document, if any.
  std::optional<std::int32_t> end_of_text() const { return end_; }

  /// Whether the token is a marker ("<s>", "<|im_end|>") and not text.
  bool is_special(std::int32_t token) const { return specials_.contains(token); }

  /// The added token with these characters ("<|im_start|>"), if any.
  std::optional<std::int32_t> added_token(std::string_view characters) const;

  /// All added tokens by their characters.
  const std::map<std::string, std::int32_t, std::less<>>& added_tokens() const {
    return added_tokens_;
  }

  /// A hash of everything that determines encode(); the same for equal tokenizers in different
  /// folders.
  std::uint64_t fingerprint() const { return fingerprint_; }

  /// The first position at or after `wanted` where the text can be cut so that both pieces, the
  /// second one encoded with `continues`, give the tokens of the whole. text.size() if no position
  /// is known to be one. Whether a position is one depends on the few characters around it, of any
  /// script.
  std::size_t cut(std::string_view text, std::size_t wanted) const;

  /// Appends the tokens of the text.
  void encode_into(std::string_view text, std::vector<std::int32_t>& tokens,
                   const EncodeOptions& options = {}) const {
    append_tokens(text, tokens, options);
  }

  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// The tokens of a prompt: the text's, with add_begin().
  std::vector<std::int32_t> encode_prompt(std::string_view text) const;

  /// The bytes of one token, including a space that encoding may have put before the text.
  /// Throws Error if the token is not in the vocabulary.
  std::string_view bytes_of(std::int32_t token) const;

  /// The bytes of the tokens, concatenated, without the space that encoding put before them. Throws
  /// Error if a token is not in the vocabulary.
  std::string decode(std::span<const std::int32_t> tokens, const DecodeOptions& options = {}) const;
  /// The text that a token adds after the tokens before it; `state` then counts it.
  std::string_view shown(std::int32_t token, DecodeOptions& state) const;

  /// What its files state that is not followed, a sentence each, for warnings.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Whether encoding puts a space before text, which decoding removes.
  bool puts_space() const { return puts_space_; }

 protected:
  Tokenizer() = default;

  std::string name_;
  std::vector<std::string> notes_;
  std::vector<std::string> tokens_;  ///< the bytes of each token
  std::map<std::string, std::int32_t, std::less<>> added_tokens_;
  std::set<std::int32_t> specials_;
  std::vector<std::int32_t> begin_;
  std::optional<std::int32_t> end_;
  std::uint64_t fingerprint_ = 0;
  bool puts_space_ = false;

 private:
  /// Whether the text can be cut here (cut()), for 0 < at < text.size(); false if that is
  /// uncertain.
  virtual bool is_border(std::string_view, std::size_t) const { return false; }
  virtual void append_tokens(std::string_view text, std::vector<std::int32_t>& tokens,
                             const EncodeOptions& options) const = 0;
};

/// Throws UsageError unless a model with so many rows can have the tokenizer (needed_rows()).
void check_rows(const Tokenizer& tokenizer, std::int64_t rows);

/// The folder of a tokenizer's files (make_tokenizer()), which is not "bytes".
std::string tokenizer_folder(const std::string& tokenizer);

/// Opens a tokenizer. "bytes": each of the 256 bytes is a token, and none ends a text. Otherwise a
/// folder with tokenizer.json (preferred), with vocab.json and merges.txt, or with tokenizer.model;
/// or one such file; or a GGUF file. Files that define the tokenizer "bytes", as convert writes
/// them, give that. Throws UsageError with the file, the location in it, and the fault.
std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& bytes_or_path);

}  // namespace axonn
