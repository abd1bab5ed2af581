#include "axonn/data/text/gguf_text.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/data/text/tokenizer_config.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kPrefix = "tokenizer.ggml.";
constexpr const char* kRemedy = "; name the tokenizer's folder with --tokenizer or data.tokenizer";

// The kinds of tokens in tokenizer.ggml.token_type, which are those of SentencePiece.
constexpr std::int64_t kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5;

/// The tokenizer's keys of a file.
class TokenizerKeys {
 public:
  explicit TokenizerKeys(const GgufFile& file) : file_(file) {
    const auto* const tokens = file.texts(key("tokens"));
    if (!tokens) refuse(file.path(), " has no ", key("tokens"), kRemedy);
    tokens_ = tokens;
    types_ = file.integers(key("token_type"));
    if (types_ && types_->size() != tokens->size())
      refuse(file.path(), ": ", key("token_type"), " has ", types_->size(), " entries for ",
             tokens->size(), " tokens", kRemedy);
  }

  static std::string key(std::string_view name) { return concat(kPrefix, name); }
  std::size_t size() const { return tokens_->size(); }
  const std::string& token(std::size_t id) const { return (*tokens_)[id]; }
  std::int64_t type(std::size_t id) const { return types_ ? (*types_)[id] : 1; }
  std::string text(std::string_view name) const { return file_.text(key(name)).value_or(""); }
  bool flag(std::string_view name, bool otherwise) const {
    const auto value = file_.integer(key(name));
    return value ? *value != 0 : otherwise;
  }
  /// The token of which a key has the number. Of the tokenizer "bytes", which has no such tokens,
  /// files name a byte that is in no text for both ends.
  std::optional<std::int32_t> id(std::string_view name) const {
    constexpr std::int64_t kNoCharacter = 255;
    const auto value = file_.integer(key(name));
    if (!value || *value < 0 || (*value == kNoCharacter && is_bytes())) return {};
    if (*value >= std::ssize(*tokens_))
      refuse(file_.path(), ": ", key(name), " is ", *value, ", but there are ", size(), " tokens",
             kRemedy);
    return static_cast<std::int32_t>(*value);
  }
  const GgufFile& file() const { return file_; }

 private:
  bool is_bytes() const {
    const auto* const merges = file_.texts(key("merges"));
    return text("model") == "gpt2" && (!merges || merges->empty());
  }

  const GgufFile& file_;
  const std::vector<std::string>* tokens_ = nullptr;
  const std::vector<std::int64_t>* types_ = nullptr;
};

/// The tokens that are found in a text before it is cut into words.
Json added_tokens(const TokenizerKeys& keys) {
  Json all = Json::array();
  for (std::size_t id = 0; id < keys.size(); ++id) {
    const std::int64_t type = keys.type(id);
    if (type != kControl && type != kUserDefined && type != kUnknown) continue;
    if (keys.token(id).empty()) continue;
    all.push_back({{"id", id},
                   {"content", keys.token(id)},
                   {"single_word", false},
                   {"lstrip", false},
                   {"rstrip", false},
                   {"normalized", false},
                   {"special", type != kUserDefined}});
  }
  return all;
}

/// The tokens that merges make, and those of single characters or bytes.
Json vocabulary(const TokenizerKeys& keys, bool with_added) {
  Json all = Json::object();
  for (std::size_t id = 0; id < keys.size(); ++id) {
    const std::int64_t type = keys.type(id);
    const bool added = type == kControl || type == kUserDefined;
    if (type == kUnused || keys.token(id).empty() || (added && !with_added)) continue;
    all[keys.token(id)] = id;
  }
  return all;
}

Json merges_of_bytes(const TokenizerKeys& keys) {
  const auto* const lines = keys.file().texts(TokenizerKeys::key("merges"));
  Json all = Json::array();
  if (lines)
    for (const std::string& line : *lines) all.push_back(line);
  return all;
}

