#include "axonn/data/grammar/pattern_reader.h"

#include <utility>

#include "axonn/foundation/base/utf8.h"

namespace axonn {

CodeRanges tidy(CodeRanges ranges) {
  std::ranges::sort(ranges);
  CodeRanges out;
  for (const auto& [first, last] : ranges)
    if (!out.empty() && first <= out.back().second + 1)
      out.back().second = std::max(out.back().second, last);
    else
      out.emplace_back(first, last);
  return out;
}

CodeRanges others(const CodeRanges& ranges) {
  CodeRanges out;
  char32_t next = 0;
  for (const auto& [first, last] : tidy(ranges)) {
    if (first > next) out.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastCode) out.emplace_back(next, kLastCode);
  return out;
}

PatternReader::PatternReader(std::string_view text, const char* what, Rules& rules,
                             WriteCharacters write)
    : rules_(rules), text_(text), what_(what), write_(std::move(write)) {
  if (valid_utf8_prefix(text) != text.size()) refuse(what, " is not UTF-8");
}

ExpressionPtr PatternReader::alternatives(int depth) {
  if (depth > kMostGroups) fault("groups nest deeper than ", kMostGroups);
  std::vector<ExpressionPtr> parts;
  do parts.push_back(sequence(depth));
  while (take("|"));
  return either(std::move(parts));
}

ExpressionPtr PatternReader::characters(const CodeRanges& ranges) {
  const CodeRanges wanted = tidy(ranges);
  if (wanted.empty()) fault("no character fits");
  ExpressionPtr& known = sets_[wanted];
  if (!known) known = rules_.add(write_(wanted));
  return known;
}

char32_t PatternReader::take_code() {
  if (done()) fault("it ends too early");
  const char32_t code = code_point(text_.substr(at_));
  at_ += utf8_front(text_.substr(at_)).bytes;
  return code;
}

std::int64_t PatternReader::number() {
  std::int64_t value = 0;
  const std::size_t begin = at_;
  while (!done() && text_[at_] >= '0' && text_[at_] <= '9' && value <= kMostRepeats)
    value = value * 10 + (text_[at_++] - '0');
  if (at_ == begin) fault("wanted a number; write \\{ for the character {");
  if (value > kMostRepeats) fault("more than ", kMostRepeats, " repetitions");
  return value;
}

char32_t PatternReader::hexadecimal(std::size_t digits) {
  char32_t code = 0;
  for (std::size_t i = 0; i < digits; ++i) {
    const char c = done() ? ' ' : lower_ascii(text_[at_++]);
    if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) fault("wanted ", digits, " digits");
    code = code * 16 + static_cast<char32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return code;
}

}  // namespace axonn
