#include "axonn/data/text/bpe/bpe_tokenizer.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <unordered_set>
#include <utility>

#include "axonn/data/text/pattern_borders.h"
#include "axonn/data/text/word_cache.h"
#include "axonn/data/text/word_pattern.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kNoPair = std::numeric_limits<std::uint64_t>::max();

// Longest word for which scanning all ranks is faster than a queue: with GPT-2's merges on random
// letters, both take 150 ns per byte at about 150 letters.
constexpr std::size_t kShort = 128;

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
}

std::uint64_t scatter(std::uint64_t pair) { return pair * 0x9e3779b97f4a7c15ULL; }

/// The state of one encoding thread.
struct Worker {
  Worker(const WordPattern* pattern, const WordSplits* several) {
    if (pattern) matcher.emplace(*pattern);
    if (several) splits.emplace(*several);
  }
  std::optional<WordPattern::Matcher> matcher;
  std::optional<WordSplits::Matcher> splits;
  WordCache cache;
  BpeMerger::Scratch scratch;
  Unigram::Scratch best;
  TextBuffers normalized, spaced;
};

/// Gives the initial tokens of a word, before merges: one for each byte or for each character.
class WordTokens {
 public:
  /// Keeps a reference to the vocabulary.
  explicit WordTokens(const BpeVocab& vocab) : vocab_(vocab) {
    ascii_.fill(-1);
    for (const auto& [character, token] : vocab.characters)
      if (character.size() == 1 && static_cast<unsigned char>(character[0]) < ascii_.size())
        ascii_[static_cast<unsigned char>(character[0])] = token;
    for (const auto& [word, token] : vocab.whole_words) words_.emplace(word, token);
    has_all_bytes_ = !vocab.byte_tokens.empty() && std::ranges::count(vocab.byte_tokens, -1) == 0;
  }

  /// Appends the initial tokens. Returns false if the word is a token itself, which was appended
  /// instead.
  bool append(std::string_view word, std::vector<std::int32_t>& tokens) const {
    if (!words_.empty()) {
      if (const auto found = words_.find(word); found != words_.end()) {
        tokens.push_back(found->second);
        return false;
      }
    }
    Unknowns unknowns{tokens, vocab_};
    if (!vocab_.characters.empty())
      append_characters(word, tokens, unknowns);
    else if (has_all_bytes_)
      append_bytes(word, tokens);
    else
      for (const char c : word) append_or_unknown(vocab_.byte_tokens.at(byte_of(c)), unknowns);
    unknowns.write();
    return true;
  }

  /// Whether each character has tokens, by its code point.
  bool keeps_order() const {
    return has_all_bytes_ || (vocab_.byte_tokens.empty() && vocab_.unknown >= 0);
  }

 private:
  /// Characters that become the unknown token, or nothing if there is none. The last of them is
  /// written before the next character with a token, as the tokenizers library does, which puts it
  /// behind bytes in between.
  struct Unknowns {
    std::vector<std::int32_t>& tokens;
    const BpeVocab& vocab;
    bool pending = false;

    void add() {
      if (!vocab.fuse_unknown) write();
      pending = vocab.unknown >= 0;
    }
    void write() {
      if (std::exchange(pending, false)) tokens.push_back(vocab.unknown);
    }
  };

  static unsigned char byte_of(char c) { return static_cast<unsigned char>(c); }

  static void append_or_unknown(std::int32_t token, Unknowns& unknowns) {
    if (token < 0) return unknowns.add();
    unknowns.write();
    unknowns.tokens.push_back(token);
  }

  void append_bytes(std::string_view bytes, std::vector<std::int32_t>& tokens) const {
    for (char c : bytes) tokens.push_back(vocab_.byte_tokens[byte_of(c)]);
  }

  /// Appends the tokens of bytes unless one has none.
  bool append_known(std::string_view bytes, std::vector<std::int32_t>& tokens) const {
    const auto known = [&](char c) { return vocab_.byte_tokens[byte_of(c)] >= 0; };
    if (vocab_.byte_tokens.empty() || !std::ranges::all_of(bytes, known)) return false;
    append_bytes(bytes, tokens);
    return true;
  }

