#include "axonn/data/token_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "axonn/base/check.h"

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

MemoryTokens::MemoryTokens(std::string name, std::vector<std::int32_t> tokens)
    : name_(std::move(name)), tokens_(std::move(tokens)) {}

void MemoryTokens::read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const {
  std::copy_n(tokens_.begin() + begin, tokens.size(), tokens.begin());
}

JoinedTokens::JoinedTokens(std::vector<std::shared_ptr<const TokenSource>> parts)
    : parts_(std::move(parts)) {
  AXONN_CHECK(!parts_.empty(), "JoinedTokens needs at least one source");
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

std::string JoinedTokens::where(std::int64_t position) const {
  const std::size_t part = part_of(position);
  return parts_[part]->where(position - (ends_[part] - parts_[part]->size()));
}

void JoinedTokens::read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const {
  for (std::size_t part = part_of(begin); !tokens.empty(); ++part) {
    const auto count =
        static_cast<std::size_t>(std::min<std::int64_t>(ends_[part] - begin, std::ssize(tokens)));
    parts_[part]->read(begin - (ends_[part] - parts_[part]->size()), tokens.first(count));
    begin += static_cast<std::int64_t>(count);
    tokens = tokens.subspan(count);
  }
}

TokenRange token_range(const TokenSource& source) {
  AXONN_CHECK(source.size() > 0, "token_range: ", source.name(), " has no tokens");
  TokenRange range{std::numeric_limits<std::int32_t>::max(),
                   std::numeric_limits<std::int32_t>::min()};
  std::vector<std::int32_t> piece(1 << 16);
  for (std::int64_t begin = 0; begin < source.size(); begin += std::ssize(piece)) {
    piece.resize(std::min<std::int64_t>(std::ssize(piece), source.size() - begin));
    source.read(begin, piece);
    const auto [smallest, largest] = std::ranges::minmax(piece);
    range = {std::min(range.smallest, smallest), std::max(range.largest, largest)};
  }
  return range;
}

}  // namespace axonn
