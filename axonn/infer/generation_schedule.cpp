#include "axonn/infer/generation_schedule.h"

#include <algorithm>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// Most prompt tokens of one pass of several prompts, so that short prompts share one gather of the
/// weights.
constexpr std::int64_t kPromptTokens = 1024;

/// Most tokens of one sequence in a pass that reads the cache. It bounds the pass's memory.
constexpr std::int64_t kNewTokens = 512;

}  // namespace

std::size_t CacheSlots::held(std::size_t i, const std::vector<std::int32_t>& wanted) const {
  const auto& here = tokens[i];
  const auto differ = std::ranges::mismatch(here, wanted).in1;
  const auto same = std::min<std::size_t>(differ - here.begin(), wanted.size() - 1);
  const auto ssame = static_cast<std::int64_t>(same), size = std::ssize(here);
  const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, ssame + 1 - window) : 0;
  if (size > entries && first < size - entries) return 0;  // later tokens overwrote needed ones
  return 2 * same >= wanted.size() ? same : 0;
}

GenerationSchedule::GenerationSchedule(std::vector<GeneratedSequence> sequences, CacheSlots& slots)
    : sequences_(std::move(sequences)), slots_(slots), in_slot_(slots.places * slots.slots) {
  slots_.tokens.resize(in_slot_.size());
}

/// Fills slots in turn over places, so that all places have equally many sequences.
void GenerationSchedule::admit() {
  for (std::int64_t slot = 0; slot < slots_.slots; ++slot)
    for (std::int64_t place = 0; place < slots_.places && next_ < sequences_.size(); ++place) {
      const std::size_t i = place * slots_.slots + slot;
      if (in_slot_[i]) continue;
      GeneratedSequence& sequence = sequences_[next_++];
      if (sequence.begin == 0) sequence.cached = slots_.held(i, sequence.tokens);
      in_slot_[i] = &sequence;
      ++running_;
    }
}

std::int64_t GenerationSchedule::most_new(const GeneratedSequence& sequence) const {
  if (sequence.cached == 0) return static_cast<std::int64_t>(sequence.in_context());
  return slots_.window > 0 ? std::min(kNewTokens, slots_.entries - slots_.window + 1) : kNewTokens;
}

PassPlan GenerationSchedule::next() {
  AXONN_CHECK(!done(), "GenerationSchedule: no sequence is left to generate");
  admit();
  const bool fresh = std::ranges::any_of(in_slot_, [](const GeneratedSequence* sequence) {
    return sequence && sequence->cached == 0;
  });
  PassPlan plan;
  plan.reads = fresh ? KeyValueCache::Reads::own_rows : KeyValueCache::Reads::kept;
  for (std::int64_t place = 0; place < slots_.places; ++place) {
    auto& parts = plan.of_place.emplace_back();
    std::int64_t rows = 0;
    for (std::int64_t slot = 0; slot < slots_.slots; ++slot) {
      GeneratedSequence* sequence = in_slot_[place * slots_.slots + slot];
      if (!sequence || (sequence->cached == 0) != fresh) continue;
      const auto left = static_cast<std::int64_t>(sequence->in_context() - sequence->cached);
      const std::int64_t count = std::min(left, most_new(*sequence));
      if (fresh && rows > 0 && rows + count > kPromptTokens) break;
      parts.push_back({sequence, static_cast<std::int32_t>(slot), count});
      rows += count;
    }
  }
  return plan;
}

GeneratedSequence& GenerationSchedule::at(std::int64_t place, std::int64_t slot) const {
  return *in_slot_.at(place * slots_.slots + slot);
}

void GenerationSchedule::finish(std::int64_t place, std::int64_t slot) {
  const std::size_t i = place * slots_.slots + slot;
  const GeneratedSequence& sequence = *in_slot_[i];
  const auto first = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.begin);
  slots_.tokens[i].assign(first, first + static_cast<std::ptrdiff_t>(sequence.cached));
  in_slot_[i] = nullptr;
  --running_;
}

}  // namespace axonn
