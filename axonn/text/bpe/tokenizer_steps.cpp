#include "axonn/text/bpe/tokenizer_steps.h"

#include <string>
#include <string_view>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/utf8.h"
#include "axonn/text/word_pattern.h"

namespace axonn {

namespace {

// A step of a normalizer may make a text longer: Llama 2's makes 12 bytes of a space. These limits
// are far above what published files need, and bound the memory and time of a text.
constexpr double kMostGrowth = 32;
constexpr std::size_t kMostSteps = 64, kMostReplaced = 256;

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

/// A ByteLevel step of which only the pre_tokenizer's changes text; trim_offsets never does.
void pass_over_byte_level(const JsonNode& step) {
  step.pass_over({"add_prefix_space", "trim_offsets", "use_regex"});
}

void read_byte_level(const JsonNode& step, BpeVocab& vocab) {
  pass_over_byte_level(step);
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
  step.pass_over({"prepend_scheme", "split", "str_rep"});  // str_rep is replacement again
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
      pass_over_byte_level(step);
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
  step.pass_over({"pair"});
  const JsonNode tokens = step["special_tokens"];
  for (const auto& [name, token] : tokens.members()) {
    tokens.pass_over({name.c_str()});
    token.pass_over({"id", "tokens"});
  }
  bool text = false;
  for (const JsonNode& piece : step["single"].items()) {
    piece.pass_over({"Sequence"});
    const JsonNode token = piece["SpecialToken"];
    if (token.is_null()) {
      text = true;
      continue;
    }
    token.pass_over({"type_id"});
    if (text) token.reject("a token after the text is not supported");
    if (parts.begin) token.reject("a second token before the text is not supported");
    const JsonNode ids = tokens[token["id"].text()]["ids"];
    if (ids.items().size() != 1) ids.reject("wanted one id");
    parts.begin = ids.items()[0].number();
  }
}

void read_post_processor(const JsonNode& node, TextParts& parts) {
  for (const JsonNode& step : steps_of(node, "processors")) {
    const std::string type = step["type"].text();
    if (type == "TemplateProcessing") {
      read_template(step, parts);
    } else if (type == "ByteLevel") {
      pass_over_byte_level(step);
    } else {
      reject_type(step, "ByteLevel, TemplateProcessing and a Sequence of these");
    }
  }
}

}  // namespace

TextParts read_text_parts(const JsonNode& root, BpeVocab& vocab) {
  TextParts parts;
  read_normalizer(root["normalizer"], vocab);
  check_steps(root["normalizer"], vocab.normalizer);
  parts.byte_level = read_pre_tokenizer(root["pre_tokenizer"], vocab);
  check_steps(root["pre_tokenizer"], vocab.spacing);
  read_decoder(root["decoder"], vocab, parts);
  read_post_processor(root["post_processor"], parts);
  return parts;
}

}  // namespace axonn
