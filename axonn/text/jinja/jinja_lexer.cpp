#include "axonn/text/jinja/jinja_lexer.h"

#include <algorithm>
#include <array>

#include "axonn/base/utf8.h"
#include "axonn/text/jinja/jinja_text.h"
#include "axonn/text/unicode/properties.h"

namespace axonn::jinja {

namespace {

constexpr std::string_view kSigns[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                       "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                       ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (c & 0x80) != 0;
}

/// The source with "\n" as every line end, without the one at its end.
std::string with_plain_lines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& file)
      : source_(with_plain_lines(source)), file_(file) {
    if (const std::size_t valid = valid_utf8_prefix(source_); valid < source_.size())
      fault(valid, "this byte is not UTF-8");
  }

  std::vector<Token> take() {
    while (at_ < source_.size()) read_data();
    push(Token::Kind::end, at_, "");
    return std::move(tokens_);
  }

 private:
  using Kind = Token::Kind;

  template <typename... Parts>
  [[noreturn]] void fault(std::size_t at, const Parts&... parts) {
    refuse_at(file_, place_of(at), parts...);
  }

  /// Places are asked for in rising order, but for faults.
  Location place_of(std::size_t at) {
    if (at < counted_) counted_ = line_begin_ = 0, line_ = 1;
    for (; counted_ < at; ++counted_)
      if (source_[counted_] == '\n') ++line_, line_begin_ = counted_ + 1;
    return {line_, static_cast<int>(at - line_begin_) + 1};
  }

