#include "axonn/data/grammar/constraint.h"

#include <algorithm>

#include "axonn/data/grammar/text_form.h"

namespace axonn {

namespace {

// What a constraint keeps: 1 KiB for each state, 4 bytes for each node of its stacks, and masks.
constexpr std::size_t kMostStates = 1024, kMostKept = std::size_t{1} << 18,
                      kMostMaskBytes = std::size_t{8} << 20;
constexpr std::size_t kMostConstraints = 2;  // in a cache, beside those in use
// Of one mask: a few tenths of a second, and 24 MiB.
constexpr std::int64_t kMostSteps = 500'000;
constexpr std::size_t kMostNewStates = 16'384, kMostNewKept = std::size_t{3} << 21;

std::size_t shared_bytes(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// The memory of a state, in nodes of its stacks: a short stack is most of all its block.
std::size_t nodes_in(const Automaton::State& state) {
  constexpr std::size_t kBlock = (sizeof(Automaton::Stack) + 32) / sizeof(std::uint32_t);
  std::size_t sum = 0;
  for (const Automaton::Stack& stack : state.stacks) sum += stack.size() + kBlock;
  return sum;
}

}  // namespace

SortedVocabulary::SortedVocabulary(const Tokenizer& tokenizer, std::int64_t count)
    : tokenizer_(tokenizer), count_(std::min(count, tokenizer.vocab_size())) {
  for (std::int32_t token = 0; token < count_; ++token) {
    if (tokenizer.is_special(token)) specials_.push_back(token);
    if (const std::string_view bytes = tokenizer.bytes_of(token); !bytes.empty())
      entries_.push_back({bytes, token, 0});
  }
  std::ranges::stable_sort(entries_, {}, &Entry::bytes);
  for (std::size_t i = 1; i < entries_.size(); ++i)
    entries_[i].shared =
        static_cast<std::uint32_t>(shared_bytes(entries_[i].bytes, entries_[i - 1].bytes));
}

Constraint::Constraint(const std::string& form, const SortedVocabulary& vocabulary)
    : automaton_(compile_form(form)), vocabulary_(vocabulary) {}

std::int32_t Constraint::number_of(const State& state) {
  const auto [found, added] = numbers_.try_emplace(state, static_cast<std::int32_t>(known_.size()));
  if (added) {
    const std::int64_t to_end = automaton_.bytes_to_end(state);
    known_.push_back(
        {&found->first, static_cast<std::uint16_t>(std::min<std::int64_t>(to_end, kFarthest)), {}});
    known_.back().next.fill(kUnknown);
    kept_ += nodes_in(state);
  }
  return found->second;
}

std::int32_t Constraint::next(std::int32_t number, std::uint8_t byte, Automaton::Steps& steps) {
  std::int32_t to = known_[static_cast<std::size_t>(number)].next[byte];
  if (to != kUnknown) return to;
  const State state = automaton_.next(*known_[static_cast<std::size_t>(number)].state, byte, steps);
  to = state.refused() ? kRefused : number_of(state);
  known_[static_cast<std::size_t>(number)].next[byte] = to;
  return to;
}

void Constraint::forget() {
  numbers_.clear();
  known_ = {};  // which gives its memory back
  kept_ = 0;
}

const Constraint::Mask& Constraint::mask(const State& state) {
  if (const auto found = masks_.find(state); found != masks_.end()) return found->second;
  const auto count = static_cast<std::size_t>(vocabulary_.count());
  if ((masks_.size() + 1) * count * sizeof(std::uint16_t) > kMostMaskBytes ||
      kept_by_masks_ > kMostKept) {
    masks_.clear();
    kept_by_masks_ = 0;
  }
  Mask allowed(count, kForbidden);
  // After each byte of the last entry; they end where the text is refused.
  std::vector<std::int32_t> path{number_of(state)};
  const std::size_t most_states = known_.size() + kMostNewStates, most_kept = kept_ + kMostNewKept;
  Automaton::Steps steps;
  std::size_t refused_at = allowed.size();  // bytes of the last entry, the last one refused
  bool refused = false;
  for (const SortedVocabulary::Entry& entry : vocabulary_.entries()) {
    if (refused && entry.shared >= refused_at) continue;
    refused = false;
    path.resize(std::min<std::size_t>(path.size(), entry.shared + 1));
    while (path.size() <= entry.bytes.size() && !refused) {
      const auto byte = static_cast<std::uint8_t>(entry.bytes[path.size() - 1]);
      const std::int32_t to = next(path.back(), byte, steps);
      refused = to == kRefused;
      if (refused)
        refused_at = path.size();
      else
        path.push_back(to);
    }
    if (!refused)
      allowed[static_cast<std::size_t>(entry.token)] =
          known_[static_cast<std::size_t>(path.back())].to_end;
    if (steps.count > kMostSteps || known_.size() > most_states || kept_ > most_kept) break;
  }
  kept_by_masks_ += nodes_in(state);
  if (known_.size() > kMostStates || kept_ > kMostKept) forget();
  return masks_.emplace(state, std::move(allowed)).first->second;
}

Constraint::State Constraint::after(const State& state, std::int32_t token) {
  State now = state;
  Automaton::Steps steps;
  for (const char c : vocabulary_.bytes_of(token))
    now = automaton_.next(now, static_cast<std::uint8_t>(c), steps);
  return now;
}

std::shared_ptr<Constraint> ConstraintCache::find(const std::string& form) {
  auto found = std::ranges::find(last_, form, [](const auto& each) { return each.first; });
  if (found == last_.end()) {
    if (last_.size() >= kMostConstraints) last_.erase(last_.begin());
    last_.emplace_back(form, std::make_shared<Constraint>(form, vocabulary_));
  } else {
    std::rotate(found, found + 1, last_.end());
  }
  return last_.back().second;
}

}  // namespace axonn
