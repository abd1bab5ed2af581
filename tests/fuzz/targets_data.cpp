// Readers of data: token files, tokenizers, questions.
#include <array>
#include <cstring>

#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/data/text/chat/conversation.h"
#include "axonn/data/text/jinja/jinja_parser.h"
#include "axonn/data/text/model_text.h"
#include "axonn/data/text/stream_decoder.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/data/text/tokenizer_config.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"
#include "axonn/use/infer/multiple_choice.h"

#include "tests/data/corpus/compress.h"
#include "tests/data/text/small_bpe.h"
#include "tests/data/text/tokenizer_files.h"
#include "tests/fuzz/targets.h"
#include "tests/support/data_files.h"

namespace axonn::fuzz {

namespace {

void read_everything(const TokenFile& file) {
  describe(file);
  std::vector<std::int32_t> tokens(file.size());
  file.read(0, tokens);
}

/// Encodes the text and decodes its tokens, and every one of the first 300 tokens alone.
void use(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(text);
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const std::int32_t token : tokens) streamed += stream.push(token);
  streamed += stream.finish();
  AXONN_CHECK(streamed == tokenizer.decode(tokens), "a stream decodes to another text");
  tokenizer.encode(text, {.added_tokens = false, .continues = true});
  for (std::int32_t token = 0; token < std::min<std::int64_t>(tokenizer.vocab_size(), 300); ++token)
    tokenizer.decode({&token, 1}, {.skip_special = true});
}

std::string numbers(std::initializer_list<std::int32_t> values, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::memcpy(text.data(), values.begin(), std::min(bytes, 4 * values.size()));
  return text;
}

constexpr const char* kText = "Hello world, \xff\xc3 12  caf\xc3\xa9 <|endoftext|>\n";

}  // namespace

void llmc_tokens(std::string_view input) {
  const test::TempFolder folder;
  read_everything(TokenFile(folder.file("a.bin", std::string(input))));
}

std::vector<std::string> llmc_seeds() {
  const std::string header = numbers({20240520, 1, 2}, 1024);
  return {header + "1234", header + "12", header + "123456", header.substr(0, 100)};
}

void megatron_tokens(std::string_view input) {
  const test::TempFolder folder;
  const auto parts = parts_of(input, 2);
  folder.file("a.idx", parts[0]);
  folder.file("a.bin", parts[1]);
  read_everything(TokenFile(folder.path("a")));
}

std::vector<std::string> megatron_seeds() {
  const auto number = [](std::uint64_t value, std::size_t bytes) {
    std::string text(bytes, '\0');
    std::memcpy(text.data(), &value, bytes);
    return text;
  };
  const std::string magic("MMIDIDX\0\0", 9), separator(kSeparator);
  std::vector<std::string> seeds;
  for (const std::uint64_t type : {1, 4, 5, 8}) {
    const std::uint64_t item = bytes_of(static_cast<TokenType>(type));
    seeds.push_back(magic + number(1, 8) + number(type, 1) + number(2, 8) + number(2, 8) +
                    number(3, 4) + number(2, 4) + number(0, 8) + number(3 * item, 8) +
                    number(0, 8) + number(2, 8) + separator + std::string(5 * item, '\1'));
  }
  return seeds;
}

void compressed_text(std::string_view input) {
  const test::TempFolder folder;
  constexpr std::int64_t kMost = 64 << 20;  // a few bytes may stand for gigabytes
  TextReader reader(folder.file("a", std::string(input)));
  while (!reader.at_end() && reader.position() < kMost) reader.skip(reader.peek(1 << 16).size());
}

std::vector<std::string> compressed_text_seeds() {
  const std::string text(3000, 'a'), padding(5, '\0');
  return {test::gzip(text) + test::gzip(kText) + padding,
          test::zstandard(text) + std::string("\x50\x2a\x4d\x18\x01\0\0\0x", 9) +
              test::zstandard(kText)};
}

namespace {

void read_lines(const std::string& path) {
  constexpr std::int64_t kMost = 64 << 20;
  TextReader reader(path);
  for (std::size_t read = 0; !reader.at_end() && read < kMost;)
    read += reader.lines(1 << 16).size();
}

}  // namespace

/// Input: a Parquet file.
void parquet_rows(std::string_view input) {
  const test::TempFolder folder;
  read_lines(folder.file("a.parquet", std::string(input)));
}

