#include "axonn/data/grammar/json_values.h"

#include <algorithm>
#include <string>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::int64_t kMostDigits = 18, kMostFraction = 17;

ExpressionPtr digit(char first = '0', char last = '9') {
  return byte_of({{static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last)}});
}
ExpressionPtr digits(std::int64_t least, std::int64_t most) {
  return repeated(digit(), least, most);
}

/// Texts of digits as long as `bound`, and at least or at most as large.
ExpressionPtr beyond(const std::string& bound, bool above) {
  if (bound.empty()) return literal("");
  const char first = bound.front();
  const auto rest = static_cast<std::int64_t>(bound.size()) - 1;
  std::vector<ExpressionPtr> parts{in_order({digit(first, first), beyond(bound.substr(1), above)})};
  const char from = above ? static_cast<char>(first + 1) : '0',
             to = above ? '9' : static_cast<char>(first - 1);
  if (from <= to) parts.push_back(in_order({digit(from, to), digits(rest, rest)}));
  return either(std::move(parts));
}

/// Texts of digits from `low` to `high`, which are as long as each other.
ExpressionPtr between(const std::string& low, const std::string& high) {
  if (low == high) return literal(low);
  if (low[0] == high[0])
    return in_order({literal(low.substr(0, 1)), between(low.substr(1), high.substr(1))});
  const auto rest = static_cast<std::int64_t>(low.size()) - 1;
  std::vector<ExpressionPtr> parts{
      in_order({digit(low[0], low[0]), beyond(low.substr(1), true)}),
      in_order({digit(high[0], high[0]), beyond(high.substr(1), false)})};
  if (low[0] + 1 < high[0])
    parts.push_back(in_order({digit(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)),
                              digits(rest, rest)}));
  return either(std::move(parts));
}

/// Whole numbers from low >= 0 on, up to `high`; null if there are none.
ExpressionPtr naturals(std::int64_t low, std::optional<std::int64_t> high) {
  if (high && *high < low) return nullptr;
  std::vector<ExpressionPtr> parts;
  if (low == 0) {
    parts.push_back(literal("0"));
    low = 1;
  }
  const std::string first = std::to_string(low);
  const auto size = static_cast<std::int64_t>(first.size());
  const std::string last = std::to_string(high.value_or(low));
  const std::int64_t longest = high ? static_cast<std::int64_t>(last.size()) : kMostDigits + 1;
  if (high && *high < low) return parts.empty() ? nullptr : parts.front();
  if (high && longest == size) {
    parts.push_back(between(first, last));
  } else {
    parts.push_back(beyond(first, true));
    if (size < longest - 1) parts.push_back(in_order({digit('1'), digits(size, longest - 2)}));
    if (high) {
      // As long as `last`, without a zero at the front.
      parts.push_back(between("1" + std::string(last.size() - 1, '0'), last));
    }
  }
  return either(std::move(parts));
}

void add(std::vector<ExpressionPtr>& parts, ExpressionPtr part) {
  if (part) parts.push_back(std::move(part));
}

ExpressionPtr some(std::vector<ExpressionPtr> parts) {
  if (parts.empty()) refuse("no number is within its bounds");
  return either(std::move(parts));
}

/// Numbers from low >= 0 on with fractions; null if there are none. `above`, `below`: low and high
/// are excluded.
ExpressionPtr fractions(std::int64_t low, bool above, std::optional<std::int64_t> high,
                        bool below) {
  std::vector<ExpressionPtr> parts;
  const ExpressionPtr more = optional(in_order({literal("."), digits(1, kMostFraction)})),
                      nothing = optional(in_order({literal("."), repeated(literal("0"), 1, 3)})),
                      something = in_order(
                          {literal("."), repeated(literal("0"), 0, 8), digit('1'), digits(0, 8)});
  const bool room = !high || low < *high;
  if (above && room) parts.push_back(in_order({literal(std::to_string(low)), something}));
  const std::int64_t from = low + (above ? 1 : 0);
  std::optional<std::int64_t> until;
  if (high) until = *high - 1;
  if (ExpressionPtr whole = naturals(from, until)) parts.push_back(in_order({whole, more}));
  if (high && !below && *high >= from)
    parts.push_back(in_order({literal(std::to_string(*high)), nothing}));
  return parts.empty() ? nullptr : either(std::move(parts));
}

}  // namespace

