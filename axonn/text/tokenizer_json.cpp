#include "axonn/text/tokenizer_json.h"

#include <filesystem>
#include <string_view>
#include <unordered_set>

#include "axonn/base/check.h"
#include "axonn/base/json_node.h"
#include "axonn/base/mapped_file.h"
#include "axonn/base/random.h"
#include "axonn/base/utf8.h"
#include "axonn/text/text_steps.h"
#include "axonn/text/tokenizer_config.h"
#include "axonn/text/tokenizer_json_text.h"

namespace axonn {

namespace {

/// The name of a byte's token: "<0x0A>" for byte 10.
std::string byte_name(int byte) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

std::string bytes_of(const std::string& token, const TextParts& parts,
                     const std::unordered_map<std::string, char>& byte_names) {
  if (parts.byte_level) return bytes_of_characters(token).value_or(token);
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
std::vector<BpeMerge> read_merges(const JsonNode& node, const TokenIds& ids) {
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
  vocab.merges = read_merges(model["merges"], ids);

  std::unordered_map<std::string, char> byte_names;
  for (int byte = 0; parts.shows_bytes && byte < 256; ++byte)
    byte_names[byte_name(byte)] = static_cast<char>(byte);
  for (const auto& [token, id] : ids)
    if (static_cast<std::size_t>(id) < vocab.tokens.size())
      vocab.tokens[id] = bytes_of(token, parts, byte_names);
}

AddedToken read_added_token(const JsonNode& node) {
  for (const char* key : {"single_word", "lstrip", "rstrip"})
    if (node[key].flag_or(false)) node[key].reject("true is not supported");
  const std::int64_t id = node["id"].number();
  if (id >= kMaxTokens) node["id"].reject(id, "; at most 16,777,216 tokens are possible");
  AddedToken token{.content = node["content"].text(),
                   .id = static_cast<std::int32_t>(id),
                   .special = node["special"].flag_or(false),
                   .normalized = node["normalized"].flag_or(false)};
  if (token.content.empty()) node["content"].reject("is empty");
  return token;
}

/// Reads added_tokens, and adds those that the vocabulary lacks to ids.
void read_added_tokens(const JsonNode& nodes, TokenIds& ids, BpeVocab& vocab) {
  std::unordered_set<std::string> seen;
  for (const JsonNode& node : nodes.items()) {
    AddedToken token = read_added_token(node);
    if (!seen.insert(token.content).second)
      node["content"].reject("'", printable(token.content), "' occurs twice");
    const auto [place, added] = ids.emplace(token.content, token.id);
    if (!added && place->second != token.id)
      node["id"].reject(token.id, ", but '", printable(token.content), "' is token ", place->second,
                        " of model.vocab");
    vocab.added_tokens.push_back(std::move(token));
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

BpeVocab read_tokenizer_json(const std::string& path) {
  const MappedFile file(path);
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
  for (const AddedToken& token : vocab.added_tokens)
    vocab.tokens[token.id] =
        parts.shows_marks_as_spaces ? with_spaces(token.content) : token.content;
  find_ends(ids, parts, std::filesystem::path(path).parent_path().string(), vocab);
  vocab.fingerprint =
      hash_text(concat("tokenizer.json ", hash_text(file.text()), ' ',
                       vocab.begin_of_text.value_or(-1), ' ', vocab.end_of_text.value_or(-1)));
  return vocab;
}

}  // namespace axonn
