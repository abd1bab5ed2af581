#include "axonn/data/text/bpe/bpe_vocab.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "axonn/data/text/bpe/tokenizer_steps.h"
#include "axonn/data/text/tokenizer_config.h"
#include "axonn/data/text/unicode/properties.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/json_node.h"
#include "axonn/foundation/base/random.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using TokenIds = std::unordered_map<std::string, std::int32_t>;

// Far more than any tokenizer has. A larger id means a damaged file, for which no memory must be
// allocated.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;

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

/// The number of ids from 0 to the largest. Throws UsageError, with `where`, if two tokens share
/// one, or if so many ids have no token that the file is damaged.
std::size_t count_ids(const TokenIds& ids, const std::string& where) {
  if (ids.empty()) refuse(where, ": the vocabulary is empty");
  const std::size_t most = 4 * ids.size() + 1000;
  std::size_t count = 0;
  for (const auto& [token, id] : ids) {
    if (static_cast<std::size_t>(id) >= most)
      refuse(where, ": the id of token '", printable(token), "' is ", id, ", but there are ",
             ids.size(), " tokens; their ids must be below ", most);
    count = std::max<std::size_t>(count, id + 1);
  }
  std::vector<const std::string*> token_of(count);
  for (const auto& [token, id] : ids) {
    if (token_of[id])
      refuse(where, ": the tokens '", printable(*token_of[id]), "' and '", printable(token),
             "' have the same id ", id);
    token_of[id] = &token;
  }
  return count;
}

/// The tokens of the 256 single bytes, by their name in the vocabulary; -1: it has none.
template <typename NameOf>
std::vector<std::int32_t> find_byte_tokens(const TokenIds& ids, const NameOf& name_of) {
  std::vector<std::int32_t> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(name_of(static_cast<unsigned char>(byte)));
    tokens.push_back(found == ids.end() ? -1 : found->second);
  }
  return tokens;
}

/// Converts pairs of tokens to merges.
class MergeList {
 public:
  /// For messages: `before`, the number of a merge and `after` together say where it is.
  struct Names {
    std::string vocabulary, before, after;
  };
  MergeList(const TokenIds& ids, Names names) : ids_(ids), names_(std::move(names)) {}

  /// Throws UsageError if a token is not in the vocabulary or the pair was added before.
  void add(const std::string& left, const std::string& right, std::size_t number) {
    const BpeMerge merge{id_of(left, number), id_of(right, number), id_of(left + right, number)};
    const auto pair = std::uint64_t(merge.left) << 32 | std::uint64_t(merge.right);
    if (!seen_.insert(pair).second)
      reject(number, "'", printable(left), ' ', printable(right), "' occurs twice");
    merges_.push_back(merge);
  }

  /// Adds a merge "left right". Throws as add() does, and if these are not two tokens.
  void add_line(std::string_view line, std::size_t number) {
    const std::size_t space = line.find(' ');
    if (space == 0 || space == line.npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != line.npos)
      reject(number, "wanted two tokens and a space between them, got '",
             printable(line.substr(0, 80)), "'");
    add(std::string(line.substr(0, space)), std::string(line.substr(space + 1)), number);
  }

  std::vector<BpeMerge> take() { return std::move(merges_); }

 private:
  template <typename... Parts>
  [[noreturn]] void reject(std::size_t number, const Parts&... parts) const {
    refuse(names_.before, number, names_.after, ": ", parts...);
  }

