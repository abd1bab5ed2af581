#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace axonn {

/// Cuts text into words as GPT-2 does before it merges: a word is an English contraction's ending
/// ('s 't 're 've 'm 'll 'd), or letters, digits, or other signs, each with one space before them
/// if there is one, or white space. Letters and digits are Unicode's L and N; white space is its
/// White_Space.
/// Source: Radford et al., "Language models are unsupervised multitask learners", 2019.
class WordPattern {
 public:
  WordPattern();
  ~WordPattern();
  WordPattern(const WordPattern&) = delete;
  WordPattern& operator=(const WordPattern&) = delete;

  /// What one thread needs to search.
  class Matcher {
   public:
    explicit Matcher(const WordPattern& pattern);
    ~Matcher();
    Matcher(Matcher&&) noexcept;

    /// Bytes of the first word of text, at least 1. text is well-formed UTF-8 and not empty.
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
