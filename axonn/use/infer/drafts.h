#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace axonn {

struct GeneratedSequence;
struct PassPart;

/// Speculative decoding: tokens that a pass computes beside the last one of a text, in the hope
/// that they follow it. They are looked up in the text, or a DraftModel writes them. The text is
/// that of drawing token by token, up to the rounding of passes of several rows, since each draft
/// only stands where it is what was drawn. Sources: Leviathan et al., "Fast inference from
/// transformers via speculative decoding", 2023; Saxena, "Prompt lookup decoding", 2023.
struct DraftLimits {
  std::int64_t most = 0;             ///< drafted tokens of a text in a pass; 0: none
  std::int64_t context = 0;          ///< tokens of the longest text
  std::int64_t short_sequences = 0;  ///< as CacheSlots::short_sequences
};

/// `most` tokens: those after the latest earlier position of the text where as many of its last
/// four tokens stand as anywhere, at least two, and after its end those of the draft itself; empty
/// if there is no such position. Bound by memory, the text read once.
std::vector<std::int32_t> tokens_after_same(std::span<const std::int32_t> text, std::int64_t most);

/// The most tokens of the draft of a part in a pass of so many parts; none unless one token is not
/// cached.
std::int64_t draft_room(const PassPart& part, const DraftLimits& limits, std::int64_t parts);

/// The draft of a part in a pass of so many, by prompt lookup.
std::vector<std::int32_t> draft_of(const PassPart& part, const DraftLimits& limits,
                                   std::int64_t parts);

/// How many tokens of a part's draft were drawn: `tokens` are those that the pass drew, of which -1
/// are none.
std::int64_t kept_of_draft(const PassPart& part, std::span<const std::int32_t> tokens);

/// How long the next draft may be after one of which the first `kept` tokens were drawn: twice as
/// long if all were, else one more than were.
std::int64_t next_draft_length(std::int64_t drafted, std::int64_t kept, std::int64_t most);

}  // namespace axonn
