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

#include "axonn/base/json_node.h"
#include "axonn/text/added_tokens.h"
#include "axonn/text/text_steps.h"

namespace axonn {

/// Joins two neighbouring tokens into one.
struct BpeMerge {
  std::int32_t left, right, result;
};

/// How a text is cut into words; merges stay within a word.
enum class BpeWords {
  pattern,   ///< the matches of a pattern, and the text between two matches
  at_marks,  ///< before every U+2581, which stands for a space
  whole,     ///< the text is one word
};

/// A BPE tokenizer as its files define it.
struct BpeVocab {
  std::string name;                 ///< for messages
  std::uint64_t fingerprint = 0;    ///< hash of everything that determines encoding
  std::vector<std::string> tokens;  ///< decoded bytes of each token
  std::vector<BpeMerge> merges;     ///< in order of preference

  // The initial tokens of a word, before merges.
  /// The token of each character (UTF-8); empty in a byte-level vocabulary, whose words are bytes.
  std::unordered_map<std::string, std::int32_t> characters = {};
  /// The token of each single byte: for the bytes of a byte-level word, and for those of a
  /// character that has no token. Empty: such a character becomes `unknown`.
  std::vector<std::int32_t> byte_tokens = {};
  std::int32_t unknown = 0;
  bool fuse_unknown = false;  ///< several unknown characters in a row are one token
  bool words_first = false;   ///< a word that is a token becomes that token, without merges

  // Changes to a text before it is cut into words.
  std::vector<TextStep> normalizer =
      {};                              ///< applied before normalized added tokens are searched for
  std::vector<TextStep> spacing = {};  ///< applied after that
  BpeWords words = BpeWords::pattern;
  std::string pattern = {};  ///< matches a word; in Oniguruma's syntax (word_pattern.h)
  std::vector<AddedToken> added_tokens = {};

  std::optional<std::int32_t> begin_of_text = {}, end_of_text = {};
  bool puts_space = false;  ///< decoding removes a space from the front of a text
};

using TokenIds = std::unordered_map<std::string, std::int32_t>;

// Far more than any tokenizer has. A larger id means a damaged file, for which no memory must be
// allocated.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;

/// The pattern of GPT-2's words: the ending of an English contraction; a run of letters, of digits
/// or of other characters, each with an optional space before it; or white space. Source: Radford
/// et al., "Language models are unsupervised multitask learners", 2019.
extern const std::string_view kGpt2Pattern;

/// The character that stands for a byte in a byte-level vocabulary, in UTF-8. Printable Latin-1
/// characters stand for their own byte; the other bytes are U+0100, U+0101, ... in order (a space
/// is U+0120). Source: as above.
std::string bpe_character(unsigned char byte);

/// The bytes that the characters of a byte-level token stand for; nothing if one stands for no
/// byte.
std::optional<std::string> bytes_of_characters(std::string_view token);

/// The tokens of the 256 single bytes in a byte-level vocabulary. Throws UsageError, with `where`,
/// if one is missing.
std::vector<std::int32_t> find_byte_tokens(const TokenIds& ids, const std::string& where);

/// Throws UsageError, with `where`, unless the ids of n tokens are 0 .. n - 1.
void check_ids(const TokenIds& ids, const std::string& where);

/// Reads a vocabulary {"token": id, ...}. Throws UsageError with its place and the fault.
TokenIds read_token_ids(const JsonNode& node);

/// Converts pairs of tokens to merges.
class MergeList {
 public:
  /// For messages: `before`, the place of a merge and `after` together say where it is.
  struct Names {
    std::string vocabulary, before, after;
  };
  MergeList(const TokenIds& ids, Names names) : ids_(ids), names_(std::move(names)) {}

  /// Throws UsageError if a token is not in the vocabulary or the pair was added before.
  void add(std::string_view left, std::string_view right, std::size_t place);
  /// Adds a merge "left right". Throws as add() does, and if these are not two tokens.
  void add_line(std::string_view line, std::size_t place);
  std::vector<BpeMerge> take() { return std::move(merges_); }

 private:
  std::int32_t id_of(const std::string& token, std::size_t place) const;

  const TokenIds& ids_;
  Names names_;
  std::vector<BpeMerge> merges_;
  std::unordered_set<std::uint64_t> seen_;
};

/// Reads GPT-2's byte-level BPE: folder/vocab.json, an object that maps tokens to the ids 0 .. n -
/// 1, and folder/merges.txt, with a line "left right" for each merge after an optional first line
/// "#version". Throws UsageError with the file, the line and the fault; also if
/// folder/tokenizer_config.json names a class whose pattern is not GPT-2's.
BpeVocab read_bpe_vocab(const std::string& folder);

}  // namespace axonn
