#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// Turns text into tokens and back. decode(encode(s)) == s for every string of bytes, well-formed
/// UTF-8 or not. All functions are const and may be called by several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// What messages call it: "bytes", or "gpt2 (FOLDER)".
  virtual std::string name() const = 0;

  /// Tokens are 0 .. vocab_size() - 1.
  virtual std::int64_t vocab_size() const = 0;

  /// The token that ends a document, if there is one.
  virtual std::optional<std::int32_t> end_of_text() const = 0;

  /// A hash of everything that determines encode(): equal tokenizers of different folders agree.
  virtual std::uint64_t fingerprint() const = 0;

  /// Appends the tokens of text to tokens.
  virtual void encode_into(std::string_view text, std::vector<std::int32_t>& tokens) const = 0;

  /// The bytes of one token. Errors: the token is not one of the vocabulary.
  std::string_view bytes_of(std::int32_t token) const;

  std::vector<std::int32_t> encode(std::string_view text) const;

  /// The bytes of the tokens, one after the other. Errors: a token is not one of the vocabulary.
  std::string decode(std::span<const std::int32_t> tokens) const;

 protected:
  Tokenizer() = default;

 private:
  virtual std::string_view bytes_of_valid(std::int32_t token) const = 0;
};

/// "bytes": every byte is a token, 256 of them, and none ends a text. Otherwise a folder that holds
/// GPT-2's vocab.json and merges.txt. Errors: UsageError names the file and what is wrong in it.
std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& bytes_or_folder);

/// Decodes tokens as they come, for showing: a UTF-8 character that is spread over several tokens
/// is held back until it is whole. What push() and finish() return is, together, what decode()
/// returns for all tokens at once.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::string push(std::int32_t token);

  /// What was held back and never became a character.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
};

}  // namespace axonn
