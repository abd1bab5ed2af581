#include "axonn/data/text/text_steps.h"

#include <algorithm>
#include <utility>

#include "axonn/data/text/byte_characters.h"
#include "axonn/data/text/normal_form.h"
#include "axonn/data/text/unicode/properties.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

/// Calls append(valid, out) for each run of well-formed UTF-8, and keeps other bytes.
template <typename Append>
std::string_view changed_text(std::string_view text, std::string& out, const Append& append) {
  out.clear();
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid > 0) append(text.substr(0, valid), out);
    out += text.substr(valid, 1);
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
  return out;
}

/// The form that a step makes; nothing if it is another step.
std::optional<NormalForm> form_of(const TextStep& step) {
  using Kind = TextStep::Kind;
  if (step.kind == Kind::nfc) return NormalForm::nfc;
  if (step.kind == Kind::nfd) return NormalForm::nfd;
  if (step.kind == Kind::nfkc) return NormalForm::nfkc;
  if (step.kind == Kind::nfkd) return NormalForm::nfkd;
  return {};
}

std::string_view normalize(std::string_view text, NormalForm form, std::string& out) {
  // Characters below U+0300 are composed and do not compose with each other, and those below U+00A0
  // stay in every form; in UTF-8, all their bytes are below these.
  const int first = form == NormalForm::nfc ? 0xcc : 0xc2;
  if (std::ranges::none_of(text, [&](char c) { return static_cast<unsigned char>(c) >= first; }))
    return text;
  return changed_text(
      text, out, [&](std::string_view valid, std::string& to) { append_normal(valid, form, to); });
}

std::string_view replace(const TextStep& step, std::string_view text, std::string& out) {
  std::size_t found = text.find(step.from);
  if (found == text.npos) return text;
  out.clear();
  out.reserve(text.size() + text.size() / 2);
  for (; found != text.npos; found = text.find(step.from)) {
    out += text.substr(0, found);
    out += step.to;
    text.remove_prefix(found + step.from.size());
  }
  out += text;
  return out;
}

/// The last character of a text, or bytes at its end that are none.
std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size();
  if (begin > 0) --begin;
  while (begin > 0 && text.size() - begin < 4 && (byte_at(text, begin) & 0xc0) == 0x80) --begin;
  return text.substr(begin);
}

bool prepends_text(const TextStep& step) {
  using Kind = TextStep::Kind;
  return step.kind == Kind::prepend || step.kind == Kind::prepend_missing ||
         step.kind == Kind::prepend_first;
}

bool prepends(const TextStep& step, std::string_view text, Before before) {
  if (text.empty() || before == Before::text) return false;
  if (step.kind == TextStep::Kind::prepend) return true;
  if (step.kind == TextStep::Kind::prepend_first && before != Before::nothing) return false;
  return !text.starts_with(step.to);
}

}  // namespace

void AddedTokenFinder::add(std::string_view content, std::int32_t token,
                           const AddedToken::Sides& sides) {
  AXONN_CHECK(!content.empty() && content.size() <= kMostBytes, "an added token has ",
              content.size(), " bytes; wanted 1 to ", kMostBytes);
  if (!std::exchange(begins_[byte_at(content, 0)], true)) first_bytes_ += content[0];
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < content.size(); ++i)
    node = next_.try_emplace(std::uint64_t{node} << 8 | byte_at(content, i), next_.size() + 1)
               .first->second;
  token_at_.try_emplace(node, token);  // tokens may be equal when normalized
  if (sides.any()) sides_[token] = sides;
}

/// Takes the white space that belongs to a match, but not before `done`. Returns false if it is no
/// match, since it must be a single word.
bool AddedTokenFinder::settle(std::string_view text, std::size_t done, Match& match) const {
  const auto found = sides_.find(match.token);
  if (found == sides_.end()) return true;
  const std::string_view left = text.substr(0, match.begin),
                         right = text.substr(match.begin + match.bytes);
  const AddedToken::Sides& sides = found->second;
  if (sides.single_word &&
      ((!left.empty() && is_word_character(code_point(last_character(left)))) ||
       (!right.empty() && is_word_character(code_point(right)))))
    return false;
  std::size_t end = match.begin + match.bytes;
  if (sides.takes_right) end += right.size() - without_space(right, Strip::left).size();
  if (sides.takes_left) match.begin = std::max(without_space(left, Strip::right).size(), done);
  match.bytes = std::max(end, match.begin) - match.begin;
  return true;
}

