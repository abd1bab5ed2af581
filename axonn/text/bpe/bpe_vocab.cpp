#include "axonn/text/bpe/bpe_vocab.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/mapped_file.h"
#include "axonn/base/random.h"
#include "axonn/base/utf8.h"
#include "axonn/text/tokenizer_config.h"

namespace axonn {

const std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

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

std::vector<BpeMerge> read_merges(const MappedFile& file, const TokenIds& ids) {
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

}  // namespace

std::string bpe_character(unsigned char byte) {
  const auto found = std::ranges::find(kByteOfCharacter, int{byte});
  const auto code = static_cast<int>(found - kByteOfCharacter.begin());
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

std::optional<std::string> bytes_of_characters(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const char32_t code = code_point(token);
    if (code >= kByteOfCharacter.size() || kByteOfCharacter[code] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOfCharacter[code]);
    token.remove_prefix(utf8_front(token).bytes);
  }
  return bytes;
}

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

std::int32_t MergeList::id_of(const std::string& token, std::size_t place) const {
  const auto found = ids_.find(token);
  if (found == ids_.end())
    refuse(names_.before, place, names_.after, ": '", printable(token), "' is not in ",
           names_.vocabulary, "; do both belong to one tokenizer?");
  return found->second;
}

void MergeList::add(std::string_view left, std::string_view right, std::size_t place) {
  const std::string first(left), second(right);
  const BpeMerge merge{id_of(first, place), id_of(second, place), id_of(first + second, place)};
  const auto pair = std::uint64_t(merge.left) << 32 | std::uint64_t(merge.right);
  if (!seen_.insert(pair).second)
    refuse(names_.before, place, names_.after, ": '", printable(first), ' ', printable(second),
           "' occurs twice");
  merges_.push_back(merge);
}

void MergeList::add_line(std::string_view line, std::size_t place) {
  const std::size_t space = line.find(' ');
  if (space == 0 || space == line.npos || space + 1 == line.size() ||
      line.find(' ', space + 1) != line.npos)
    refuse(names_.before, place, names_.after,
           ": wanted two tokens and a space between them, got '", printable(line.substr(0, 80)),
           "'");
  add(line.substr(0, space), line.substr(space + 1), place);
}

TokenIds read_token_ids(const JsonNode& node) {
  TokenIds ids;
  for (const auto& [token, id] : node.members()) {
    if (id.number() >= kMaxTokens)
      id.reject(id.number(), "; at most 16,777,216 tokens are possible");
    ids.emplace(token, static_cast<std::int32_t>(id.number()));
  }
  return ids;
}

BpeVocab read_bpe_vocab(const std::string& folder) {
  if (!is_folder(folder))
    refuse("tokenizer '", folder, "' is not a folder with vocab.json and merges.txt");
  const TokenizerConfig config = read_tokenizer_config(folder);
  if (!config.tokenizer_class.empty() && !config.tokenizer_class.starts_with("GPT2Tokenizer"))
    refuse(folder, "/tokenizer_config.json: tokenizer_class is ", config.tokenizer_class,
           ", which splits text differently from GPT-2; only GPT2Tokenizer can be read from ",
           "vocab.json and merges.txt. Put the model's tokenizer.json beside them");
  const MappedFile vocab_file(folder + "/vocab.json"), merges_file(folder + "/merges.txt");
  const TokenIds ids = read_token_ids(JsonNode::parse(vocab_file.text(), vocab_file.path()));
  check_ids(ids, vocab_file.path());

  BpeVocab vocab;
  vocab.name = concat("gpt2 (", folder, ')');
  vocab.fingerprint =
      hash_text(concat("gpt2 ", hash_text(vocab_file.text()), ' ', hash_text(merges_file.text())));
  vocab.byte_tokens = find_byte_tokens(ids, vocab_file.path());
  vocab.tokens.resize(ids.size());
  // A token with a character that stands for no byte (added by hand; merges never make one) keeps
  // its UTF-8.
  for (const auto& [token, id] : ids) vocab.tokens[id] = bytes_of_characters(token).value_or(token);
  vocab.pattern = kGpt2Pattern;
  constexpr const char* kEndOfText = "<|endoftext|>";
  if (const auto end = ids.find(kEndOfText); end != ids.end()) {
    vocab.end_of_text = end->second;
    vocab.added_tokens = {{.content = kEndOfText, .id = end->second, .special = true}};
  }
  vocab.merges = read_merges(merges_file, ids);
  return vocab;
}

}  // namespace axonn
