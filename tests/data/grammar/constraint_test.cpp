// Which tokens may follow, compared with reading each token's bytes.
#include "axonn/data/grammar/constraint.h"

#include <chrono>

#include <gmock/gmock.h>

#include "axonn/data/grammar/text_form.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/text/tokenizer_files.h"
#include "tests/support/data_files.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

/// Tokens of several bytes.
std::shared_ptr<const Tokenizer> small_tokenizer(const test::TempFolder& folder) {
  folder.file("tokenizer.json", test::llama2_json());
  return make_tokenizer(folder.path());
}

bool allowed_by_bytes(const Automaton& automaton, Automaton::State state, std::string_view bytes) {
  Automaton::Steps steps;
  for (const char c : bytes) state = automaton.next(state, static_cast<std::uint8_t>(c), steps);
  return !bytes.empty() && !state.refused();
}

std::string form_refusal(const std::string& form) {
  try {
    compile_form(form);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Constraint, AllowsTheTokensWhoseBytesMayFollow) {
  const test::TempFolder folder;
  for (const auto& tokenizer : {small_tokenizer(folder), make_tokenizer("bytes")}) {
    const SortedVocabulary vocabulary(*tokenizer, tokenizer->vocab_size());
    for (const char* form : {R"({"regex":"(he|hello|l+o ?)*[^a]"})", R"({"schema":true})",
                             R"({"texts":["hello","help","h"]})", R"({"regex":"[é-ü]{1,3}x"})"}) {
      Constraint constraint(form, vocabulary);
      const Automaton automaton = compile_form(form);
      Constraint::State state = constraint.start();
      for (int step = 0; step < 8 && !state.ended(); ++step) {
        const Constraint::Mask mask = constraint.mask(state);
        std::int32_t last = -1;
        for (std::int32_t token = 0; token < tokenizer->vocab_size(); ++token) {
          const bool allowed = mask[static_cast<std::size_t>(token)] != Constraint::kForbidden;
          ASSERT_EQ(allowed, allowed_by_bytes(automaton, state, tokenizer->bytes_of(token)))
              << form << ": " << token;
          if (allowed) last = token;
        }
        ASSERT_GE(last, 0) << form;
        state = constraint.after(state, last);
      }
    }
  }
}

TEST(Constraint, FormsAreWhatTheySay) {
  const auto accepts = [](const char* form, const char* text) {
    return compile_form(form).accepts(text);
  };
  const char* thought = R"({"sequence":[{"until":"</t>"},{"space":2},{"text":"x"}]})";
  EXPECT_TRUE(accepts(thought, "a < b </ </t>\n x"));
  EXPECT_TRUE(accepts(thought, "<</t>x"));
  EXPECT_TRUE(accepts(thought, "</</t>x"));
  EXPECT_FALSE(accepts(thought, "a</t> b</t>x")) << "the first end counts";
  EXPECT_FALSE(accepts(thought, "a</t>   x"));
  EXPECT_TRUE(accepts(R"({"sequence":[{"until":"aab"}]})", "aaab"));
  const char* calls = R"({"repeat":{"texts":["a","bc"]},"least":1,"most":3,"between":", "})";
  EXPECT_TRUE(accepts(calls, "a, bc, a"));
  EXPECT_FALSE(accepts(calls, "a, a, a, a"));
  EXPECT_FALSE(accepts(calls, ""));
  EXPECT_TRUE(accepts(R"({"either":[{"text":"a"},{"regex":"b*"}]})", "bb"));
  EXPECT_THAT(form_refusal(R"({"regex":""})"), HasSubstr("only the empty text"));
  EXPECT_THAT(form_refusal(R"({"text":")" + std::string(70'000, 'a') + "\"}"), HasSubstr("bytes"));
}

TEST(Constraint, TheBytesToTheEndAreTheFewest) {
  const std::pair<const char*, std::int64_t> forms[] = {
      {R"({"regex":"ab*c"})", 2},
      {R"({"regex":"(a|bc){3}d?"})", 3},
      {R"({"schema":{"properties":{"a":{"type":"string"},"b":{}},"required":["a"]}})",
       static_cast<std::int64_t>(std::string_view(R"({"a":""})").size())},
      {R"({"schema":{"type":"array","items":{"$ref":"#"},"minItems":1,"maxItems":1}})",
       std::int64_t{1} << 40},
      {R"({"sequence":[{"until":"</t>"},{"schema":true}]})", 5}};
  for (const auto& [form, want] : forms) {
    const Automaton automaton = compile_form(form);
    EXPECT_EQ(automaton.bytes_to_end(automaton.start()), want) << form;
  }
  const Automaton automaton = compile_form(R"({"schema":true})");
  Automaton::State state = automaton.start();
  Automaton::Steps steps;
  for (const char c : std::string_view("[[{\"a"))
    state = automaton.next(state, static_cast<std::uint8_t>(c), steps);
  EXPECT_EQ(automaton.bytes_to_end(state), std::ssize(std::string_view("\":0}]]")));
}

// Deep nesting is refused, not followed without bound.
TEST(Constraint, DepthIsBounded) {
  const Automaton automaton = compile_form(R"({"schema":true})");
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(automaton.accepts(nested(100)));
  EXPECT_FALSE(automaton.accepts(nested(10'000)));
}

TEST(Constraint, AStateOfManyPlacesTakesBoundedTime) {
  const auto tokenizer = make_tokenizer("bytes");
  const SortedVocabulary vocabulary(*tokenizer, 256);
  for (const char* form :
       {R"({"regex":"(a?){1000}(a?){1000}a{1000}b"})",
        R"({"regex":"((a|b|ab|ba)*(aa|bb)*){500}c"})", R"({"regex":"(.*a.{0,400}){5}b"})"}) {
    const auto start = std::chrono::steady_clock::now();
    if (!form_refusal(form).empty()) continue;
    Constraint constraint(form, vocabulary);
    Constraint::State state = constraint.start();
    for (int step = 0; step < 4; ++step) {
      constraint.mask(state);
      state = constraint.after(state, 'a');
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << form;
  }
}

TEST(Constraint, ACacheGivesPromptsOfOneFormOneConstraint) {
  const auto tokenizer = make_tokenizer("bytes");
  ConstraintCache cache(*tokenizer, 256);
  const auto first = cache.find(R"({"text":"a"})");
  EXPECT_EQ(cache.find(R"({"text":"a"})"), first);
  for (int i = 0; i < 20; ++i) cache.find(R"({"text":"b)" + std::to_string(i) + "\"}");
  EXPECT_NE(cache.find(R"({"text":"a"})"), first) << "it keeps only the last";
}
