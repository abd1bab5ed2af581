#include "axonn/data/text/chat/turns.h"

#include <algorithm>
#include <map>
#include <set>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using jinja::Origin;
using jinja::Text;

/// A piece of a rendered text that comes from data.
struct Piece {
  ByteSpan at;
  std::int32_t message;  ///< or Origin::kData
};

/// The pieces of data, but for empty ones of a message that has others: the same text has the same
/// pieces, whether a message's content is "" or missing.
std::vector<Piece> pieces_of(const Text& text) {
  std::vector<Piece> pieces;
  std::size_t at = 0;
  text.for_pieces([&](std::string_view bytes, Origin origin) {
    if (origin.source != Origin::kTemplate)
      pieces.push_back({{at, at + bytes.size()}, origin.source});
    at += bytes.size();
  });
  const auto is_empty = [](const Piece& piece) { return piece.at.begin == piece.at.end; };
  std::set<std::int32_t> written;
  for (const Piece& piece : pieces)
    if (!is_empty(piece)) written.insert(piece.message);
  std::erase_if(pieces, [&](const Piece& piece) {
    return is_empty(piece) && written.contains(piece.message);
  });
  return pieces;
}

std::vector<ByteSpan> marked_spans(const Text& text) {
  std::vector<ByteSpan> spans;
  std::size_t at = 0;
  text.for_pieces([&](std::string_view bytes, Origin origin) {
    const ByteSpan here{at, at += bytes.size()};
    if (!origin.marked || bytes.empty()) return;
    if (!spans.empty() && spans.back().end == here.begin)
      spans.back().end = here.end;
    else
      spans.push_back(here);
  });
  return spans;
}

/// The template's text after the last piece of data.
std::string_view tail_of(const Text& text, const std::vector<Piece>& pieces) {
  return std::string_view(text.bytes()).substr(pieces.empty() ? 0 : pieces.back().at.end);
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::string_view without_last_space(std::string_view text) {
  return jinja::strip(text, Strip::right, nullptr);
}

std::string_view part(std::string_view text, ByteSpan at) {
  return text.substr(at.begin, at.end - at.begin);
}

/// The control tokens in what the template writes at once.
std::vector<ByteSpan> tokens_in(std::string_view text, const AddedTokenFinder& tokens) {
  std::vector<ByteSpan> found;
  for (std::size_t at = 0; at < text.size();) {
    const auto match = tokens.find(text.substr(at));
    if (!match) break;
    found.push_back({at + match->begin, at + match->begin + match->bytes});
    at = found.back().end;
  }
  return found;
}

/// The bytes of `text` with which it begins like `start`, but for white space; nothing if it does
/// not.
std::optional<std::size_t> loose_prefix(std::string_view text, std::string_view start) {
  const auto skip_space = [](std::string_view in, std::size_t& at) {
    while (at < in.size() && std::string_view(" \t\r\n").find(in[at]) != std::string_view::npos)
      ++at;
  };
  std::size_t end = 0;
  for (std::size_t i = 0, j = 0;; end = ++i, ++j) {
    const std::size_t last = j;
    skip_space(text, i);
    skip_space(start, j);
    if (j == start.size()) return last < j ? i : end;
    if (i == text.size() || text[i] != start[j]) return {};
  }
}

/// The bytes of the header that `written`, which precedes a turn, begins with. `prompt`: what the
/// template writes there to let the assistant speak.
std::size_t header_size(std::string_view written, std::string_view prompt,
                        const AddedTokenFinder& tokens) {
  // A template may begin the text, as with <s>, in its first message: not in an empty conversation.
  if (const std::size_t at = without_last_space(prompt).empty() ? 0 : written.find(prompt);
      at != 0 && at != written.npos)
    return at + header_size(written.substr(at), prompt, tokens);
  std::size_t same = common_prefix(written, prompt);
  if (same == written.size()) return same;
  const std::vector<ByteSpan> signs = tokens_in(written, tokens);
  if (same == prompt.size()) {  // but the next word may continue a token
    for (const ByteSpan& sign : signs)
      if (sign.begin < same && same < sign.end) return sign.begin;
    return same;
  }
  if (const auto header = loose_prefix(written, prompt)) return *header;
  // Where they part, words may have parted earlier: back to the end of a token or line.
  std::size_t border = 0;
  if (const std::size_t line = written.substr(0, same).rfind('\n'); line != written.npos)
    border = line + 1;
  for (const ByteSpan& sign : signs)
    if (sign.end <= same) border = std::max(border, sign.end);
  return border;
}

/// The bytes of the end of a turn that `written`, which follows it, begins with. `last`: what the
/// template writes after this turn if it is the last one.
std::size_t end_size(std::string_view written, std::string_view last,
                     const AddedTokenFinder& tokens, std::string_view end_of_text) {
  const std::vector<ByteSpan> signs = tokens_in(written, tokens);
  std::size_t same = common_prefix(written, last);
  // Tokens such as <|end|> and <|return|> begin alike. But after a first one the next header may
  // begin as the end of the whole text does.
  for (const ByteSpan& sign : signs)
    if (sign.begin < same && same < sign.end)
      same = sign.begin == signs[0].begin ? sign.end : sign.begin;
  const std::string_view words = without_last_space(written.substr(0, same));
  if (!words.empty()) same = words.size();
  const bool ended = std::ranges::any_of(signs, [&](const ByteSpan& s) { return s.end <= same; });
  // The words before the tokens that end the turn may differ, as those of a call without a result.
  const std::vector<ByteSpan> last_signs = tokens_in(last, tokens);
  std::size_t alike = 0;
  while (alike < std::min(signs.size(), last_signs.size()) &&
         part(written, signs[alike]) == part(last, last_signs[alike]))
    ++alike;
  if (!ended && alike > 0) return signs[alike - 1].end;
  if (!ended && !end_of_text.empty() && written.substr(same).starts_with(end_of_text))
    same += end_of_text.size();
  return same;
}

}  // namespace