void csv_rows(std::string_view input) {
  const test::TempFolder folder;
  read_lines(folder.file("a.csv", std::string(input)));
}

std::vector<std::string> csv_seeds() {
  return {"id,text\r\n1,\"a \"\"quote\"\",\nand a line\"\n2,\n", test::bzip2("a\nb\n"),
          test::xz("\xef\xbb\xbf\"a\"\n1\n")};
}

void choice_questions(std::string_view input) {
  const auto tokenizer = make_tokenizer("bytes");
  for (const ChoiceQuestion& question : parse_choice_questions(input, "questions.jsonl"))
    for (const std::string& choice : question.choices) {
      const auto text = encode_continuation(*tokenizer, question.question + "?", " " + choice);
      AXONN_CHECK(text.scored > 0 && text.scored < std::ssize(text.tokens), "nothing to score");
    }
}

/// Input: the text.json of a checkpoint.
void model_text(std::string_view input) { parse_model_text(input, "text.json"); }

void tokenizer_config(std::string_view input) {
  const test::TempFolder folder;
  folder.file("tokenizer_config.json", std::string(input));
  read_tokenizer_config(folder.path());
}

/// Input: tokenizer.json, tokenizer_config.json, a text.
void tokenizer_json(std::string_view input) {
  const test::TempFolder folder;
  const auto parts = parts_of(input, 3);
  folder.file("tokenizer.json", parts[0]);
  if (!parts[1].empty()) folder.file("tokenizer_config.json", parts[1]);
  use(*make_tokenizer(folder.path()), parts[2]);
}

std::vector<std::string> tokenizer_json_seeds() {
  const std::string separator(kSeparator);
  std::vector<std::string> seeds;
  for (const std::string& json : {test::gpt2_json(), test::llama3_json(), test::qwen_json(),
                                  test::llama2_json(), test::mistral3_json()})
    seeds.push_back(json + separator + separator + kText);
  return seeds;
}

/// Input: tokenizer.model, a text.
void tokenizer_model(std::string_view input) {
  const test::TempFolder folder;
  const auto parts = parts_of(input, 2);
  folder.file("tokenizer.model", parts[0]);
  use(*make_tokenizer(folder.path()), parts[1]);
}

