#include "axonn/data/text/word_pattern.h"

#include <algorithm>
#include <utility>

#include <pcre2.h>

#include "axonn/data/text/pattern_classes.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

std::string message_of(int code) {
  char text[256];
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

// Matching a run of white space backtracks on the JIT's stack. The default is 32 KiB; this leaves
// room for long runs.
constexpr std::size_t kStackBytes = 1 << 20;

constexpr std::size_t kMostPatternBytes = 16 << 10;

// A pattern sees so much text, and more only if it asks for it.
constexpr std::size_t kWindow = 256;
// The bytes that it may see in a text, and those for each byte of the words.
constexpr std::size_t kMostSeen = 64 << 20, kMostSeenPerByte = 16 * kWindow;

// PCRE2's \s matches U+180E, but without UCP no other character beyond ASCII.
constexpr std::string_view kSpaces =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// The complement of kSpaces, for \S inside a class.
constexpr std::string_view kNoSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}!-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-)"
    R"(\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& where)
      : rest_(pattern), pattern_(pattern), where_(where) {}

  std::string run() {
    while (!rest_.empty()) {
      const char c = rest_[0];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        inside_class(c);
      } else if (c == '[') {
        in_class_ = true;
        copy(rest_.starts_with("[^") ? 2 : 1);
        if (rest_.starts_with(']')) reject("a class that begins with ]");
      } else if (c == '^' || c == '$') {
        reject("the anchors ^ and $");
      } else if (c == '{') {
        brace();
      } else if (rest_.starts_with("(?")) {
        group();
      } else if (rest_.starts_with("(*")) {
        reject("(*");
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void reject(std::string_view what) const {
    refuse(where_, ", at ", pattern_.size() - rest_.size(), ": ", what,
           " is not supported in a pattern (", printable(rest_.substr(0, 20)), ')');
  }

  void write(std::string_view text, std::size_t instead_of) {
    out_ += text;
    rest_.remove_prefix(std::min(instead_of, rest_.size()));
  }

  void copy(std::size_t bytes) { write(rest_.substr(0, bytes), bytes); }

  /// Whether the text begins with a {n}+, {n,}+ or {n,m}+.
  bool is_possessive() const {
    const std::size_t end = rest_.find_first_not_of("0123456789,", 1);
    return end > 1 && end != rest_.npos && rest_.substr(end).starts_with("}+");
  }

  /// {n}, {n,}, {n,m}, {,m}, or an ordinary character. PCRE2 reads {,m} and spaces between the
  /// numbers differently from version to version.
  void brace() {
    if (is_possessive()) reject("a possessive {n,m}+");
    const std::string_view inside = rest_.substr(1, std::min(rest_.find('}'), rest_.size()) - 1);
    const std::size_t digits = std::min(inside.find_first_not_of("0123456789"), inside.size());
    const std::string_view behind = inside.substr(digits);
    const bool closed = inside.size() + 1 < rest_.size();
    const bool most = behind.starts_with(',') && behind.size() > 1;
    const bool numbers =
        behind.empty() ||
        (behind[0] == ',' && behind.find_first_not_of("0123456789", 1) == behind.npos);
    if (!closed || !numbers || (digits == 0 && !most)) return write("\\{", 1);
    if (digits == 0) return write("{0", 1);
    copy(1);
  }

  void inside_class(char c) {
    if (c == '[') reject("a class within a class");
    if (rest_.starts_with("&&")) reject("the intersection of classes");
    if (c == ']') in_class_ = false;
    copy(1);
  }

  void group() {
    for (const std::string_view known : {"(?:", "(?i:", "(?!", "(?=", "(?>"})
      if (rest_.starts_with(known)) return copy(known.size());
    reject("a group of this kind");
  }

  void spaces(bool negated) {
    if (in_class_) return write(negated ? kNoSpaces : kSpaces, 2);
    write(concat(negated ? "[^" : "[", kSpaces, ']'), 2);
  }

  void escape() {
    if (rest_.size() < 2) reject("a \\ at the end");
    const char c = rest_[1];
    if (c == 's' || c == 'S') return spaces(c == 'S');
    if (c == 'd' || c == 'D') return characters("Nd", c == 'D', 2);
    if (c == 'p' || c == 'P') return property();
    if (c == 'u') return code_point();
    if (c == 'x' && rest_.size() > 3) return hexadecimal();
    if (is_letter_or_digit(c) && c != 'r' && c != 'n' && c != 't' && c != 'f')
      reject("this escape");
    copy(2);
  }

  void property() {
    const std::size_t end = rest_.find('}');
    if (rest_.size() < 4 || rest_[2] != '{' || end == rest_.npos)
      reject("a property without {...}");
    std::string_view name = rest_.substr(3, end - 3);
    const bool inverse = name.starts_with('^');
    if (inverse) name.remove_prefix(1);
    characters(name, (rest_[1] == 'P') != inverse, end + 1);
  }

  /// Writes the characters of a property, or all others.
  void characters(std::string_view name, bool negated, std::size_t instead_of) {
    const std::string items = class_items(name, negated);
    if (items.empty()) reject("a property that is no general category, no script and not Any");
    const bool one = items[1] != 'x' && items.find('}') == items.size() - 1;
    write(in_class_ || one ? items : concat('[', items, ']'), instead_of);
  }

  /// \xHH or \x{H...}
  void hexadecimal() {
    if (rest_[2] != '{') return copy(2);
    const std::size_t end = rest_.find('}');
    if (end == rest_.npos) reject("\\x{ without }");
    copy(end + 1);
  }

  /// \uHHHH
  void code_point() {
    const std::string_view digits = rest_.substr(2, 4);
    if (digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos || digits.size() != 4)
      reject("\\u without four hexadecimal digits");
    write(concat("\\x{", digits, '}'), 6);
  }

  std::string_view rest_, pattern_;
  const std::string& where_;
  std::string out_;
  bool in_class_ = false;
};

}  // namespace

