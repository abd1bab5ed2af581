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
  /// Whether the characters of an added token, such as "<|im_end|>", are that token. If not, they
  /// are text as any other: what a user typed cannot end a turn.
  bool added_tokens = true;
  /// Whether other text stands before this one: then no space is put before it.
  bool continues = false;
};

struct DecodeOptions {
  bool skip_special = false;  ///< leaves special tokens out
  /// Whether other tokens stand before these: then a space at the front belongs to the text.
  bool continues = false;
};

/// Turns text into tokens and back. All functions are const and may be called by several threads
/// at once.
///
/// decode(encode(s)) == s for every string of bytes, well-formed UTF-8 or not, with these
/// exceptions, which the tokenizer's files ask for: NFC (Qwen) gives back the composed form of s;
/// U+2581, the sign that stands for a space in Llama 2's vocabulary, comes back as a space; a
/// tokenizer that puts a space before text puts one behind each added token in it as well; and
/// where a vocabulary has no tokens of bytes, what it does not know is its unknown token.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// What messages call it: "bytes", or "gpt2 (FOLDER)".
  virtual std::string name() const = 0;

  /// Tokens are 0 .. vocab_size() - 1.
  virtual std::int64_t vocab_size() const = 0;

  /// The token that the model expects before a text, if it expects one: encode() does not put it.
  virtual std::optional<std::int32_t> begin_of_text() const { return std::nullopt; }

  /// The token that ends a document, if there is one.
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  /// Whether the token is a sign to the model and no text ("<s>", "<|im_end|>").
  virtual bool is_special(std::int32_t) const { return false; }

  /// The added token of these characters ("<|im_start|>"), if there is one.
  virtual std::optional<std::int32_t> added_token(std::string_view) const { return std::nullopt; }

  /// A hash of everything that determines encode(): equal tokenizers of different folders agree.
  virtual std::uint64_t fingerprint() const = 0;

  /// Where text may be cut, at or behind wanted, so that both pieces, the second one encoded with
  /// `continues`, give the tokens of the whole. text.size() if there is no place.
  virtual std::size_t cut(std::string_view text, std::size_t wanted) const;

  /// Appends the tokens of text to tokens.
  void encode_into(std::string_view text, std::vector<std::int32_t>& tokens,
                   const EncodeOptions& options = {}) const {
    append_tokens(text, tokens, options);
  }

  std::vector<std::int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const;

  /// What a model goes on from: begin_of_text(), if there is one, and the text's tokens.
  std::vector<std::int32_t> encode_prompt(std::string_view text) const;

  /// The bytes of one token; a space that stands for the front of a text is one of them.
  /// Errors: the token is not one of the vocabulary.
  std::string_view bytes_of(std::int32_t token) const;

  /// The bytes of the tokens, one after the other, without the space that encoding put before
  /// them. Errors: a token is not one of the vocabulary.
  std::string decode(std::span<const std::int32_t> tokens, const DecodeOptions& options = {}) const;

  /// Whether encoding puts a space before text, so that decoding takes it away.
  virtual bool puts_space() const { return false; }

 protected:
  Tokenizer() = default;

 private:
  virtual std::string_view bytes_of_valid(std::int32_t token) const = 0;
  virtual void append_tokens(std::string_view text, std::vector<std::int32_t>& tokens,
                             const EncodeOptions& options) const = 0;
};

/// "bytes": every byte is a token, 256 of them, and none ends a text. Otherwise a folder that holds
/// tokenizer.json (read first), or vocab.json and merges.txt, or tokenizer.model; or one such file.
/// Errors: UsageError names the file, the place in it, and what is wrong there.
std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& bytes_or_path);

/// Decodes tokens as they come, for showing: a UTF-8 character that is spread over several tokens
/// is held back until it is whole. What push() and finish() return is, together, what decode()
/// returns for all tokens at once.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(tokenizer), options_(options) {}

  std::string push(std::int32_t token);

  /// What was held back and never became a character.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  std::string held_;
};

}  // namespace axonn
