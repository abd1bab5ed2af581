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

std::int64_t draft_room(const PassPart& part, const DraftLimits& limits, std::int64_t parts) {
  const GeneratedSequence& sequence = *part.sequence;
  const GenerationOptions& options = sequence.options;
  if (part.count > 1 || !part.last() || sequence.search || options.likeliest >= 0) return 0;
  const auto length = static_cast<std::int64_t>(sequence.in_context());
  std::int64_t most =
      std::min({limits.most, sequence.draft_length, kRows / parts - 1, limits.context - length,
                options.max_tokens - static_cast<std::int64_t>(sequence.produced()) - 1});
  if (length <= limits.short_sequences) most = std::min(most, limits.short_sequences - length);
  return std::max<std::int64_t>(most, 0);
}

std::vector<std::int32_t> draft_of(const PassPart& part, const DraftLimits& limits,
                                   std::int64_t parts) {
  const std::int64_t most = draft_room(part, limits, parts);
  if (most < 1) return {};
  return tokens_after_same(std::span(part.sequence->tokens).subspan(part.sequence->begin), most);
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
