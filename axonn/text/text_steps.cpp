#include "axonn/text/text_steps.h"

#include <algorithm>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/base/utf8.h"
#include "axonn/text/nfc.h"

namespace axonn {

namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

/// Whether NFC may change the text. Characters below U+0300 are composed and do not compose with
/// each other; in UTF-8, all their bytes are below 0xcc.
bool may_compose(std::string_view text) {
  const auto above = [](char c) { return static_cast<unsigned char>(c) >= 0xcc; };
  return std::ranges::any_of(text, above);
}

std::string_view compose(std::string_view text, std::string& out) {
  if (!may_compose(text)) return text;
  out.clear();
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid > 0) append_nfc(text.substr(0, valid), out);
    out += text.substr(valid, 1);
    text.remove_prefix(std::min(valid + 1, text.size()));
  }
  return out;
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

bool prepends(const TextStep& step, std::string_view text, Before before) {
  if (text.empty() || before == Before::text) return false;
  if (step.kind == TextStep::Kind::prepend) return true;
  if (step.kind == TextStep::Kind::prepend_first && before != Before::nothing) return false;
  return !text.starts_with(step.to);
}

}  // namespace

void AddedTokenFinder::add(std::string_view content, std::int32_t token) {
  AXONN_CHECK(!content.empty() && content.size() <= kMostBytes, "an added token has ",
              content.size(), " bytes; wanted 1 to ", kMostBytes);
  if (!std::exchange(begins_[byte_at(content, 0)], true)) first_bytes_ += content[0];
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < content.size(); ++i)
    node = next_.try_emplace(std::uint64_t{node} << 8 | byte_at(content, i), next_.size() + 1)
               .first->second;
  token_at_[node] = token;
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
  std::size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && (byte_at(text, begin) & 0xc0) == 0x80) --begin;
  const std::string_view rest = text.substr(at);
  const Utf8Front left = utf8_front(text.substr(begin)), right = utf8_front(rest);
  if (left.kind != Kind::complete || left.bytes != at - begin || right.kind != Kind::complete)
    return std::nullopt;
  Neighbours place{std::string(text.substr(begin, left.bytes)),
                   std::string(rest.substr(0, right.bytes))};
  if (const std::string_view next = rest.substr(right.bytes); !next.empty())
    if (const Utf8Front after = utf8_front(next); after.kind == Kind::complete)
      place.after = next.substr(0, after.bytes);
  return place;
}

std::optional<Neighbours> changed(std::span<const TextStep> steps, const Neighbours& place) {
  Neighbours result = place;
  bool replaced = false;
  std::string buffer;
  for (const TextStep& step : steps) {
    if (step.kind == TextStep::Kind::nfc) {
      if (replaced || !begins_apart(place.left) || !begins_apart(place.right) ||
          !begins_apart(place.after) || !stays_composed(place.left) || !stays_composed(place.right))
        return std::nullopt;
    } else if (step.kind == TextStep::Kind::replace) {
      replaced = true;
      const bool one = utf8_front(step.from).bytes == step.from.size();
      for (std::string* side : {&result.left, &result.right}) {
        if (one)
          *side = std::string(replace(step, *side, buffer));
        else if (side->find_first_of(step.from) != side->npos)
          return std::nullopt;
      }
    }
  }
  if (result.left.empty() || result.right.empty()) return std::nullopt;
  // A character that became several.
  std::size_t last = result.left.size() - 1;
  while (last > 0 && (byte_at(result.left, last) & 0xc0) == 0x80) --last;
  result.left.erase(0, last);
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

void AddedTokenBorders::add(std::string_view content) {
  pairs_.add(content);
  std::string_view last = content;
  while (!last.empty() && utf8_front(last).bytes < last.size())
    last.remove_prefix(utf8_front(last).bytes);
  last_.emplace(last);
}

bool AddedTokenBorders::forbid(const Neighbours& place) const {
  return pairs_.contains(place.left, place.right) || last_.contains(place.left);
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
    if (step.kind == TextStep::Kind::nfc)
      bytes *= 3;  // Source: Unicode Standard Annex 15, "Maximum expansion factors"
    else if (step.kind == TextStep::Kind::replace)
      bytes *= std::max(1.0, to / static_cast<double>(step.from.size()));
    else
      bytes += to;
  }
  return bytes;
}

std::string_view apply_steps(std::span<const TextStep> steps, std::string_view text, Before before,
                             TextBuffers& buffers) {
  for (const TextStep& step : steps) {
    // The text may be in one buffer, so the result goes to the other.
    std::string& out = text.data() == buffers[0].data() ? buffers[1] : buffers[0];
    if (step.kind == TextStep::Kind::nfc) {
      text = compose(text, out);
    } else if (step.kind == TextStep::Kind::replace) {
      text = replace(step, text, out);
    } else if (prepends(step, text, before)) {
      out.assign(step.to);
      out += text;
      text = out;
    }
  }
  return text;
}

}  // namespace axonn
