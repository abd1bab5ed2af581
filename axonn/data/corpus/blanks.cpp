#include "axonn/data/corpus/blanks.h"

#include <algorithm>
#include <bitset>
#include <unordered_map>

#include "axonn/data/corpus/sequences.h"
#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

bool Blanks::touches(std::int64_t begin, std::int64_t end) const {
  const auto span = std::ranges::upper_bound(spans, begin, {}, &Span::end);
  return span != spans.end() && span->begin < end;
}

void blank_rows(const Blanks& blanks, std::int64_t begin, std::int64_t row, std::int64_t rows,
                Sequence& to) {
  for (auto span = std::ranges::upper_bound(blanks.spans, begin, {}, &Span::end);
       span != blanks.spans.end() && span->begin <= begin + rows; ++span) {
    const std::int64_t first = span->begin - begin, last = span->end - begin;  // rows of inputs
    for (std::int64_t r = std::max<std::int64_t>(first, 0); r < std::min(last, rows); ++r)
      to.ids[row + r] = blanks.filler;
    for (std::int64_t r = std::max<std::int64_t>(first - 1, 0); r < std::min(last, rows); ++r)
      to.targets[row + r] = -1;
  }
}

std::vector<Span> joined_spans(std::vector<Span> spans) {
  std::ranges::sort(spans, {}, &Span::begin);
  std::vector<Span> joined;
  for (const Span& span : spans)
    if (!joined.empty() && span.begin <= joined.back().end)
      joined.back().end = std::max(joined.back().end, span.end);
    else
      joined.push_back(span);
  return joined;
}

bool ForgottenDocument::found() const {
  return std::ranges::any_of(occurrences, [](const auto& spans) { return !spans.empty(); });
}

// A hash of the last `width` tokens, rolled on token by token (Karp and Rabin, 1987), finds where a
// passage may begin; then its tokens are compared.
std::vector<std::vector<std::int64_t>> find_passages(
    const TokenSource& source, Span within, std::span<const std::vector<std::int32_t>> passages) {
  constexpr std::int64_t kAtOnce = 1 << 20, kWidest = 64;
  constexpr std::uint64_t kBase = 0x9e3779b97f4a7c15;
  std::vector<std::vector<std::int64_t>> occurrences(passages.size());
  if (passages.empty() || within.begin >= within.end) return occurrences;
  std::int64_t width = kWidest, longest = 0;
  for (const auto& passage : passages) {
    AXONN_CHECK(!passage.empty(), "find_passages: a passage has no tokens");
    width = std::min(width, std::ssize(passage));
    longest = std::max(longest, std::ssize(passage));
  }
  const auto add = [](std::uint64_t hash, std::int32_t token) {
    return hash * kBase + static_cast<std::uint32_t>(token) + 1;
  };
  std::uint64_t leaving = 1;  // the factor of the token that leaves the hash
  for (std::int64_t i = 0; i < width; ++i) leaving *= kBase;
  std::unordered_multimap<std::uint64_t, std::size_t> starts;
  std::bitset<1 << 16> may_start;  // by the highest bits, which the product mixes best
  for (std::size_t p = 0; p < passages.size(); ++p) {
    std::uint64_t hash = 0;
    for (std::int64_t i = 0; i < width; ++i) hash = add(hash, passages[p][i]);
    starts.emplace(hash, p);
    may_start.set(hash >> 48);
  }
  const std::int64_t begin = std::max<std::int64_t>(within.begin - longest + 1, 0),
                     end = std::min(source.size(), within.end + longest - 1);
  std::vector<std::int32_t> tokens, whole;
  const auto compare = [&](std::int64_t at, std::uint64_t hash) {
    const auto [first, last] = starts.equal_range(hash);
    for (auto start = first; start != last; ++start) {
      const std::vector<std::int32_t>& passage = passages[start->second];
      const std::int64_t after = at + std::ssize(passage);
      if (after > source.size() || at >= within.end || after <= within.begin) continue;
      whole.resize(passage.size());
      source.read(at, whole);
      if (whole == passage) occurrences[start->second].push_back(at);
    }
  };
  std::uint64_t hash = 0;
  for (std::int64_t at = begin; at < end; at += kAtOnce) {
    const std::int64_t from = std::max(begin, at - width), to = std::min(end, at + kAtOnce);
    tokens.resize(to - from);
    source.read(from, tokens);
    for (std::int64_t i = at; i < to; ++i) {
      hash = add(hash, tokens[i - from]);
      if (i - begin >= width)
        hash -= leaving * (static_cast<std::uint32_t>(tokens[i - width - from]) + 1ull);
      if (i - begin >= width - 1 && may_start[hash >> 48]) compare(i + 1 - width, hash);
    }
  }
  return occurrences;
}

}  // namespace axonn
