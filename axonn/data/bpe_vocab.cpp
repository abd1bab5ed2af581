#include "axonn/data/bpe_vocab.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/random.h"
#include "axonn/data/mapped_file.h"
#include "axonn/data/utf8.h"

namespace axonn {

namespace {

using Ids = std::unordered_map<std::string, std::int32_t>;

// No tokenizer comes near; an id above is damage, and must not make the program take memory.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;

std::int64_t line_at(std::string_view text, std::size_t position) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(position, text.size()));
  return 1 + std::count(text.begin(), end, '\n');
}

/// Takes one flat object {"token": id, ...} from the parser, and nothing else.
class VocabReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  VocabReader(std::string path, std::string_view text) : path_(std::move(path)), text_(text) {}
  Ids take() { return std::move(ids_); }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_float(double, const std::string&) override { return other("a fraction"); }
  bool string(std::string&) override { return other("a string"); }
  bool binary(binary_t&) override { return other("binary data"); }
  bool start_array(std::size_t) override { return other("an array"); }
  bool end_array() override { return true; }
  bool end_object() override { return true; }

  bool start_object(std::size_t) override {
    if (inside_) other("an object");
    return inside_ = true;
  }

  bool key(std::string& key) override {
    key_ = key;
    return true;
  }

  bool number_integer(std::int64_t id) override {
    if (!inside_) other("a number");
    refuse(path_, ": the id of token '", printable(key_), "' is ", id, "; ids are not negative");
  }

  bool number_unsigned(std::uint64_t id) override {
    if (!inside_) other("a number");
    if (id >= kMaxTokens)
      refuse(path_, ": the id of token '", printable(key_), "' is ", id,
             "; at most 16,777,216 tokens are possible");
    if (!ids_.emplace(key_, static_cast<std::int32_t>(id)).second)
      refuse(path_, ": token '", printable(key_), "' stands there twice");
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    refuse(path_, ", line ", line_at(text_, position), ", byte ", position, ": this is not JSON (",
           printable(error.what()), "); is the file whole?");
  }

 private:
  [[noreturn]] bool other(const char* what) const {
    if (!inside_) refuse(path_, ": wanted an object {\"token\": id, ...}, got ", what);
    refuse(path_, ": the id of token '", printable(key_), "' is ", what, "; wanted a number");
  }

  std::string path_;
  std::string_view text_;
  std::string key_;
  bool inside_ = false;
  Ids ids_;
};

Ids read_ids(const MappedFile& file) {
  VocabReader reader(file.path(), file.text());
  nlohmann::json::sax_parse(file.text().begin(), file.text().end(), &reader);
  Ids ids = reader.take();
  if (ids.empty()) refuse(file.path(), ": the vocabulary is empty");
  std::vector<const std::string*> token_of(ids.size());
  for (const auto& [token, id] : ids) {
    if (static_cast<std::size_t>(id) >= ids.size())
      refuse(file.path(), ": the id of token '", printable(token), "' is ", id, ", but there are ",
             ids.size(), " tokens; their ids must be 0 to ", ids.size() - 1);
    if (token_of[id])
      refuse(file.path(), ": the tokens '", printable(*token_of[id]), "' and '", printable(token),
             "' have the same id ", id);
    token_of[id] = &token;
  }
  return ids;
}

/// The bytes that a token's characters stand for. A token with a character that stands for none
/// (added by hand; merges never make it) is its own UTF-8.
std::string bytes_of(const std::string& token,
                     const std::unordered_map<std::string, char>& byte_of) {
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const std::string_view character = rest.substr(0, utf8_front(rest).bytes);
    const auto found = byte_of.find(std::string(character));
    if (found == byte_of.end()) return token;
    bytes += found->second;
    rest.remove_prefix(character.size());
  }
  return bytes;
}

std::int32_t id_of(const Ids& ids, std::string_view token, const std::string& where) {
  const auto found = ids.find(std::string(token));
  if (found == ids.end())
    refuse(where, ": '", printable(token), "' is not in vocab.json; are both of one tokenizer?");
  return found->second;
}

std::vector<BpeMerge> read_merges(const MappedFile& file, const Ids& ids) {
  std::vector<BpeMerge> merges;
  std::unordered_set<std::uint64_t> seen;
  std::string_view rest = file.text();
  for (std::int64_t line_number = 1; !rest.empty(); ++line_number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line_number == 1 && line.starts_with("#version")) continue;
    if (line.empty() && rest.empty()) continue;

    const std::string where = concat(file.path(), ", line ", line_number);
    const std::size_t space = line.find(' ');
    if (space == 0 || space == line.npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != line.npos)
      refuse(where, ": wanted two tokens and a space between them, got '",
             printable(line.substr(0, 80)), "'");
    const std::string_view left = line.substr(0, space), right = line.substr(space + 1);
    const BpeMerge merge{id_of(ids, left, where), id_of(ids, right, where),
                         id_of(ids, concat(left, right), where)};
    if (!seen.insert(std::uint64_t(merge.left) << 32 | std::uint64_t(merge.right)).second)
      refuse(where, ": '", printable(line), "' stands there twice");
    merges.push_back(merge);
  }
  return merges;
}

void refuse_other_patterns(const std::string& folder) {
  const std::string path = folder + "/tokenizer_config.json";
  if (!path_exists(path)) return;
  const MappedFile file(path);
  const auto config = nlohmann::json::parse(file.text(), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) refuse(path, ": this is not a JSON object; is the file whole?");
  const auto found = config.find("tokenizer_class");
  if (found == config.end() || !found->is_string()) return;
  const auto name = found->get<std::string>();
  if (!name.starts_with("GPT2Tokenizer"))
    refuse(path, ": tokenizer_class is ", name, ", which splits text in another way than GPT-2; ",
           "only GPT2Tokenizer can be read from vocab.json and merges.txt");
}

}  // namespace

std::string bpe_character(unsigned char byte) {
  const auto printable_latin1 = [](int b) {
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  };
  int code = byte;
  if (!printable_latin1(byte)) {
    code = 0x100;
    for (int b = 0; b < byte; ++b) code += !printable_latin1(b);
  }
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

BpeVocab read_bpe_vocab(const std::string& folder) {
  if (!is_folder(folder))
    refuse("tokenizer '", folder, "' is neither \"bytes\" nor a folder with vocab.json and ",
           "merges.txt");
  refuse_other_patterns(folder);
  const MappedFile vocab_file(folder + "/vocab.json"), merges_file(folder + "/merges.txt");
  const Ids ids = read_ids(vocab_file);

  BpeVocab vocab;
  vocab.fingerprint =
      hash_text(concat("gpt2 ", hash_text(vocab_file.text()), ' ', hash_text(merges_file.text())));
  std::unordered_map<std::string, char> byte_of;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character = bpe_character(static_cast<unsigned char>(byte));
    const auto found = ids.find(character);
    if (found == ids.end())
      refuse(vocab_file.path(), ": no token for byte ", byte, " ('", character,
             "'); a byte-level vocabulary has all 256");
    vocab.byte_tokens[byte] = found->second;
    byte_of[character] = static_cast<char>(byte);
  }
  vocab.tokens.resize(ids.size());
  for (const auto& [token, id] : ids) vocab.tokens[id] = bytes_of(token, byte_of);
  if (const auto end = ids.find("<|endoftext|>"); end != ids.end()) vocab.end_of_text = end->second;
  vocab.merges = read_merges(merges_file, ids);
  return vocab;
}

}  // namespace axonn