  void append_characters(std::string_view word, std::vector<std::int32_t>& tokens,
                         Unknowns& unknowns) const {
    while (!word.empty()) {
      const Utf8Front front = utf8_front(word);
      const auto first = static_cast<unsigned char>(word[0]);
      std::int32_t token = -1;
      if (first < ascii_.size()) {
        token = ascii_[first];
      } else if (const auto found =
                     vocab_.characters.find(std::string(word.substr(0, front.bytes)));
                 front.kind == Utf8Front::Kind::complete && found != vocab_.characters.end()) {
        token = found->second;
      }
      if (token >= 0 || !append_known(word.substr(0, front.bytes), tokens))
        append_or_unknown(token, unknowns);
      word.remove_prefix(front.bytes);
    }
  }

  const BpeVocab& vocab_;
  std::array<std::int32_t, 128> ascii_{};  ///< token of each one-byte character; -1: none
  bool has_all_bytes_ = false;
  std::unordered_map<std::string_view, std::int32_t> words_;
};

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeVocab vocab)
      : vocab_(std::move(vocab)), merger_(vocab_.merges), words_(vocab_) {
    if (vocab_.words == BpeWords::pattern)
      pattern_ = std::make_unique<WordPattern>(vocab_.pattern, vocab_.name);
    if (pattern_) borders_.emplace(to_pcre2(vocab_.pattern, vocab_.name));
    if (vocab_.words == BpeWords::splits)
      splits_ = std::make_unique<WordSplits>(vocab_.splits, vocab_.name);
    marks_in_front_ = vocab_.whole_words.empty() && words_.keeps_order() &&
                      vocab_.characters.contains(std::string(kSpaceMark)) &&
                      std::ranges::none_of(vocab_.merges, [&](const BpeMerge& merge) {
                        return has_inner_mark(vocab_.tokens[merge.result]);
                      });
    newlines_apart_ = marks_in_front_ && never_merged("\n");
    for (const AddedToken& token : vocab_.added_tokens) {
      if (token.special) specials_.insert(token.id);
      added_tokens_.emplace(token.content, token.id);
      if (token.normalized) {
        TextBuffers buffers;
        const auto content =
            apply_steps(vocab_.normalizer, token.content, Before::nothing, buffers);
        if (content.size() > AddedTokenFinder::kMostBytes)
          refuse(vocab_.name, ": the added token '", printable(token.content), "' has ",
                 content.size(), " bytes when normalized; at most ", AddedTokenFinder::kMostBytes,
                 " are possible");
        if (content.empty())
          refuse(vocab_.name, ": the added token '", printable(token.content),
                 "' is empty when normalized");
        normalized_tokens_.add(content, token.id, token.sides);
        added_borders_.add(content, token.sides);
      } else {
        raw_tokens_.add(token.content, token.id, token.sides);
      }
    }
    for (const AddedToken& token : vocab_.added_tokens)
      added_borders_.add(token.content, token.sides);
    if (!pattern_ && !splits_) find_joined_tokens();
    name_ = vocab_.name;
    notes_ = vocab_.notes;
    tokens_ = std::move(vocab_.tokens);
    begin_ = vocab_.begin_of_text;
    end_ = vocab_.end_of_text;
    fingerprint_ = vocab_.fingerprint;
    puts_space_ = vocab_.puts_space;
  }

 private:
  void append_tokens(std::string_view text, std::vector<std::int32_t>& tokens,
                     const EncodeOptions& options) const override {
    std::unique_ptr<Worker> worker =
        workers_.take([&] { return std::make_unique<Worker>(pattern_.get(), splits_.get()); });
    if (worker->matcher) worker->matcher->start();
    if (worker->splits) worker->splits->start();
    const Before before = options.continues     ? Before::text
                          : options.after_token ? Before::added_token
                                                : Before::nothing;
    if (options.added_tokens) {
      const auto add = [&](std::int32_t token) { tokens.push_back(token); };
      const auto on_normalized = [&](std::string_view piece, Before b) {
        encode_plain(*worker, piece, b, tokens);
      };
      raw_tokens_.split(
          text, before,
          [&](std::string_view piece, Before b) {
            normalized_tokens_.split(apply_steps(vocab_.normalizer, piece, b, worker->normalized),
                                     b, on_normalized, add);
          },
          add);
    } else {
      encode_plain(*worker, apply_steps(vocab_.normalizer, text, before, worker->normalized),
                   before, tokens);
    }
    workers_.give_back(std::move(worker));
  }

  bool is_border(std::string_view text, std::size_t at) const override {
    const std::optional<Neighbours> beside = neighbours(text, at);
    if (!beside || added_borders_.forbid(*beside)) return false;
    const std::optional<Neighbours> normalized = changed(vocab_.normalizer, *beside);
    if (!normalized || added_borders_.forbid(*normalized)) return false;
    const std::optional<Neighbours> spaced = changed(vocab_.spacing, *normalized);
    if (!spaced) return false;
    if (borders_) return borders_->always(spaced->left, spaced->right);
    if (splits_) return splits_->always(spaced->left, spaced->right);
    if (vocab_.words == BpeWords::at_marks && spaced->right == kSpaceMark) return true;
    // The whole text may be a token, or characters are left out or change their order.
    if (vocab_.unigram || !vocab_.whole_words.empty() || !words_.keeps_order()) return false;
    std::vector<std::int32_t> left, right;
    words_.append(spaced->left, left);
    words_.append(spaced->right, right);
    return !left.empty() && !right.empty() &&
           !joined_.contains(pair_of(left.back(), right.front()));
  }

  void encode_plain(Worker& worker, std::string_view text, Before before,
                    std::vector<std::int32_t>& tokens) const {
    text = apply_steps(vocab_.spacing, text, before, worker.spaced);
    if (worker.matcher) {
      return by_validity(worker, text, tokens, [&](std::string_view valid) {
        while (!valid.empty()) {
          const std::size_t bytes = worker.matcher->first_word(valid);
          encode_word(worker, valid, bytes, tokens);
          valid.remove_prefix(bytes);
        }
      });
    }
    if (worker.splits) {
      return by_validity(worker, text, tokens, [&](std::string_view valid) {
        const Before here = valid.data() == text.data() ? before : Before::text;
        worker.splits->cut(valid, here, [&](std::string_view word) {
          encode_word(worker, word, word.size(), tokens);
        });
      });
    }
    while (!text.empty()) {
      const std::size_t bytes = first_word_by_marks(text);
      encode_word(worker, text, bytes, tokens);
      text.remove_prefix(bytes);
    }
  }

  /// Calls on_valid for each run of well-formed UTF-8; a run of other bytes is a word.
  template <typename OnValid>
  void by_validity(Worker& worker, std::string_view text, std::vector<std::int32_t>& tokens,
                   const OnValid& on_valid) const {
    while (!text.empty()) {
      const std::size_t valid = valid_utf8_prefix(text);
      if (valid > 0) on_valid(text.substr(0, valid));
      text.remove_prefix(valid);
      std::size_t invalid = 0;
      while (invalid < text.size() &&
             utf8_front(text.substr(invalid)).kind != Utf8Front::Kind::complete)
        ++invalid;
      if (invalid > 0) encode_word(worker, text, invalid, tokens);
      text.remove_prefix(invalid);
    }
  }

  std::size_t first_word_by_marks(std::string_view text) const {
    std::size_t at = text.starts_with(kSpaceMark) ? kSpaceMark.size() : 0;
    if (vocab_.words == BpeWords::whole) {
      if (!marks_in_front_) return text.size();
      while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
    }
    const bool newlines = newlines_apart_;
    if (newlines && text[0] == '\n') return 1;
    const auto ends = [&](std::size_t i) {
      return (newlines && text[i] == '\n') ||
             (text[i] == kSpaceMark[0] && text.substr(i).starts_with(kSpaceMark));
    };
    at = std::max<std::size_t>(at, 1);
    while (at < text.size() && !ends(at)) ++at;
    return at;
  }

  /// Whether the character is one token, which no merge takes or makes.
  bool never_merged(std::string_view character) const {
    std::vector<std::int32_t> tokens;
    words_.append(character, tokens);
    return tokens.size() == 1 && tokens[0] != vocab_.unknown &&
           std::ranges::none_of(vocab_.merges, [&](const BpeMerge& merge) {
             return merge.left == tokens[0] || merge.right == tokens[0] ||
                    merge.result == tokens[0];
           });
  }

  /// Appends the tokens of the word in the first `bytes` bytes of text.
  void encode_word(Worker& worker, std::string_view text, std::size_t bytes,
                   std::vector<std::int32_t>& tokens) const {
    const WordCache::Key key = WordCache::key_of(text, bytes);
    if (const auto known = worker.cache.find(key); !known.empty()) {
      tokens.insert(tokens.end(), known.begin(), known.end());
      return;
    }
    const std::size_t before = tokens.size();
    if (vocab_.unigram) {
      vocab_.unigram->append(text.substr(0, bytes), tokens, worker.best);
    } else if (words_.append(text.substr(0, bytes), tokens)) {
      const std::span<std::int32_t> word = std::span(tokens).subspan(before);
      tokens.resize(before + merger_.merge(word, worker.scratch));
    }
    worker.cache.keep(key, std::span(tokens).subspan(before));
  }

  /// Tokens are only joined where some merge has the last initial token of its left side beside the
  /// first one of its right side.
  void find_joined_tokens() {
    std::unordered_map<std::int32_t, const BpeMerge*> made;
    for (const BpeMerge& merge : vocab_.merges)  // "" and "a" make "a", but "" is no initial token
      if (merge.left != merge.result && merge.right != merge.result)
        made.emplace(merge.result, &merge);
    const auto initial = [&](std::int32_t token, std::int32_t BpeMerge::*side) {
      for (auto at = made.find(token); at != made.end(); at = made.find(token))
        token = at->second->*side;
      return token;
    };
    for (const BpeMerge& merge : vocab_.merges)
      joined_.insert(
          pair_of(initial(merge.left, &BpeMerge::right), initial(merge.right, &BpeMerge::left)));
    if (vocab_.fuse_unknown) joined_.insert(pair_of(vocab_.unknown, vocab_.unknown));
  }

  BpeVocab vocab_;
  BpeMerger merger_;
  WordTokens words_;
  std::unique_ptr<WordPattern> pattern_;
  std::optional<PatternBorders> borders_;  ///< of the pattern
  std::unique_ptr<WordSplits> splits_;
  std::unordered_set<std::uint64_t> joined_;  ///< pairs of initial tokens that a merge may join
  AddedTokenBorders added_borders_;
  bool marks_in_front_ = false, newlines_apart_ = false;
  AddedTokenFinder raw_tokens_, normalized_tokens_;
  mutable Pool<Worker> workers_;
};

}  // namespace