JsonValues::JsonValues(Rules& rules) {
  const std::size_t any = rules.declare();
  value = use_of(any);
  space = rules.add(optional(
      either({literal(" "), in_order({repeated(literal("\n"), 1, 2),
                                      repeated(byte_of({{' ', ' '}, {'\t', '\t'}}), 0, 20)})})));
  const ExpressionPtr hex = byte_of({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  const ExpressionPtr code = either(  // no surrogates: such characters are written as they are
      {in_order({byte_of({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}}),
                 repeated(hex, 3, 3)}),
       in_order({byte_of({{'D', 'D'}, {'d', 'd'}}), digit('0', '7'), repeated(hex, 2, 2)})});
  character =
      rules.add(either({character_of({{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0x10ffff}}),
                        in_order({literal("\\"), either({byte_of({{'"', '"'},
                                                                  {'\\', '\\'},
                                                                  {'/', '/'},
                                                                  {'b', 'b'},
                                                                  {'f', 'f'},
                                                                  {'n', 'n'},
                                                                  {'r', 'r'},
                                                                  {'t', 't'}}),
                                                         in_order({literal("u"), code})})})}));
  string = rules.add(in_order({literal("\""), repeated(character, 0), literal("\"")}));
  const ExpressionPtr natural =
      either({literal("0"), in_order({digit('1'), digits(0, kMostDigits - 1)})});
  whole = rules.add(in_order({optional(literal("-")), natural}));
  number = rules.add(
      in_order({whole, optional(in_order({literal("."), digits(1, kMostFraction)})),
                optional(in_order({byte_of({{'E', 'E'}, {'e', 'e'}}),
                                   optional(byte_of({{'+', '+'}, {'-', '-'}})), digits(1, 2)}))}));
  boolean = any_text({"true", "false"});
  null = literal("null");
  object = rules.add(list('{', rules.add(member(string, value)), '}'));
  array = rules.add(list('[', value, ']'));
  rules.set(any, either({object, array, string, number, boolean, null}));
}

ExpressionPtr JsonValues::list(char open, const ExpressionPtr& one, char close, std::int64_t least,
                               std::int64_t most) const {
  const bool bounded = most != GrammarExpression::kUnbounded;
  ExpressionPtr items = literal("");
  if (most != 0)
    items = in_order({space, one,
                      repeated(in_order({literal(","), space, one}),
                               std::max<std::int64_t>(least - 1, 0), bounded ? most - 1 : most)});
  if (least == 0) items = optional(std::move(items));
  return in_order(
      {literal(std::string(1, open)), std::move(items), space, literal(std::string(1, close))});
}

ExpressionPtr JsonValues::member(ExpressionPtr key, ExpressionPtr of) const {
  return in_order({std::move(key), literal(":"), space, std::move(of)});
}

ExpressionPtr json_character_of(const std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> plain;
  std::vector<ExpressionPtr> parts;
  for (const auto& [first, last] : ranges) {
    char32_t next = first;
    for (char32_t code = first; code <= std::min<char32_t>(last, '\\'); ++code) {
      if (code >= 0x20 && code != '"' && code != '\\') continue;
      if (code > next) plain.emplace_back(next, code - 1);
      next = code + 1;
      constexpr std::string_view kNamed = "\b\t\n\f\r\"\\", kNames = "btnfr\"\\";
      const std::size_t named = kNamed.find(static_cast<char>(code));
      const char* hex = "0123456789abcdef";
      parts.push_back(literal(named != kNamed.npos
                                  ? std::string("\\") + kNames[named]
                                  : std::string("\\u00") + hex[code >> 4] + hex[code & 15]));
    }
    if (next <= last) plain.emplace_back(next, last);
  }
  if (!plain.empty()) parts.push_back(character_of(plain));
  return either(std::move(parts));
}

ExpressionPtr whole_between(const NumberBounds& bounds) {
  std::vector<ExpressionPtr> parts;
  add(parts, naturals(std::max<std::int64_t>(bounds.least.value_or(0), 0), bounds.most));
  if (!bounds.least || *bounds.least < 0) {
    const std::int64_t nearest = bounds.most && *bounds.most < 0 ? -*bounds.most : 1;
    std::optional<std::int64_t> farthest;
    if (bounds.least) farthest = -*bounds.least;
    if (ExpressionPtr below = naturals(nearest, farthest))
      parts.push_back(in_order({literal("-"), below}));
  }
  return some(std::move(parts));
}

ExpressionPtr number_between(const NumberBounds& bounds) {
  std::vector<ExpressionPtr> parts;
  const bool starts_below = !bounds.least || *bounds.least < 0;
  if (!bounds.most || *bounds.most >= 0)
    add(parts, fractions(starts_below ? 0 : *bounds.least, !starts_below && bounds.above,
                         bounds.most, bounds.below));
  if (starts_below) {
    const bool ends_below = bounds.most && *bounds.most < 0;
    std::optional<std::int64_t> farthest;
    if (bounds.least) farthest = -*bounds.least;
    if (ExpressionPtr below = fractions(ends_below ? -*bounds.most : 0, !ends_below || bounds.below,
                                        farthest, bounds.above))
      parts.push_back(in_order({literal("-"), below}));
  }
  return some(std::move(parts));
}

}  // namespace axonn