std::string to_pcre2(std::string_view pattern, const std::string& where) {
  return Translator(pattern, where).run();
}

struct WordPattern::Matcher::State {
  std::shared_ptr<const void> owner;
  std::shared_ptr<const void> searching_owner;
  std::size_t seen = 0, cut = 0;  // bytes that the pattern saw; of words
  std::size_t limit = 0;          // of PCRE2's steps in one match
  std::string_view found = {};    // the match after the text that was returned last
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  bool jit = false;
  ~State() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

WordPattern::WordPattern(std::string_view pattern, const std::string& where) {
  if (pattern.size() > kMostPatternBytes)
    refuse(where, ": the pattern has ", pattern.size(), " bytes; at most ", kMostPatternBytes,
           " are possible");
  const std::string text = to_pcre2(pattern, where);
  const auto compiled = [&](std::uint32_t options) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code* code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                      PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | options, &error, &offset, nullptr);
    if (!code)
      refuse(where, ": the pattern '", printable(pattern.substr(0, 200)),
             "' cannot be compiled: ", message_of(error));
    // If the system does not allow a JIT (a hardened kernel), the pattern is interpreted.
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    return std::shared_ptr<const void>(code, [code](const void*) { pcre2_code_free(code); });
  };
  anchored_ = compiled(PCRE2_ANCHORED);
  searching_ = compiled(0);
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(static_cast<const pcre2_code*>(anchored_.get()), PCRE2_INFO_MATCHEMPTY,
                     &matches_empty);
  if (matches_empty != 0)
    refuse(where, ": the pattern '", printable(pattern.substr(0, 200)),
           "' matches the empty string, so it cannot cut a text into words");
}