  void push(Kind kind, std::size_t at, std::string text) {
    tokens_.push_back({kind, place_of(at), std::move(text)});
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool sees(std::string_view text) const { return rest().starts_with(text); }
  void skip_space() { at_ += rest().size() - strip(rest(), Strip::left, nullptr).size(); }

  /// Reads the text up to the next tag, and the tag.
  void read_data() {
    const std::size_t begin = at_;
    std::size_t tag = begin;
    while (tag < source_.size() &&
           !(source_[tag] == '{' && tag + 1 < source_.size() &&
             std::string_view("%{#").find(source_[tag + 1]) != std::string_view::npos))
      tag = std::min(source_.find('{', tag + 1), source_.size());
    std::string_view text = std::string_view(source_).substr(begin, tag - begin);
    if (tag == source_.size()) {
      if (!text.empty()) push(Kind::data, begin, std::string(text));
      at_ = tag;
      return;
    }
    const char kind = source_[tag + 1], sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    text = left_of_tag(text, kind, sign);
    if (!text.empty()) push(Kind::data, begin, std::string(text));
    at_ = tag + (sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#')
      read_comment(tag);
    else
      read_tag(tag, kind == '%');
  }

  /// The text before a tag, as the tag leaves it: "{%-" strips all white space, and a tag that is
  /// first on its line the spaces before it, unless it prints or begins with "{%+".
  std::string_view left_of_tag(std::string_view text, char kind, char sign) const {
    if (sign == '-') return strip(text, Strip::right, nullptr);
    if (sign == '+' || kind == '{') return text;
    const std::size_t newline = text.rfind('\n');
    const std::size_t line = newline == text.npos ? 0 : newline + 1;
    if (line == 0 && !line_starts_) return text;
    const bool blank = strip(text.substr(line), Strip::both, nullptr).empty();
    return blank ? text.substr(0, line) : text;
  }

  /// Skips the end of a block or comment, "-%}", "+%}" or "%}", and the white space that it
  /// removes. Returns false if it is not here.
  bool skip_end(std::string_view end) {
    const std::size_t begin = at_;
    const char sign = at_ < source_.size() ? source_[at_] : ' ';
    if (sign == '-' || sign == '+') ++at_;
    if (!sees(end)) {
      at_ = begin;
      return false;
    }
    at_ += end.size();
    if (sign == '-')
      skip_space();
    else if (sign != '+' && sees("\n"))
      ++at_;
    line_starts_ = source_[at_ - 1] == '\n';
    return true;
  }

  void read_comment(std::size_t tag) {
    // "{#-#}" has no sign at its end, so the sign at the start is looked for first.
    for (; at_ < source_.size(); ++at_)
      if (skip_end("#}")) return;
    fault(tag, "this comment has no end");
  }

  void read_tag(std::size_t tag, bool block) {
    push(block ? Kind::open_block : Kind::open_print, tag, "");
    skip_space();
    if (block && sees("raw")) fault(at_, "the statement 'raw' is not supported");
    std::string open;  // the brackets that are open
    while (true) {
      const std::size_t before = at_;
      skip_space();
      if (at_ == source_.size()) fault(tag, "this tag has no end");
      if (open.empty()) {
        const std::size_t end = at_;
        if (block ? skip_end("%}") : skip_print_end()) {
          push(block ? Kind::close_block : Kind::close_print, end, block ? "%}" : "}}");
          return;
        }
      }
      read_token(open);
      if (at_ == before) fault(at_, "this character is not expected here");
    }
  }

  bool skip_print_end() {
    const bool strips = sees("-}}");
    if (!strips && !sees("}}")) return false;
    at_ += strips ? 3 : 2;
    if (strips) skip_space();
    line_starts_ = source_[at_ - 1] == '\n';
    return true;
  }

  void read_token(std::string& open) {
    const char c = source_[at_];
    if (is_digit(c)) return read_number();
    if (is_word(c)) {
      const std::size_t begin = at_;
      while (at_ < source_.size() && is_word(source_[at_])) ++at_;
      return push(Kind::name, begin, source_.substr(begin, at_ - begin));
    }
    if (c == '\'' || c == '"') return read_string(c);
    const auto* const sign =
        std::ranges::find_if(kSigns, [&](std::string_view each) { return sees(each); });
    if (sign == std::end(kSigns))
      fault(at_, "the character '", printable(rest().substr(0, 1)), "' is not expected here");
    if (std::string_view("([{").find(c) != std::string_view::npos)
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (std::string_view(")]}").find(c) != std::string_view::npos) {
      if (open.empty() || open.back() != c) fault(at_, "'", c, "' closes no bracket");
      open.pop_back();
    }
    push(Kind::sign, at_, std::string(*sign));
    at_ += sign->size();
  }

  /// Skips digits after `at`, if there are some.
  bool skip_digits(std::size_t at) {
    if (at == source_.size() || !is_digit(source_[at])) return false;
    while (at < source_.size() && is_digit(source_[at])) ++at;
    at_ = at;
    return true;
  }

  void read_number() {
    const std::size_t begin = at_;
    skip_digits(at_);
    bool real = false;
    if (begin == 0 || source_[begin - 1] != '.') {  // not x.0.e
      real = sees(".") && skip_digits(at_ + 1);
      if (sees("e") || sees("E")) {
        const bool sign =
            at_ + 1 < source_.size() && (source_[at_ + 1] == '+' || source_[at_ + 1] == '-');
        real = skip_digits(at_ + 1 + sign) || real;
      }
    }
    if (at_ < source_.size() && is_word(source_[at_]))
      fault(begin, "a number in this form is not supported");
    push(real ? Kind::real : Kind::integer, begin, source_.substr(begin, at_ - begin));
  }

  void read_string(char quote) {
    const std::size_t begin = at_++;
    std::string value;
    while (at_ < source_.size() && source_[at_] != quote) {
      if (source_[at_] == '\\')
        read_escape(value);
      else
        value += source_[at_++];
    }
    if (at_ == source_.size()) fault(begin, "this string has no end");
    ++at_;
    push(Kind::string, begin, std::move(value));
  }

  /// The escapes of Python's strings. An unknown one stays as it is written.
  void read_escape(std::string& value) {
    const std::size_t begin = at_++;
    if (at_ == source_.size()) return;
    const char c = source_[at_++];
    constexpr std::string_view kNames = "nrtabfv\\'\"", kValues = "\n\r\t\a\b\f\v\\'\"";
    if (c == '\n') return;
    if (const std::size_t i = kNames.find(c); i != kNames.npos) {
      value += kValues[i];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_code(begin, c == 'x' ? 2 : c == 'u' ? 4 : 8, value);
    } else if (c == 'N' || is_digit(c)) {
      fault(begin, "the escape \\", c, " is not supported");
    } else {
      (value += '\\') += c;
    }
  }

  void append_code(std::size_t begin, std::size_t digits, std::string& value) {
    char32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      const std::size_t digit = at_ < source_.size()
                                    ? std::string_view("0123456789abcdefABCDEF").find(source_[at_])
                                    : std::string_view::npos;
      if (digit == std::string_view::npos) fault(begin, "this escape wants ", digits, " digits");
      code = code * 16 + static_cast<char32_t>(digit < 16 ? digit : digit - 6);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      fault(begin, "this escape is no character");
    append_utf8(code, value);
  }

  std::string source_;
  const std::string& file_;
  std::size_t at_ = 0;
  bool line_starts_ = true;                   // whether nothing of the line at at_ is before it
  std::size_t counted_ = 0, line_begin_ = 0;  // of place_of()
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& file) {
  return Lexer(source, file).take();
}

}  // namespace axonn::jinja
