#include "axonn/data/grammar/expression.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using Kind = GrammarExpression::Kind;
using ByteRanges = std::vector<std::pair<std::uint8_t, std::uint8_t>>;

ExpressionPtr make(GrammarExpression expression) {
  return std::make_shared<const GrammarExpression>(std::move(expression));
}

/// Appends the sequences of bytes of a range of code points, each as a range for each byte.
void append_sequences(CodeRange range, std::vector<ByteRanges>& to) {
  const auto [first, last] = range;
  if (first > last) return;
  for (const char32_t most : {char32_t{0x7f}, char32_t{0x7ff}, char32_t{0xffff}})
    if (first <= most && last > most) {
      append_sequences({first, most}, to);
      return append_sequences({most + 1, last}, to);
    }
  const int followers = first > 0xffff ? 3 : first > 0x7ff ? 2 : first > 0x7f ? 1 : 0;
  for (int i = 1; i <= followers; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      append_sequences({first, first | mask}, to);
      return append_sequences({(first | mask) + 1, last}, to);
    }
    if ((last & mask) != mask) {
      append_sequences({first, (last & ~mask) - 1}, to);
      return append_sequences({last & ~mask, last}, to);
    }
  }
  std::string low, high;
  append_utf8(first, low);
  append_utf8(last, high);
  ByteRanges& bytes = to.emplace_back();
  for (std::size_t i = 0; i < low.size(); ++i)
    bytes.emplace_back(static_cast<std::uint8_t>(low[i]), static_cast<std::uint8_t>(high[i]));
}

/// Any of the sorted, different texts [begin, end), without the `from` bytes that they share.
ExpressionPtr any_of(const std::vector<std::string>& texts, std::size_t begin, std::size_t end,
                     std::size_t from) {
  const std::string &first = texts[begin], &last = texts[end - 1];
  std::size_t same = from;
  while (same < first.size() && same < last.size() && first[same] == last[same]) ++same;
  const ExpressionPtr head = literal(std::string_view(first).substr(from, same - from));
  if (end - begin == 1) return head;
  std::vector<ExpressionPtr> parts;
  if (first.size() == same) {
    parts.push_back(literal(""));
    ++begin;
  }
  while (begin < end) {
    std::size_t next = begin + 1;
    while (next < end && texts[next][same] == texts[begin][same]) ++next;
    parts.push_back(any_of(texts, begin, next, same));
    begin = next;
  }
  return in_order({head, either(std::move(parts))});
}

}  // namespace

ExpressionPtr Rules::add(ExpressionPtr expression) {
  const std::size_t rule = declare();
  set(rule, std::move(expression));
  return use_of(rule);
}

ExpressionPtr literal(std::string_view text) {
  return make({.kind = Kind::text, .text = std::string(text)});
}

ExpressionPtr any_text(std::vector<std::string> texts) {
  AXONN_CHECK(!texts.empty(), "any_text: no texts");
  std::ranges::sort(texts);
  const auto same = std::ranges::unique(texts);
  texts.erase(same.begin(), same.end());
  return any_of(texts, 0, texts.size(), 0);
}

ExpressionPtr byte_of(ByteRanges ranges) {
  return make({.kind = Kind::bytes, .ranges = std::move(ranges)});
}

ExpressionPtr character_of(const std::vector<CodeRange>& ranges) {
  constexpr CodeRange kSurrogates{0xd800, 0xdfff};
  std::vector<ByteRanges> sequences;
  for (const auto& [first, last] : ranges) {
    append_sequences({first, std::min<char32_t>(last, kSurrogates.first - 1)}, sequences);
    append_sequences({std::max<char32_t>(first, kSurrogates.second + 1), last}, sequences);
  }
  ByteRanges single;
  std::vector<ExpressionPtr> parts;
  for (ByteRanges& sequence : sequences) {
    if (sequence.size() == 1) {
      single.push_back(sequence.front());
      continue;
    }
    std::vector<ExpressionPtr> bytes;
    for (const auto& range : sequence) bytes.push_back(byte_of({range}));
    parts.push_back(in_order(std::move(bytes)));
  }
  if (!single.empty()) parts.push_back(byte_of(std::move(single)));
  return either(std::move(parts));
}

ExpressionPtr in_order(std::vector<ExpressionPtr> parts) {
  return make({.kind = Kind::sequence, .parts = std::move(parts)});
}

ExpressionPtr either(std::vector<ExpressionPtr> parts) {
  AXONN_CHECK(!parts.empty(), "either: no choices");
  if (parts.size() == 1) return std::move(parts.front());
  return make({.kind = Kind::choice, .parts = std::move(parts)});
}

ExpressionPtr repeated(ExpressionPtr part, std::int64_t least, std::int64_t most) {
  return make({.kind = Kind::repeat, .parts = {std::move(part)}, .least = least, .most = most});
}

ExpressionPtr optional(ExpressionPtr part) { return repeated(std::move(part), 0, 1); }

/// A rule for each number of bytes of `end` that were read last (Knuth, Morris, Pratt, 1977).
ExpressionPtr text_until(std::string_view end, Rules& rules) {
  AXONN_CHECK(!end.empty(), "text_until: no text");
  std::vector<std::size_t> states(end.size() + 1);
  for (std::size_t& state : states) state = rules.declare();
  rules.set(states.back(), literal(""));
  for (std::size_t read = 0; read < end.size(); ++read) {
    std::vector<ByteRanges> to(end.size() + 1);
    for (int byte = 0; byte < 256; ++byte) {
      const auto b = static_cast<std::uint8_t>(byte);
      const std::string text = std::string(end.substr(0, read)) + static_cast<char>(b);
      std::size_t same = text.size();
      while (!std::string_view(text).ends_with(end.substr(0, same))) --same;
      if (!to[same].empty() && to[same].back().second + 1 == byte)
        to[same].back().second = b;
      else
        to[same].emplace_back(b, b);
    }
    std::vector<ExpressionPtr> parts;
    for (std::size_t same = 0; same < to.size(); ++same)
      if (!to[same].empty()) parts.push_back(in_order({byte_of(to[same]), use_of(states[same])}));
    rules.set(states[read], either(std::move(parts)));
  }
  return use_of(states.front());
}

ExpressionPtr use_of(std::size_t rule) { return make({.kind = Kind::rule, .rule = rule}); }

}  // namespace axonn