std::string closing_prompt(const Text& asked, const std::optional<Text>& asked_twice,
                           const AddedTokenFinder& tokens) {
  const auto question = [](const Text& text) -> std::optional<ByteSpan> {
    for (const Piece& piece : pieces_of(text))
      if (piece.message == 0) return piece.at;
    return {};
  };
  const std::optional<ByteSpan> words = question(asked);
  if (!words) return "";
  const std::string_view bytes = asked.bytes(), tail = bytes.substr(words->end);
  const std::vector<ByteSpan> signs = tokens_in(tail, tokens),
                              first = tokens_in(bytes.substr(0, words->begin), tokens);
  // The text that a second question changes begins within the header. All headers may begin with
  // the same token, that of the first one, which may follow that of the text.
  std::size_t begin = tail.size();
  if (const auto again = asked_twice ? question(*asked_twice) : std::nullopt)
    begin = common_prefix(tail, std::string_view(asked_twice->bytes()).substr(again->end));
  for (const ByteSpan& sign : signs)
    if (sign.begin < begin && begin < sign.end) begin = sign.begin;
  for (std::size_t i = signs.size(); i-- > 1;) {
    if (signs[i].end > begin) continue;
    for (std::size_t k = 0; k < std::min<std::size_t>(first.size(), 2); ++k)
      if (part(bytes, first[k]) == part(tail, signs[i]))
        return std::string(tail.substr(signs[i].begin));
    if (asked_twice) break;
  }
  return std::string(tail.substr(begin));
}

