#include "axonn/data/text/pattern_borders.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include <pcre2.h>

#include "axonn/foundation/base/utf8.h"

namespace axonn {

/// A part of a pattern.
struct PatternBorders::Part {
  bool empty = true;      ///< it may match nothing
  bool skippable = true;  ///< the same, in every text and if the parts after it fail otherwise
  Positions first = {}, last = {}, sure = {};
};

class PatternBorders::Reader {
 public:
  Reader(PatternBorders& borders, std::string_view pattern) : borders_(borders), rest_(pattern) {}

  void run() {
    const Part all = alternatives(/*caseless=*/false);
    borders_.known_ = rest_.empty() && !failed_;
    if (borders_.known_) borders_.sure_ = all.sure;
  }

 private:
  Part alternatives(bool caseless) {
    Part all = sequence(caseless);
    while (take("|")) {
      const Part other = sequence(caseless);
      all.empty |= other.empty;
      all.skippable |= other.skippable;
      all.first |= other.first;
      all.last |= other.last;
      all.sure |= other.sure;
    }
    return all;
  }

  Part sequence(bool caseless) {
    Part all;
    while (!failed_ && !rest_.empty() && rest_[0] != '|' && rest_[0] != ')') {
      const Part part = repeated(caseless);
      connect(all.last, part.first);
      all.sure =
          (all.skippable ? part.sure : Positions()) | (part.skippable ? all.sure : Positions());
      if (all.empty) all.first |= part.first;
      all.last = part.last | (part.empty ? all.last : Positions());
      all.empty &= part.empty;
      all.skippable &= part.skippable;
    }
    return all;
  }

  /// A part with its quantifier.
  Part repeated(bool caseless) {
    Part part = single(caseless);
    int least = 1;
    bool often = false;
    if (take("*")) {
      least = 0, often = true;
    } else if (take("+")) {
      often = true;
    } else if (take("?")) {
      least = 0;
    } else if (take("{")) {
      const std::size_t end = std::min(rest_.find_first_not_of("0123456789,"), rest_.size());
      if (end == 0 || rest_[0] == ',' || !rest_.substr(end).starts_with('}')) return fail();
      least = rest_[0] == '0' ? 0 : rest_[0] == '1' && (end == 1 || rest_[1] == ',') ? 1 : 2;
      often = true;
      rest_.remove_prefix(end + 1);
    } else {
      return part;
    }
    const bool possessive = take("+");
    if (!possessive) take("?");
    if (!rest_.empty() && std::string_view("*+?{").find(rest_[0]) != std::string_view::npos)
      return fail();
    if (often) connect(part.last, part.first);
    if (least == 0) part.empty = part.skippable = true;
    if (least > 1) part.sure.reset();
    return possessive ? rigid(part) : part;
  }

  /// A group, or one position.
  Part single(bool caseless) {
    if (take("(?!") || take("(?=")) {
      return {.empty = true, .skippable = false, .first = group(caseless).first};
    }
    if (take("(?>")) return rigid(group(caseless));
    if (take("(?i:")) return group(/*caseless=*/true);
    if (take("(?:")) return group(caseless);
    if (rest_.starts_with("(?") || rest_.starts_with("(*")) return fail();
    if (take("(")) return group(caseless);
    const std::size_t bytes = place_bytes();
    return bytes == 0 ? fail() : position(bytes, caseless);
  }

  Part group(bool caseless) {
    const Part part = alternatives(caseless);
    return take(")") ? part : fail();
  }

  /// A part that does not give back what it has taken, so it may take more than one character.
  static Part rigid(Part part) {
    part.sure.reset();
    part.skippable = false;
    return part;
  }

  /// The bytes of the position at the front: a class, an escape or a character. 0: unknown.
  std::size_t place_bytes() const {
    const char c = rest_[0];
    if (c == '[') {
      std::size_t end = rest_.starts_with("[^") ? 2 : 1;
      while (end < rest_.size() && rest_[end] != ']') end += rest_[end] == '\\' ? 2 : 1;
      return end < rest_.size() ? end + 1 : 0;
    }
    if (std::string_view("*+?{)|^$").find(c) != std::string_view::npos) return 0;
    if (c != '\\') return utf8_front(rest_).bytes;
    if (rest_.size() < 2) return 0;
    const bool braces = rest_.size() > 2 && rest_[2] == '{';
    if (std::string_view("pPx").find(rest_[1]) == std::string_view::npos)
      return 1 + utf8_front(rest_.substr(1)).bytes;
    if (braces) return rest_.find('}') + 1;  // npos + 1 is 0
    if (rest_[1] != 'x') return 0;
    std::size_t end = 2;
    while (end < 4 && end < rest_.size() && std::isxdigit(static_cast<unsigned char>(rest_[end])))
      ++end;
    return end;
  }

  Part position(std::size_t bytes, bool caseless) {
    const std::string text(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
    const auto [known, added] = known_.try_emplace({text, caseless}, borders_.sets_.size());
    if (added) {
      int error = 0;
      PCRE2_SIZE offset = 0;
      pcre2_code* code = pcre2_compile(
          reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
          PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | (caseless ? PCRE2_CASELESS : 0), &error,
          &offset, nullptr);
      if (!code) return fail();
      borders_.sets_.emplace_back(code, [code](const void*) { pcre2_code_free(code); });
    }
    if (borders_.set_of_.size() == borders_.follow_.size()) return fail();
    Positions one;
    one.set(borders_.set_of_.size());
    borders_.set_of_.push_back(known->second);
    return {.empty = false, .skippable = false, .first = one, .last = one, .sure = one};
  }

  void connect(const Positions& from, const Positions& to) {
    for (std::size_t i = 0; i < borders_.set_of_.size(); ++i)
      if (from[i]) borders_.follow_[i] |= to;
  }

  bool take(std::string_view front) {
    if (!rest_.starts_with(front)) return false;
    rest_.remove_prefix(front.size());
    return true;
  }

  Part fail() {
    failed_ = true;
    rest_ = {};
    return {};
  }

  PatternBorders& borders_;
  std::string_view rest_;
  std::map<std::pair<std::string, bool>, std::size_t> known_;
  bool failed_ = false;
};

PatternBorders::PatternBorders(std::string_view pattern) { Reader(*this, pattern).run(); }

PatternBorders::Positions PatternBorders::positions_of(std::string_view character) const {
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  std::vector<bool> in_set(sets_.size());
  for (std::size_t i = 0; i < sets_.size(); ++i)
    in_set[i] = pcre2_match(static_cast<const pcre2_code*>(sets_[i].get()),
                            reinterpret_cast<PCRE2_SPTR>(character.data()), character.size(), 0, 0,
                            data.get(), nullptr) > 0;
  Positions positions;
  for (std::size_t i = 0; i < set_of_.size(); ++i) positions[i] = in_set[set_of_[i]];
  return positions;
}

bool PatternBorders::always(std::string_view left, std::string_view right) const {
  return sure_.any() && (positions_of(right) & sure_).any() && apart(left, right);
}

bool PatternBorders::never_contains(std::string_view character) const {
  return known_ && positions_of(character).none();
}

bool PatternBorders::apart(std::string_view left, std::string_view right) const {
  if (!known_) return false;
  const Positions of_right = positions_of(right), of_left = positions_of(left);
  for (std::size_t i = 0; i < set_of_.size(); ++i)
    if (of_left[i] && (follow_[i] & of_right).any()) return false;
  return true;
}

}  // namespace axonn
