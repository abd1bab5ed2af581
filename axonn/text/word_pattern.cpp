#include "axonn/text/word_pattern.h"

#include <string>

#include <pcre2.h>

#include "axonn/base/check.h"
#include "axonn/base/utf8.h"
#include "axonn/text/split_pattern.h"

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

}  // namespace

struct WordPattern::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

struct WordPattern::Matcher::State {
  const pcre2_code* code = nullptr;
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

WordPattern::WordPattern(std::string_view pattern, const std::string& where)
    : code_(std::make_unique<Code>()) {
  const std::string text = to_pcre2(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (!code_->code)
    refuse(where, ": the pattern '", printable(pattern.substr(0, 200)),
           "' cannot be compiled: ", message_of(error));
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0)
    refuse(where, ": the pattern '", printable(pattern.substr(0, 200)),
           "' matches the empty string, so it cannot cut a text into words");
  // If the system does not allow a JIT (a hardened kernel), the pattern is interpreted.
  pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE);
}

WordPattern::~WordPattern() = default;

WordPattern::Matcher::Matcher(const WordPattern& pattern) : state_(std::make_unique<State>()) {
  state_->code = pattern.code_->code;
  state_->data = pcre2_match_data_create(1, nullptr);
  state_->context = pcre2_match_context_create(nullptr);
  AXONN_CHECK(state_->data && state_->context, "PCRE2: out of memory");
  std::size_t jit_bytes = 0;
  pcre2_pattern_info(state_->code, PCRE2_INFO_JITSIZE, &jit_bytes);
  state_->jit = jit_bytes > 0;
  if (!state_->jit) return;
  state_->stack = pcre2_jit_stack_create(32 << 10, kStackBytes, nullptr);
  pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
}

WordPattern::Matcher::~Matcher() = default;
WordPattern::Matcher::Matcher(Matcher&&) noexcept = default;

std::size_t WordPattern::Matcher::first_word(std::string_view text) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto match = state_->jit ? pcre2_jit_match : pcre2_match;
  const int found = match(state_->code, subject, text.size(), 0,
                          state_->jit ? 0 : PCRE2_NO_UTF_CHECK, state_->data, state_->context);
  if (found == PCRE2_ERROR_NOMATCH) return text.size();
  if (found <= 0)
    refuse("PCRE2 cannot match the tokenizer's pattern on a text: ", message_of(found));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state_->data);
  return range[0] > 0 ? range[0] : range[1];
}

}  // namespace axonn
