#include "axonn/data/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "axonn/data/text/bpe/bpe_tokenizer.h"
#include "axonn/data/text/bpe/bpe_vocab.h"
#include "axonn/data/text/gguf_text.h"
#include "axonn/data/text/hub.h"
#include "axonn/data/text/sentencepiece/sentencepiece_tokenizer.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

namespace {

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() {
    name_ = "bytes";
    for (int byte = 0; byte < 256; ++byte) tokens_.emplace_back(1, static_cast<char>(byte));
    fingerprint_ = hash_text(name_);
  }

 private:
  bool is_border(std::string_view, std::size_t) const override { return true; }
  void append_tokens(std::string_view text, std::vector<std::int32_t>& tokens,
                     const EncodeOptions&) const override {
    const std::size_t before = tokens.size();
    tokens.resize(before + text.size());
    for (std::size_t i = 0; i < text.size(); ++i)
      tokens[before + i] = static_cast<unsigned char>(text[i]);
  }
};

std::shared_ptr<const Tokenizer> tokenizer_of(BpeVocab vocab) {
  if (is_bytes(vocab)) return std::make_shared<ByteTokenizer>();
  return make_bpe_tokenizer(std::move(vocab));
}

}  // namespace

std::string_view Tokenizer::bytes_of(std::int32_t token) const {
  AXONN_CHECK(token >= 0 && token < vocab_size(), "decode: token ", token, " is not one of the ",
              vocab_size(), " of the tokenizer ", name());
  return tokens_[token];
}

std::optional<std::int32_t> Tokenizer::added_token(std::string_view characters) const {
  const auto found = added_tokens_.find(characters);
  return found == added_tokens_.end() ? std::nullopt : std::optional(found->second);
}

std::int64_t Tokenizer::needed_rows() const {
  std::set<std::int32_t> added;
  for (const auto& [content, token] : added_tokens_) added.insert(token);
  std::int64_t rows = vocab_size();
  while (rows > 0 && (added.contains(static_cast<std::int32_t>(rows - 1)) ||
                      tokens_[static_cast<std::size_t>(rows - 1)].empty()))
    --rows;
  return rows;
}

void check_rows(const Tokenizer& tokenizer, std::int64_t rows) {
  if (tokenizer.needed_rows() > rows)
    refuse("the tokenizer ", tokenizer.name(), " has ", tokenizer.needed_rows(),
           " tokens besides those that were added to it, but the model's vocabulary has only ",
           rows, ", so it belongs to another model; name this model's tokenizer with ",
           "data.tokenizer or --tokenizer, or, for a new model, set model.vocab to ",
           tokenizer.vocab_size());
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text,
                                            const EncodeOptions& options) const {
  std::vector<std::int32_t> tokens;
  encode_into(text, tokens, options);
  return tokens;
}

std::vector<std::int32_t> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  encode_into(text, tokens);
  add_begin(tokens);
  return tokens;
}

void Tokenizer::add_begin(std::vector<std::int32_t>& tokens, std::size_t start) const {
  const auto text = tokens.begin() + static_cast<std::ptrdiff_t>(start);
  const bool there =
      std::ssize(begin_) <= tokens.end() - text && std::equal(begin_.begin(), begin_.end(), text);
  if (!there) tokens.insert(text, begin_.begin(), begin_.end());
}

std::size_t Tokenizer::cut(std::string_view text, std::size_t wanted) const {
  std::size_t at = std::max<std::size_t>(wanted, 1);
  while (at < text.size() && !is_border(text, at)) ++at;
  return std::min(at, text.size());
}

std::string_view Tokenizer::shown(std::int32_t token, DecodeOptions& state) const {
  std::string_view bytes = bytes_of(token);
  if (state.skip_special && is_special(token) &&
      std::ranges::find(state.shown, token) == state.shown.end())
    return {};
  const bool front = !std::exchange(state.continues, true);
  if (front && bytes.starts_with(' ') && puts_space()) bytes.remove_prefix(1);
  return bytes;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens,
                              const DecodeOptions& options) const {
  DecodeOptions state = options;
  std::string text;
  for (std::int32_t token : tokens) text += shown(token, state);
  return text;
}

std::string tokenizer_folder(const std::string& tokenizer) {
  if (is_folder(tokenizer)) return tokenizer;
  const std::string folder = std::filesystem::path(tokenizer).parent_path();
  return folder.empty() ? "." : folder;
}

std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& bytes_or_path) {
  constexpr std::string_view kWanted =
      "a folder with tokenizer.json, with vocab.json and merges.txt, or with tokenizer.model";
  if (bytes_or_path.empty()) refuse("data.tokenizer is empty; give \"bytes\" or ", kWanted);
  if (bytes_or_path == "bytes") return std::make_shared<ByteTokenizer>();
  const std::filesystem::path path(bytes_or_path);
  const auto in_folder = [&](const char* name) { return (path / name).string(); };
  if (is_folder(bytes_or_path)) {
    if (path_exists(in_folder("tokenizer.json")))
      return tokenizer_of(read_tokenizer_json(in_folder("tokenizer.json")));
    if (path_exists(in_folder("vocab.json"))) return tokenizer_of(read_bpe_vocab(bytes_or_path));
    if (path_exists(in_folder("tokenizer.model")))
      return make_sentencepiece_tokenizer(in_folder("tokenizer.model"));
    refuse("the tokenizer's folder ", bytes_or_path, " holds no tokenizer; expected ", kWanted);
  }
  if (!path_exists(bytes_or_path))
    refuse("tokenizer '", bytes_or_path, "' does not exist; expected \"bytes\", ", kWanted,
           ", or one of these files", download_hint(bytes_or_path));
  if (path.filename() == "vocab.json" || path.filename() == "merges.txt")
    return tokenizer_of(read_bpe_vocab(path.parent_path().string()));
  if (path.extension() == ".json") return tokenizer_of(read_tokenizer_json(bytes_or_path));
  if (is_gguf(bytes_or_path)) return tokenizer_of(read_gguf_vocab(GgufFile(bytes_or_path)));
  if (path.extension() == ".model") return make_sentencepiece_tokenizer(bytes_or_path);
  refuse("tokenizer '", bytes_or_path, "' is not a tokenizer's file; expected \"bytes\", ", kWanted,
         ", or one of these files");
}

}  // namespace axonn