WordPattern::Matcher::Matcher(const WordPattern& pattern) : state_(std::make_unique<State>()) {
  state_->owner = pattern.anchored_;
  state_->searching_owner = pattern.searching_;
  state_->data = pcre2_match_data_create(1, nullptr);
  state_->context = pcre2_match_context_create(nullptr);
  AXONN_CHECK(state_->data && state_->context, "PCRE2: out of memory");
  std::size_t jit_bytes = 0;
  pcre2_pattern_info(static_cast<const pcre2_code*>(pattern.anchored_.get()), PCRE2_INFO_JITSIZE,
                     &jit_bytes);
  state_->jit = jit_bytes > 0;
  if (!state_->jit) return;
  state_->stack = pcre2_jit_stack_create(32 << 10, kStackBytes, nullptr);
  pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
}

WordPattern::Matcher::~Matcher() = default;
WordPattern::Matcher::Matcher(Matcher&&) noexcept = default;

void WordPattern::Matcher::start() {
  state_->seen = state_->cut = 0;
  state_->found = {};
}

/// Runs a pattern on the first `window` bytes of a text, or fewer, so that no character is cut.
/// Returns PCRE2's result; PCRE2_ERROR_PARTIAL: more of the text decides.
int WordPattern::Matcher::run(const void* code, std::string_view text, std::size_t& window) {
  const bool all = window >= text.size();
  window = std::min(window, text.size());
  // The later bytes of a character are 10xxxxxx.
  while (!all && (static_cast<unsigned char>(text[window]) & 0xc0) == 0x80) --window;
  state_->seen += window;
  if (state_->seen > kMostSeen + kMostSeenPerByte * state_->cut)
    refuse("the tokenizer's pattern looks at ", state_->seen, " bytes to cut ", state_->cut,
           " bytes of text into words. It is not a published one, or damaged");
  if (const std::size_t limit = 10'000 + 32 * window; limit != state_->limit) {
    pcre2_set_match_limit(state_->context, static_cast<std::uint32_t>(limit));
    state_->limit = limit;
  }
  const std::uint32_t options =
      (all ? 0 : PCRE2_PARTIAL_HARD) | (state_->jit ? 0 : PCRE2_NO_UTF_CHECK);
  const auto match = state_->jit ? pcre2_jit_match : pcre2_match;
  const int found =
      match(static_cast<const pcre2_code*>(code), reinterpret_cast<PCRE2_SPTR>(text.data()), window,
            0, options, state_->data, state_->context);
  if (found < 0 && found != PCRE2_ERROR_NOMATCH && found != PCRE2_ERROR_PARTIAL)
    refuse("PCRE2 cannot match the tokenizer's pattern on a text: ", message_of(found));
  return found;
}

/// The bytes of the match at the front of the text; 0: there is none.
std::size_t WordPattern::Matcher::match(std::string_view text) {
  for (std::size_t window = kWindow;; window *= 2) {
    const int found = run(state_->owner.get(), text, window);
    if (found == PCRE2_ERROR_NOMATCH) return 0;
    if (found >= 0) return pcre2_get_ovector_pointer(state_->data)[1];
  }
}

/// The first match in the text; an empty one at its end if there is none.
std::string_view WordPattern::Matcher::search(std::string_view text) {
  for (std::size_t window = kWindow; !text.empty();) {
    const int found = run(state_->searching_owner.get(), text, window);
    if (found >= 0) {
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(state_->data);
      state_->cut += ends[0];
      return text.substr(ends[0], ends[1] - ends[0]);
    }
    if (found == PCRE2_ERROR_NOMATCH) {
      state_->cut += window;
      text.remove_prefix(window);
      window = kWindow;
    } else {
      window *= 2;
    }
  }
  return text;
}

WordPattern::Part WordPattern::Matcher::first_part(std::string_view text) {
  const bool known = !state_->found.empty() && state_->found.data() == text.data();
  const std::size_t bytes = known ? state_->found.size() : match(text);
  state_->found = {};
  state_->cut += bytes;
  if (bytes > 0) return {bytes, true};
  state_->found = search(text);
  return {static_cast<std::size_t>(state_->found.data() - text.data()), false};
}

}  // namespace axonn
