#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/data/text/jinja/jinja_lexer.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

/// Reads the tokens of a template one by one. Throws UsageError with the location of an unwanted
/// one.
class TokenReader {
 protected:
  using Is = Token::Kind;

  TokenReader(std::string_view source, const std::string& file)
      : tokens_(tokenize(source, file)), file_(file) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take_token() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  bool sees(Is kind, std::string_view text = {}) const {
    return now().kind == kind && (text.empty() || now().text == text);
  }
  bool sees_sign(std::string_view text) const { return sees(Is::sign, text); }
  bool sees_name(std::string_view text) const { return sees(Is::name, text); }
  bool skip(Is kind, std::string_view text) {
    const bool here = sees(kind, text);
    at_ += here;
    return here;
  }
  bool skip_sign(std::string_view text) { return skip(Is::sign, text); }
  bool skip_name(std::string_view text) { return skip(Is::name, text); }

  template <typename... Parts>
  [[noreturn]] void fault(Location at, const Parts&... parts) const {
    refuse_at(file_, at, parts...);
  }
  static std::string shown(const Token& token) {
    if (token.kind == Is::end) return "the end of the template";
    if (token.kind == Is::data) return "text";
    if (token.kind == Is::string) return "a string";
    return concat('\'', printable(token.text.substr(0, 40)), '\'');
  }
  [[noreturn]] void unexpected(std::string_view wanted) const {
    fault(now().at, "wanted ", wanted, ", got ", shown(now()));
  }
  void need_sign(std::string_view text) {
    if (!skip_sign(text)) unexpected(concat('\'', text, '\''));
  }
  std::string need_name(std::string_view what = "a name") {
    if (!sees(Is::name)) unexpected(what);
    return take_token().text;
  }

  std::vector<Token> tokens_;
  const std::string& file_;
  std::size_t at_ = 0;
};

}  // namespace axonn::jinja
