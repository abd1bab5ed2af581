#include "axonn/text/bpe/bpe_vocab.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/json_node.h"
#include "axonn/base/random.h"
#include "axonn/base/utf8.h"
#include "axonn/text/bpe/tokenizer_steps.h"
#include "axonn/text/tokenizer_config.h"
#include "axonn/text/unicode/properties.h"

namespace axonn {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using TokenIds = std::unordered_map<std::string, std::int32_t>;

// Far more than any tokenizer has. A larger id means a damaged file, for which no memory must be
// allocated.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;

bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/// The byte that each character below U+0144 stands for, or -1.
const std::array<int, 0x144> kByteOfCharacter = [] {
  std::array<int, 0x144> bytes;
  bytes.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) bytes[stands_for_itself(byte) ? byte : next++] = byte;
  return bytes;
}();

/// The id of a token below kMaxTokens.
std::int32_t token_id(const JsonNode& node) {
  if (node.number() >= kMaxTokens)
    node.reject(node.number(), "; at most 16,777,216 tokens are possible");
  return static_cast<std::int32_t>(node.number());
}

/// Reads a vocabulary {"token": id, ...}.
TokenIds read_token_ids(const JsonNode& node) {
  TokenIds ids;
  for (const auto& [token, id] : node.members()) ids.emplace(token, token_id(id));
  return ids;
}

/// Throws UsageError, with `where`, unless the ids of n tokens are 0 .. n - 1.
void check_ids(const TokenIds& ids, const std::string& where) {
  if (ids.empty()) refuse(where, ": the vocabulary is empty");
  std::vector<const std::string*> token_of(ids.size());
  for (const auto& [token, id] : ids) {
    if (static_cast<std::size_t>(id) >= ids.size())
      refuse(where, ": the id of token '", printable(token), "' is ", id, ", but there are ",
             ids.size(), " tokens; their ids must be 0 to ", ids.size() - 1);
    if (token_of[id])
      refuse(where, ": the tokens '", printable(*token_of[id]), "' and '", printable(token),
             "' have the same id ", id);
    token_of[id] = &token;
  }
}

/// The bytes that the characters of a byte-level token stand for. A token with a character that
/// stands for no byte (added by hand; merges never make one) keeps its UTF-8.
std::string bytes_of_characters(const std::string& token) {
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const char32_t code = code_point(rest);
    if (code >= kByteOfCharacter.size() || kByteOfCharacter[code] < 0) return token;
    bytes += static_cast<char>(kByteOfCharacter[code]);
    rest.remove_prefix(utf8_front(rest).bytes);
  }
  return bytes;
}

/// The tokens of the 256 single bytes in a byte-level vocabulary. Throws UsageError, with `where`,
/// if one is missing.
std::vector<std::int32_t> find_byte_tokens(const TokenIds& ids, const std::string& where) {
  std::vector<std::int32_t> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character = bpe_character(static_cast<unsigned char>(byte));
    const auto found = ids.find(character);
    if (found == ids.end())
      refuse(where, ": no token for byte ", byte, " ('", character,
             "'); a byte-level vocabulary needs all 256");
    tokens.push_back(found->second);
  }
  return tokens;
}

/// Converts pairs of tokens to merges.
class MergeList {
 public:
  /// For messages: `before`, the place of a merge and `after` together say where it is.
  struct Names {
    std::string vocabulary, before, after;
  };
  MergeList(const TokenIds& ids, Names names) : ids_(ids), names_(std::move(names)) {}

  /// Throws UsageError if a token is not in the vocabulary or the pair was added before.
  void add(const std::string& left, const std::string& right, std::size_t place) {
    const BpeMerge merge{id_of(left, place), id_of(right, place), id_of(left + right, place)};
    const auto pair = std::uint64_t(merge.left) << 32 | std::uint64_t(merge.right);
    if (!seen_.insert(pair).second)
      reject(place, "'", printable(left), ' ', printable(right), "' occurs twice");
    merges_.push_back(merge);
  }

  /// Adds a merge "left right". Throws as add() does, and if these are not two tokens.
  void add_line(std::string_view line, std::size_t place) {
    const std::size_t space = line.find(' ');
    if (space == 0 || space == line.npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != line.npos)
      reject(place, "wanted two tokens and a space between them, got '",
             printable(line.substr(0, 80)), "'");
    add(std::string(line.substr(0, space)), std::string(line.substr(space + 1)), place);
  }

