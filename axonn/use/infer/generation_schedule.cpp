#include "axonn/use/infer/generation_schedule.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// Most prompt tokens of one pass of several prompts, so that short prompts share one gather of the
/// weights.
constexpr std::int64_t kPromptTokens = 1024;

/// Most tokens of one sequence in a pass that reads the cache. It bounds the pass's memory.
constexpr std::int64_t kNewTokens = 512;

/// Most rows of a pass whose logits are all needed. It bounds the memory of logits: 128 MiB for a
/// vocabulary of 256 Ki.
constexpr std::int64_t kScoredRows = 128;

}  // namespace

std::size_t CacheSlots::held(std::size_t i, const std::vector<std::int32_t>& wanted,
                             std::int64_t adapter) const {
  const auto& here = last[i].tokens;
  if (last[i].adapter != adapter || differ(here.size(), wanted.size())) return 0;
  const std::int64_t size = std::ssize(here),
                     same = std::min(std::ranges::mismatch(here, wanted).in1 - here.begin(),
                                     std::ssize(wanted) - 1),
                     first = window > 0 ? std::max<std::int64_t>(0, same + 1 - window) : 0;
  if (size > entries && first < size - entries) return 0;  // later tokens overwrote needed ones
  if (recurrent && same < size) return 0;
  return 2 * same >= std::ssize(wanted) ? same : 0;
}

void GenerationSchedule::add(GeneratedSequence sequence) {
  const std::size_t number = sequence.number;
  const bool is_new = sequences_.try_emplace(number, std::move(sequence)).second;
  AXONN_CHECK(is_new, "GenerationSchedule: a second sequence has number ", number);
  waiting_.push_back(number);
}

void GenerationSchedule::remove(std::size_t number) {
  const auto found = sequences_.find(number);
  if (found == sequences_.end()) return;
  const GeneratedSequence& sequence = found->second;
  const auto slot = std::ranges::find(in_slot_, &sequence);
  if (slot == in_slot_.end()) {
    std::erase(waiting_, number);
  } else {
    const auto first = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.begin);
    // The keys of a part of a long sequence are not those of a short one.
    const bool usable = !slots_.differ(sequence.cached, sequence.in_context());
    if (!sequence.embeds())  // which leaves in the slot what was there
      slots_.last[slot - in_slot_.begin()] = {
          .tokens = {first, first + static_cast<std::ptrdiff_t>(usable ? sequence.cached : 0)},
          .adapter = sequence.options.adapter};
    *slot = nullptr;
  }
  sequences_.erase(found);
}

std::size_t GenerationSchedule::held_for(const GeneratedSequence& sequence, std::size_t i) const {
  return slots_.held(i, sequence.tokens, sequence.options.adapter);
}

/// The free slot that holds most of the sequence's tokens; of equal ones the first, in turn over
/// places, so that all places have equally many sequences. in_slot_.size() if none is free.
std::size_t GenerationSchedule::best_slot(const GeneratedSequence& sequence) const {
  std::size_t best = in_slot_.size(), most = 0;
  for (std::int64_t slot = 0; slot < slots_.slots; ++slot)
    for (std::int64_t place = 0; place < slots_.places; ++place) {
      const std::size_t i = place * slots_.slots + slot;
      if (in_slot_[i]) continue;
      const std::size_t held = sequence.begin == 0 ? held_for(sequence, i) : 0;
      if (best == in_slot_.size() || held > most) {
        best = i;
        most = held;
      }
    }
  return best;
}

void GenerationSchedule::admit() {
  if (idle()) {
    in_slot_.assign(slots_.places * slots_.slots, nullptr);
    slots_.last.resize(in_slot_.size());
  }
  while (!waiting_.empty()) {
    GeneratedSequence& sequence = sequences_.at(waiting_.front());
    const std::size_t i = best_slot(sequence);
    if (i == in_slot_.size()) return;
    waiting_.pop_front();
    if (sequence.begin == 0 && !sequence.options.score_prompt && !sequence.embeds())
      sequence.cached = held_for(sequence, i);
    sequence.result.cached_tokens = static_cast<std::int64_t>(sequence.cached);
    in_slot_[i] = &sequence;
  }
}

PassPlan GenerationSchedule::next() {
  admit();
  const auto any = [&](const auto& wanted) {
    return std::ranges::any_of(in_slot_, [&](const auto* each) { return each && wanted(*each); });
  };
  PassPlan plan;
  plan.embeds = any([](const auto& each) { return each.embeds(); }) &&
                !(embedded_ && any([](const auto& each) { return !each.embeds(); }));
  embedded_ = plan.embeds;
  const auto in_pass = [&](const auto& each) { return each.embeds() == plan.embeds; };
  const bool fresh = any([&](const auto& each) { return in_pass(each) && each.cached == 0; });
  const std::int64_t most_new =
      slots_.window > 0 ? std::min(kNewTokens, slots_.entries - slots_.window + 1) : kNewTokens;
  plan.reads = fresh ? KeyValueCache::Reads::own_rows : KeyValueCache::Reads::kept;
  for (std::int64_t place = 0; place < slots_.places; ++place) {
    auto& parts = plan.of_place.emplace_back();
    std::int64_t rows = 0, scored = 0;
    for (std::int64_t slot = 0; slot < slots_.slots; ++slot) {
      GeneratedSequence* sequence = in_slot_[place * slots_.slots + slot];
      if (!sequence || !in_pass(*sequence) || (sequence->cached == 0) != fresh) continue;
      const auto left = static_cast<std::int64_t>(sequence->in_context() - sequence->cached);
      PassPart part{sequence, static_cast<std::int32_t>(slot),
                    fresh ? left : std::min(left, most_new)};
      if (sequence->scores_prompt() && slots_.caches)
        part.count = std::min({part.count, most_new, kScoredRows});
      if (fresh && rows > 0 && rows + part.count > kPromptTokens) break;
      if (sequence->scores_prompt()) {
        if (scored > 0 && scored + part.count > kScoredRows) continue;
        scored += part.count;
      }
      parts.push_back(part);
      rows += part.count;
    }
    // The rows of an adapter lie one after another, so that one product serves them.
    std::ranges::stable_sort(parts, {},
                             [](const PassPart& part) { return part.sequence->options.adapter; });
  }
  return plan;
}

}  // namespace axonn
