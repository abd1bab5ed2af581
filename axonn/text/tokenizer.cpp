#include "axonn/text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/hub.h"
#include "axonn/base/json_node.h"
#include "axonn/base/random.h"
#include "axonn/base/utf8.h"
#include "axonn/text/bpe/bpe_tokenizer.h"
#include "axonn/text/bpe/bpe_vocab.h"
#include "axonn/text/sentencepiece/sentencepiece_tokenizer.h"

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

/// The text that a token adds after the tokens before it.
std::string_view shown(const Tokenizer& tokenizer, std::int32_t token, DecodeOptions& state) {
  std::string_view bytes = tokenizer.bytes_of(token);
  if (state.skip_special && tokenizer.is_special(token) &&
      std::ranges::find(state.shown, token) == state.shown.end())
    return {};
  const bool front = !std::exchange(state.continues, true);
  if (front && bytes.starts_with(' ') && tokenizer.puts_space()) bytes.remove_prefix(1);
  return bytes;
}

/// The characters of a token, which is a string or an object with the string in "content".
std::string token_at(const JsonNode& node) {
  return node.is_object() ? node["content"].text() : node.text_or("");
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

std::vector<std::int32_t> Tokenizer::encode(std::string_view text,
                                            const EncodeOptions& options) const {
  std::vector<std::int32_t> tokens;
  encode_into(text, tokens, options);
  return tokens;
}

std::vector<std::int32_t> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  if (const auto begin = begin_of_text()) tokens.push_back(*begin);
  encode_into(text, tokens);
  return tokens;
}

std::size_t Tokenizer::cut(std::string_view text, std::size_t wanted) const {
  std::size_t at = std::max<std::size_t>(wanted, 1);
  while (at < text.size() && !is_border(text, at)) ++at;
  return std::min(at, text.size());
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens,
                              const DecodeOptions& options) const {
  DecodeOptions state = options;
  std::string text;
  for (std::int32_t token : tokens) text += shown(*this, token, state);
  return text;
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
      return make_bpe_tokenizer(read_tokenizer_json(in_folder("tokenizer.json")));
    if (path_exists(in_folder("vocab.json")))
      return make_bpe_tokenizer(read_bpe_vocab(bytes_or_path));
    if (path_exists(in_folder("tokenizer.model")))
      return make_sentencepiece_tokenizer(in_folder("tokenizer.model"));
    refuse("the tokenizer's folder ", bytes_or_path, " holds no tokenizer; expected ", kWanted);
  }
  if (!path_exists(bytes_or_path))
    refuse("tokenizer '", bytes_or_path, "' does not exist; expected \"bytes\", ", kWanted,
           ", or one of these files", download_hint(bytes_or_path));
  if (path.filename() == "vocab.json" || path.filename() == "merges.txt")
    return make_bpe_tokenizer(read_bpe_vocab(path.parent_path().string()));
  if (path.extension() == ".json") return make_bpe_tokenizer(read_tokenizer_json(bytes_or_path));
  if (path.extension() == ".model") return make_sentencepiece_tokenizer(bytes_or_path);
  refuse("tokenizer '", bytes_or_path, "' is not a tokenizer's file; expected \"bytes\", ", kWanted,
         ", or one of these files");
}

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  const std::string path = std::filesystem::path(folder) / "tokenizer_config.json";
  TokenizerConfig result;
  if (!path_exists(path)) return result;
  const TextFile file(path);
  const JsonNode config = JsonNode::parse(file.text(), path);
  result.tokenizer_class = config["tokenizer_class"].text_or("");
  if (const JsonNode adds = config["add_bos_token"]; !adds.is_null())
    result.adds_begin = adds.flag_or(false);
  result.begin_of_text = token_at(config["bos_token"]);
  result.end_of_text = token_at(config["eos_token"]);
  return result;
}

std::vector<std::int32_t> read_end_tokens(const std::string& folder) {
  const std::string path = std::filesystem::path(folder) / "generation_config.json";
  if (!path_exists(path)) return {};
  const TextFile file(path);
  const JsonNode found = JsonNode::parse(file.text(), path)["eos_token_id"];
  if (found.is_null()) return {};
  std::vector<std::int32_t> tokens;
  for (const JsonNode& each : found.is_array() ? found.items() : std::vector{found})
    tokens.push_back(static_cast<std::int32_t>(each.number()));
  return tokens;
}

std::size_t begun_suffix(std::string_view text, std::string_view pattern) {
  for (std::size_t n = std::min(text.size(), pattern.size() - 1); n > 0; --n)
    if (text.ends_with(pattern.substr(0, n))) return n;
  return 0;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options,
                             std::vector<std::string> stops)
    : tokenizer_(tokenizer), options_(options), stops_(std::move(stops)) {
  for (const std::string& stop : stops_)
    if (stop.empty()) refuse("a stop string is empty");
}

std::string StreamDecoder::push(std::int32_t token) {
  if (stopped_) return {};
  held_ += shown(tokenizer_, token, options_);
  return take_ready(held_.size() - incomplete_utf8_suffix(held_));
}

/// Takes the text that can be shown from the first `whole` bytes that are held.
std::string StreamDecoder::take_ready(std::size_t whole) {
  const std::string_view text = std::string_view(held_).substr(0, whole);
  std::size_t end = text.npos, back = 0;
  for (const std::string& stop : stops_) {
    end = std::min(end, text.find(stop));
    back = std::max(back, begun_suffix(text, stop));
  }
  stopped_ = end != text.npos;
  std::string ready(text.substr(0, stopped_ ? end : whole - back));
  held_.erase(0, ready.size());
  return ready;
}

std::string StreamDecoder::finish() {
  if (stopped_) return {};
  std::string rest = take_ready(held_.size());
  if (!stopped_) rest += std::exchange(held_, {});
  return rest;
}

}  // namespace axonn
