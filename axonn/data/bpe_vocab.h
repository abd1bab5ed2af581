#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "axonn/data/added_tokens.h"
#include "axonn/data/text_steps.h"

namespace axonn {

/// Joins two neighbouring tokens into one.
struct BpeMerge {
  std::int32_t left, right, result;
};

/// How a text is cut into words; merges do not cross from word to word.
enum class BpeWords {
  pattern,   ///< the matches of a pattern, and what lies between two
  at_marks,  ///< before every U+2581, which stands for a space
  whole,     ///< the text is one word
};

/// What the files of a BPE tokenizer say.
struct BpeVocab {
  std::string name;                 ///< for messages
  std::uint64_t fingerprint = 0;    ///< of all that determines encoding
  std::vector<std::string> tokens;  ///< bytes of each token
  std::vector<BpeMerge> merges;     ///< the first is preferred

  // What a word is before it is merged.
  /// Tokens of characters in UTF-8; empty in a byte-level vocabulary, whose words are bytes.
  std::unordered_map<std::string, std::int32_t> characters = {};
  /// The token of each byte alone: of every byte of a byte-level word, and of the bytes of a
  /// character that has no token. Empty: such a character is `unknown`.
  std::vector<std::int32_t> byte_tokens = {};
  std::int32_t unknown = 0;
  bool fuse_unknown = false;  ///< several unknown characters in a row are one token
  bool words_first = false;   ///< a word that is a token is that, whatever merges would give

  // What is done to a text before.
  std::vector<TextStep> normalizer = {};  ///< before normalized added tokens are searched for
  std::vector<TextStep> spacing = {};     ///< behind that
  BpeWords words = BpeWords::pattern;
  std::string pattern = {};  ///< of words, in Oniguruma's syntax (split_pattern.h)
  std::vector<AddedToken> added_tokens = {};

  std::optional<std::int32_t> begin_of_text = {}, end_of_text = {};
  bool puts_space = false;  ///< decoding takes a space from the front of a text
};

using TokenIds = std::unordered_map<std::string, std::int32_t>;
using TokenPair = std::array<std::string, 2>;

// No tokenizer comes near; an id above is damage, and must not make the program take memory.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;

/// The pattern that cuts GPT-2's words: the ending of an English contraction, or letters, digits or
/// other signs, each with one space before them if there is one, or white space.
/// Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
extern const std::string_view kGpt2Pattern;

/// The character that stands for a byte in a byte-level vocabulary, in UTF-8: printable Latin-1
/// stands for itself, the other bytes in order for U+0100, U+0101, ... (a space is U+0120).
/// Source: as above.
std::string bpe_character(unsigned char byte);

/// The bytes that a byte-level token's characters stand for; none if one of them stands for none.
std::optional<std::string> bytes_of_characters(std::string_view token);

/// The tokens of the 256 bytes alone in a byte-level vocabulary. Errors: UsageError, with where,
/// if one is not there.
std::vector<std::int32_t> find_byte_tokens(const TokenIds& ids, const std::string& where);

/// Checks that the ids of count tokens are 0 .. count - 1. Errors: UsageError, with where.
void check_ids(const TokenIds& ids, const std::string& where);

/// Turns pairs of tokens into merges.
class MergeList {
 public:
  /// For messages: where a merge stands is before, its place, after.
  struct Names {
    std::string vocabulary, before, after;
  };
  MergeList(const TokenIds& ids, Names names) : ids_(ids), names_(std::move(names)) {}

  /// Errors: UsageError if a token is not in the vocabulary or the pair was there before.
  void add(std::string_view left, std::string_view right, std::size_t place);
  std::vector<BpeMerge> take() { return std::move(merges_); }

 private:
  std::int32_t id_of(const std::string& token, std::size_t place) const;

  const TokenIds& ids_;
  Names names_;
  std::vector<BpeMerge> merges_;
  std::unordered_set<std::uint64_t> seen_;
};

/// Reads folder/vocab.json, an object of tokens to ids that are 0 .. n - 1, and folder/merges.txt,
/// "left right" a line after an optional first line "#version": GPT-2's byte-level BPE. If
/// folder/tokenizer_config.json names a class whose pattern is not GPT-2's, that is refused.
/// Errors: UsageError, with the file, the line and what is wrong.
BpeVocab read_bpe_vocab(const std::string& folder);

}  // namespace axonn
