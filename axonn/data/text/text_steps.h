#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "axonn/data/text/pattern_borders.h"
#include "axonn/data/text/word_cache.h"
#include "axonn/data/text/word_pattern.h"

namespace axonn {

/// The kind of text before a piece. After other text, nothing is prepended.
enum class Before { nothing, added_token, text };

/// A token that is searched for in a text before the text is cut into words.
struct AddedToken {
  std::string content;
  std::int32_t id;
  bool special = false;
  /// Whether its normalized content is searched for in the normalized text.
  bool normalized = false;
  struct Sides {
    bool takes_left = false, takes_right = false;  ///< white space beside it belongs to it
    bool single_word = false;                      ///< not beside a character of a word
    bool any() const { return takes_left || takes_right || single_word; }
  };
  Sides sides = {};
};

/// Finds added tokens in a text: a trie, so that the time hardly depends on their number.
class AddedTokenFinder {
 public:
  /// A longer content than any published one; it bounds the time for each byte of a text.
  static constexpr std::size_t kMostBytes = 256;

  struct Match {
    std::size_t begin, bytes;
    std::int32_t token;
  };

  /// Contents must be different, not empty, and at most kMostBytes long.
  void add(std::string_view content, std::int32_t token, const AddedToken::Sides& sides = {});

  /// The first match; the longest of several at one position.
  std::optional<Match> find(std::string_view text) const;

  /// Calls on_piece(piece, before) for the text between added tokens, and on_token(token).
  template <typename OnPiece, typename OnToken>
  void split(std::string_view text, Before before, const OnPiece& on_piece,
             const OnToken& on_token) const {
    std::size_t done = 0;
    for (std::size_t from = 0; from < text.size();) {
      const auto found = find(text.substr(from));
      if (!found) break;
      Match match{from + found->begin, found->bytes, found->token};
      from = match.begin + match.bytes;
      if (!sides_.empty() && !settle(text, done, match)) continue;
      if (done < match.begin) on_piece(text.substr(done, match.begin - done), before);
      // As in the tokenizers library, white space may belong to one token and be another.
      if (match.bytes > 0) on_token(match.token);
      done = match.begin + match.bytes;
      before = Before::added_token;
    }
    if (done < text.size()) on_piece(text.substr(done), before);
  }

 private:
  std::size_t next_candidate(std::string_view text, std::size_t from) const;
  bool settle(std::string_view text, std::size_t done, Match& match) const;

  /// The node after (node << 8 | byte); 0 is the root.
  std::unordered_map<std::uint64_t, std::uint32_t> next_;
  std::unordered_map<std::uint32_t, std::int32_t> token_at_;  // of nodes where a content ends
  std::array<bool, 256> begins_{};
  std::string first_bytes_;
  std::unordered_map<std::int32_t, AddedToken::Sides> sides_;  ///< of tokens that have some
};

/// The space mark U+2581, which stands for a space in SentencePiece's vocabularies.
inline constexpr std::string_view kSpaceMark = "\u2581";

/// The token with a space for each space mark.
std::string with_spaces(std::string_view token);

/// Whether a mark or a space follows another character of the token.
bool has_inner_mark(std::string_view token);

class PatternReplacer;

/// One change that a tokenizer makes to a text before it cuts it into words.
struct TextStep {
  enum class Kind {
    // Unicode's normal forms (normal_form.h). Bytes that are not UTF-8 stay, here and below.
    nfc,
    nfd,
    nfkc,
    nfkd,
    lower_case,
    remove_marks,         ///< combining marks
    strip_left,           ///< remove white space at the front, if nothing precedes the text
    strip_right,          ///< and at the end
    replace,              ///< replace every `from` by `to`
    replace_matches,      ///< replace every match of the pattern by `to`
    prepend,              ///< put `to` before a text that is not empty
    prepend_missing,      ///< the same, unless the text begins with `to`
    prepend_first,        ///< the same, and only if nothing precedes the text
    bytes_as_characters,  ///< each byte as its character in a byte-level vocabulary
    characters_as_bytes,  ///< back
  };
  Kind kind;
  std::string from = {}, to = {};
  std::shared_ptr<const PatternReplacer> replacer = {};  ///< of replace_matches
};

/// Replaces the matches of a pattern.
class PatternReplacer {
 public:
  /// Throws as WordPattern does.
  PatternReplacer(const std::string& pattern, const std::string& where);
  /// Appends the valid text with `to` for each match.
  void append(std::string_view valid, std::string_view to, std::string& out) const;
  /// Whether both characters stay as they are wherever they are.
  bool spares(std::string_view left, std::string_view right) const;

 private:
  WordPattern pattern_;
  PatternBorders borders_;
  mutable Pool<WordPattern::Matcher> matchers_;
};

/// The most bytes that one byte of text can become, an upper bound.
double most_growth(std::span<const TextStep> steps);

/// Buffers for the changed text, reused for every text.
using TextBuffers = std::array<std::string, 2>;

/// Applies all steps. Returns the text itself if they change nothing, else a view of one of the
/// buffers.
std::string_view apply_steps(std::span<const TextStep> steps, std::string_view text, Before before,
                             TextBuffers& buffers);

/// The characters beside a position in a text.
struct Neighbours {
  std::string left, right;
  std::string after = {};  ///< the character after right; empty at the end of well-formed text
};

/// Empty if a character beside the position is not well-formed UTF-8, or there is none.
std::optional<Neighbours> neighbours(std::string_view text, std::size_t at);

/// The characters beside the position after the steps have changed the text; empty unless the text
/// on both sides is changed independently and these characters do not depend on any others.
std::optional<Neighbours> changed(std::span<const TextStep> steps, const Neighbours& beside);

/// The pairs of characters that follow each other in some strings.
class CharacterPairs {
 public:
  void add(std::string_view text);
  bool contains(std::string_view left, std::string_view right) const;

 private:
  std::unordered_set<std::string> pairs_;
};

/// Where added tokens forbid to cut a text: inside of them, and after them, since text after an
/// added token may get a space, and text after other text does not; also beside white space that
/// may belong to one. Decided from two characters, so
/// more is forbidden than necessary.
class AddedTokenBorders {
 public:
  void add(std::string_view content, const AddedToken::Sides& sides = {});
  bool forbid(const Neighbours& beside) const;

 private:
  CharacterPairs pairs_;
  std::unordered_set<std::string> last_;
  std::unordered_set<std::string> single_;  ///< first characters of single words
  bool take_space_ = false;
};

}  // namespace axonn
