#pragma once

#include <array>
#include <bitset>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// Tells from a pattern alone between which characters every text is cut into words.
///
/// The pattern is read as an automaton: each position in it that takes one character has a set of
/// characters and a list of positions that may follow it (Glushkov, "The abstract theory of
/// automata", 1961). What a look-ahead would take counts as a part of the match, since a cut hides
/// it.
class PatternBorders {
 public:
  /// The pattern is in PCRE2's syntax, as to_pcre2() returns it, and compiles.
  explicit PatternBorders(std::string_view pattern);

  /// Whether a word always ends between two characters, whatever is around them, and the words on
  /// each side do not depend on the other side: no match or look-ahead contains one after the
  /// other, and at the right one there is always a match. False if the pattern has syntax that this
  /// class does not know, or more than 128 positions.
  bool always(std::string_view left, std::string_view right) const;
  /// The same, but a word need not end there: no match or look-ahead contains one after the other.
  bool apart(std::string_view left, std::string_view right) const;
  /// Whether no match or look-ahead contains the character.
  bool never_contains(std::string_view character) const;

 private:
  using Positions = std::bitset<128>;
  struct Part;
  class Reader;

  Positions positions_of(std::string_view character) const;

  std::vector<std::shared_ptr<const void>> sets_;  // compiled by PCRE2; each matches one character
  std::vector<std::size_t> set_of_;                // of each position
  std::array<Positions, 128> follow_;
  bool known_ = false;  ///< whether the pattern has no other syntax
  Positions sure_;      ///< one character that such a position takes is a match, whatever follows
};

}  // namespace axonn
