#include "axonn/data/text/sentencepiece/sentencepiece_tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include <sentencepiece_processor.h>

#include "axonn/data/text/sentencepiece/sentencepiece_model.h"
#include "axonn/data/text/text_steps.h"
#include "axonn/data/text/tokenizer_config.h"
#include "axonn/data/text/word_cache.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/random.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

// A private-use character, which no vocabulary has. Text after it is encoded as in the middle of a
// text.
constexpr std::string_view kStranger = "\ue0fa";

constexpr std::int32_t kModelOfWords = 3;  // SentencePieces::model_type

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::string& path) : path_(path) {
    name_ = concat("SentencePiece (", path, ')');
    const TextFile file(path);
    const SentencePieces read = read_sentencepieces(file.text(), path);
    // With pointers and sizes, as the library's own builds have a string_view of their own.
    const std::string_view model = file.text();
    const auto status = model_.LoadFromSerializedProto({model.data(), model.size()});
    if (!status.ok() || model_.GetPieceSize() == 0)
      refuse(path, ": SentencePiece cannot read this model (", printable(status.ToString()),
             "); is the file whole?");
    read_pieces();
    // Without byte pieces, an unknown character and its neighbours become one token.
    by_words_ = by_words_ && byte_tokens_[0] != model_.unk_id();
    const auto probe = ask("a");
    puts_space_ = !probe.empty() && model_.IdToPiece(probe[0]).starts_with(kSpaceMark);
    stranger_ = ask(kStranger);
    newlines_apart_ =
        by_words_ && newline_is_a_byte() && spaced_text(ask("a  a")).ends_with("a  a");
    characters_apart_ =
        newlines_apart_ && !read.replaces_characters && read.model_type != kModelOfWords;
    find_ends(read_tokenizer_config(std::filesystem::path(path).parent_path().string()));
    fingerprint_ = hash_text(concat("sentencepiece ", hash_text(file.text()), ' ',
                                    begin_.empty() ? -1 : begin_.front(), ' ', end_.value_or(-1)));
  }

 private:
  /// A space before a control piece is the end of a text, where it may be dropped.
  bool is_border(std::string_view text, std::size_t at) const override {
    const std::optional<Neighbours> beside = neighbours(text, at);
    return beside && !control_borders_.forbid(*beside) && is_word_border(text, at) &&
           !(text[at] == ' ' && at + 1 < text.size() &&
             control_begins_.find(text[at + 1]) != control_begins_.npos);
  }

  /// Whether a word ends at this position of well-formed text.
  bool is_word_border(std::string_view text, std::size_t at) const {
    const auto is_ascii = [&](std::size_t i) { return static_cast<signed char>(text[i]) >= 0; };
    const auto visible = [&](std::size_t i) { return text[i] > ' ' && text[i] <= '~'; };
    if (newlines_apart_ && (text[at] == '\n' || text[at - 1] == '\n')) return true;
    if (is_ascii(at) && is_ascii(at - 1))
      return by_words_ && text[at] == ' ' && visible(at - 1) && at + 1 < text.size() &&
             visible(at + 1);
    if (!characters_apart_) return false;
    const std::optional<Neighbours> beside = neighbours(text, at);
    return beside && !pairs_.contains(with_spaces(beside->left), with_spaces(beside->right));
  }

  std::vector<int> ask(std::string_view text) const {
    std::vector<int> tokens;
    const auto status = model_.Encode({text.data(), text.size()}, &tokens);
    if (!status.ok())
      refuse(path_,
             ": SentencePiece cannot encode with this model: ", printable(status.ToString()));
    return tokens;
  }

  /// The byte that a piece such as "<0x0A>" stands for.
  int byte_of(std::string_view piece) const {
    int byte = -1;
    if (piece.size() == 6) std::from_chars(piece.data() + 3, piece.data() + 5, byte, /*base=*/16);
    if (byte < 0) refuse(path_, ": '", printable(piece), "' is not a byte piece");
    return byte;
  }

  void read_pieces() {
    byte_tokens_.fill(model_.unk_id());
    for (int i = 0; i < model_.GetPieceSize(); ++i) {
      const std::string& piece = model_.IdToPiece(i);
      if (model_.IsByte(i)) {
        const int byte = byte_of(piece);
        byte_tokens_[byte] = i;
        tokens_.emplace_back(1, static_cast<char>(byte));
        continue;
      }
      tokens_.push_back(with_spaces(piece));
      if (model_.IsControl(i) && !piece.empty()) {
        if (piece.size() > AddedTokenFinder::kMostBytes)
          refuse(path_, ": the control piece ", i, " has ", piece.size(), " bytes; at most ",
                 AddedTokenFinder::kMostBytes, " are possible");
        finder_.add(piece, i);
        control_borders_.add(piece);
        control_begins_ += piece[0];
      }
      if (model_.IsControl(i) || model_.IsUnknown(i)) {
        specials_.insert(i);
        added_tokens_.emplace(piece, i);
      }
      by_words_ = by_words_ && !has_inner_mark(piece);
      pairs_.add(with_spaces(piece));
    }
  }

  std::string spaced_text(const std::vector<int>& tokens) const {
    std::string text;
    for (int token : tokens) text += tokens_[token];
    return text;
  }

  /// Whether a newline is always a byte piece, which no other piece contains.
  bool newline_is_a_byte() const {
    const int newline = byte_tokens_['\n'];
    const auto has_newline = [](const std::string& token) {
      return token.find('\n') != token.npos;
    };
    return newline != model_.unk_id() && std::ranges::count_if(tokens_, has_newline) == 1 &&
           std::ranges::count(ask("a\na"), newline) == 1;
  }

  void find_ends(const TokenizerConfig& config) {
    const auto id_of = [&](const std::string& content, int otherwise) {
      if (content.empty())
        return otherwise < 0 ? std::nullopt : std::optional<std::int32_t>(otherwise);
      const auto token = added_token(content);
      if (!token)
        refuse(path_, " has no token '", printable(content),
               "', which tokenizer_config.json names");
      return token;
    };
    notes_ = config.notes;
    if (config.adds_begin.value_or(true))
      if (const auto begin = id_of(config.begin_of_text, model_.bos_id())) begin_ = {*begin};
    end_ = id_of(config.end_of_text, model_.eos_id());
  }

  void append_tokens(std::string_view text, std::vector<std::int32_t>& tokens,
                     const EncodeOptions& options) const override {
    std::unique_ptr<WordCache> cache = caches_.take([] { return std::make_unique<WordCache>(); });
    bool continues = options.continues;
    while (!text.empty()) {
      const auto match = options.added_tokens ? finder_.find(text) : std::nullopt;
      const std::size_t end = match ? match->begin : text.size();
      append_words(*cache, text.substr(0, end), continues, tokens);
      if (match) tokens.push_back(match->token);
      text.remove_prefix(match ? end + match->bytes : end);
      continues = false;
    }
    caches_.give_back(std::move(cache));
  }

  void append_words(WordCache& cache, std::string_view text, bool continues,
                    std::vector<std::int32_t>& tokens) const {
    while (!text.empty()) {
      const std::size_t valid = valid_utf8_prefix(text);
      for (std::string_view rest = text.substr(0, valid); !rest.empty();) {
        const std::size_t bytes = first_word(rest);
        if (newlines_apart_ && continues && rest[0] == '\n') {
          tokens.push_back(byte_tokens_['\n']);
        } else {
          append_word(cache, rest, bytes, continues, tokens);
        }
        continues = true;
        rest.remove_prefix(bytes);
      }
      text.remove_prefix(valid);
      if (text.empty()) break;
      tokens.push_back(byte_tokens_[static_cast<unsigned char>(text[0])]);
      text.remove_prefix(1);
      continues = true;
    }
  }

  std::size_t first_word(std::string_view text) const {
    if (!by_words_) return text.size();
    for (std::size_t i = 1; i < text.size(); ++i) {
      const bool letters = text[i] > ' ' && text[i - 1] > ' ';  // visible ASCII, never a border
      if (!letters && is_word_border(text, i)) return i;
    }
    return text.size();
  }

  /// Appends the tokens of the word in the first `bytes` bytes of text. After other text, a word
  /// with a space in front has the tokens of the word without the space at the start of a text.
  void append_word(WordCache& cache, std::string_view text, std::size_t bytes, bool continues,
                   std::vector<std::int32_t>& tokens) const {
    const bool space = continues && text[0] == ' ' && bytes > 1 && text[1] > ' ';
    const WordCache::Key key = continues ? WordCache::key_of(text, bytes) : WordCache::Key{};
    if (const auto known = cache.find(key); !known.empty()) {
      tokens.insert(tokens.end(), known.begin(), known.end());
      return;
    }
    const std::string_view word = text.substr(0, bytes);
    std::vector<int> found;
    if (!continues) {
      found = ask(word);
    } else if (space && puts_space_) {
      found = ask(word.substr(1));
    } else {
      found = ask(concat(kStranger, word));
      found.erase(found.begin(),
                  found.begin() + std::min(std::ssize(stranger_), std::ssize(found)));
      if (found.empty()) found.push_back(model_.unk_id());  // it was merged with the stranger
    }
    tokens.insert(tokens.end(), found.begin(), found.end());
    cache.keep(key, found);
  }

  std::string path_;
  sentencepiece::SentencePieceProcessor model_;
  std::array<std::int32_t, 256> byte_tokens_{};
  AddedTokenFinder finder_;
  std::vector<int> stranger_;
  bool by_words_ = true;           ///< whether words are encoded one by one
  bool newlines_apart_ = false;    ///< the same for newlines; needs a model that keeps all spaces
  bool characters_apart_ = false;  ///< and for characters beyond ASCII that no piece joins
  CharacterPairs pairs_;           ///< of all pieces
  AddedTokenBorders control_borders_;
  std::string control_begins_;  ///< the first bytes of control pieces
  mutable Pool<WordCache> caches_;
};

}  // namespace

std::string sentencepiece_library() { return "built in"; }

std::shared_ptr<const Tokenizer> make_sentencepiece_tokenizer(const std::string& path) {
  return std::make_shared<SentencePieceTokenizer>(path);
}

}  // namespace axonn
