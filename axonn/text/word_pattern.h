#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace axonn {

/// Translates a tokenizer's pattern from the syntax of the library Oniguruma to PCRE2's. The same
/// strings match if it is compiled with PCRE2_UTF and without PCRE2_UCP.
///
/// Syntax that the two libraries read differently is written out (\s and \S are Unicode's
/// White_Space, \d is Nd, inside and outside of classes) or refused: other escapes of letters (\w,
/// \b, \h, \v, ...), ^, $, look-behind and other uncommon groups, classes within classes, and a
/// possessive {n,m}+. Throws UsageError with `where` and the place in the pattern.
std::string to_pcre2(std::string_view pattern, const std::string& where);

/// Seconds of processor time that the calling thread has used. Only differences are meaningful.
double thread_cpu_seconds();

/// Cuts text into words by a pattern: each match is a word, and so is the text between two matches.
class WordPattern {
 public:
  /// The pattern is in Oniguruma's syntax; `where` names it in messages.
  /// Throws UsageError if it is invalid, longer than 16 KiB or not supported, or if it matches the
  /// empty string.
  WordPattern(std::string_view pattern, const std::string& where);

  /// The search state of one thread.
  class Matcher {
   public:
    explicit Matcher(const WordPattern& pattern,
                     std::function<double()> clock = thread_cpu_seconds);
    ~Matcher();
    Matcher(Matcher&&) noexcept;

    /// Begins a text, on the thread that calls first_word(): its time is counted from here.
    void start();

    /// The bytes of the first word, at least 1. `text` is well-formed UTF-8 and not empty. Throws
    /// UsageError if the pattern backtracks more than 100,000 times and 32 times per byte, or has
    /// taken more than one second and 10 us per byte of the words since start(); good patterns take
    /// a hundredth of that.
    std::size_t first_word(std::string_view text);

   private:
    struct State;
    std::size_t match(std::string_view text);
    void check_time();

    std::unique_ptr<State> state_;
  };

 private:
  std::shared_ptr<const void> code_;  // compiled by PCRE2
};

}  // namespace axonn
