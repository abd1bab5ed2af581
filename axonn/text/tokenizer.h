#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
};

struct DecodeOptions {
  bool skip_special = false;  ///< whether to leave out special tokens
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
  virtual std::string name() const = 0;

  /// Tokens are 0 .. vocab_size() - 1.
  virtual std::int64_t vocab_size() const = 0;

  /// The token that the model expects before a text, if any. encode() does not add it.
  virtual std::optional<std::int32_t> begin_of_text() const { return std::nullopt; }

  /// The token that ends a document, if any.
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  /// Whether the token is a marker ("<s>", "<|im_end|>") and not text.
  virtual bool is_special(std::int32_t) const { return false; }

  /// The added token with these characters ("<|im_start|>"), if any.
  virtual std::optional<std::int32_t> added_token(std::string_view) const { return std::nullopt; }

  /// A hash of everything that determines encode(); the same for equal tokenizers in different
  /// folders.
  virtual std::uint64_t fingerprint() const = 0;

  /// The first place at or after `wanted` where the text can be cut so that both pieces, the second
  /// one encoded with `continues`, give the tokens of the whole. text.size() if there is no such
  /// place.
  virtual std::size_t cut(std::string_view text, std::size_t wanted) const;

  /// Appends the tokens of the text.
  void encode_into(std::string_view text, std::vector<std::int32_t>& tokens,
                   const EncodeOptions& options = {}) const {
    append_tokens(text, tokens, options);
  }

  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// The tokens of a prompt: begin_of_text(), if there is one, and the text's tokens.
  std::vector<std::int32_t> encode_prompt(std::string_view text) const;

  /// The bytes of one token, including a space that encoding may have put before the text.
  /// Throws Error if the token is not in the vocabulary.
  std::string_view bytes_of(std::int32_t token) const;

  /// The bytes of the tokens, concatenated, without the space that encoding put before them. Throws
  /// Error if a token is not in the vocabulary.
  std::string decode(std::span<const std::int32_t> tokens, const DecodeOptions& options = {}) const;

  /// Whether encoding puts a space before text, which decoding removes.
  virtual bool puts_space() const { return false; }

 protected:
  Tokenizer() = default;

 private:
  virtual std::string_view bytes_of_valid(std::int32_t token) const = 0;
  virtual void append_tokens(std::string_view text, std::vector<std::int32_t>& tokens,
                             const EncodeOptions& options) const = 0;
};

/// Opens a tokenizer. "bytes": each of the 256 bytes is a token, and none ends a text. Otherwise a
/// folder with tokenizer.json (preferred), with vocab.json and merges.txt, or with tokenizer.model;
/// or one such file. Throws UsageError with the file, the place in it, and the fault.
std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& bytes_or_path);

/// Decodes tokens one by one, for display. Holds back a UTF-8 character that is spread over several
/// tokens until it is complete. All results of push() and finish() together equal decode() of all
/// tokens.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(tokenizer), options_(options) {}

  /// Takes the next token and returns the text that is complete.
  std::string push(std::int32_t token);

  /// Returns the held-back bytes that never became a character.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::string held_;
};

}  // namespace axonn