/// The pairs that make each piece, those of the best pieces first, as transformers has them.
Json merges_of_pieces(const TokenizerKeys& keys) {
  const auto* const scores = keys.file().numbers(TokenizerKeys::key("scores"));
  if (!scores || scores->size() != keys.size())
    refuse(keys.file().path(), " has no ", TokenizerKeys::key("scores"), " of all tokens", kRemedy);
  std::map<std::string_view, std::size_t> ids;
  for (std::size_t id = 0; id < keys.size(); ++id) ids.emplace(keys.token(id), id);
  struct Pair {
    double score;
    std::string_view left, right;
  };
  std::vector<Pair> pairs;
  for (std::size_t id = 0; id < keys.size(); ++id) {
    const std::string_view piece = keys.token(id);
    if (keys.type(id) != 1) continue;
    for (std::size_t at = utf8_front(piece).bytes; at < piece.size();
         at += utf8_front(piece.substr(at)).bytes) {
      const std::string_view left = piece.substr(0, at), right = piece.substr(at);
      if (ids.contains(left) && ids.contains(right)) pairs.push_back({(*scores)[id], left, right});
    }
  }
  std::ranges::stable_sort(pairs, std::greater(), [](const Pair& pair) {
    return std::tuple(pair.score, pair.left.size(), pair.right.size());
  });
  Json all = Json::array();
  for (const Pair& pair : pairs) all.push_back({std::string(pair.left), std::string(pair.right)});
  return all;
}

/// Puts a token before each text.
Json begin_before_text(const std::string& token, std::int32_t id) {
  const auto special = [&](int type) {
    return Json{{"SpecialToken", {{"id", token}, {"type_id", type}}}};
  };
  const auto text = [](const char* name, int type) {
    return Json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", Json::array({special(0), text("A", 0)})},
          {"pair", Json::array({special(0), text("A", 0), special(1), text("B", 1)})},
          {"special_tokens",
           {{token, {{"id", token}, {"ids", {id}}, {"tokens", Json::array({token})}}}}}};
}

/// tokenizer.json of a byte-level BPE.
Json json_of_bytes(const TokenizerKeys& keys) {
  std::string pre = keys.text("pre");
  for (const char* const other : {"llama3", "llama-v3"})
    if (pre == other) pre = "llama-bpe";
  const auto found = std::ranges::find(gguf_words(), pre, &GgufWords::name);
  if (found == gguf_words().end()) {
    std::string names;
    for (const GgufWords& words : gguf_words())
      names += concat(names.empty() ? "" : ", ", words.name);
    refuse(keys.file().path(), ": ", TokenizerKeys::key("pre"), " is '", printable(pre),
           "', of which the words are not known here; those of ", names, " are", kRemedy);
  }
  const bool gpt2 = pre == "gpt-2";
  Json cut{{"type", "ByteLevel"},
           {"add_prefix_space", false},
           {"trim_offsets", true},
           {"use_regex", gpt2}};
  if (!gpt2)
    cut = {{"type", "Sequence"},
           {"pretokenizers",
            {{{"type", "Split"},
              {"pattern", {{"Regex", found->pattern}}},
              {"behavior", "Isolated"},
              {"invert", false}},
             cut}}};
  return {{"added_tokens", added_tokens(keys)},
          {"normalizer", pre == "qwen2" ? Json{{"type", "NFC"}} : Json()},
          {"pre_tokenizer", cut},
          {"decoder",
           {{"type", "ByteLevel"},
            {"add_prefix_space", false},
            {"trim_offsets", true},
            {"use_regex", true}}},
          {"model",
           {{"type", "BPE"},
            {"ignore_merges", pre == "llama-bpe" || pre == "tekken"},
            {"vocab", vocabulary(keys, false)},
            {"merges", merges_of_bytes(keys)}}}};
}