BpeMerger::BpeMerger(std::span<const BpeMerge> merges) {
  const std::size_t size = std::bit_ceil(2 * merges.size() + 2);
  shift_ = 64 - std::countr_zero(size);
  table_.assign(size, {kNoPair, kNoRank});
  for (const BpeMerge& merge : merges) {
    const std::uint64_t pair = pair_of(merge.left, merge.right);
    std::size_t slot = scatter(pair) >> shift_;
    while (table_[slot].pair != kNoPair) slot = (slot + 1) & (size - 1);
    table_[slot] = {pair, static_cast<std::uint32_t>(result_of_rank_.size())};
    result_of_rank_.push_back(merge.result);
  }
}

std::uint32_t BpeMerger::rank_of(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t slot = scatter(pair) >> shift_;
  while (table_[slot].pair != pair) {
    if (table_[slot].pair == kNoPair) return kNoRank;
    slot = (slot + 1) & (table_.size() - 1);
  }
  return table_[slot].rank;
}

std::size_t BpeMerger::merge(std::span<std::int32_t> tokens, Scratch& scratch) const {
  return tokens.size() <= kShort ? merge_short(tokens, scratch) : merge_long(tokens, scratch);
}

std::size_t BpeMerger::merge_short(std::span<std::int32_t> tokens, Scratch& scratch) const {
  std::size_t count = tokens.size();
  if (count < 2) return count;
  auto& ranks = scratch.ranks;  // of the pair (i, i + 1)
  ranks.resize(count - 1);
  for (std::size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(tokens[i], tokens[i + 1]);
  while (count > 1) {
    const auto pairs_end = ranks.begin() + static_cast<std::ptrdiff_t>(count - 1);
    const auto best = std::min_element(ranks.begin(), pairs_end);
    if (*best == kNoRank) break;
    const auto i = best - ranks.begin();
    tokens[i] = result_of_rank_[*best];
    std::copy(tokens.begin() + i + 2, tokens.begin() + static_cast<std::ptrdiff_t>(count),
              tokens.begin() + i + 1);
    std::copy(best + 1, pairs_end, best);
    --count;
    if (i > 0) ranks[i - 1] = rank_of(tokens[i - 1], tokens[i]);
    if (static_cast<std::size_t>(i) + 1 < count) ranks[i] = rank_of(tokens[i], tokens[i + 1]);
  }
  return count;
}

// Keeps a linked list of the remaining tokens and a priority queue of (rank, index of the left
// token). An entry of the queue is outdated, and skipped, if the rank at its index has changed.
std::size_t BpeMerger::merge_long(std::span<std::int32_t> tokens, Scratch& scratch) const {
  AXONN_CHECK(tokens.size() <= std::numeric_limits<std::int32_t>::max(), "BPE: a word has ",
              tokens.size(), " bytes; at most 2^31 - 1 are possible");
  const auto count = static_cast<std::int32_t>(tokens.size());
  // Not a structured binding: clang 14 cannot capture those.
  std::vector<std::uint32_t>& ranks = scratch.ranks;
  std::vector<std::int32_t>&next = scratch.next, &previous = scratch.previous;
  std::vector<std::uint64_t>& queue = scratch.queue;
  ranks.assign(tokens.size(), kNoRank);
  next.resize(tokens.size());
  previous.resize(tokens.size());
  queue.clear();
  const auto entry = [](std::uint32_t rank, std::int32_t index) {
    return std::uint64_t{rank} << 32 | std::uint32_t(index);
  };
  for (std::int32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
    if (i + 1 < count) ranks[i] = rank_of(tokens[i], tokens[i + 1]);
    if (ranks[i] != kNoRank) queue.push_back(entry(ranks[i], i));
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());

  const auto update = [&](std::int32_t index) {
    const std::int32_t right = next[index];
    ranks[index] = right < count ? rank_of(tokens[index], tokens[right]) : kNoRank;
    if (ranks[index] == kNoRank) return;
    queue.push_back(entry(ranks[index], index));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto rank = static_cast<std::uint32_t>(queue.back() >> 32);
    const auto index = static_cast<std::int32_t>(queue.back());
    queue.pop_back();
    if (ranks[index] != rank) continue;
    const std::int32_t dead = next[index];
    tokens[index] = result_of_rank_[rank];
    ranks[dead] = kNoRank;
    next[index] = next[dead];
    if (next[index] < count) previous[next[index]] = index;
    update(index);
    if (previous[index] >= 0) update(previous[index]);
  }

  std::size_t left = 0;
  for (std::int32_t i = 0; i < count; i = next[i]) tokens[left++] = tokens[i];
  return left;
}

std::shared_ptr<const Tokenizer> make_bpe_tokenizer(BpeVocab vocab) {
  return std::make_shared<BpeTokenizer>(std::move(vocab));
}

}  // namespace axonn
