#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/data/grammar/automaton.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

/// The tokens of a tokenizer in the order of their bytes, so that tokens with the same beginning
/// are looked at together. Tokens without bytes are not among them.
class SortedVocabulary {
 public:
  /// The first `count` tokens. The tokenizer must outlive it.
  SortedVocabulary(const Tokenizer& tokenizer, std::int64_t count);

  struct Entry {
    std::string_view bytes;
    std::int32_t token;
    std::uint32_t shared;  ///< bytes that it shares with the entry before it
  };
  const std::vector<Entry>& entries() const { return entries_; }
  std::int64_t count() const { return count_; }
  std::string_view bytes_of(std::int32_t token) const { return tokenizer_.bytes_of(token); }

  /// Special tokens, whose characters are no text unless a request shows them.
  const std::vector<std::int32_t>& specials() const { return specials_; }

 private:
  const Tokenizer& tokenizer_;
  std::int64_t count_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> specials_;
};

/// Which tokens may follow, so that a text is one of a form's (text_form.h). Keeps what it
/// computed, within bounds: equal histories of calls give equal results and take equal steps on
/// every rank.
class Constraint {
 public:
  using State = Automaton::State;
  /// By token: the bytes with which a text that goes on with it may end, at most kFarthest; or
  /// kForbidden. So a text can be ended in time.
  using Mask = std::vector<std::uint16_t>;
  static constexpr std::uint16_t kForbidden = 0xffff, kFarthest = 0xfffe;

  /// Throws UsageError as compile_form() does. The vocabulary must outlive it.
  Constraint(const std::string& form, const SortedVocabulary& vocabulary);

  const State& start() const { return automaton_.start(); }
  /// The tokens whose bytes the text may go on with. Special tokens count by their characters. A
  /// bounded number of steps: what they do not reach is not allowed.
  const Mask& mask(const State& state);
  const std::vector<std::int32_t>& specials() const { return vocabulary_.specials(); }
  /// The state after a token.
  State after(const State& state, std::int32_t token);

 private:
  static constexpr std::int32_t kUnknown = -1, kRefused = -2;
  struct Known {
    const State* state;
    std::uint16_t to_end;
    std::array<std::int32_t, 256> next;
  };
  std::int32_t number_of(const State& state);
  std::int32_t next(std::int32_t number, std::uint8_t byte, Automaton::Steps& steps);
  void forget();

  Automaton automaton_;
  const SortedVocabulary& vocabulary_;
  std::map<State, std::int32_t> numbers_;
  std::vector<Known> known_;
  std::size_t kept_ = 0;  // nodes in all stacks of the known states
  std::map<State, Mask> masks_;
  std::size_t kept_by_masks_ = 0;
};

/// The constraints of the last forms, for prompts that share one.
class ConstraintCache {
 public:
  ConstraintCache(const Tokenizer& tokenizer, std::int64_t count) : vocabulary_(tokenizer, count) {}

  std::shared_ptr<Constraint> find(const std::string& form);
  const SortedVocabulary& vocabulary() const { return vocabulary_; }

 private:
  SortedVocabulary vocabulary_;
  std::vector<std::pair<std::string, std::shared_ptr<Constraint>>> last_;  // the newest last
};

}  // namespace axonn
