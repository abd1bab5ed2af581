#include "tests/data/text/tokenizer_files.h"

#include <algorithm>
#include <array>

#include "axonn/data/text/bpe/bpe_vocab.h"
#include "axonn/foundation/base/check.h"

namespace axonn::test {

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

void add_merge(SmallVocab& vocab, const std::string& left, const std::string& right) {
  vocab.merges.emplace_back(left, right);
  vocab.tokens.push_back(left + right);
}

std::string vocab_json(const SmallVocab& vocab) {
  std::string json;
  for (std::size_t i = 0; i < vocab.tokens.size(); ++i)
    json += (i ? "," : "") + quoted(vocab.tokens[i]) + ":" + std::to_string(i);
  return "{" + json + "}";
}

enum class MergesAs { strings, pairs };

std::string merges_json(const SmallVocab& vocab, MergesAs as) {
  std::string json;
  for (const auto& [left, right] : vocab.merges) {
    if (!json.empty()) json += ',';
    json += as == MergesAs::strings ? quoted(left + ' ' + right)
                                    : "[" + quoted(left) + "," + quoted(right) + "]";
  }
  return "[" + json + "]";
}

std::string added(std::size_t id, const std::string& content, const std::string& normalized,
                  const std::string& special) {
  return concat(R"({"id":)", id, R"(,"content":)", quoted(content),
                R"(,"single_word":false,"lstrip":false,"rstrip":false,"normalized":)", normalized,
                R"(,"special":)", special, "}");
}

/// A tokenizer.json with these parts, in the library's order.
struct File {
  std::string added_tokens, normalizer = "null", pre_tokenizer, post_processor, decoder, model;

  std::string text() const {
    return concat(R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)",
                  added_tokens, R"(],"normalizer":)", normalizer, R"(,"pre_tokenizer":)",
                  pre_tokenizer, R"(,"post_processor":)", post_processor, R"(,"decoder":)", decoder,
                  R"(,"model":{)", model, "}}");
  }
};

std::string byte_level(const char* rest) { return concat(R"({"type":"ByteLevel",)", rest, "}"); }

std::string split_then_bytes(const std::string& digits) {
  return concat(R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":)",
                R"("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N})", digits,
                R"(| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},)",
                R"("behavior":"Isolated","invert":false},)",
                byte_level(R"("add_prefix_space":false,"trim_offsets":true,"use_regex":false)"),
                "]}");
}

std::string begin_template(const std::string& token, std::size_t id) {
  return concat(R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":)", quoted(token),
                R"(,"type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":)",
                R"({"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],)",
                R"("special_tokens":{)", quoted(token), R"(:{"id":)", quoted(token), R"(,"ids":[)",
                id, R"(],"tokens":[)", quoted(token), "]}}}");
}

File llama2_file() {
  const SmallVocab vocab = llama2_vocab();
  return {
      .added_tokens = added(0, "<unk>", "false", "true") + "," + added(1, "<s>", "false", "true") +
                      "," + added(2, "</s>", "false", "true"),
      .normalizer = R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
                    R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]})",
      .pre_tokenizer = "null",
      .post_processor = begin_template("<s>", 1),
      .decoder = R"({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},)"
                 R"("content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip",)"
                 R"("content":" ","start":1,"stop":0}]})",
      .model = concat(R"("type":"BPE","dropout":null,"unk_token":"<unk>",)",
                      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,)",
                      R"("fuse_unk":true,"byte_fallback":true,"ignore_merges":false,"vocab":)",
                      vocab_json(vocab), R"(,"merges":)", merges_json(vocab, MergesAs::strings))};
}

constexpr const char* kBytesDecoder =
    R"("add_prefix_space":true,"trim_offsets":true,"use_regex":true)";

}  // namespace

int SmallVocab::id_of(const std::string& token) const {
  const auto found = std::ranges::find(tokens, token);
  AXONN_CHECK(found != tokens.end(), "the vocabulary has no ", token);
  return static_cast<int>(found - tokens.begin());
}

SmallVocab byte_level_vocab() {
  SmallVocab vocab;
  for (int b = 0; b < 256; ++b)
    vocab.tokens.push_back(bpe_character(static_cast<unsigned char>(b)));
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{{"h", "e"},
                                                                                    {"l", "l"},
                                                                                    {"he", "ll"},
                                                                                    {"hell", "o"},
                                                                                    {"Ġ", "w"},
                                                                                    {"o", "r"},
                                                                                    {"Ġw", "or"},
                                                                                    {"l", "d"},
                                                                                    {"Ġ", "Ġ"},
                                                                                    {"Ċ", "Ċ"},
                                                                                    {"1", "2"},
                                                                                    {"'", "s"},
                                                                                    {"Ã", "©"},
                                                                                    {"!", "Ċ"}})
    add_merge(vocab, left, right);
  vocab.tokens.push_back("Ġworld");  // no merge makes it from " wor" and "ld"
  return vocab;
}

