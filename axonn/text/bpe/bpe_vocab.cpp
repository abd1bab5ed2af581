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
#include "axonn/text/tokenizer_config.h"
#include "axonn/text/unicode/properties.h"
#include "axonn/text/word_pattern.h"

namespace axonn {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

using TokenIds = std::unordered_map<std::string, std::int32_t>;

// Far more than any tokenizer has. A larger id means a damaged file, for which no memory must be
// allocated.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;

// A step of a normalizer may make a text longer: Llama 2's makes 12 bytes of a space. These limits
// are far above what published files need, and bound the memory and time of a text.
constexpr double kMostGrowth = 32;
constexpr std::size_t kMostSteps = 64, kMostReplaced = 256;

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

/// Settings of tokenizer.json that the vocabulary does not keep.
struct TextParts {
  bool byte_level = false;             ///< words are bytes, not characters
  bool shows_marks_as_spaces = false;  ///< decoding turns U+2581 into a space
  bool shows_bytes = false;            ///< decoding turns "<0x0A>" into that byte
  std::optional<std::int64_t> begin;   ///< the token that post_processor puts before a text
};

/// The steps of a Sequence, which are under `key`, or the node itself as the only step.
std::vector<JsonNode> steps_of(const JsonNode& node, const char* key) {
  if (node.is_null()) return {};
  if (node["type"].text() == "Sequence") return node[key].items();
  return {node};
}

[[noreturn]] void reject_type(const JsonNode& step, const char* supported) {
  step["type"].reject("'", printable(step["type"].text()), "' is not supported; ", supported,
                      " are");
}

/// Throws UsageError unless the text is the one that is supported, which messages call `shown`.
void want_text(const JsonNode& node, std::string_view supported, const char* shown) {
  if (node.text() != supported)
    node.reject("'", printable(node.text()), "' is not supported; ", shown, " is");
}

TextStep replacement(const JsonNode& step) {
  const JsonNode pattern = step["pattern"];
  if (pattern["String"].is_null())
    pattern.reject("only a \"String\" can be replaced, not a regular expression");
  TextStep result{TextStep::Kind::replace, pattern["String"].text(), step["content"].text()};
  if (result.from.empty()) pattern["String"].reject("an empty string cannot be replaced");
  if (result.from.size() > kMostReplaced)
    pattern["String"].reject("has ", result.from.size(), " bytes; at most ", kMostReplaced,
                             " can be replaced");
  return result;
}

void read_normalizer(const JsonNode& node, BpeVocab& vocab) {
  for (const JsonNode& step : steps_of(node, "normalizers")) {
    const std::string type = step["type"].text();
    if (type == "NFC") {
      vocab.normalizer.push_back({TextStep::Kind::nfc});
    } else if (type == "Prepend") {
      vocab.normalizer.push_back({TextStep::Kind::prepend, {}, step["prepend"].text()});
    } else if (type == "Replace") {
      vocab.normalizer.push_back(replacement(step));
    } else {
      reject_type(step, "NFC, Prepend, Replace and a Sequence of these");
    }
  }
}

/// Bounds the steps and how much longer they make a text.
void check_steps(const JsonNode& node, const std::vector<TextStep>& steps) {
  if (steps.size() > kMostSteps)
    node.reject(steps.size(), " steps; at most ", kMostSteps, " are possible");
  if (const double growth = most_growth(steps); growth > kMostGrowth)
    node.reject("makes up to ", growth, " bytes of one byte of text; at most ", kMostGrowth,
                " are possible");
}

void read_split(const JsonNode& step, BpeVocab& vocab) {
  if (!vocab.pattern.empty()) step.reject("a second Split is not supported");
  want_text(step["behavior"], "Isolated", "Isolated");
  if (step["invert"].flag_or(false)) step["invert"].reject("true is not supported");
  const JsonNode regex = step["pattern"]["Regex"];
  vocab.pattern = regex.text();
  vocab.words = BpeWords::pattern;
  const WordPattern compiles(vocab.pattern, regex.place());
}

void read_byte_level(const JsonNode& step, BpeVocab& vocab) {
  const bool split = !vocab.pattern.empty();
  if (step["use_regex"].flag_or(true)) {
    if (split) step["use_regex"].reject("true after a Split is not supported");
    vocab.pattern = kGpt2Pattern;
    vocab.words = BpeWords::pattern;
  }
  if (step["add_prefix_space"].flag_or(true)) {
    if (split) step["add_prefix_space"].reject("true after a Split is not supported");
    vocab.spacing.push_back({TextStep::Kind::prepend_missing, {}, " "});
  }
}

/// Where a Metaspace step puts a mark before text: "always", "first" or "never".
std::string prepend_scheme(const JsonNode& step) {
  if (!step["add_prefix_space"].flag_or(true)) return "never";
  const JsonNode scheme = step["prepend_scheme"];
  const std::string name = scheme.text_or("always");
  if (name != "always" && name != "first" && name != "never")
    scheme.reject("'", printable(name), "' is not one of always, first, never");
  return name;
}

void read_metaspace(const JsonNode& step, BpeVocab& vocab) {
  using Kind = TextStep::Kind;
  want_text(step["replacement"], kSpaceMark, "U+2581");
  const std::string mark(kSpaceMark), scheme = prepend_scheme(step);
  vocab.spacing.push_back({Kind::replace, " ", mark});
  if (scheme != "never")
    vocab.spacing.push_back(
        {scheme == "first" ? Kind::prepend_first : Kind::prepend_missing, {}, mark});
  vocab.words = step["split"].flag_or(true) ? BpeWords::at_marks : BpeWords::whole;
}

bool read_pre_tokenizer(const JsonNode& node, BpeVocab& vocab) {
  vocab.words = BpeWords::whole;
  const std::vector<JsonNode> steps = steps_of(node, "pretokenizers");
  bool byte_level = false;
  for (const JsonNode& step : steps) {
    const std::string type = step["type"].text();
    if (byte_level) step.reject("no step after ByteLevel is supported");
    if (type == "Split") {
      read_split(step, vocab);
    } else if (type == "ByteLevel") {
      read_byte_level(step, vocab);
      byte_level = true;
    } else if (type == "Metaspace") {
      if (steps.size() > 1) step.reject("Metaspace is only supported alone");
      read_metaspace(step, vocab);
    } else {
      reject_type(step, "ByteLevel, Split, Metaspace and a Sequence of the first two");
    }
  }
  return byte_level;
}

/// "Strip" removes the space that was put before the text.
void read_strip(const JsonNode& step, BpeVocab& vocab) {
  if (step["content"].text() != " ")
    step["content"].reject("only a space can be stripped, not '", printable(step["content"].text()),
                           "'");
  if (step["start"].number() > 1) step["start"].reject("more than 1 is not supported");
  if (step["stop"].number() > 0) step["stop"].reject("more than 0 is not supported");
  vocab.puts_space = step["start"].number() == 1;
}

/// Throws UsageError unless the steps have the order in which they mean what is read of them: bytes
/// and spaces of single tokens, then a space at the front of the whole text.
void check_decoder_order(const std::vector<JsonNode>& steps) {
  bool fused = false, stripped = false;
  for (const JsonNode& step : steps) {
    const std::string type = step["type"].text();
    if (type == "ByteFallback" && fused) step.reject("ByteFallback after Fuse is not supported");
    if (type == "Replace" && stripped) step.reject("Replace after Strip is not supported");
    if (type == "Strip" && !fused)
      step.reject("Strip is only supported after Fuse; without it, every token loses its space");
    fused |= type == "Fuse";
    stripped |= type == "Strip";
  }
}

void read_decoder(const JsonNode& node, BpeVocab& vocab, TextParts& parts) {
  if (node.is_null()) node.reject("there is no decoder, so tokens cannot be converted to text");
  bool byte_level = false;
  const std::vector<JsonNode> steps = steps_of(node, "decoders");
  for (const JsonNode& step : steps) {
    const std::string type = step["type"].text();
    if (type == "ByteLevel") {
      byte_level = true;
    } else if (type == "Metaspace") {
      want_text(step["replacement"], kSpaceMark, "U+2581");
      parts.shows_marks_as_spaces = true;
      vocab.puts_space = prepend_scheme(step) != "never";
    } else if (type == "Replace") {
      const TextStep replaced = replacement(step);
      if (replaced.from != kSpaceMark || replaced.to != " ")
        step.reject("only the replacement of U+2581 by a space is supported");
      parts.shows_marks_as_spaces = true;
    } else if (type == "ByteFallback") {
      parts.shows_bytes = true;
    } else if (type == "Strip") {
      read_strip(step, vocab);
    } else if (type != "Fuse") {
      reject_type(step, "ByteLevel, Metaspace, Replace, ByteFallback, Fuse and Strip");
    }
  }
  check_decoder_order(steps);
  if (byte_level != parts.byte_level)
    node.reject("the decoder and the pre_tokenizer must both be ByteLevel or neither");
}

void read_template(const JsonNode& step, TextParts& parts) {
  bool text = false;
  for (const JsonNode& piece : step["single"].items()) {
    const JsonNode token = piece["SpecialToken"];
    if (token.is_null()) {
      text = true;
      continue;
    }
    if (text) token.reject("a token after the text is not supported");
    if (parts.begin) token.reject("a second token before the text is not supported");
    const JsonNode ids = step["special_tokens"][token["id"].text()]["ids"];
    if (ids.items().size() != 1) ids.reject("wanted one id");
    parts.begin = ids.items()[0].number();
  }
}

void read_post_processor(const JsonNode& node, TextParts& parts) {
  for (const JsonNode& step : steps_of(node, "processors")) {
    const std::string type = step["type"].text();
    if (type == "TemplateProcessing") {
      read_template(step, parts);
    } else if (type != "ByteLevel") {
      reject_type(step, "ByteLevel, TemplateProcessing and a Sequence of these");
    }
  }
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
  if (!model["type"].is_null()) want_text(model["type"], "BPE", "BPE");
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

void find_ends(const TokenIds& ids, const TextParts& parts, const std::string& folder,
               BpeVocab& vocab) {
  const TokenizerConfig config = read_tokenizer_config(folder);
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
  const auto code = static_cast<int>(found - kByteOfCharacter.begin());
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
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

BpeVocab read_bpe_vocab(const std::string& folder) {
  if (!is_folder(folder))
    refuse("tokenizer '", folder, "' is not a folder with vocab.json and merges.txt");
  const TokenizerConfig config = read_tokenizer_config(folder);
  if (!config.tokenizer_class.empty() && !config.tokenizer_class.starts_with("GPT2Tokenizer"))
    refuse(folder, "/tokenizer_config.json: tokenizer_class is ", config.tokenizer_class,
           ", which splits text differently from GPT-2; only GPT2Tokenizer can be read from ",
           "vocab.json and merges.txt. Put the model's tokenizer.json beside them");
  const TextFile vocab_file(folder + "/vocab.json"), merges_file(folder + "/merges.txt");
  const TokenIds ids = read_token_ids(JsonNode::parse(vocab_file.text(), vocab_file.path()));
  check_ids(ids, vocab_file.path());

  BpeVocab vocab;
  vocab.name = concat("gpt2 (", folder, ')');
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
  TextParts parts;
  read_normalizer(root["normalizer"], vocab);
  check_steps(root["normalizer"], vocab.normalizer);
  parts.byte_level = read_pre_tokenizer(root["pre_tokenizer"], vocab);
  check_steps(root["pre_tokenizer"], vocab.spacing);
  read_decoder(root["decoder"], vocab, parts);
  read_post_processor(root["post_processor"], parts);
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
  find_ends(ids, parts, std::filesystem::path(path).parent_path().string(), vocab);
  vocab.fingerprint = hash_text(concat("tokenizer.json ", hash_text(file.text()), ' ',
                                       vocab.begin_of_text.value_or(-1), ' ',
                                       vocab.end_of_text.value_or(-1), ' ', kUnicodeVersion));
  return vocab;
}

}  // namespace axonn