  std::int32_t id_of(const std::string& token, std::size_t number) const {
    const auto found = ids_.find(token);
    if (found == ids_.end())
      reject(number, "'", printable(token), "' is not in ", names_.vocabulary,
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
std::string byte_name(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

/// What decoding shows of a token's characters.
std::string shown_token(const std::string& token, const TextParts& parts) {
  std::string shown = parts.shows_marks_as_spaces ? with_spaces(token) : token;
  const std::size_t front = std::min(shown.find_first_not_of(' '), shown.size());
  shown.erase(0, std::min<std::size_t>(front, parts.strips_front));
  const std::size_t back = shown.size() - (shown.find_last_not_of(' ') + 1);
  shown.resize(shown.size() - std::min<std::size_t>(back, parts.strips_back));
  return shown;
}

std::string bytes_of(const std::string& token, const TextParts& parts,
                     const std::unordered_map<std::string, char>& byte_names) {
  if (parts.byte_level) return bytes_of_characters(token);
  if (const auto found = byte_names.find(token); found != byte_names.end()) return {found->second};
  return shown_token(token, parts);
}

void check_model(const JsonNode& model) {
  if (!model.is_object()) model.reject("wanted an object");
  const JsonNode type = model["type"];
  const std::string name = type.text_or("BPE");
  if (name == "Unigram") return;
  if (name != "BPE") type.reject("'", printable(name), "' is not supported; BPE and Unigram are");
  if (const JsonNode dropout = model["dropout"];
      !dropout.is_null() && dropout.got() != "0" && dropout.got() != "0.0")
    dropout.reject("dropout of merges is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model[key].text_or("").empty()) model[key].reject("is not supported; it must be empty");
}

/// Whether a byte is in no text of well-formed UTF-8.
bool is_never_in_utf8(std::size_t byte) { return byte == 0xc0 || byte == 0xc1 || byte > 0xf4; }

/// Reads the initial tokens of words, and what becomes of characters without one.
void read_characters(const JsonNode& model, const TokenIds& ids, bool byte_level, BpeVocab& vocab) {
  const bool fallback = model["byte_fallback"].flag_or(false);
  if (byte_level)
    vocab.byte_tokens = find_byte_tokens(ids, bpe_character);
  else if (fallback)
    vocab.byte_tokens = find_byte_tokens(ids, byte_name);
  if (!byte_level)
    for (const auto& [token, id] : ids)
      if (!token.empty() && utf8_front(token).bytes == token.size())
        vocab.characters.emplace(token, id);
  if (model["ignore_merges"].flag_or(false))
    for (const auto& [token, id] : ids)
      vocab.whole_words.emplace_back(byte_level ? bytes_of_characters(token) : token, id);

  const JsonNode unknown = model["unk_token"];
  vocab.fuse_unknown = model["fuse_unk"].flag_or(false);
  bool misses = vocab.byte_tokens.empty();
  for (std::size_t byte = 0; byte < vocab.byte_tokens.size(); ++byte)
    misses = misses || (vocab.byte_tokens[byte] < 0 && !is_never_in_utf8(byte));
  if (!misses) return;
  if (unknown.is_null()) {
    vocab.notes.push_back(concat(model.location(),
                                 ": the vocabulary lacks some characters and has no "
                                 "unk_token; they are left out of texts, as other programs do"));
    return;
  }
  const auto found = ids.find(unknown.text());
  if (found == ids.end())
    unknown.reject("'", printable(unknown.text()), "' is not in the vocabulary");
  vocab.unknown = found->second;
}

/// Reads merges, each "left right" or ["left", "right"].
std::vector<BpeMerge> read_json_merges(const JsonNode& node, const TokenIds& ids) {
  MergeList merges(ids, {"model.vocab", node.location() + '[', "]"});
  std::size_t number = 0;
  for (const JsonNode& merge : node.items()) {
    if (merge.is_text()) {
      merges.add_line(merge.text(), number++);
      continue;
    }
    if (!merge.is_array()) merge.reject("wanted \"left right\" or two tokens, got ", merge.got());
    const std::vector<JsonNode> pair = merge.items();
    if (pair.size() != 2) merge.reject("wanted two tokens, got ", pair.size());
    merges.add(pair[0].text(), pair[1].text(), number++);
  }
  return merges.take();
}

/// The number as the tokenizers library reads it, which rounds twice: its digits, and their
/// quotient with a power of ten. So sums of scores have its last bits, which decide between equals.
double read_as_serde(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), std::abs(number),
                                 std::chars_format::scientific);
  std::uint64_t digits = 0;
  int exponent = 0, behind = 0;
  for (const char* at = text.data(); at != end.ptr; ++at) {
    if (*at == 'e') {
      std::from_chars(at + (at[1] == '+' ? 2 : 1), end.ptr, exponent);
      break;
    }
    if (*at != '.') digits = digits * 10 + static_cast<std::uint64_t>(*at - '0');
    behind += *at != '.' && at != text.data() ? 1 : 0;
  }
  exponent -= behind;
  const auto whole = static_cast<double>(digits);
  if (exponent < -300 || exponent > 300) return number;
  const double power = std::pow(10.0, std::abs(exponent));
  return std::copysign(exponent < 0 ? whole / power : whole * power, number);
}

/// Reads a Unigram model. Returns the ids of its pieces.
TokenIds read_unigram(const JsonNode& model, const TextParts& parts, BpeVocab& vocab) {
  UnigramPieces read;
  TokenIds ids;
  for (const JsonNode& node : model["vocab"].items()) {
    const std::vector<JsonNode> piece = node.items();
    if (piece.size() != 2) node.reject("wanted a piece and its score, got ", piece.size());
    const std::string text = piece[0].text();
    if (text.size() > Unigram::kMostBytes)
      piece[0].reject("has ", text.size(), " bytes; at most ", Unigram::kMostBytes,
                      " are possible");
    ids[text] = static_cast<std::int32_t>(read.pieces.size());
    read.pieces.emplace_back(text, read_as_serde(piece[1].real()));
  }
  const JsonNode unknown = model["unk_id"];
  if (unknown.number() >= std::ssize(read.pieces))
    unknown.reject(unknown.number(), ", but there are ", read.pieces.size(), " pieces");
  read.unknown = static_cast<std::int32_t>(unknown.number());
  if (model["byte_fallback"].flag_or(false)) read.byte_tokens = find_byte_tokens(ids, byte_name);
  vocab.unknown = read.unknown;
  if (parts.byte_level) model["type"].reject("Unigram with ByteLevel is not supported");
  if (!read.byte_tokens.empty() && !parts.shows_bytes)
    model["byte_fallback"].reject("is true, but the decoder has no ByteFallback");
  vocab.unigram = std::make_shared<const Unigram>(read);
  return ids;
}

/// Sets what each token of the model shows.
void set_tokens(const TokenIds& ids, const TextParts& parts, BpeVocab& vocab) {
  std::unordered_map<std::string, char> byte_names;
  for (int byte = 0; parts.shows_bytes && byte < 256; ++byte)
    byte_names[byte_name(static_cast<unsigned char>(byte))] = static_cast<char>(byte);
  for (const auto& [token, id] : ids)
    if (static_cast<std::size_t>(id) < vocab.tokens.size())
      vocab.tokens[id] = bytes_of(token, parts, byte_names);
}

void read_merged(const JsonNode& model, const TokenIds& ids, const TextParts& parts,
                 BpeVocab& vocab) {
  read_characters(model, ids, parts.byte_level, vocab);
  if (!parts.byte_level && !vocab.byte_tokens.empty() && !parts.shows_bytes)
    model["byte_fallback"].reject("is true, but the decoder has no ByteFallback");
  vocab.merges = read_json_merges(model["merges"], ids);
}

/// Reads added_tokens, and adds those that the vocabulary lacks to ids.
void read_added_tokens(const JsonNode& nodes, TokenIds& ids, BpeVocab& vocab) {
  std::unordered_set<std::string> seen;
  const auto count = static_cast<std::int32_t>(ids.size());  // of the model
  std::int32_t next = count;  // of a token that the model lacks, in the tokenizers library
  for (const JsonNode& node : nodes.items()) {
    const std::int32_t id = token_id(node["id"]);
    const std::string content = node["content"].text();
    vocab.added_tokens.push_back({.content = content,
                                  .id = id,
                                  .special = node["special"].flag_or(false),
                                  .normalized = node["normalized"].flag_or(false),
                                  .sides = {.takes_left = node["lstrip"].flag_or(false),
                                            .takes_right = node["rstrip"].flag_or(false),
                                            .single_word = node["single_word"].flag_or(false)}});
    if (content.empty()) node["content"].reject("is empty");
    if (content.size() > AddedTokenFinder::kMostBytes)
      node["content"].reject("has ", content.size(), " bytes; at most ",
                             AddedTokenFinder::kMostBytes, " are possible");
    if (!seen.insert(content).second)
      node["content"].reject("'", printable(content), "' occurs twice");
    const auto [found, added] = ids.emplace(content, id);
    if (!added && found->second != id)
      node["id"].reject(id, ", but '", printable(content), "' is token ", found->second,
                        " of model.vocab");
    if (added && id != next)
      node["id"].reject(id, ", but the tokenizers library makes '", printable(content), "' token ",
                        next, "; if the model has ", id, ", put the token into model.vocab");
    next = std::max(next, id + 1);
  }
}

/// For the fingerprint: the tokens before a text, or -1.
std::string list_of(const std::vector<std::int32_t>& begin) {
  std::string list;
  for (const std::int32_t token : begin) list += concat(list.empty() ? "" : ",", token);
  return begin.empty() ? "-1" : list;
}

/// The id of a token that tokenizer_config.json names.
std::int32_t named_token(const TokenIds& ids, const std::string& token, const char* key,
                         const BpeVocab& vocab) {
  const auto found = ids.find(token);
  if (found == ids.end())
    refuse(vocab.name, " has no token '", printable(token), "', which tokenizer_config.json has ",
           "as ", key);
  return found->second;
}

/// "" if all are those of GPT-2.
std::string fingerprint_of_named(const BpeVocab& vocab) {
  std::string ids;
  if (vocab.begin_of_text.empty() && vocab.added_tokens.size() <= 1) return ids;
  for (const AddedToken& token : vocab.added_tokens) ids += concat(' ', token.id);
  return concat(ids, " begin ", list_of(vocab.begin_of_text));
}

/// The tokens of GPT2Tokenizer that are no text: beginning, end, unknown and padding, of which the
/// first three are <|endoftext|> unless tokenizer_config.json names others, as OPT's.
void set_named_tokens(const TokenIds& ids, const TokenizerConfig& config, BpeVocab& vocab) {
  const auto named = [&](const std::string& content, const char* key, const char* otherwise) {
    std::optional<std::int32_t> id;
    if (!content.empty())
      id = named_token(ids, content, key, vocab);
    else if (const auto found = ids.find(otherwise); found != ids.end())
      id = found->second;
    const std::string token = content.empty() ? otherwise : content;
    if (id && std::ranges::find(vocab.added_tokens, token, &AddedToken::content) ==
                  vocab.added_tokens.end())
      vocab.added_tokens.push_back({.content = token, .id = *id, .special = true});
    return id;
  };
  constexpr const char* kEndOfText = "<|endoftext|>";
  vocab.end_of_text = named(config.end_of_text, "eos_token", kEndOfText);
  const auto begin = named(config.begin_of_text, "bos_token", kEndOfText);
  named(config.unknown, "unk_token", kEndOfText);
  if (!config.padding.empty()) named(config.padding, "pad_token", "");
  if (!config.adds_begin.value_or(false)) return;
  if (!begin) named_token(ids, kEndOfText, "bos_token", vocab);
  vocab.begin_of_text = {*begin};
}

void find_ends(const TokenIds& ids, const TextParts& parts, const TokenizerConfig& config,
               BpeVocab& vocab) {
  const auto id_of = [&](const std::string& token, const char* key) {
    return named_token(ids, token, key, vocab);
  };
  std::vector<std::int64_t> around = parts.begin;
  if (parts.end) around.push_back(*parts.end);
  for (const std::int64_t token : around)
    if (token >= std::ssize(vocab.tokens))
      refuse(vocab.name, ": post_processor puts token ", token, " beside a text, but there are ",
             vocab.tokens.size(), " tokens");
  if (config.adds_begin.value_or(!parts.begin.empty())) {
    vocab.begin_of_text.assign(parts.begin.begin(), parts.begin.end());
    if (parts.begin.empty()) vocab.begin_of_text = {id_of(config.begin_of_text, "bos_token")};
  }
  if (!config.end_of_text.empty()) {
    vocab.end_of_text = id_of(config.end_of_text, "eos_token");
    if (parts.end && *parts.end != *vocab.end_of_text)
      vocab.notes.push_back(concat(vocab.name, ": not followed: post_processor puts token ",
                                   *parts.end, " behind a text; documents end with the eos_token"));
    return;
  }
  if (parts.end) vocab.end_of_text = static_cast<std::int32_t>(*parts.end);
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>"})
    if (const auto found = ids.find(name); found != ids.end() && !vocab.end_of_text)
      vocab.end_of_text = found->second;
}

}  // namespace

BpeVocab bytes_as_bpe() {
  BpeVocab vocab{.name = "bytes", .tokens = {}, .merges = {}};
  for (int byte = 0; byte < 256; ++byte) vocab.tokens.emplace_back(1, static_cast<char>(byte));
  vocab.pattern = kGpt2Pattern;
  return vocab;
}

bool is_bytes(const BpeVocab& vocab) {
  return vocab.tokens == bytes_as_bpe().tokens && vocab.characters.empty() &&
         vocab.merges.empty() && vocab.added_tokens.empty() && vocab.normalizer.empty() &&
         vocab.spacing.empty() && vocab.begin_of_text.empty() && !vocab.end_of_text;
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
  const std::size_t count = count_ids(ids, vocab_file.path());

  BpeVocab vocab;
  vocab.name = concat("gpt2 (", folder, ')');
  vocab.notes = config.notes;
  vocab.byte_tokens = find_byte_tokens(ids, bpe_character);
  if (const auto at = std::ranges::find(vocab.byte_tokens, -1); at != vocab.byte_tokens.end())
    refuse(vocab_file.path(), ": no token for byte ", at - vocab.byte_tokens.begin(),
           "; a byte-level vocabulary needs all 256");
  vocab.tokens.resize(count);
  for (const auto& [token, id] : ids) vocab.tokens[id] = bytes_of_characters(token);
  vocab.pattern = kGpt2Pattern;
  set_named_tokens(ids, config, vocab);
  vocab.merges = read_merge_lines(merges_file, ids);
  vocab.fingerprint =
      hash_text(concat("gpt2 ", hash_text(vocab_file.text()), ' ', hash_text(merges_file.text()),
                       ' ', kUnicodeVersion, fingerprint_of_named(vocab)));
  return vocab;
}

BpeVocab read_tokenizer_json(const std::string& path) {
  const TextFile file(path);
  return parse_tokenizer_json(
      file.text(), path, read_tokenizer_config(std::filesystem::path(path).parent_path().string()));
}

BpeVocab parse_tokenizer_json(std::string_view text, const std::string& location,
                              const TokenizerConfig& config) {
  const JsonNode root = JsonNode::parse(text, location);
  if (!root.is_object()) root.reject("wanted an object with \"model\"");
  check_model(root["model"]);

  BpeVocab vocab;
  vocab.name = concat("BPE (", location, ')');
  const TextParts parts = read_text_parts(root, vocab);
  const JsonNode model = root["model"];
  const bool unigram = model["type"].text_or("BPE") == "Unigram";
  const TokenIds model_ids =
      unigram ? read_unigram(model, parts, vocab) : read_token_ids(model["vocab"]);
  TokenIds ids = model_ids;
  read_added_tokens(root["added_tokens"], ids, vocab);
  vocab.tokens.resize(count_ids(ids, location));
  if (!unigram) read_merged(model, model_ids, parts, vocab);
  set_tokens(model_ids, parts, vocab);
  for (const AddedToken& token : vocab.added_tokens) {
    TextBuffers buffers;  // a normalized token stands for what is found in the normalized text
    const std::string content(
        token.normalized ? apply_steps(vocab.normalizer, token.content, Before::nothing, buffers)
                         : token.content);
    vocab.tokens[token.id] = shown_token(content, parts);
  }
  vocab.notes.insert(vocab.notes.end(), config.notes.begin(), config.notes.end());
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
  vocab.fingerprint =
      hash_text(concat("tokenizer.json ", hash_text(text), ' ', list_of(vocab.begin_of_text), ' ',
                       vocab.end_of_text.value_or(-1), ' ', kUnicodeVersion));
  return vocab;
}

}  // namespace axonn