SmallVocab llama2_vocab() {
  SmallVocab vocab{.tokens = {"<unk>", "<s>", "</s>"}, .merges = {}};
  constexpr std::string_view kHex = "0123456789ABCDEF";
  for (int b = 0; b < 256; ++b)
    vocab.tokens.push_back({'<', '0', 'x', kHex[b >> 4], kHex[b & 15], '>'});
  for (const char* c : {"▁", "h", "e", "l", "o", "w", "r", "d", "é", "<", "/", "s", ">", "."})
    vocab.tokens.push_back(c);
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{{"▁", "h"},
                                                                                    {"e", "l"},
                                                                                    {"l", "o"},
                                                                                    {"▁h", "el"},
                                                                                    {"▁hel", "lo"},
                                                                                    {"▁", "▁"},
                                                                                    {"▁", "w"},
                                                                                    {"o", "r"},
                                                                                    {"▁w", "or"},
                                                                                    {"l", "d"},
                                                                                    {"▁▁", "▁▁"}})
    add_merge(vocab, left, right);
  return vocab;
}

std::string gpt2_json() {
  const SmallVocab vocab = byte_level_vocab();
  const std::size_t end = vocab.tokens.size();
  return File{
      .added_tokens = added(end, "<|endoftext|>", "true", "true"),
      .pre_tokenizer = byte_level(R"("add_prefix_space":false,"trim_offsets":true)"),
      .post_processor = byte_level(R"("add_prefix_space":true,"trim_offsets":false)"),
      .decoder = byte_level(R"("add_prefix_space":true,"trim_offsets":true)"),
      .model = concat(R"("dropout":null,"unk_token":null,"continuing_subword_prefix":"",)",
                      R"("end_of_word_suffix":"","fuse_unk":false,"vocab":)", vocab_json(vocab),
                      R"(,"merges":)", merges_json(vocab, MergesAs::strings))}
      .text();
}

std::string llama3_json() {
  const SmallVocab vocab = byte_level_vocab();
  const std::size_t n = vocab.tokens.size();
  return File{
      .added_tokens = added(n, "<|begin_of_text|>", "false", "true") + "," +
                      added(n + 1, "<|end_of_text|>", "false", "true") + "," +
                      added(n + 2, "<|eot_id|>", "false", "true") + "," +
                      added(n + 3, "<|start_header_id|>", "false", "true") + "," +
                      added(n + 4, "<|end_header_id|>", "false", "true"),
      .pre_tokenizer = split_then_bytes("{1,3}"),
      .post_processor = concat(R"({"type":"Sequence","processors":[)", byte_level(kBytesDecoder),
                               ",", begin_template("<|begin_of_text|>", n), "]}"),
      .decoder = byte_level(kBytesDecoder),
      .model = concat(R"("type":"BPE","dropout":null,"unk_token":null,)",
                      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,)",
                      R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":true,"vocab":)",
                      vocab_json(vocab), R"(,"merges":)", merges_json(vocab, MergesAs::pairs))}
      .text();
}

std::string qwen_json() {
  const SmallVocab vocab = byte_level_vocab();
  const std::size_t n = vocab.tokens.size();
  return File{
      .added_tokens = added(n, "<|endoftext|>", "false", "true") + "," +
                      added(n + 1, "<|im_start|>", "false", "true") + "," +
                      added(n + 2, "<|im_end|>", "false", "true") + "," +
                      added(n + 3, "<tool_call>", "false", "false"),
      .normalizer = R"({"type":"NFC"})",
      .pre_tokenizer = split_then_bytes(""),
      .post_processor =
          byte_level(R"("add_prefix_space":false,"trim_offsets":false,"use_regex":false)"),
      .decoder = byte_level(R"("add_prefix_space":false,"trim_offsets":false,"use_regex":false)"),
      .model = concat(R"("type":"BPE","dropout":null,"unk_token":null,)",
                      R"("continuing_subword_prefix":"","end_of_word_suffix":"",)",
                      R"("fuse_unk":false,"byte_fallback":false,"ignore_merges":false,"vocab":)",
                      vocab_json(vocab), R"(,"merges":)", merges_json(vocab, MergesAs::strings))}
      .text();
}

std::string llama2_json() { return llama2_file().text(); }

std::string mistral3_json() {
  File file = llama2_file();
  file.normalizer = "null";
  file.pre_tokenizer =
      R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false})";
  return file.text();
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  AXONN_CHECK(at != text.npos, "there is no ", what);
  return text.replace(at, what.size(), by);
}

}  // namespace axonn::test