std::vector<ByteSpan> learned_spans(const Text& text, const std::vector<std::string>& roles,
                                    const PartialRenderings& renderings,
                                    const AddedTokenFinder& tokens, std::string_view end_of_text) {
  if (std::vector<ByteSpan> marked = marked_spans(text); !marked.empty()) return marked;
  const std::vector<Piece> pieces = pieces_of(text);
  const std::string_view bytes = text.bytes();
  // The template's text between piece p and the piece before it.
  const auto gap_begin = [&](std::size_t p) { return p == 0 ? 0 : pieces[p - 1].at.end; };
  const auto gap = [&](std::size_t p) {
    const std::size_t end = p < pieces.size() ? pieces[p].at.begin : bytes.size();
    return bytes.substr(gap_begin(p), end - gap_begin(p));
  };
  // By what the template writes before turns, and after those that are only words: headers, and
  // what ends the last of them. So a long conversation is rendered a few times, not twice a turn.
  std::map<std::string_view, std::string> endings;
  std::map<std::string_view, std::size_t> headers;
  std::vector<ByteSpan> spans;
  for (std::size_t m = 0; m < roles.size(); ++m) {
    if (roles[m] != "assistant") continue;
    const auto mine = [&](std::size_t p) {
      return p < pieces.size() && pieces[p].message == static_cast<std::int32_t>(m);
    };
    std::size_t first = 0;
    while (first < pieces.size() && !mine(first)) ++first;
    if (first == pieces.size()) continue;

    std::size_t after = first + 1;
    const auto [known, is_new] = endings.try_emplace(gap(after));
    if (is_new || mine(after) || m + 1 == roles.size()) {
      const std::optional<Text> whole =
          m + 1 == roles.size() ? text : renderings.of_first(m + 1, false);
      known->second = whole ? tail_of(*whole, pieces_of(*whole)) : "";
      if (known->second.ends_with(renderings.closing_prompt))
        known->second.resize(known->second.size() - renderings.closing_prompt.size());
    }
    const std::string& last_words = known->second;
    // A later turn may repeat something of this one, such as the name of a called function.
    const std::string_view end_sign = without_last_space(last_words);
    const auto ends_here = [&](std::size_t p) {
      return !end_sign.empty() && gap(p).starts_with(end_sign);
    };
    while (mine(after) && !ends_here(after)) ++after;

    const auto [header, is_other] = headers.try_emplace(gap(first), gap(first).size());
    if (is_other)
      if (const std::optional<Text> prompt = renderings.of_first(m, true))
        header->second = header_size(gap(first), tail_of(*prompt, pieces_of(*prompt)), tokens);
    const std::size_t begin = gap_begin(first) + header->second;
    const std::size_t end =
        pieces[after - 1].at.end + end_size(gap(after), last_words, tokens, end_of_text);
    const std::size_t from = spans.empty() ? begin : std::max(begin, spans.back().end);
    if (from < end) spans.push_back({from, end});
  }
  std::ranges::sort(spans, {}, &ByteSpan::begin);
  return spans;
}

std::vector<ByteSpan> spans_without(const Text& text, const std::vector<std::string>& roles,
                                    std::vector<ByteSpan> spans,
                                    const std::vector<std::size_t>& not_learned) {
  const std::vector<Piece> pieces = pieces_of(text);
  const auto is_left_out = [&](std::size_t message) {
    return std::ranges::find(not_learned, message) != not_learned.end();
  };
  std::erase_if(spans, [&](const ByteSpan& span) {
    std::size_t left_out = 0, kept = 0, next = 0;
    for (const Piece& piece : pieces) {
      if (piece.message < 0) continue;
      const auto message = static_cast<std::size_t>(piece.message);
      const bool before = piece.at.begin < span.begin && piece.at.end <= span.begin;
      if (before) next = message + 1;
      if (before || piece.at.begin >= span.end) continue;
      ++(is_left_out(message) ? left_out : kept);
    }
    if (left_out > 0 && kept > 0)
      refuse("the chat template marks several messages as one answer, so one of them cannot be ",
             "left out of what is learned");
    if (left_out + kept > 0) return left_out > 0;
    while (next < roles.size() && roles[next] != "assistant") ++next;
    return is_left_out(next);
  });
  return spans;
}

std::vector<ByteSpan> spans_of_last_turn(const Text& text, const std::vector<std::string>& roles,
                                         std::vector<ByteSpan> spans) {
  const auto last = std::ranges::find(roles.rbegin(), roles.rend(), "assistant");
  if (last == roles.rend()) return {};
  const auto message = static_cast<std::int32_t>(roles.rend() - last) - 1;
  const std::vector<Piece> pieces = pieces_of(text);
  const auto first = std::ranges::find(pieces, message, &Piece::message);
  if (first == pieces.end()) return {};
  std::erase_if(spans, [&](const ByteSpan& span) { return span.end <= first->at.begin; });
  return spans;
}

}  // namespace axonn
