#include <algorithm>
#include <utility>

#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

void TokenSource::read(std::int64_t begin, std::span<std::int32_t> tokens) const {
  const std::int64_t count = std::ssize(tokens);
  AXONN_CHECK(begin >= 0 && count <= size() && begin <= size() - count, "read: tokens ", begin,
              " to ", begin + count, " were asked of ", name(), ", which has ", size());
  read_valid(begin, tokens);
}

void TokenSource::read_checked(std::int64_t begin, std::span<std::int32_t> tokens,
                               std::int64_t vocab) const {
  read(begin, tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab) [[unlikely]]
      refuse(where(begin + static_cast<std::int64_t>(i)), " is ", tokens[i],
             ", but the model's vocabulary has ", vocab, " tokens; set model.vocab to at least ",
             std::int64_t{std::max(tokens[i], 0)} + 1,
             ", or make the file again with the model's tokenizer");
}

std::int32_t TokenSource::at(std::int64_t position) const {
  std::int32_t token = 0;
  read(position, {&token, 1});
  return token;
}

std::string TokenSource::where(std::int64_t position) const {
  return concat("token ", position, " of ", name());
}

void MemoryTokens::read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const {
  std::copy_n(tokens_.begin() + begin, tokens.size(), tokens.begin());
}

void MemoryTokens::document_begins(std::int64_t begin, std::int64_t end,
                                   std::vector<std::int64_t>& to) const {
  const auto first = std::ranges::lower_bound(begins_, begin);
  to.insert(to.end(), first, std::lower_bound(first, begins_.end(), end));
}

JoinedTokens::JoinedTokens(std::vector<std::shared_ptr<const TokenSource>> parts,
                           std::vector<bool> continued)
    : parts_(std::move(parts)), continued_(std::move(continued)) {
  AXONN_CHECK(!parts_.empty(), "JoinedTokens needs at least one source");
  continued_.resize(parts_.size());
  std::int64_t end = 0;
  for (const auto& part : parts_) ends_.push_back(end += part->size());
}

std::string JoinedTokens::name() const {
  if (parts_.size() == 1) return parts_.front()->name();
  return concat(parts_.front()->name(), " and ", parts_.size() - 1, " more");
}

std::size_t JoinedTokens::part_of(std::int64_t position) const {
  return std::ranges::upper_bound(ends_, position) - ends_.begin();
}

bool JoinedTokens::has_documents() const {
  return std::ranges::all_of(parts_, [](const auto& part) { return part->has_documents(); });
}

bool JoinedTokens::grows() const {
  return std::ranges::any_of(parts_, [](const auto& part) { return part->grows(); });
}

void JoinedTokens::document_begins(std::int64_t begin, std::int64_t end,
                                   std::vector<std::int64_t>& to) const {
  for (std::size_t part = part_of(begin); part < parts_.size(); ++part) {
    const std::int64_t first = ends_[part] - parts_[part]->size();
    if (first >= end) return;
    const std::size_t had = to.size();
    parts_[part]->document_begins(std::max<std::int64_t>(begin - first, continued_[part] ? 1 : 0),
                                  std::min(end, ends_[part]) - first, to);
    for (std::size_t i = had; i < to.size(); ++i) to[i] += first;
  }
}

std::string JoinedTokens::where(std::int64_t position) const {
  const std::size_t part = part_of(position);
  return parts_[part]->where(position - (ends_[part] - parts_[part]->size()));
}

void JoinedTokens::read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const {
  for (std::size_t part = part_of(begin); !tokens.empty(); ++part) {
    const std::int64_t count = std::min<std::int64_t>(ends_[part] - begin, std::ssize(tokens));
    parts_[part]->read(begin - (ends_[part] - parts_[part]->size()), tokens.first(count));
    begin += count;
    tokens = tokens.subspan(count);
  }
}

}  // namespace axonn