  std::vector<BpeMerge> take() { return std::move(merges_); }

 private:
  template <typename... Parts>
  [[noreturn]] void reject(std::size_t place, const Parts&... parts) const {
    refuse(names_.before, place, names_.after, ": ", parts...);
  }

  std::int32_t id_of(const std::string& token, std::size_t place) const {
    const auto found = ids_.find(token);
    if (found == ids_.end())
      reject(place, "'", printable(token), "' is not in ", names_.vocabulary,
             "; do both belong to one tokenizer?");
    return found->second;
  }

  const TokenIds& ids_;
  Names names_;
  std::vector<BpeMerge> merges_;
  std::unordered_set<std::uint64_t> seen_;
};

std::vector<BpeMerge> read_merge_lines(const TextFile& file, const TokenIds& ids) {
  MergeList merges(ids, {.vocabulary = "vocab.json", .before = file.path() + ", line "});
  std::string_view rest = file.text();
  for (std::size_t line_number = 1; !rest.empty(); ++line_number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_number == 1 && line.starts_with("#version")) continue;
    if (line.empty() && rest.empty()) continue;
    merges.add_line(line, line_number);
  }
  return merges.take();
}

/// The name of a byte's token: "<0x0A>" for byte 10.
std::string byte_name(int byte) { return fmt::format("<0x{:02X}>", byte); }

std::string bytes_of(const std::string& token, const TextParts& parts,
                     const std::unordered_map<std::string, char>& byte_names) {
  if (parts.byte_level) return bytes_of_characters(token);
  if (const auto found = byte_names.find(token); found != byte_names.end()) return {found->second};
  return parts.shows_marks_as_spaces ? with_spaces(token) : token;
}

void check_model(const JsonNode& model) {
  if (!model.is_object()) model.reject("wanted an object");
  if (const JsonNode type = model["type"]; type.text_or("BPE") != "BPE")
    type.reject("'", printable(type.text()), "' is not supported; BPE is");
  if (!model["dropout"].is_null()) model["dropout"].reject("dropout of merges is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model[key].text_or("").empty()) model[key].reject("is not supported; it must be empty");
}

/// Reads the characters' tokens of a vocabulary that is not byte-level, and the tokens for
/// characters that it lacks.
void read_characters(const JsonNode& model, const TokenIds& ids, BpeVocab& vocab) {
  for (const auto& [token, id] : ids)
    if (!token.empty() && utf8_front(token).bytes == token.size())
      vocab.characters.emplace(token, id);
  if (vocab.words_first) model["ignore_merges"].reject("true is only supported with ByteLevel");
  if (model["byte_fallback"].flag_or(false)) {
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids.find(byte_name(byte));
      if (found == ids.end())
        model["byte_fallback"].reject("is true, but the vocabulary has no ", byte_name(byte));
      vocab.byte_tokens.push_back(found->second);
    }
    return;
  }
  const JsonNode unknown = model["unk_token"];
  if (unknown.is_null())
    unknown.reject("is null and byte_fallback false, so characters without a token would be lost");
  const auto found = ids.find(unknown.text());
  if (found == ids.end())
    unknown.reject("'", printable(unknown.text()), "' is not in the vocabulary");
  vocab.unknown = found->second;
  vocab.fuse_unknown = model["fuse_unk"].flag_or(false);
}

/// Reads merges, each "left right" or ["left", "right"].
std::vector<BpeMerge> read_json_merges(const JsonNode& node, const TokenIds& ids) {
  MergeList merges(ids, {"model.vocab", node.place() + '[', "]"});
  std::size_t place = 0;
  for (const JsonNode& merge : node.items()) {
    if (merge.is_text()) {
      merges.add_line(merge.text(), place++);
      continue;
    }
    if (!merge.is_array()) merge.reject("wanted \"left right\" or two tokens, got ", merge.got());
    const std::vector<JsonNode> pair = merge.items();
    if (pair.size() != 2) merge.reject("wanted two tokens, got ", pair.size());
    merges.add(pair[0].text(), pair[1].text(), place++);
  }
  return merges.take();
}

