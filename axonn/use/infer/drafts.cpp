#include "axonn/use/infer/drafts.h"

#include <algorithm>

#include "axonn/use/infer/generation_schedule.h"

namespace axonn {

namespace {

/// Rows of a pass of drafts: about as many as take no longer than one, where reading the weights
/// takes most of the time.
constexpr std::int64_t kRows = 16;

}  // namespace

std::vector<std::int32_t> tokens_after_same(std::span<const std::int32_t> text, std::int64_t most) {
  constexpr std::int64_t kFewest = 2, kMost = 4;
  const std::int64_t size = std::ssize(text);
  std::int64_t best = 0, longest = kFewest - 1;
  for (std::int64_t end = size - 1; end >= kFewest && longest < kMost; --end) {
    std::int64_t same = 0;
    while (same < std::min(kMost, end) && text[end - 1 - same] == text[size - 1 - same]) ++same;
    if (same <= longest) continue;
    longest = same;
    best = end;
  }
  if (best == 0) return {};
  std::vector<std::int32_t> draft;
  for (std::int64_t i = 0; i < most; ++i)
    draft.push_back(best + i < size ? text[best + i] : draft[best + i - size]);
  return draft;
}

std::vector<std::int32_t> draft_of(const GeneratedSequence& sequence, const DraftLimits& limits,
                                   std::int64_t sequences) {
  const GenerationOptions& options = sequence.options;
  if (sequence.search || options.likeliest >= 0) return {};
  const auto length = static_cast<std::int64_t>(sequence.in_context());
  std::int64_t most =
      std::min({limits.most, sequence.draft_length, kRows / sequences - 1, limits.context - length,
                options.max_tokens - static_cast<std::int64_t>(sequence.produced()) - 1});
  if (length <= limits.short_sequences) most = std::min(most, limits.short_sequences - length);
  if (most < 1) return {};
  return tokens_after_same(std::span(sequence.tokens).subspan(sequence.begin), most);
}

std::int64_t kept_of_draft(const PassPart& part, std::span<const std::int32_t> tokens) {
  std::int64_t kept = 0;
  while (kept < std::ssize(part.draft) && tokens[kept] == part.draft[kept] &&
         tokens[kept + 1] != -1)
    ++kept;
  return kept;
}

std::int64_t next_draft_length(std::int64_t drafted, std::int64_t kept, std::int64_t most) {
  return kept == drafted ? std::min(most, 2 * drafted) : kept + 1;
}

}  // namespace axonn
