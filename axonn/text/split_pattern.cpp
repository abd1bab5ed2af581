#include "axonn/text/split_pattern.h"

#include <algorithm>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/base/utf8.h"

namespace axonn {

namespace {

// PCRE2's \s matches U+180E, but without UCP no other character beyond ASCII.
constexpr std::string_view kSpaces =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// The complement of kSpaces, for \S inside a class.
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-)"
    R"(\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : rest_(pattern), pattern_(pattern), where_(where) {}

  std::string run() {
    while (!rest_.empty()) {
      const char c = rest_[0];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        inside_class(c);
      } else if (c == '[') {
        in_class_ = true;
        copy(rest_.starts_with("[^") ? 2 : 1);
        if (rest_.starts_with(']')) reject("a class that begins with ]");
      } else if (c == '^' || c == '$') {
        reject("the anchors ^ and $");
      } else if (rest_.starts_with("}+")) {
        reject("a possessive {n,m}+");
      } else if (rest_.starts_with("(?")) {
        group();
      } else if (rest_.starts_with("(*")) {
        reject("(*");
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void reject(std::string_view what) const {
    refuse(where_, ", at ", pattern_.size() - rest_.size(), ": ", what,
           " is not supported in a pattern (", printable(rest_.substr(0, 20)), ')');
  }

  void copy(std::size_t bytes) {
    out_ += rest_.substr(0, bytes);
    rest_.remove_prefix(std::min(bytes, rest_.size()));
  }

  void write(std::string_view text, std::size_t instead_of) {
    out_ += text;
    rest_.remove_prefix(instead_of);
  }

  void inside_class(char c) {
    if (c == '[') reject("a class within a class");
    if (rest_.starts_with("&&")) reject("the intersection of classes");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void group() {
    for (const std::string_view known : {"(?:", "(?i:", "(?!", "(?=", "(?>"})
      if (rest_.starts_with(known)) return copy(known.size());
    reject("a group of this kind");
  }

  void spaces(bool negated) {
    if (in_class_) return write(negated ? kNoSpaces : kSpaces, 2);
    out_ += negated ? "[^" : "[";
    write(kSpaces, 2);
    out_ += ']';
  }

  void escape() {
    if (rest_.size() < 2) reject("a \\ at the end");
    const char c = rest_[1];
    if (c == 's' || c == 'S') return spaces(c == 'S');
    if (c == 'd') return write("\\p{Nd}", 2);
    if (c == 'D') return write("\\P{Nd}", 2);
    if (c == 'p' || c == 'P') return property();
    if (c == 'u') return code_point();
    if (c == 'x' && rest_.size() > 3) return copy(2);
    if (is_letter_or_digit(c) && c != 'r' && c != 'n' && c != 't' && c != 'f')
      reject("this escape");
    copy(2);
  }

  void property() {
    const std::size_t end = rest_.find('}');
    if (rest_.size() < 4 || rest_[2] != '{' || end == rest_.npos)
      reject("a property without {...}");
    copy(end + 1);
  }

  /// \uHHHH
  void code_point() {
    const std::string_view digits = rest_.substr(2, 4);
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos || digits.size() != 4)
      reject("\\u without four hexadecimal digits");
    out_ += concat("\\x{", digits, '}');
    rest_.remove_prefix(6);
  }

  std::string_view rest_, pattern_;
  const std::string& where_;
  std::string out_;
  bool in_class_ = false;
};

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

}  // namespace axonn
