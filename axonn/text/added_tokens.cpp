#include "axonn/text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "axonn/base/check.h"

namespace axonn {

namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

void AddedTokenFinder::add(std::string content, std::int32_t token) {
  AXONN_CHECK(!content.empty(), "an added token has no characters");
  auto& entries = by_first_byte_[byte_at(content, 0)];
  if (entries.empty()) first_bytes_ += content[0];
  begins_[byte_at(content, 0)] = true;
  const auto longer = [&](const Entry& entry) { return entry.content.size() > content.size(); };
  const auto place = std::ranges::partition_point(entries, longer);
  entries.insert(place, {std::move(content), token});
}

std::size_t AddedTokenFinder::next_candidate(std::string_view text, std::size_t from) const {
  if (first_bytes_.empty()) return text.size();
  if (first_bytes_.size() == 1) return std::min(text.find(first_bytes_[0], from), text.size());
  while (from < text.size() && !begins_[byte_at(text, from)]) ++from;
  return from;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text,
                                                              std::size_t from) const {
  for (std::size_t i = next_candidate(text, from); i < text.size();
       i = next_candidate(text, i + 1)) {
    for (const Entry& entry : by_first_byte_[byte_at(text, i)])
      if (text.substr(i).starts_with(entry.content))
        return Match{i, entry.content.size(), entry.token};
  }
  return std::nullopt;
}

}  // namespace axonn