/// tokenizer.json of a SentencePiece model with BPE.
Json json_of_pieces(const TokenizerKeys& keys) {
  constexpr const char* kMark = "\u2581";
  const bool space = keys.flag("add_space_prefix", true);
  Json steps = Json::array(), back = Json::array();
  if (space) steps.push_back({{"type", "Prepend"}, {"prepend", kMark}});
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMark}});
  back.push_back({{"type", "Replace"}, {"pattern", {{"String", kMark}}}, {"content", " "}});
  back.push_back({{"type", "ByteFallback"}});
  back.push_back({{"type", "Fuse"}});
  if (space) back.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  const auto unknown = keys.id("unknown_token_id");
  return {{"added_tokens", added_tokens(keys)},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", steps}}},
          {"decoder", {{"type", "Sequence"}, {"decoders", back}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", unknown ? Json(keys.token(*unknown)) : Json()},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocabulary(keys, true)},
            {"merges", merges_of_pieces(keys)}}}};
}

}  // namespace

const std::array<GgufWords, 5>& gguf_words() {
  static const std::array<GgufWords, 5> kWords = [] {
    constexpr std::string_view kLetters =
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})";
    constexpr std::string_view kRest = R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    constexpr std::string_view kSmall = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
                                        R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+)",
                               kLarge = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
                                        R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*)",
                               kOther = R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                               kShort = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
    return std::array<GgufWords, 5>{
        {{"gpt-2", std::string(kGpt2Pattern)},
         {"llama-bpe", concat(kLetters, "{1,3}", kRest)},
         {"qwen2", concat(kLetters, kRest)},
         {"tekken", concat(kSmall, '|', kLarge, R"(|\p{N})", kOther)},
         {"gpt-4o", concat(kSmall, kShort, '|', kLarge, kShort, R"(|\p{N}{1,3})", kOther)}}};
  }();
  return kWords;
}

bool has_tokenizer(const GgufFile& file) {
  return file.keys().contains(TokenizerKeys::key("tokens"));
}

GgufTokenizer read_gguf_tokenizer(const GgufFile& file) {
  const TokenizerKeys keys(file);
  const std::string model = keys.text("model");
  if (model != "gpt2" && model != "llama")
    refuse(file.path(), ": ", TokenizerKeys::key("model"), " is '", printable(model),
           "', which is not read; gpt2 and llama are", kRemedy);
  const bool pieces = model == "llama";
  Json json = pieces ? json_of_pieces(keys) : json_of_bytes(keys);
  GgufTokenizer read;
  const auto begin = keys.id("bos_token_id"), end = keys.id("eos_token_id");
  if (begin) read.config.begin_of_text = keys.token(*begin);
  if (end) read.config.end_of_text = keys.token(*end);
  read.config.adds_begin =
      begin && keys.flag("add_bos_token", pieces || keys.text("pre") == "llama-bpe");
  if (*read.config.adds_begin)
    json["post_processor"] = begin_before_text(keys.token(*begin), *begin);
  json.update({{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}});
  read.json = json.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
  return read;
}

BpeVocab read_gguf_vocab(const GgufFile& file) {
  const GgufTokenizer read = read_gguf_tokenizer(file);
  return parse_tokenizer_json(read.json, file.path(), read.config);
}

ModelText read_gguf_text(const GgufFile& file) {
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  ModelText text;
  if (!has_tokenizer(file)) return text;
  const TokenizerKeys keys(file);
  text.tokenizer = file.path();
  for (const char* const key : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const auto token = keys.id(key)) text.add_end(*token);
  text.pad = keys.id("padding_token_id");
  for (const auto& [key, value] : file.keys()) {
    const auto* const form = std::get_if<std::string>(&value);
    if (!form || !key.starts_with(kTemplate)) continue;
    const std::string name = key == kTemplate ? "default" : key.substr(kTemplate.size() + 1);
    text.forms.push_back({name, concat(file.path(), ": ", key), *form});
  }
  return text;
}

}  // namespace axonn