void read_model(const JsonNode& model, const TokenIds& ids, const TextParts& parts,
                BpeVocab& vocab) {
  vocab.words_first = model["ignore_merges"].flag_or(false);
  // Where every byte has a token, none is unknown.
  model.pass_over({"byte_fallback", "unk_token", "fuse_unk"});
  if (parts.byte_level) {
    vocab.byte_tokens = find_byte_tokens(ids, model["vocab"].place());
  } else {
    read_characters(model, ids, vocab);
    if (!vocab.byte_tokens.empty() && !parts.shows_bytes)
      model["byte_fallback"].reject("is true, but the decoder has no ByteFallback");
  }
  vocab.merges = read_json_merges(model["merges"], ids);

  std::unordered_map<std::string, char> byte_names;
  for (int byte = 0; parts.shows_bytes && byte < 256; ++byte)
    byte_names[byte_name(byte)] = static_cast<char>(byte);
  for (const auto& [token, id] : ids)
    if (static_cast<std::size_t>(id) < vocab.tokens.size())
      vocab.tokens[id] = bytes_of(token, parts, byte_names);
}

/// Reads added_tokens, and adds those that the vocabulary lacks to ids.
void read_added_tokens(const JsonNode& nodes, TokenIds& ids, BpeVocab& vocab) {
  std::unordered_set<std::string> seen;
  for (const JsonNode& node : nodes.items()) {
    for (const char* key : {"single_word", "lstrip", "rstrip"})
      if (node[key].flag_or(false)) node[key].reject("true is not supported");
    const std::int32_t id = token_id(node["id"]);
    const std::string content = node["content"].text();
    vocab.added_tokens.push_back({.content = content,
                                  .id = id,
                                  .special = node["special"].flag_or(false),
                                  .normalized = node["normalized"].flag_or(false)});
    if (content.empty()) node["content"].reject("is empty");
    if (content.size() > AddedTokenFinder::kMostBytes)
      node["content"].reject("has ", content.size(), " bytes; at most ",
                             AddedTokenFinder::kMostBytes, " are possible");
    if (!seen.insert(content).second)
      node["content"].reject("'", printable(content), "' occurs twice");
    const auto [place, added] = ids.emplace(content, id);
    if (!added && place->second != id)
      node["id"].reject(id, ", but '", printable(content), "' is token ", place->second,
                        " of model.vocab");
  }
}

void find_ends(const TokenIds& ids, const TextParts& parts, const TokenizerConfig& config,
               BpeVocab& vocab) {
  const auto id_of = [&](const std::string& token, const char* key) {
    const auto found = ids.find(token);
    if (found == ids.end())
      refuse(vocab.name, " has no token '", printable(token), "', which tokenizer_config.json has ",
             "as ", key);
    return found->second;
  };
  if (parts.begin && *parts.begin >= std::ssize(ids))
    refuse(vocab.name, ": post_processor puts token ", *parts.begin, " before a text, but there ",
           "are ", ids.size(), " tokens");
  if (config.adds_begin.value_or(parts.begin.has_value()))
    vocab.begin_of_text = parts.begin ? static_cast<std::int32_t>(*parts.begin)
                                      : id_of(config.begin_of_text, "bos_token");
  if (!config.end_of_text.empty()) {
    vocab.end_of_text = id_of(config.end_of_text, "eos_token");
    return;
  }
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (const auto found = ids.find(name); found != ids.end() && !vocab.end_of_text)
      vocab.end_of_text = found->second;
}

}  // namespace

std::string bpe_character(unsigned char byte) {
  const auto found = std::ranges::find(kByteOfCharacter, int{byte});
  std::string character;
  append_utf8(static_cast<char32_t>(found - kByteOfCharacter.begin()), character);
  return character;
}

std::string bpe_characters(std::string_view bytes) {
  std::string result;
  for (const char byte : bytes) result += bpe_character(static_cast<unsigned char>(byte));
  return result;
}

BpeVocab bytes_as_bpe() {
  BpeVocab vocab{.name = "bytes", .tokens = {}, .merges = {}};
  for (int byte = 0; byte < 256; ++byte) vocab.tokens.emplace_back(1, static_cast<char>(byte));
  vocab.pattern = kGpt2Pattern;
  return vocab;
}

bool is_bytes(const BpeVocab& vocab) {
  return vocab.tokens == bytes_as_bpe().tokens && vocab.characters.empty() &&
         vocab.merges.empty() && vocab.added_tokens.empty() && vocab.normalizer.empty() &&
         vocab.spacing.empty() && !vocab.begin_of_text && !vocab.end_of_text;
}

