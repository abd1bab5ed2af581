#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace axonn {

/// Translates a tokenizer's pattern from the syntax of the library Oniguruma to PCRE2's. The same
/// strings match if it is compiled with PCRE2_UTF and without PCRE2_UCP.
///
/// Syntax that the two libraries read differently is written out (\s and \S are Unicode's
/// White_Space, \d is Nd, inside and outside of classes; \p{...} are the characters of this
/// program's own tables, pattern_classes.h; {,m} is {0,m}) or refused: other escapes of letters
/// (\w, \b, \h, \v, ...), ^, $, look-behind and other uncommon groups, classes within classes, and
/// a possessive {n,m}+. Throws UsageError with `where` and the location in the pattern.
std::string to_pcre2(std::string_view pattern, const std::string& where);

/// Cuts text into words by a pattern: each match is a word, and so is the text between two matches.
class WordPattern {
 public:
  /// The pattern is in Oniguruma's syntax; `where` names it in messages.
  /// Throws UsageError if it is invalid, longer than 16 KiB or not supported, or if it matches the
  /// empty string.
  WordPattern(std::string_view pattern, const std::string& where);

  /// A match at the front of a text, or the text before the first match.
  struct Part {
    std::size_t bytes;
    bool matches;
  };

  /// The search state of one thread.
  class Matcher {
   public:
    explicit Matcher(const WordPattern& pattern);
    ~Matcher();
    Matcher(Matcher&&) noexcept;

    /// Begins a text: what the pattern looks at is counted from here.
    void start();

    /// The bytes of the first word, at least 1. `text` is well-formed UTF-8 and not empty. Throws
    /// UsageError if the pattern backtracks more than 10,000 times and 32 times per byte in one
    /// match, or has looked at more than 64 MiB and 4,096 bytes for each byte of the words since
    /// start(); good patterns need a tenth of that.
    std::size_t first_word(std::string_view text) { return first_part(text).bytes; }
    /// The same, with what the word is.
    Part first_part(std::string_view text);

   private:
    struct State;
    std::size_t match(std::string_view text);
    std::string_view search(std::string_view text);
    int run(const void* code, std::string_view text, std::size_t& window);

    std::unique_ptr<State> state_;
  };

 private:
  std::shared_ptr<const void> anchored_, searching_;  // compiled by PCRE2
};

}  // namespace axonn
