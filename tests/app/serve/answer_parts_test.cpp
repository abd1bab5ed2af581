// The parts of a model's answer, whole and as they come.
#include "axonn/app/serve/answer_parts.h"

#include <algorithm>
#include <iterator>

#include <gmock/gmock.h>

using namespace axonn;
using testing::ElementsAre;
using testing::IsEmpty;

namespace {

using Format = AnswerForm::Calls;

struct SplitCase {
  AnswerForm form;
  std::string answer;
  AnswerParts want;
  bool in_thought = false;
};

std::vector<SplitCase> thoughts_and_hermes() {
  const AnswerForm hermes{.calls = Format::hermes}, thinking{.thinks = true},
      both{.calls = Format::hermes, .thinks = true};
  return {
      {{}, " <think>a</think> <tool_call>{} ", {"", " <think>a</think> <tool_call>{} "}},
      // Thoughts.
      {thinking, "<think>\nWell, 1 < 2.\n</think>\n\nYes.\n", {"Well, 1 < 2.", "Yes.\n"}},
      {thinking, "\n<think>\n\n</think>\n\nYes.", {"", "Yes."}},
      {thinking, "<think>cut of", {"cut of", ""}},
      {thinking, "\n<thin", {"", "\n<thin"}},
      {thinking, "a <think>b</think>", {"", "a <think>b</think>"}},
      {thinking, "\nso\n</think>\nYes. </think>", {"so", "Yes. </think>"}, true},
      // Hermes, Qwen.
      {hermes,
       "Let me look.\n<tool_call>\n{\"name\": \"find\", \"arguments\": {\"b\": 1, \"a\": "
       "\"\u00f6 </x>\"}}\n</tool_call>",
       {"", "Let me look.", {{"find", "{\"b\":1,\"a\":\"\u00f6 </x>\"}"}}}},
      {hermes,
       "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call>\n<tool_call>{\"name\": \"b\", "
       "\"arguments\": \"{\\\"x\\\": []}\"}",
       {"", "", {{"a", "{}"}, {"b", "{\"x\":[]}"}}}},
      {hermes,
       "<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call> and then",
       {"", "and then", {{"a", "{}"}}}},
      {hermes,
       "See <tool_call>{\"name\": \"a\", \"argu",
       {"", "See <tool_call>{\"name\": \"a\", \"argu"}},
      {hermes,
       "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>",
       {"", "<tool_call>{\"name\": 1, \"arguments\": {}}</tool_call>"}},
      {hermes, "a <tool b\n\n", {"", "a <tool b\n\n"}},
      {both,
       "<think>\n<tool_call>?\n</think>\n\n<tool_call>\n{\"name\": \"a\", \"arguments\": "
       "{}}\n</tool_call>",
       {"<tool_call>?", "", {{"a", "{}"}}}},
      {hermes,
       R"(<tool_call>{"name": "w", "arguments": {"x": "<tool_call>\"} </tool_call>"}}</tool_call>)",
       {"", "", {{"w", R"({"x":"<tool_call>\"} </tool_call>"})"}}}},
      {hermes,
       R"(<tool_call>{"arguments": {"n": 123456789012345678901, "x": 1.50, "s": "\u00f6 :"},
"name": "w"}</tool_call>)",
       {"", "", {{"w", R"({"n":123456789012345678901,"x":1.50,"s":"\u00f6 :"})"}}}},
      {hermes,
       "One\n<tool_call>{\"name\": \"a\", \"arguments\": {}}</tool_call> two <tool_call>{\"name\": "
       "\"b\", \"arguments\": {}}</tool_call>three",
       {"", "One\ntwo\nthree", {{"a", "{}"}, {"b", "{}"}}}},
      {hermes,
       "<tool_call>{\"name\": \"a\", \"arguments\": {}}}</tool_call>",
       {"", "<tool_call>{\"name\": \"a\", \"arguments\": {}}}</tool_call>"}}};
}

