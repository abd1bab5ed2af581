#include "axonn/data/bpe_tokenizer.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/data/bpe_merger.h"
#include "axonn/data/bpe_vocab.h"
#include "axonn/data/utf8.h"
#include "axonn/data/word_cache.h"
#include "axonn/data/word_pattern.h"

namespace axonn {

namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

/// What one encoding thread needs for itself.
struct Worker {
  explicit Worker(const WordPattern& pattern) : matcher(pattern) {}
  WordPattern::Matcher matcher;
  WordCache cache;
  BpeMerger::Scratch scratch;
};

class BpeTokenizer : public Tokenizer {
 public:
  BpeTokenizer(BpeVocab vocab, std::string folder)
      : vocab_(std::move(vocab)), folder_(std::move(folder)), merger_(vocab_.merges) {}

  std::string name() const override { return concat("gpt2 (", folder_, ')'); }
  std::int64_t vocab_size() const override { return std::ssize(vocab_.tokens); }
  std::optional<std::int32_t> end_of_text() const override { return vocab_.end_of_text; }
  std::uint64_t fingerprint() const override { return vocab_.fingerprint; }

  void encode_into(std::string_view text, std::vector<std::int32_t>& tokens) const override {
    std::unique_ptr<Worker> worker = take_worker();
    while (!text.empty()) {
      const std::size_t end =
          vocab_.end_of_text ? std::min(text.find(kEndOfText), text.size()) : text.size();
      encode_plain(*worker, text.substr(0, end), tokens);
      text.remove_prefix(end);
      if (text.empty()) break;
      tokens.push_back(*vocab_.end_of_text);
      text.remove_prefix(kEndOfText.size());
    }
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(worker));
  }

 private:
  std::string_view bytes_of_valid(std::int32_t token) const override {
    return vocab_.tokens[token];
  }

  std::unique_ptr<Worker> take_worker() const {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Worker>(pattern_);
    std::unique_ptr<Worker> worker = std::move(idle_.back());
    idle_.pop_back();
    return worker;
  }

  void encode_plain(Worker& worker, std::string_view text,
                    std::vector<std::int32_t>& tokens) const {
    while (!text.empty()) {
      const std::size_t valid = valid_utf8_prefix(text);
      for (std::string_view rest = text.substr(0, valid); !rest.empty();) {
        const std::size_t bytes = worker.matcher.first_word(rest);
        encode_word(worker, rest, bytes, tokens);
        rest.remove_prefix(bytes);
      }
      text.remove_prefix(valid);
      std::size_t invalid = 0;
      while (invalid < text.size() &&
             utf8_front(text.substr(invalid)).kind != Utf8Front::Kind::complete)
        ++invalid;
      if (invalid > 0) encode_word(worker, text, invalid, tokens);
      text.remove_prefix(invalid);
    }
  }

  /// The first bytes of text.
  void encode_word(Worker& worker, std::string_view text, std::size_t bytes,
                   std::vector<std::int32_t>& tokens) const {
    const WordCache::Key key = WordCache::key_of(text, bytes);
    if (key.bytes > 0) {
      const auto known = worker.cache.find(key);
      if (!known.empty()) {
        tokens.insert(tokens.end(), known.begin(), known.end());
        return;
      }
    }
    const std::size_t before = tokens.size();
    for (char c : text.substr(0, bytes))
      tokens.push_back(vocab_.byte_tokens[static_cast<unsigned char>(c)]);
    const std::span<std::int32_t> word = std::span(tokens).subspan(before);
    const std::size_t left = merger_.merge(word, worker.scratch);
    worker.cache.keep(key, word.first(left));
    tokens.resize(before + left);
  }

  BpeVocab vocab_;
  std::string folder_;
  BpeMerger merger_;
  WordPattern pattern_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Worker>> idle_;
};

}  // namespace

std::shared_ptr<const Tokenizer> make_bpe_tokenizer(const std::string& folder) {
  return std::make_shared<BpeTokenizer>(read_bpe_vocab(folder), folder);
}

}  // namespace axonn
