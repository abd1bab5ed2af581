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

StreamDecoder decoder_of(const Tokenizer& tokenizer, const GenerationOptions& options) {
  return StreamDecoder(tokenizer,
                       {.skip_special = true, .shown = options.shown_tokens, .continues = true},
                       options.stop_strings);
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
  std::erase(waiting_, number);
  for (std::size_t i = 0; i < in_slot_.size(); ++i) {
    if (in_slot_[i] != &sequence) continue;
    slots_.last[i] = left_in(sequence, i);
    in_slot_[i] = nullptr;
  }
  sequences_.erase(found);
}

/// What a slot of a sequence that ends holds.
CacheSlots::Slot GenerationSchedule::left_in(const GeneratedSequence& sequence,
                                             std::size_t i) const {
  const auto slot = static_cast<std::int64_t>(i) % slots_.slots;
  const std::vector<std::int32_t>* tokens = &sequence.tokens;
  const bool first = !sequence.search || sequence.beams.front().slot == slot;
  if (sequence.branched())
    tokens = &std::ranges::find(sequence.beams, slot, &BeamText::slot)->tokens;
  else if (sequence.embeds() || !first)
    return slots_.last[i];  // what was there
  const auto begin = tokens->begin() + static_cast<std::ptrdiff_t>(sequence.begin);
  // The keys of a part of a long sequence are not those of a short one.
  const bool usable = !slots_.differ(sequence.cached, sequence.in_context());
  // A text may end within a draft of which more is cached.
  const std::size_t cached = std::min(sequence.cached, sequence.in_context());
  const auto held = static_cast<std::ptrdiff_t>(usable && !tokens->empty() ? cached : 0);
  return {.tokens = {begin, begin + held}, .adapter = sequence.options.adapter};
}

/// Whether so many slots of a coordinate are free.
bool GenerationSchedule::has_room(std::int64_t coordinate, std::int64_t slots) const {
  const auto first = in_slot_.begin() + coordinate * slots_.slots;
  return std::count(first, first + slots_.slots, nullptr) >= slots;
}

std::size_t GenerationSchedule::held_for(const GeneratedSequence& sequence, std::size_t i) const {
  return slots_.held(i, sequence.tokens, sequence.options.adapter);
}

/// The free slot that holds most of the sequence's tokens; of equal ones the first, in turn over
/// coordinates, so that all coordinates have equally many sequences. in_slot_.size() if none is
/// free.
std::size_t GenerationSchedule::best_slot(const GeneratedSequence& sequence) const {
  std::size_t best = in_slot_.size(), most = 0;
  for (std::int64_t slot = 0; slot < slots_.slots; ++slot)
    for (std::int64_t coordinate = 0; coordinate < slots_.coordinates; ++coordinate) {
      const std::size_t i = coordinate * slots_.slots + slot;
      if (in_slot_[i] || !has_room(coordinate, sequence.options.beams.beams)) continue;
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
    in_slot_.assign(slots_.coordinates * slots_.slots, nullptr);
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
    take_slots(sequence, i);
  }
}

/// Gives a sequence the slot and, of the same coordinate, those of its further beams.
void GenerationSchedule::take_slots(GeneratedSequence& sequence, std::size_t first) {
  in_slot_[first] = &sequence;
  if (!sequence.search) return;
  const auto coordinate = static_cast<std::int64_t>(first) / slots_.slots;
  sequence.beams = {{.slot = static_cast<std::int32_t>(first % slots_.slots)}};
  for (std::int32_t slot = 0; std::ssize(sequence.beams) < sequence.options.beams.beams; ++slot) {
    GeneratedSequence*& in = in_slot_[coordinate * slots_.slots + slot];
    if (in) continue;
    in = &sequence;
    sequence.beams.push_back({.slot = slot});
  }
}

void GenerationSchedule::add_parts(std::vector<PassPart>& parts, const PassPart& first) {
  const GeneratedSequence& sequence = *first.sequence;
  if (!sequence.branched()) return parts.push_back(first);
  for (std::size_t beam = 0; beam < sequence.search->running().size(); ++beam)
    parts.push_back({first.sequence, sequence.beams[beam].slot, first.count, beam});
}

/// Adds drafts to a pass of the tokens that were drawn last.
void GenerationSchedule::add_drafts(GenerationPass& work) const {
  for (auto& parts : work.of_coordinate)
    for (PassPart& part : parts) {
      part.draft = draft_of(part, drafts_, std::ssize(parts));
      work.drafted = std::max(work.drafted, std::ssize(part.draft));
    }
}

GenerationPass GenerationSchedule::next() {
  admit();
  const auto any = [&](const auto& wanted) {
    return std::ranges::any_of(in_slot_, [&](const auto* each) { return each && wanted(*each); });
  };
  GenerationPass work;
  work.embeds = any([](const auto& each) { return each.embeds(); }) &&
                !(embedded_ && any([](const auto& each) { return !each.embeds(); }));
  embedded_ = work.embeds;
  const auto in_pass = [&](const auto& each) { return each.embeds() == work.embeds; };
  const bool fresh = any([&](const auto& each) { return in_pass(each) && each.cached == 0; });
  const std::int64_t most_new =
      slots_.window > 0 ? std::min(kNewTokens, slots_.entries - slots_.window + 1) : kNewTokens;
  work.reads = fresh ? KeyValueCache::Reads::own_rows : KeyValueCache::Reads::kept;
  for (std::int64_t coordinate = 0; coordinate < slots_.coordinates; ++coordinate) {
    auto& parts = work.of_coordinate.emplace_back();
    std::int64_t rows = 0, scored = 0;
    for (std::int64_t slot = 0; slot < slots_.slots; ++slot) {
      GeneratedSequence* sequence = in_slot_[coordinate * slots_.slots + slot];
      if (!sequence || !in_pass(*sequence) || (sequence->cached == 0) != fresh) continue;
      if (sequence->search && sequence->beams.front().slot != slot) continue;
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
      const auto before = std::ssize(parts);
      add_parts(parts, part);
      rows += (std::ssize(parts) - before) * part.count;
    }
    // The rows of an adapter lie one after another, so that one product serves them.
    std::ranges::stable_sort(parts, {},
                             [](const PassPart& part) { return part.sequence->options.adapter; });
  }
  if (drafts_.most > 0 && !fresh && !work.embeds) add_drafts(work);
  return work;
}

}  // namespace axonn