std::vector<SplitCase> mistral_and_llama() {
  const AnswerForm mistral{.calls = Format::mistral}, llama{.calls = Format::llama};
  return {{mistral,
           R"([TOOL_CALLS][{"name": "a", "arguments": {"x": "[TOOL_CALLS] [ARGS]"}}] So.)",
           {"", "So.", {{"a", R"({"x":"[TOOL_CALLS] [ARGS]"})"}}}},
          {mistral,
           R"(See[TOOL_CALLS]a[ARGS]{"x": "[TOOL_CALLS]b[ARGS]", "n": 18446744073709551617} so)",
           {"", "See\nso", {{"a", R"({"x":"[TOOL_CALLS]b[ARGS]","n":18446744073709551617})"}}}},
          {mistral,
           "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": 1.5}}, {\"name\": \"b\", "
           "\"arguments\": {}, \"id\": \"123456789\"}]",
           {"", "", {{"a", "{\"x\":1.5}"}, {"b", "{}"}}}},
          {mistral,
           "[TOOL_CALLS]find[ARGS]{\"x\": 1}[TOOL_CALLS]b[CALL_ID]123456789[ARGS]{}",
           {"", "", {{"find", "{\"x\":1}"}, {"b", "{}"}}}},
          {mistral, "[TOOL_CALLS]find[ARGS]{\"x\": ", {"", "[TOOL_CALLS]find[ARGS]{\"x\": "}},
          {mistral, "[TOOL_CALLS][]", {"", "[TOOL_CALLS][]"}},
          // Llama.
          {llama,
           "\n{\"name\": \"f\", \"parameters\": {\"n\": \"3\"}}\n",
           {"", "", {{"f", "{\"n\":\"3\"}"}}}},
          {llama, "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}", {"", "", {{"f", "{}"}}}},
          {llama,
           R"({"name": "f", "parameters": {"n": 1e2, "m": -18446744073709551617}})",
           {"", "", {{"f", R"({"n":1e2,"m":-18446744073709551617})"}}}},
          {llama, "{\"name\": \"f\"}", {"", "{\"name\": \"f\"}"}},
          {llama, "<|py is it", {"", "<|py is it"}},
          {llama,
           "Call {\"name\": \"f\", \"parameters\": {}}",
           {"", "Call {\"name\": \"f\", \"parameters\": {}}"}}};
}

std::vector<SplitCase> split_cases() {
  std::vector<SplitCase> cases = thoughts_and_hermes();
  std::ranges::move(mistral_and_llama(), std::back_inserter(cases));
  return cases;
}

}  // namespace

TEST(AnswerParts, OfAnAnswerAreTheSameWholeAndByteByByte) {
  for (const SplitCase& one : split_cases()) {
    SCOPED_TRACE(one.answer);
    for (const std::size_t step : {one.answer.size(), std::size_t{1}, std::size_t{7}}) {
      AnswerSplitter splitter(one.form, one.in_thought);
      AnswerParts got;
      for (std::size_t i = 0; i < one.answer.size(); i += step) {
        got.append(splitter.push(one.answer.substr(i, step)));
        EXPECT_THAT(got.calls, IsEmpty()) << "calls come at the end";
      }
      got.append(splitter.finish());
      EXPECT_EQ(got.thought, one.want.thought) << step;
      EXPECT_EQ(got.text, one.want.text) << step;
      EXPECT_EQ(got.calls, one.want.calls) << step;
    }
  }
}

TEST(AnswerParts, TextIsHeldBackOnlyWhileItMayBeginAMarker) {
  AnswerSplitter splitter({.calls = Format::hermes, .thinks = true});
  EXPECT_EQ(splitter.push("<thi").thought, "");
  EXPECT_EQ(splitter.push("nk>So").thought, "So");
  EXPECT_EQ(splitter.push(" it </").thought, " it");
  EXPECT_EQ(splitter.push("b>").thought, " </b>");
  EXPECT_EQ(splitter.push("</think>\n\nIt is").text, "It is");
  EXPECT_EQ(splitter.push(" <b").text, " <b");
}

TEST(AnswerParts, TheirFormIsThatOfTheTemplate) {
  const auto calls = [](const char* text) { return find_answer_form(text).calls; };
  EXPECT_EQ(calls("{{ '<tool_call>\\n{\"name\": \"' + name }}</tool_call>"), Format::hermes);
  EXPECT_EQ(calls("{{- \"[TOOL_CALLS] [\" }}"), Format::mistral);
  EXPECT_EQ(calls("{{- '\"parameters\": ' }} Environment: ipython"), Format::llama);
  EXPECT_EQ(calls("'parameters' <tool_calls>"), Format::none);
  EXPECT_TRUE(find_answer_form("content.split('</think>')").thinks);
  EXPECT_FALSE(find_answer_form("<|im_start|>").thinks);
  EXPECT_THAT((AnswerForm{.calls = Format::hermes, .thinks = true}.markers()),
              ElementsAre("<think>", "</think>", "<tool_call>", "</tool_call>"));
}
