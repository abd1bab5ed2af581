#include "axonn/use/convert/gguf_model.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <ranges>
#include <string_view>

#include "axonn/data/text/bpe/bpe_vocab.h"
#include "axonn/data/text/gguf_text.h"
#include "axonn/data/text/sentencepiece/sentencepiece_model.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/data/text/tokenizer_config.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/model/gguf_keys.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

// The kinds of tokens in tokenizer.ggml.token_type, which are those of SentencePiece.
constexpr std::int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

/// DeepSeek-V3's patterns, by which a text is cut in turn.
bool cuts_as_deepseek_3(const BpeVocab& vocab) {
  constexpr std::array<std::string_view, 3> kPatterns = {
      R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+",
      R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
      R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
  return std::ranges::equal(vocab.splits, kPatterns, [](const WordSplit& split, auto pattern) {
    return split.pattern == pattern && split.spacing.empty() && !split.inverted &&
           split.behavior == SplitBehavior::isolated;
  });
}

/// The name under which llama.cpp knows a byte-level tokenizer's pattern.
std::string pre_tokenizer_name(const BpeVocab& vocab) {
  const auto found = std::ranges::find(gguf_words(), vocab.pattern, &GgufWords::pattern);
  const bool composes = std::ranges::all_of(
      vocab.normalizer, [](const TextStep& step) { return step.kind == TextStep::Kind::nfc; });
  const bool plain = vocab.spacing.empty() && composes;
  if (plain && vocab.words == BpeWords::splits && cuts_as_deepseek_3(vocab)) return "deepseek-v3";
  if (found == gguf_words().end() || vocab.words != BpeWords::pattern || !plain)
    refuse("--to gguf: ", vocab.name, " cuts text into words as no tokenizer of GGUF that is ",
           "known here does (those of GPT-2, GPT-4o, Llama 3, Qwen, DeepSeek-V3 and Mistral's ",
           "Tekken): '", vocab.pattern, "'");
  return found->name;
}

/// Tokens as the keys list them.
struct TokenList {
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;

  void fill_up(std::int64_t vocab) {
    if (std::ssize(tokens) > vocab)
      refuse("--to gguf: the tokenizer has ", tokens.size(), " tokens, but the model ", vocab);
    for (std::int64_t i = std::ssize(tokens); i < vocab; ++i) {
      tokens.emplace_back();
      types.push_back(kUnused);
      leave_out(static_cast<std::size_t>(i));
    }
  }
  /// Fills the place of an id without a token.
  void leave_out(std::size_t id) {
    tokens[id] = concat("[PAD", id, ']');
    types[id] = kUnused;
  }
};

GgufKeys keys_of_bpe(const BpeVocab& vocab, std::int64_t count) {
  if (!vocab.characters.empty() || vocab.unigram)
    refuse("--to gguf: ", vocab.name, " is no byte-level BPE; the scores of its pieces are only ",
           "read from its tokenizer.model; put that beside it");
  TokenList list;
  for (const std::string& token : vocab.tokens) list.tokens.push_back(bpe_characters(token));
  list.types.assign(list.tokens.size(), kNormal);
  for (const AddedToken& token : vocab.added_tokens) {
    list.tokens[token.id] = token.content;
    list.types[token.id] = token.special ? kControl : kUserDefined;
  }
  for (std::size_t id = 0; id < list.tokens.size(); ++id)
    if (list.tokens[id].empty()) list.leave_out(id);
  std::vector<std::string> merges;
  for (const BpeMerge& merge : vocab.merges)
    merges.push_back(concat(list.tokens[merge.left], ' ', list.tokens[merge.right]));
  list.fill_up(count);
  return {{"tokenizer.ggml.model", std::string("gpt2")},
          {"tokenizer.ggml.pre", pre_tokenizer_name(vocab)},
          {"tokenizer.ggml.tokens", std::move(list.tokens)},
          {"tokenizer.ggml.token_type", std::move(list.types)},
          {"tokenizer.ggml.merges", std::move(merges)}};
}

GgufKeys keys_of_bytes(std::int64_t count) {
  constexpr std::uint32_t kNoCharacter = 255;  // a byte that no text in UTF-8 has
  GgufKeys keys = keys_of_bpe(bytes_as_bpe(), count);
  // Without these, llama.cpp takes token 11 for both.
  keys.emplace_back("tokenizer.ggml.bos_token_id", kNoCharacter);
  keys.emplace_back("tokenizer.ggml.eos_token_id", kNoCharacter);
  keys.emplace_back("tokenizer.ggml.add_bos_token", false);
  keys.emplace_back("tokenizer.ggml.add_eos_token", false);
  return keys;
}

/// `folder` may have tokens added to the model in tokenizer.json or added_tokens.json.
GgufKeys keys_of_sentencepiece(const std::string& path, std::int64_t count) {
  const TextFile file(path);
  const SentencePieces model = read_sentencepieces(file.text(), path);
  if (model.model_type != 2)
    refuse("--to gguf: ", path, " is a unigram model; only models with BPE can be converted");
  TokenList list;
  std::vector<float> scores;
  for (const SentencePieces::Piece& piece : model.pieces) {
    list.tokens.push_back(piece.text);
    list.types.push_back(piece.type);
    scores.push_back(piece.score);
  }
  const std::string added = fs::path(path).parent_path() / "tokenizer.json";
  if (path_exists(added)) {
    for (const AddedToken& token : read_tokenizer_json(added).added_tokens) {
      if (token.id >= std::ssize(list.tokens)) list.fill_up(token.id + 1);
      if (list.types[token.id] != kNormal && list.types[token.id] != kUnused) continue;
      list.tokens[token.id] = token.content;
      list.types[token.id] = token.special ? kControl : kUserDefined;
    }
  }
  list.fill_up(count);
  constexpr float kLeast = -1000;  // of a token that no merge makes
  scores.resize(list.tokens.size(), kLeast);
  return {{"tokenizer.ggml.model", std::string("llama")},
          {"tokenizer.ggml.pre", std::string("default")},
          {"tokenizer.ggml.tokens", std::move(list.tokens)},
          {"tokenizer.ggml.scores", std::move(scores)},
          {"tokenizer.ggml.token_type", std::move(list.types)},
          {"tokenizer.ggml.unknown_token_id", static_cast<std::uint32_t>(model.unknown)},
          {"tokenizer.ggml.add_space_prefix", model.adds_space}};
}

}  // namespace

