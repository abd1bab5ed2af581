#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace axonn {

/// Cuts text into words by a pattern: each match is a word, and so is the text between two matches.
class WordPattern {
 public:
  /// The pattern is in Oniguruma's syntax (split_pattern.h); `where` names it in messages.
  /// Throws UsageError if it is invalid or not supported, or if it matches the empty string.
  WordPattern(std::string_view pattern, const std::string& where);
  ~WordPattern();
  WordPattern(const WordPattern&) = delete;
  WordPattern& operator=(const WordPattern&) = delete;

  /// The search state of one thread.
  class Matcher {
   public:
    explicit Matcher(const WordPattern& pattern);
    ~Matcher();
    Matcher(Matcher&&) noexcept;

    /// The bytes of the first word, at least 1. `text` is well-formed UTF-8 and not empty.
    std::size_t first_word(std::string_view text);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  std::unique_ptr<Code> code_;
};

}  // namespace axonn
