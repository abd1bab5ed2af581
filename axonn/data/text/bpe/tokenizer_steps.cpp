#include "axonn/data/text/bpe/tokenizer_steps.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/data/text/word_pattern.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

// A step of a normalizer may make a text longer: NFKC and a mark for each space make 33 bytes of
// one. These limits are above what published files need, and bound the memory and time of a text.
constexpr double kMostGrowth = 48;
constexpr std::size_t kMostSteps = 64, kMostReplaced = 256;

void append_steps(const JsonNode& node, const char* key, std::vector<JsonNode>& steps) {
  if (node.is_null()) return;
  if (node["type"].text() != "Sequence") return steps.push_back(node);
  for (const JsonNode& step : node[key].items()) append_steps(step, key, steps);
}

/// The steps of a Sequence, which are under `key`, or the node itself as the only step.
std::vector<JsonNode> steps_of(const JsonNode& node, const char* key) {
  std::vector<JsonNode> steps;
  append_steps(node, key, steps);
  return steps;
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
  const JsonNode pattern = step["pattern"], regex = pattern["Regex"];
  TextStep result{TextStep::Kind::replace, pattern["String"].text_or(""), step["content"].text()};
  if (!regex.is_null()) {
    result.kind = TextStep::Kind::replace_matches;
    result.from = regex.text();
    result.replacer = std::make_shared<const PatternReplacer>(result.from, regex.location());
    return result;
  }
  if (result.from.empty()) pattern["String"].reject("an empty string cannot be replaced");
  if (result.from.size() > kMostReplaced)
    pattern["String"].reject("has ", result.from.size(), " bytes; at most ", kMostReplaced,
                             " can be replaced");
  return result;
}