std::vector<std::string> gguf_differences(const ModelConfig& model) {
  std::vector<std::string> all;
  if (gguf_positions(model) < model.positions)
    all.push_back(concat("the model attends to a window of ", model.window,
                         " positions, but llama.cpp to all; so the file states a context of ",
                         model.window, ", and longer texts (--ctx-size) ",
                         "give other values than this model"));
  if (model.rope.kind == RopeScalingKind::yarn && !model.rope.truncate)
    all.emplace_back(
        "llama.cpp rounds the ends of YaRN's ramp, which this model does not (rope_truncate = "
        "false); so it gives other values than this model");
  return all;
}

GgufKeys gguf_tokenizer_keys(const std::string& tokenizer, std::int64_t vocab) {
  if (tokenizer.empty())
    refuse("--to gguf: the model's tokenizer is not known; name it with --tokenizer");
  const auto read = make_tokenizer(tokenizer);  // refuses what is no tokenizer
  if (read->name() == "bytes") return keys_of_bytes(vocab);
  const std::string folder = tokenizer_folder(tokenizer),
                    sentencepiece = folder + "/tokenizer.model", json = folder + "/tokenizer.json";
  const auto is_byte_level = [&] {
    const BpeVocab written = read_tokenizer_json(json);
    return written.characters.empty() && !written.unigram;
  };
  const bool from_gguf = is_gguf(tokenizer), is_json = !from_gguf && path_exists(json),
             is_bpe = is_json && is_byte_level();
  const bool is_sentencepiece = !from_gguf && !is_bpe && path_exists(sentencepiece);
  const auto read_vocab = [&] {
    if (from_gguf) return read_gguf_vocab(GgufFile(tokenizer));
    return is_json ? read_tokenizer_json(json) : read_bpe_vocab(folder);
  };
  GgufKeys keys = is_sentencepiece ? keys_of_sentencepiece(sentencepiece, vocab)
                                   : keys_of_bpe(read_vocab(), vocab);
  const auto add = [&](const char* key, std::optional<std::int32_t> token) {
    if (token) keys.emplace_back(key, static_cast<std::uint32_t>(*token));
  };
  const std::vector<std::int32_t>& begin = read->begin_of_text();
  if (begin.size() > 1)
    refuse("the tokenizer ", read->name(), " puts ", begin.size(),
           " tokens before a text, and GGUF has a place for one");
  const TokenizerConfig config =
      from_gguf ? read_gguf_tokenizer(GgufFile(tokenizer)).config : read_tokenizer_config(folder);
  add("tokenizer.ggml.bos_token_id",
      begin.empty() ? read->added_token(config.begin_of_text) : begin[0]);
  add("tokenizer.ggml.eos_token_id", read->end_of_text());
  keys.emplace_back("tokenizer.ggml.add_bos_token", !begin.empty());
  keys.emplace_back("tokenizer.ggml.add_eos_token", false);
  return keys;
}

}  // namespace axonn