std::size_t AddedTokenFinder::next_candidate(std::string_view text, std::size_t from) const {
  if (first_bytes_.empty()) return text.size();
  if (first_bytes_.size() == 1) return std::min(text.find(first_bytes_[0], from), text.size());
  while (from < text.size() && !begins_[byte_at(text, from)]) ++from;
  return from;
}

std::optional<AddedTokenFinder::Match> AddedTokenFinder::find(std::string_view text) const {
  for (std::size_t i = next_candidate(text, 0); i < text.size(); i = next_candidate(text, i + 1)) {
    std::optional<Match> longest;
    std::uint32_t node = 0;
    for (std::size_t j = i; j < text.size(); ++j) {
      const auto next = next_.find(std::uint64_t{node} << 8 | byte_at(text, j));
      if (next == next_.end()) break;
      node = next->second;
      if (const auto found = token_at_.find(node); found != token_at_.end())
        longest = Match{i, j + 1 - i, found->second};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

std::optional<Neighbours> neighbours(std::string_view text, std::size_t at) {
  using Kind = Utf8Front::Kind;
  if (at == 0 || at >= text.size()) return std::nullopt;
  const std::size_t begin = at - last_character(text.substr(0, at)).size();
  const std::string_view rest = text.substr(at);
  const Utf8Front left = utf8_front(text.substr(begin)), right = utf8_front(rest);
  if (left.kind != Kind::complete || left.bytes != at - begin || right.kind != Kind::complete)
    return std::nullopt;
  Neighbours beside{std::string(text.substr(begin, left.bytes)),
                    std::string(rest.substr(0, right.bytes))};
  if (const std::string_view next = rest.substr(right.bytes); !next.empty())
    if (const Utf8Front after = utf8_front(next); after.kind == Kind::complete)
      beside.after = next.substr(0, after.bytes);
  return beside;
}

namespace {

/// A step of which only the characters beside the position decide what they become. Returns false
/// if that is uncertain.
bool change_side(const TextStep& step, std::string& side) {
  using Kind = TextStep::Kind;
  std::string buffer;
  switch (step.kind) {
    case Kind::replace: {
      const bool one = utf8_front(step.from).bytes == step.from.size();
      if (!one) return side.find_first_of(step.from) == side.npos;
      side = std::string(replace(step, side, buffer));
      return true;
    }
    case Kind::lower_case:
      append_lower_case(side, buffer);
      break;
    case Kind::remove_marks:
      append_without_marks(side, buffer);
      break;
    case Kind::strip_left:
    case Kind::strip_right:
      return !side.empty() && without_space(side, Strip::both).size() == side.size();
    case Kind::prepend:
    case Kind::prepend_missing:
    case Kind::prepend_first:
      return true;
    default:
      return false;
  }
  side = buffer;
  return true;
}

}  // namespace

std::optional<Neighbours> changed(std::span<const TextStep> steps, const Neighbours& beside) {
  Neighbours result = beside;
  bool replaced = false;
  for (const TextStep& step : steps) {
    if (const auto form = form_of(step)) {
      if (replaced || !begins_apart(beside.left) || !begins_apart(beside.right) ||
          !begins_apart(beside.after) || !stays_normal(beside.left, *form) ||
          !stays_normal(beside.right, *form))
        return std::nullopt;
    } else if (step.kind == TextStep::Kind::replace_matches) {
      if (!step.replacer->spares(result.left, result.right)) return std::nullopt;
    } else {
      if (!change_side(step, result.left) || !change_side(step, result.right)) return std::nullopt;
      replaced = replaced || !prepends_text(step);
    }
  }
  if (result.left.empty() || result.right.empty()) return std::nullopt;
  // A character that became several.
  result.left = std::string(last_character(result.left));
  result.right.resize(utf8_front(result.right).bytes);
  return result;
}

void CharacterPairs::add(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = utf8_front(text).bytes;
    const std::string_view rest = text.substr(bytes);
    if (rest.empty()) break;
    pairs_.insert(std::string(text.substr(0, bytes + utf8_front(rest).bytes)));
    text = rest;
  }
}

bool CharacterPairs::contains(std::string_view left, std::string_view right) const {
  return pairs_.contains(std::string(left).append(right));
}

void AddedTokenBorders::add(std::string_view content, const AddedToken::Sides& sides) {
  pairs_.add(content);
  last_.emplace(last_character(content));
  take_space_ = take_space_ || sides.takes_left || sides.takes_right;
  if (sides.single_word) single_.emplace(content.substr(0, utf8_front(content).bytes));
}

bool AddedTokenBorders::forbid(const Neighbours& beside) const {
  return pairs_.contains(beside.left, beside.right) || last_.contains(beside.left) ||
         (take_space_ && is_space(code_point(beside.left))) || single_.contains(beside.right);
}

std::string with_spaces(std::string_view token) {
  std::string out;
  return std::string(replace({TextStep::Kind::replace, std::string(kSpaceMark), " "}, token, out));
}

bool has_inner_mark(std::string_view token) {
  const std::string spaced = with_spaces(token);
  const std::size_t first = spaced.find_first_not_of(' ');
  return first != spaced.npos && spaced.find(' ', first) != spaced.npos;
}

double most_growth(std::span<const TextStep> steps) {
  double bytes = 1;
  for (const TextStep& step : steps) {
    const auto to = static_cast<double>(step.to.size());
    // Source: Unicode Standard Annex 15, "Maximum expansion factors"
    if (const auto form = form_of(step))
      bytes *= *form == NormalForm::nfc || *form == NormalForm::nfd ? 3 : 11;
    else if (step.kind == TextStep::Kind::bytes_as_characters ||
             step.kind == TextStep::Kind::lower_case)
      bytes *= 2;
    else if (step.kind == TextStep::Kind::replace_matches)
      bytes *= std::max(1.0, to);
    else if (step.kind == TextStep::Kind::replace)
      bytes *= std::max(1.0, to / static_cast<double>(step.from.size()));
    else
      bytes += to;
  }
  return bytes;
}

PatternReplacer::PatternReplacer(const std::string& pattern, const std::string& where)
    : pattern_(pattern, where), borders_(to_pcre2(pattern, where)) {}

void PatternReplacer::append(std::string_view valid, std::string_view to, std::string& out) const {
  auto matcher = matchers_.take([&] { return std::make_unique<WordPattern::Matcher>(pattern_); });
  matcher->start();
  while (!valid.empty()) {
    const WordPattern::Part part = matcher->first_part(valid);
    out += part.matches ? to : valid.substr(0, part.bytes);
    valid.remove_prefix(part.bytes);
  }
  matchers_.give_back(std::move(matcher));
}

bool PatternReplacer::spares(std::string_view left, std::string_view right) const {
  return borders_.never_contains(left) && borders_.never_contains(right);
}

namespace {

/// The text after a step; it may be in `out`.
std::string_view apply_step(const TextStep& step, std::string_view text, Before before,
                            std::string& out) {
  using Kind = TextStep::Kind;
  switch (step.kind) {
    case Kind::nfc:
    case Kind::nfd:
    case Kind::nfkc:
    case Kind::nfkd:
      return normalize(text, *form_of(step), out);
    case Kind::lower_case:
      return changed_text(text, out, append_lower_case);
    case Kind::remove_marks:
      return changed_text(text, out, append_without_marks);
    case Kind::strip_left:
      return before == Before::text ? text : without_space(text, Strip::left);
    case Kind::strip_right:
      return without_space(text, Strip::right);
    case Kind::replace:
      return replace(step, text, out);
    case Kind::replace_matches:
      return changed_text(text, out, [&](std::string_view valid, std::string& to) {
        step.replacer->append(valid, step.to, to);
      });
    case Kind::bytes_as_characters:
      return out = bpe_characters(text);
    case Kind::characters_as_bytes:
      return out = bytes_of_characters(text);
    case Kind::prepend:
    case Kind::prepend_missing:
    case Kind::prepend_first:
      break;
  }
  if (!prepends(step, text, before)) return text;
  out.assign(step.to);
  out += text;
  return out;
}

}  // namespace

std::string_view apply_steps(std::span<const TextStep> steps, std::string_view text, Before before,
                             TextBuffers& buffers) {
  for (const TextStep& step : steps) {
    // The text may be in one buffer, so the result goes to the other.
    const bool in_first =
        text.data() >= buffers[0].data() && text.data() < buffers[0].data() + buffers[0].size();
    text = apply_step(step, text, before, in_first ? buffers[1] : buffers[0]);
  }
  return text;
}

}  // namespace axonn
