#include "axonn/data/text/jinja/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "axonn/data/text/jinja/jinja_text.h"
#include "axonn/data/text/unicode/properties.h"
#include "axonn/foundation/base/utf8.h"

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
    refuse_at(file_, location_of(at), parts...);
  }

  /// Places are asked for in rising order, but for faults.
  Location location_of(std::size_t at) {
    if (at < counted_) counted_ = line_begin_ = 0, line_ = 1;
    for (; counted_ < at; ++counted_)
      if (source_[counted_] == '\n') ++line_, line_begin_ = counted_ + 1;
    return {line_, static_cast<int>(at - line_begin_) + 1};
  }

  void push(Kind kind, std::size_t at, std::string text) {
    tokens_.push_back({kind, location_of(at), std::move(text)});
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
    else if (kind != '%' || !read_raw(tag))
      read_tag(tag, kind == '%');
  }

  /// Reads {% raw %} and the text up to {% endraw %} as it is. Returns false if it is not here.
  bool read_raw(std::size_t tag) {
    const std::size_t begin = at_;
    const auto skip_word = [&](std::string_view word) {
      skip_space();
      if (!sees(word)) return false;
      at_ += word.size();
      skip_space();
      return true;
    };
    if (!skip_word("raw") || !(sees("%}") || sees("-%}"))) {
      at_ = begin;
      return false;
    }
    const bool strips = sees("-");
    at_ += strips ? 3 : 2;
    if (strips) skip_space();
    line_starts_ = source_[at_ - 1] == '\n';
    const std::size_t text_begin = at_;
    for (std::size_t end = source_.find("{%", at_); end != source_.npos;
         end = source_.find("{%", end + 1)) {
      const char sign = end + 2 < source_.size() ? source_[end + 2] : ' ';
      at_ = end + (sign == '-' || sign == '+' ? 3 : 2);
      if (!skip_word("endraw")) continue;
      const std::string_view text =
          left_of_tag(std::string_view(source_).substr(text_begin, end - text_begin), '%', sign);
      if (!skip_end("%}")) continue;
      if (!text.empty()) push(Kind::data, text_begin, std::string(text));
      return true;
    }
    fault(tag, "this 'raw' has no '{% endraw %}'");
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

  /// Skips digits after `at`, if there are some; a _ may be between two.
  bool skip_digits(std::size_t at) {
    if (at == source_.size() || !is_digit(source_[at])) return false;
    const auto digit = [&](std::size_t i) { return i < source_.size() && is_digit(source_[i]); };
    while (digit(at) || (at < source_.size() && source_[at] == '_' && digit(at + 1))) ++at;
    at_ = at;
    return true;
  }

  void read_number() {
    const std::size_t begin = at_;
    if (read_based_number()) return;
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
    std::string digits = source_.substr(begin, at_ - begin);
    std::erase(digits, '_');
    push(real ? Kind::real : Kind::integer, begin, std::move(digits));
  }

  /// 0x1f, 0o17 or 0b11, as the decimal number.
  bool read_based_number() {
    const char kind = at_ + 1 < source_.size() ? lower_ascii(source_[at_ + 1]) : ' ';
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (source_[at_] != '0' || base == 0) return false;
    std::size_t end = at_ + 2;
    while (end < source_.size() && is_word(source_[end])) ++end;
    std::string digits = source_.substr(at_ + 2, end - at_ - 2);
    std::erase(digits, '_');
    std::int64_t number = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
    if (read.ec != std::errc() || read.ptr != digits.data() + digits.size())
      fault(at_, "a number in this form is not supported");
    push(Kind::integer, at_, std::to_string(number));
    at_ = end;
    return true;
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
    } else if (c >= '0' && c <= '7') {
      char32_t code = static_cast<char32_t>(c - '0');
      for (int n = 1; n < 3 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7';
           ++n)
        code = code * 8 + static_cast<char32_t>(source_[at_++] - '0');
      append_utf8(code, value);
    } else if (c == 'N') {
      fault(begin, "the escape \\N is not supported; write the character itself");
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
  std::size_t counted_ = 0, line_begin_ = 0;  // of location_of()
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const std::string& file) {
  return Lexer(source, file).take();
}

}  // namespace axonn::jinja
