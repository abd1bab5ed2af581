#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/text/pattern_borders.h"
#include "axonn/data/text/text_steps.h"
#include "axonn/data/text/word_pattern.h"

namespace axonn {

/// What becomes of the matches of a pattern.
enum class SplitBehavior {
  isolated,              ///< each is a word
  removed,               ///< they are left out
  merged_with_previous,  ///< each ends the word before it
  merged_with_next,      ///< each begins the word after it
  contiguous,            ///< matches without text between them are one word
};

/// A way to cut a text, or each word of the cut before, into words.
struct WordSplit {
  std::vector<TextStep> spacing = {};  ///< changes to each word before it is cut
  std::string pattern = {};            ///< in Oniguruma's syntax; empty: no cut
  SplitBehavior behavior = SplitBehavior::isolated;
  bool inverted = false;  ///< the text between the matches takes their part
};

/// Cuts text into words by several patterns, one after the other.
class WordSplits {
 public:
  /// Throws as WordPattern does.
  WordSplits(const std::vector<WordSplit>& splits, const std::string& where);

  /// Whether a word always ends between two characters, and the words on each side do not depend on
  /// the other side; false if that is uncertain.
  bool always(std::string_view left, std::string_view right) const;

  /// The search state of one thread.
  class Matcher {
   public:
    /// Keeps a reference to the splits.
    explicit Matcher(const WordSplits& splits);
    /// Begins a text, as WordPattern::Matcher::start() does.
    void start();
    /// Calls on_word(word) for each word of a well-formed text.
    template <typename OnWord>
    void cut(std::string_view text, Before before, const OnWord& on_word) {
      cut_from(0, text, before, on_word);
    }

   private:
    template <typename OnWord>
    void cut_from(std::size_t level, std::string_view text, Before before, const OnWord& on_word);
    template <typename OnPiece>
    void pieces(std::size_t level, std::string_view text, const OnPiece& on_piece);
    static bool joins(SplitBehavior behavior, bool last, bool match);

    struct Level {
      std::unique_ptr<WordPattern::Matcher> matcher;  // nullptr: no cut
      TextBuffers buffers = {};
    };
    const WordSplits& splits_;
    std::vector<Level> levels_;
  };

 private:
  struct Compiled {
    WordSplit split;
    std::unique_ptr<WordPattern> pattern;
    std::unique_ptr<PatternBorders> borders;
  };
  std::vector<Compiled> all_;
};

template <typename OnWord>
void WordSplits::Matcher::cut_from(std::size_t level, std::string_view text, Before before,
                                   const OnWord& on_word) {
  if (level == levels_.size()) return on_word(text);
  text = apply_steps(splits_.all_[level].split.spacing, text, before, levels_[level].buffers);
  if (!levels_[level].matcher) return cut_from(level + 1, text, before, on_word);
  pieces(level, text, [&](std::string_view piece) {
    const bool first = piece.data() == text.data();
    cut_from(level + 1, piece, first ? before : Before::added_token, on_word);
  });
}

template <typename OnPiece>
void WordSplits::Matcher::pieces(std::size_t level, std::string_view text,
                                 const OnPiece& on_piece) {
  const WordSplit& split = splits_.all_[level].split;
  std::size_t begin = 0, at = 0;  // of a piece that may go on
  bool last = false;
  while (at < text.size()) {
    const WordPattern::Part part = levels_[level].matcher->first_part(text.substr(at));
    const bool match = part.matches != split.inverted;
    if (at > begin && !joins(split.behavior, last, match)) {
      on_piece(text.substr(begin, at - begin));
      begin = at;
    }
    at += part.bytes;
    if (match && split.behavior == SplitBehavior::removed) begin = at;
    last = match;
  }
  if (at > begin) on_piece(text.substr(begin, at - begin));
}

}  // namespace axonn
