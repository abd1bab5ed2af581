#include "axonn/data/text/unigram.h"

#include <algorithm>
#include <map>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

Unigram::Unigram(const UnigramPieces& model)
    : byte_tokens_(model.byte_tokens), unknown_(model.unknown) {
  constexpr double kPenalty = 10;  // of an unknown character, below the least piece
  std::map<std::string_view, std::int32_t> sorted;
  for (const auto& [piece, score] : model.pieces) {
    AXONN_CHECK(piece.size() <= kMostBytes, "Unigram: a piece has ", piece.size(), " bytes");
    if (!piece.empty()) sorted[piece] = static_cast<std::int32_t>(scores_.size());
    scores_.push_back(score);
  }
  if (!scores_.empty()) unknown_score_ = *std::ranges::min_element(scores_) - kPenalty;

  // Breadth first; nodes and the pieces below them go along.
  const std::vector<std::pair<std::string_view, std::int32_t>> all(sorted.begin(), sorted.end());
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, all.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    auto [begin, end, depth] = ranges[n];
    if (begin < end && all[begin].first.size() == depth) nodes_[n].token = all[begin++].second;
    nodes_[n].children = static_cast<std::uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = all[begin].first[depth];
      std::size_t next = begin;
      while (next < end && all[next].first[depth] == byte) ++next;
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      ranges.push_back({begin, next, depth + 1});
      ++nodes_[n].count;
      begin = next;
    }
  }
}

const Unigram::Node* Unigram::child(const Node& node, char byte) const {
  const Node* const begin = nodes_.data() + node.children;
  const Node* const end = begin + node.count;
  const auto wanted = static_cast<unsigned char>(byte);
  const Node* const found = std::ranges::lower_bound(begin, end, wanted, {}, &Node::byte);
  return found != end && found->byte == wanted ? found : nullptr;
}

std::int32_t Unigram::find(std::string_view piece) const {
  const Node* node = nodes_.data();
  for (std::size_t i = 0; i < piece.size() && node; ++i) node = child(*node, piece[i]);
  return node ? node->token : -1;
}

/// Tries each piece that begins at a position, or else its character as an unknown one.
void Unigram::take_best(std::string_view word, std::size_t at, Scratch& best) const {
  const double before = best[at].score;
  const auto offer = [&](std::size_t end, double score, std::int32_t token) {
    if (best[end].token < 0 || score > best[end].score) best[end] = {score, at, token};
  };
  const std::size_t character = utf8_front(word.substr(at)).bytes;
  bool single = false;
  const Node* node = nodes_.data();
  for (std::size_t end = at; end < word.size() && (node = child(*node, word[end]));) {
    ++end;
    if (node->token < 0) continue;
    offer(end, scores_[node->token] + before, node->token);
    single = single || end == at + character;
  }
  if (!single) offer(at + character, unknown_score_ + before, unknown_);
}

void Unigram::append(std::string_view word, std::vector<std::int32_t>& tokens,
                     Scratch& best) const {
  best.assign(word.size() + 1, {});
  for (std::size_t at = 0; at < word.size(); at += utf8_front(word.substr(at)).bytes)
    take_best(word, at, best);
  // From the end: the pieces, those of unknown characters in a row as one.
  std::vector<std::pair<std::size_t, std::size_t>> pieces;
  bool after_unknown = false;
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    const bool unknown = best[end].token == unknown_;
    if (unknown && after_unknown)
      pieces.back().first = best[end].begin;
    else
      pieces.emplace_back(best[end].begin, end);
    after_unknown = unknown;
  }
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    const std::string_view text = word.substr(piece->first, piece->second - piece->first);
    if (const std::int32_t token = find(text); token >= 0)
      tokens.push_back(token);
    else
      append_unknown(text, tokens);
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<std::int32_t>& tokens) const {
  const auto token_of = [&](char c) { return byte_tokens_[static_cast<unsigned char>(c)]; };
  const bool bytes =
      !byte_tokens_.empty() && std::ranges::all_of(text, [&](char c) { return token_of(c) >= 0; });
  if (!bytes) return tokens.push_back(unknown_);
  for (const char c : text) tokens.push_back(token_of(c));
}

}  // namespace axonn