BpeVocab read_bpe_vocab(const std::string& folder) {
  if (!is_folder(folder))
    refuse("tokenizer '", folder, "' is not a folder with vocab.json and merges.txt");
  const TokenizerConfig config = read_tokenizer_config(folder);
  if (!config.tokenizer_class.empty() && !config.tokenizer_class.starts_with("GPT2Tokenizer"))
    refuse(folder, "/tokenizer_config.json: tokenizer_class is ", config.tokenizer_class,
           ", which splits text differently from GPT-2; only GPT2Tokenizer can be read from ",
           "vocab.json and merges.txt. Put the model's tokenizer.json beside them");
  if (config.prefix_space.value_or(false))
    refuse(folder,
           "/tokenizer_config.json: add_prefix_space true is not supported with vocab.json ",
           "and merges.txt. Put the model's tokenizer.json beside them");
  const TextFile vocab_file(folder + "/vocab.json"), merges_file(folder + "/merges.txt");
  const TokenIds ids = read_token_ids(JsonNode::parse(vocab_file.text(), vocab_file.path()));
  check_ids(ids, vocab_file.path());

  BpeVocab vocab;
  vocab.name = concat("gpt2 (", folder, ')');
  vocab.notes = config.notes;
  vocab.fingerprint = hash_text(concat("gpt2 ", hash_text(vocab_file.text()), ' ',
                                       hash_text(merges_file.text()), ' ', kUnicodeVersion));
  vocab.byte_tokens = find_byte_tokens(ids, vocab_file.path());
  vocab.tokens.resize(ids.size());
  for (const auto& [token, id] : ids) vocab.tokens[id] = bytes_of_characters(token);
  vocab.pattern = kGpt2Pattern;
  constexpr const char* kEndOfText = "<|endoftext|>";
  if (const auto end = ids.find(kEndOfText); end != ids.end()) {
    vocab.end_of_text = end->second;
    vocab.added_tokens = {{.content = kEndOfText, .id = end->second, .special = true}};
  }
  vocab.merges = read_merge_lines(merges_file, ids);
  return vocab;
}

BpeVocab read_tokenizer_json(const std::string& path) {
  const TextFile file(path);
  const JsonNode root = JsonNode::parse(file.text(), path);
  if (!root.is_object()) root.reject("wanted an object with \"model\"");
  check_model(root["model"]);

  BpeVocab vocab;
  vocab.name = concat("BPE (", path, ')');
  const TextParts parts = read_text_parts(root, vocab);
  const TokenIds model_ids = read_token_ids(root["model"]["vocab"]);
  TokenIds ids = model_ids;
  read_added_tokens(root["added_tokens"], ids, vocab);
  check_ids(ids, path);
  vocab.tokens.resize(ids.size());
  read_model(root["model"], model_ids, parts, vocab);
  for (const AddedToken& token : vocab.added_tokens) {
    TextBuffers buffers;  // a normalized token stands for what is found in the normalized text
    const std::string content(
        token.normalized ? apply_steps(vocab.normalizer, token.content, Before::nothing, buffers)
                         : token.content);
    vocab.tokens[token.id] = parts.shows_marks_as_spaces ? with_spaces(content) : content;
  }
  const TokenizerConfig config =
      read_tokenizer_config(std::filesystem::path(path).parent_path().string());
  vocab.notes = config.notes;
  if (const bool puts = !vocab.spacing.empty();
      parts.byte_level && config.prefix_space.value_or(puts) != puts)
    root["pre_tokenizer"].reject(
        "add_prefix_space is ", puts ? "true" : "false", ", but tokenizer_config.json has the ",
        "other value, which some programs follow; write that into tokenizer.json, too, if the ",
        "model was trained with it, else remove it");
  find_ends(ids, parts, config, vocab);
  root.pass_over({"version", "truncation", "padding"});  // which concern batches
  if (const auto unread = root.unread(); !unread.empty())
    root.reject("not supported: ", unread, "; these keys may change tokens. Remove them if ",
                "they do not, or save the tokenizer with a version of its library that has none");
  vocab.fingerprint = hash_text(concat("tokenizer.json ", hash_text(file.text()), ' ',
                                       vocab.begin_of_text.value_or(-1), ' ',
                                       vocab.end_of_text.value_or(-1), ' ', kUnicodeVersion));
  return vocab;
}

}  // namespace axonn