void read_normalizer(const JsonNode& node, BpeVocab& vocab) {
  using Kind = TextStep::Kind;
  constexpr std::pair<std::string_view, Kind> kPlain[] = {{"NFC", Kind::nfc},
                                                          {"NFD", Kind::nfd},
                                                          {"NFKC", Kind::nfkc},
                                                          {"NFKD", Kind::nfkd},
                                                          {"Lowercase", Kind::lower_case},
                                                          {"StripAccents", Kind::remove_marks}};
  for (const JsonNode& step : steps_of(node, "normalizers")) {
    const std::string type = step["type"].text();
    const auto* const plain =
        std::ranges::find(kPlain, type, [](const auto& pair) { return pair.first; });
    if (plain != std::end(kPlain)) {
      vocab.normalizer.push_back({plain->second});
    } else if (type == "Prepend") {
      vocab.normalizer.push_back({Kind::prepend, {}, step["prepend"].text()});
    } else if (type == "Replace") {
      vocab.normalizer.push_back(replacement(step));
    } else if (type == "Strip") {
      if (step["strip_left"].flag_or(true)) vocab.normalizer.push_back({Kind::strip_left});
      if (step["strip_right"].flag_or(true)) vocab.normalizer.push_back({Kind::strip_right});
    } else {
      reject_type(step,
                  "Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip, StripAccents and a "
                  "Sequence of these");
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

/// A ByteLevel step of which only the pre_tokenizer's changes text; trim_offsets never does.
void pass_over_byte_level(const JsonNode& step) {
  step.pass_over({"add_prefix_space", "trim_offsets", "use_regex"});
}

SplitBehavior behavior_of(const JsonNode& node, const std::string& name) {
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Isolated", SplitBehavior::isolated},
      {"Removed", SplitBehavior::removed},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  for (const auto& [known, behavior] : kBehaviors)
    if (name == known) return behavior;
  node.reject("'", printable(name), "' is not one of Isolated, Removed, MergedWithPrevious, ",
              "MergedWithNext, Contiguous");
}

/// A pattern that matches the text.
std::string pattern_of(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    const bool sign = static_cast<signed char>(c) > ' ' && std::ispunct(c) != 0;
    if (sign) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

/// Whether the steps leave no text in which `part` occurs.
bool never_left(std::string_view part, std::span<const TextStep> steps) {
  using Kind = TextStep::Kind;
  bool gone = false;
  for (const TextStep& step : steps) {
    const bool adds = step.kind != Kind::replace && step.kind != Kind::prepend &&
                      step.kind != Kind::prepend_missing && step.kind != Kind::prepend_first;
    if (adds || step.to.find_first_of(part) != step.to.npos) gone = false;
    if (step.kind == Kind::replace && part.find(step.from) != part.npos &&
        step.to.find_first_of(part) == step.to.npos)
      gone = true;
  }
  return gone;
}

bool may_change_front(const TextStep& step) {
  using Kind = TextStep::Kind;
  return step.kind == Kind::strip_left || step.kind == Kind::remove_marks ||
         step.kind == Kind::prepend ||
         ((step.kind == Kind::replace || step.kind == Kind::replace_matches) && step.to.empty());
}

/// Collects the steps of a pre_tokenizer.
class PreTokenizer {
 public:
  explicit PreTokenizer(BpeVocab& vocab) : vocab_(vocab) {}

  /// Returns whether words are bytes.
  bool read(const JsonNode& node) {
    const std::vector<JsonNode> steps = steps_of(node, "pretokenizers");
    for (const JsonNode& step : steps) {
      if (byte_level_ && !characters_) change(TextStep::Kind::bytes_as_characters);
      characters_ = byte_level_;
      read_step(step, steps.size() == 1);
    }
    if (characters_) change(TextStep::Kind::characters_as_bytes);
    if (!spacing_.empty()) vocab_.splits.push_back({.spacing = spacing_});
    choose_words();
    return byte_level_;
  }

 private:
  void read_step(const JsonNode& step, bool alone) {
    const std::string type = step["type"].text();
    if (type == "Split") {
      split(step);
    } else if (type == "Digits") {
      cut("\\p{N}", step["individual_digits"].flag_or(false) ? SplitBehavior::isolated
                                                             : SplitBehavior::contiguous);
    } else if (type == "Punctuation") {
      cut("[\\p{P}$+<=>^`|~]", behavior_of(step["behavior"], step["behavior"].text_or("Isolated")));
    } else if (type == "WhitespaceSplit") {
      cut("\\s", SplitBehavior::removed);
    } else if (type == "CharDelimiterSplit") {
      cut(pattern_of(step["delimiter"].text()), SplitBehavior::removed);
    } else if (type == "ByteLevel") {
      byte_level(step);
    } else if (type == "Metaspace") {
      metaspace(step, alone);
    } else {
      reject_type(step,
                  "ByteLevel, CharDelimiterSplit, Digits, Metaspace, Punctuation, Split, "
                  "WhitespaceSplit and a Sequence of these");
    }
  }

  void change(TextStep::Kind kind, std::string from = {}, std::string to = {}) {
    auto& steps = vocab_.splits.empty() ? vocab_.spacing : spacing_;
    steps.push_back({kind, std::move(from), std::move(to)});
  }

  void cut(std::string pattern, SplitBehavior behavior, bool inverted = false) {
    vocab_.splits.push_back({.spacing = std::exchange(spacing_, {}),
                             .pattern = std::move(pattern),
                             .behavior = behavior,
                             .inverted = inverted});
  }

  void split(const JsonNode& step) {
    const SplitBehavior behavior = behavior_of(step["behavior"], step["behavior"].text());
    const bool inverted = step["invert"].flag_or(false);
    const JsonNode text = step["pattern"]["String"], regex = step["pattern"]["Regex"];
    const std::string pattern = text.is_null() ? regex.text() : pattern_of(text.text());
    const WordPattern compiles(pattern, text.is_null() ? regex.location() : text.location());
    std::vector<TextStep> before = vocab_.normalizer;
    before.insert(before.end(), vocab_.spacing.begin(), vocab_.spacing.end());
    // Gemma's normalizer replaces each space, and then its Split looks for spaces.
    if (!text.is_null() && !inverted && vocab_.splits.empty() && never_left(text.text(), before))
      return;
    cut(pattern, behavior, inverted);
  }

  void byte_level(const JsonNode& step) {
    pass_over_byte_level(step);
    if (byte_level_) step.reject("a second ByteLevel is not supported");
    if (step["add_prefix_space"].flag_or(true)) change(TextStep::Kind::prepend_missing, {}, " ");
    if (step["use_regex"].flag_or(true)) cut(std::string(kGpt2Pattern), SplitBehavior::isolated);
    byte_level_ = true;
  }

  void metaspace(const JsonNode& step, bool alone);

  /// The simplest way to cut words that gives the same.
  void choose_words() {
    auto& splits = vocab_.splits;
    if (splits.empty()) return;
    const WordSplit& first = splits[0];
    vocab_.words = BpeWords::splits;
    if (splits.size() > 1 || first.behavior != SplitBehavior::isolated || first.inverted) return;
    vocab_.words = BpeWords::pattern;
    vocab_.pattern = first.pattern;
    splits.clear();
  }

  BpeVocab& vocab_;
  std::vector<TextStep> spacing_;  // of the next cut
  bool byte_level_ = false;
  bool characters_ = false;  // each byte stands as its character
};

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

void PreTokenizer::metaspace(const JsonNode& step, bool alone) {
  using Kind = TextStep::Kind;
  want_text(step["replacement"], kSpaceMark, "U+2581");
  const std::string mark(kSpaceMark), scheme = prepend_scheme(step);
  change(Kind::replace, " ", mark);
  if (scheme != "never")
    change(scheme == "first" ? Kind::prepend_first : Kind::prepend_missing, {}, mark);
  if (!step["split"].flag_or(true)) return;
  if (alone)
    vocab_.words = BpeWords::at_marks;
  else
    cut(mark, SplitBehavior::merged_with_next);
}

/// A Strip after Fuse removes the space that was put before the text, one before it spaces of each
/// token.
void read_strip(const JsonNode& step, bool fused, BpeVocab& vocab, TextParts& parts) {
  if (step["content"].text() != " ")
    step["content"].reject("only a space can be stripped, not '", printable(step["content"].text()),
                           "'");
  const std::int64_t start = step["start"].number(), stop = step["stop"].number();
  if (!fused) {
    parts.strips_front += start;
    parts.strips_back += stop;
    return;
  }
  if (start > 1) step["start"].reject("more than 1 after Fuse is not supported");
  if (stop > 0) step["stop"].reject("more than 0 after Fuse is not supported");
  vocab.puts_space = start == 1;
}

/// Throws UsageError unless the steps have the order in which they mean what is read of them: bytes
/// and spaces of single tokens, then a space at the front of the whole text.
void check_decoder_order(const std::vector<JsonNode>& steps) {
  bool fused = false, stripped = false;
  for (const JsonNode& step : steps) {
    const std::string type = step["type"].text();
    if (type == "ByteFallback" && fused) step.reject("ByteFallback after Fuse is not supported");
    if (type == "Replace" && stripped) step.reject("Replace after Strip is not supported");
    fused |= type == "Fuse";
    stripped |= type == "Strip";
  }
}

void read_decoder(const JsonNode& node, BpeVocab& vocab, TextParts& parts) {
  if (node.is_null()) node.reject("there is no decoder, so tokens cannot be converted to text");
  bool byte_level = false, fused = false;
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
      if (!step["pattern"]["Regex"].is_null())
        step["pattern"].reject("only a \"String\" can be replaced, not a regular expression");
      const TextStep replaced = replacement(step);
      if (replaced.from != kSpaceMark || replaced.to != " ")
        step.reject("only the replacement of U+2581 by a space is supported");
      parts.shows_marks_as_spaces = true;
    } else if (type == "ByteFallback") {
      parts.shows_bytes = true;
    } else if (type == "Strip") {
      read_strip(step, fused, vocab, parts);
    } else if (type == "Fuse") {
      fused = true;
    } else {
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
    const JsonNode ids = tokens[token["id"].text()]["ids"];
    if (ids.items().empty()) ids.reject("is empty");
    for (const JsonNode& id : ids.items()) {
      if (!text) parts.begin.push_back(id.number());
      if (text && parts.end) token.reject("a second token after the text is not supported");
      if (text) parts.end = id.number();
    }
  }
}

/// The token before a text, "cls", and the one behind it, "sep".
void read_pair_processing(const JsonNode& step, TextParts& parts) {
  step.pass_over({"trim_offsets", "add_prefix_space"});
  const auto id_of = [&](const char* key) {
    const std::vector<JsonNode> token = step[key].items();
    if (token.size() != 2) step[key].reject("wanted a token and its id");
    return token[1].number();
  };
  parts.begin = {id_of("cls")};
  parts.end = id_of("sep");
}

void read_post_processor(const JsonNode& node, TextParts& parts) {
  for (const JsonNode& step : steps_of(node, "processors")) {
    const std::string type = step["type"].text();
    if (type == "TemplateProcessing") {
      read_template(step, parts);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      read_pair_processing(step, parts);
    } else if (type == "ByteLevel") {
      pass_over_byte_level(step);
    } else {
      reject_type(step,
                  "BertProcessing, ByteLevel, RobertaProcessing, TemplateProcessing and a Sequence "
                  "of these");
    }
  }
}

}  // namespace

TextParts read_text_parts(const JsonNode& root, BpeVocab& vocab) {
  TextParts parts;
  read_normalizer(root["normalizer"], vocab);
  check_steps(root["normalizer"], vocab.normalizer);
  vocab.words = BpeWords::whole;
  parts.byte_level = PreTokenizer(vocab).read(root["pre_tokenizer"]);
  std::vector<TextStep> spacing = vocab.spacing;
  for (const WordSplit& split : vocab.splits)
    spacing.insert(spacing.end(), split.spacing.begin(), split.spacing.end());
  check_steps(root["pre_tokenizer"], spacing);
  const bool several = !vocab.splits.empty() && !vocab.normalizer.empty();
  if (std::ranges::count(spacing, TextStep::Kind::prepend_first, &TextStep::kind) > 0 &&
      (several || std::ranges::any_of(vocab.normalizer, may_change_front)))
    root["pre_tokenizer"].reject(
        "prepend_scheme 'first' is not supported with this normalizer, which may make another "
        "word the first; if the model puts U+2581 before each word, write 'always'");
  read_decoder(root["decoder"], vocab, parts);
  read_post_processor(root["post_processor"], parts);
  return parts;
}

}  // namespace axonn