std::vector<std::string> tokenizer_model_seeds() {
  // ModelProto: pieces (1) with text (1), score (2, float) and type (3); options of the trainer
  // (2): model_type (3) BPE and byte_fallback (35); options of the normalizer (3): name (1) and
  // remove_extra_whitespaces (4).
  const auto field = [](char tag, const std::string& content) {
    std::string length;
    for (std::size_t rest = content.size(); rest > 0 || length.empty(); rest >>= 7)
      length += static_cast<char>((rest & 0x7f) | (rest >= 0x80 ? 0x80 : 0));
    return tag + length + content;
  };
  const auto piece = [&](const std::string& text, char type) {
    return field('\x0a', field('\x0a', text) + std::string("\x15\0\0\0\0\x18", 6) + type);
  };
  const std::string ends = piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3);
  std::string words, bytes;
  for (const char* text : {"\xe2\x96\x81", "a", "b", "ab",
                           "\xe2\x96\x81"
                           "a"})
    words += piece(text, 1);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    bytes += piece({'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'}, 6);
  }
  const std::string normalizer = field('\x0a', "identity"),
                    text = std::string(kSeparator) + "ab a <s> caf\xc3\xa9";
  // A map of characters with a trie of 256 units, in which no key is found, and one replacement.
  const std::string map =
      field('\x12', std::string("\0\4\0\0", 4) + std::string(1024, '\0') + std::string("x\0", 2));
  return {ends + words + field('\x12', "\x18\x02") + field('\x1a', normalizer + map) + text,
          ends + words + piece(std::string(100'000, 'a'), 1) + text,
          ends + bytes + words + field('\x12', "\x18\x02\x98\x02\x01") +
              field('\x1a', normalizer + std::string("\x20\0", 2)) + text,
          ends + words + field('\x12', "\x18\x02") + field('\x1a', normalizer) + text};
}

/// Input: vocab.json, merges.txt, tokenizer_config.json, a text.
void vocab_and_merges(std::string_view input) {
  const test::TempFolder folder;
  const auto parts = parts_of(input, 4);
  folder.file("vocab.json", parts[0]);
  folder.file("merges.txt", parts[1]);
  if (!parts[2].empty()) folder.file("tokenizer_config.json", parts[2]);
  use(*make_tokenizer(folder.path()), parts[3]);
}

std::vector<std::string> vocab_and_merges_seeds() {
  const std::string separator(kSeparator);
  return {test::small_vocab_json() + separator + test::small_merges_txt() + separator + separator +
              kText,
          test::small_vocab_json() + separator + "h e\nhe\n"};
}

/// For tokenizers of every kind, decoding gives back any bytes, and pieces give the tokens of the
/// whole.
void encode_and_decode(std::string_view input) {
  static const auto kTokenizers = [] {
    const test::TempFolder folder;
    const auto of = [&](const std::string& json) {
      return make_tokenizer(folder.file("tokenizer.json", json));
    };
    const std::string model = parts_of(tokenizer_model_seeds().front(), 2).front();
    return std::array{
        make_tokenizer("bytes"),   of(test::gpt2_json()),
        of(test::llama3_json()),   of(test::llama2_json()),
        of(test::mistral3_json()), make_tokenizer(folder.file("tokenizer.model", model))};
  }();
  for (const auto& tokenizer : kTokenizers) {
    use(*tokenizer, input);
    const std::size_t cut = tokenizer->cut(input, input.size() / 2);
    AXONN_CHECK(cut <= input.size(), "a cut after the end");
    std::vector<std::int32_t> pieces = tokenizer->encode(input.substr(0, cut));
    tokenizer->encode_into(input.substr(cut), pieces, {.continues = cut > 0});
    AXONN_CHECK(pieces == tokenizer->encode(input), tokenizer->name(),
                ": pieces give other tokens than the whole");
    const bool exact = input.find("\xe2\x96\x81") == input.npos && !tokenizer->puts_space();
    const std::string back = tokenizer->decode(tokenizer->encode(input));
    AXONN_CHECK(!exact || back == input, tokenizer->name(),
                ": decoding does not give back the text");
  }
}

/// A line of data, and a template that renders it.
void chat_template(std::string_view input) {
  const auto parts = parts_of(input, 2);
  const jinja::Program program = jinja::parse(parts[1], "t");
  if (valid_utf8_prefix(parts[0]) < parts[0].size()) return;
  const std::optional<jinja::Value> line = parse_chat_json(parts[0]);
  if (!line || !line->dict()) return;
  const Conversation talk = Conversation::parse(*line->dict(), "line");
  const std::tm now = parse_chat_date("2024-07-26", "now");
  jinja::Variables variables = talk.variables;
  variables.emplace_back("messages", jinja::List{.items = talk.messages});
  const jinja::Text text = jinja::render(program, variables, {.now = &now, .most_steps = 300'000});
  std::size_t bytes = 0;
  text.for_pieces([&](std::string_view piece, jinja::Origin) { bytes += piece.size(); });
  AXONN_CHECK(bytes == text.size(), "the pieces of a text are not all of it");
}

std::vector<std::string> chat_template_seeds() {
  const std::string talk =
      R"({"messages":[{"role":"user","content":"a é"},{"role":"assistant","content":null,)"
      R"("tool_calls":[{"function":{"name":"f","arguments":{"x":[1,2.5,true]}}}]}],"tools":[{}]})";
  std::vector<std::string> seeds;
  for (const char* text :
       {"{% for m in messages if m.content %}{{ loop.index ~ m['role'] | title }}{% else %}x{% "
        "endfor %}",
        "{%- macro f(a, b=1) -%}{{ a[::-1] }}{% if b %}{{ f(a, b - 1) }}{% endif %}{% endmacro %}"
        "{{ f('abc', b=3) }}{% filter upper %}{{ f(messages) }}{% endfilter %}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% break %}"
        "{% endfor %}{{ ns.n // 2 * 3 % 5 }}{% generation %}{{ messages | tojson(indent=2) }}"
        "{% endgeneration %}{# c #}",
        "{{ messages[0].content.split(' ', 1)[-1].strip().replace('a', '') | indent(2) | upper }}"
        "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}",
        "{% set x %}{{ strftime_now('%Y') }}{% endset %}{{ x if x is defined and x not in [1] else "
        "raise_exception('e') }}{{ {'b': 1, 'a': [none, 1e5]} | dictsort | string | length }}"})
    seeds.push_back(concat(talk, kSeparator, text));
  return seeds;
}

}  // namespace axonn::fuzz
