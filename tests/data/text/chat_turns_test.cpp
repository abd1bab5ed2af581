// What is learned of a conversation, and what becomes a control token, by the templates in
// chat_templates/.
#include <gmock/gmock.h>

#include "axonn/data/text/chat/chat_template.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

#include "tests/data/text/tokenizer_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::HasSubstr;

namespace {

/// Qwen's small tokenizer with the control tokens of other families, and "<think>" and "</think>",
/// which are not special.
std::shared_ptr<const Tokenizer> tokenizer_of_all(const TempFolder& folder) {
  std::size_t id = byte_level_vocab().tokens.size() + 4;
  std::string added;
  for (const char* token : {"<s>",
                            "</s>",
                            "<|eot_id|>",
                            "<|start_header_id|>",
                            "<|end_header_id|>",
                            "[INST]",
                            "[/INST]",
                            "<|end|>",
                            "<|return|>",
                            "<|call|>",
                            "<|start|>",
                            "<|message|>",
                            "<|user|>",
                            "<|assistant|>",
                            "<｜User｜>",
                            "<｜Assistant｜>",
                            "<end_of_turn>",
                            "<start_of_turn>",
                            "<|END_RESPONSE|>",
                            "<|START_RESPONSE|>",
                            "<|END_OF_TURN_TOKEN|>",
                            "<think>",
                            "</think>"})
    added += concat(",{\"id\":", id++, ",\"content\":\"", token,
                    "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                    "\"normalized\":false,\"special\":",
                    std::string_view(token).ends_with("think>") ? "false" : "true", "}");
  folder.file("tokenizer.json",
              replaced(qwen_json(), "],\"normalizer\"", added + "],\"normalizer\""));
  return make_tokenizer(folder.path());
}

ChatTemplate template_of(std::shared_ptr<const Tokenizer> tokenizer, const std::string& name) {
  const std::string file = std::string(AXONN_CHAT_TEMPLATES) + '/' + name + ".jinja";
  return ChatTemplate(std::move(tokenizer),
                      {.forms = {{"default", name, read_text(file)}},
                       .tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}},
                      {.variables = {}, .now = parse_chat_date("2024-07-26", "day")});
}

Conversation talk_of(const std::string& json) {
  return Conversation::parse(*parse_chat_json(json)->dict(), "talk");
}

/// The text, with learned parts in «», special tokens in {} and other added tokens in ().
std::string shown_turns(const Tokenizer& tokenizer, const ChatTemplate::Rendered& rendered) {
  std::string text;
  bool learned = false;
  for (std::size_t i = 0; i < rendered.tokens.size(); ++i) {
    if (rendered.learned[i] != learned) text += learned ? "»" : "«";
    learned = rendered.learned[i];
    const std::int32_t token = rendered.tokens[i];
    const std::string bytes(tokenizer.bytes_of(token));
    const bool added = tokenizer.added_token(bytes) == token;
    text += tokenizer.is_special(token) ? '{' + bytes + '}' : added ? '(' + bytes + ')' : bytes;
  }
  return text + (learned ? "»" : "");
}

std::string learned_by(const std::string& name, const std::string& json) {
  const TempFolder folder;
  const auto tokenizer = tokenizer_of_all(folder);
  return shown_turns(*tokenizer, template_of(tokenizer, name).render(talk_of(json)));
}

const std::string kThoughts = R"({"messages": [{"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "<think>\nadd\n</think>\n\n4"},
    {"role": "user", "content": "3+3?"},
    {"role": "assistant", "reasoning_content": "add again", "content": "6"}]})";
const std::string kCall = R"({"messages": [{"role": "user", "content": "Both?"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"n": 5}}}]},
    {"role": "tool", "tool_call_id": "abcdefghi", "content": "one"},
    {"role": "assistant", "content": "Done."}]})";

}  // namespace

TEST(ChatTurns, LearnTheLastThoughtsAndNotTheOnesThatTheTemplateDrops) {
  EXPECT_EQ(learned_by("thinking_last_turn", kThoughts),
            "{<|im_start|>}user\n2+2?{<|im_end|>}\n{<|im_start|>}assistant\n«4{<|im_end|>}»\n"
            "{<|im_start|>}user\n3+3?{<|im_end|>}\n{<|im_start|>}assistant\n"
            "«(<think>)\nadd again\n(</think>)\n\n6{<|im_end|>}»\n");
  EXPECT_EQ(learned_by("last_turn_apart", kThoughts),
            "<SPECIAL_10>System\n\n<SPECIAL_11>User\n2+2?\n<SPECIAL_11>Assistant\n"
            "«4\n<SPECIAL_12>»\n<SPECIAL_11>User\n3+3?\n<SPECIAL_11>Assistant\n(<think>)\n"
            "«6\n<SPECIAL_12>»\n")
      << "<think> of the header is given, not learned; the last turn is outside of the loop";
  EXPECT_EQ(learned_by("flags", kThoughts),
            "{<s>}{<｜User｜>}2+2?{<｜Assistant｜>}«\n\n4{</s>}»{<｜User｜>}3+3?{<｜Assistant｜>}"
            "«6{</s>}»")
      << "the prompt's <think> is not in the turn";
  EXPECT_EQ(learned_by("plain_names", kThoughts),
            "USER: 2+2? ASSISTANT:« (<think>)\nadd\n(</think>)\n\n4{</s>}»\nUSER: 3+3? "
            "ASSISTANT:« 6{</s>}»\n");
}

TEST(ChatTurns, LearnCallsOfToolsWithWhatTheTemplateWritesAroundThem) {
  EXPECT_EQ(learned_by("chatml_tools", kCall),
            "{<|im_start|>}user\nBoth?{<|im_end|>}\n{<|im_start|>}assistant\n«(<tool_call>)\n"
            "{\"name\": \"f\", \"arguments\": {\"n\": 5}}\n</tool_call>{<|im_end|>}»\n"
            "{<|im_start|>}user\n<tool_response>\none\n</tool_response>{<|im_end|>}\n"
            "{<|im_start|>}assistant\n«Done.{<|im_end|>}»\n");
  EXPECT_EQ(learned_by("channels", kCall),
            "{<|start|>}system{<|message|>}Date: 2024-07-26\n{<|end|>}{<|start|>}user{<|message|>}"
            "Both?{<|end|>}{<|start|>}assistant« to=functions.f<|channel|>commentary json"
            "{<|message|>}{\"n\": 5}{<|call|>}»{<|start|>}functions.f to=assistant<|channel|>"
            "commentary{<|message|>}\"one\"{<|end|>}{<|start|>}assistant«<|channel|>final"
            "{<|message|>}Done.{<|return|>}»")
      << "the function's name in the tool's turn is not learned";
  EXPECT_EQ(learned_by("inst_tools", kCall),
            "{<s>}{[INST]}Both?{[/INST]}«[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": 5}, "
            "\"id\": \"abcdefghi\"}]{</s>}»[TOOL_RESULTS]{\"content\": one, \"call_id\": "
            "\"abcdefghi\"}[/TOOL_RESULTS]«Done.{</s>}»");
  EXPECT_THAT(learned_by("documents_and_results", kCall),
              HasSubstr("<|CHATBOT_TOKEN|>«{<|START_RESPONSE|>}Done.{<|END_RESPONSE|>}"
                        "{<|END_OF_TURN_TOKEN|>}»"));
  EXPECT_THAT(learned_by("set_blocks", replaced(kCall, "abcdefghi", "long enough")),
              HasSubstr("{<|assistant|>}\n«\n<tool_calls>[{\"name\": \"f\", \"arguments\": "
                        "{'n': 5}, \"id\": \"long enough\"}]</tool_calls>\n{<|end|>}»\n"))
      << "a template may write the call otherwise if no result follows";
  EXPECT_THAT(learned_by("xml_calls", kCall), HasSubstr("{<s>}tool\none{</s>}"))
      << "a template may write every role alike";
}

TEST(ChatTurns, OfTheLastMessageAloneAreLearnedIfTheUserWants) {
  const TempFolder folder;
  const auto tokenizer = tokenizer_of_all(folder);
  const auto learned_last = [&](const std::string& name, const std::string& json) {
    const std::string file = std::string(AXONN_CHAT_TEMPLATES) + '/' + name + ".jinja";
    ChatArguments arguments{.now = parse_chat_date("2024-07-26", "day"), .last_turn_only = true};
    const ChatTemplate form(tokenizer,
                            {.forms = {{"default", name, read_text(file)}},
                             .tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}},
                            arguments);
    EXPECT_NE(form.fingerprint(), template_of(tokenizer, name).fingerprint());
    return shown_turns(*tokenizer, form.render(talk_of(json)));
  };
  EXPECT_EQ(learned_last("thinking_last_turn", kThoughts),
            "{<|im_start|>}user\n2+2?{<|im_end|>}\n{<|im_start|>}assistant\n4{<|im_end|>}\n"
            "{<|im_start|>}user\n3+3?{<|im_end|>}\n{<|im_start|>}assistant\n"
            "«(<think>)\nadd again\n(</think>)\n\n6{<|im_end|>}»\n");
  EXPECT_EQ(learned_last("inst_tools", kCall),
            "{<s>}{[INST]}Both?{[/INST]}[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"n\": 5}, "
            "\"id\": \"abcdefghi\"}]{</s>}[TOOL_RESULTS]{\"content\": one, \"call_id\": "
            "\"abcdefghi\"}[/TOOL_RESULTS]«Done.{</s>}»");
}

TEST(ChatTurns, ThatEndWithNothingThatIsLearnedAreKnown) {
  const TempFolder folder;
  const auto tokenizer = tokenizer_of_all(folder);
  const auto teaches = [&](const std::string& text) {
    return ChatTemplate(tokenizer, {.forms = {{"default", "here", text}}}).teaches_end();
  };
  const std::string begin = "{% for m in messages %}<|im_start|>{{ m.role }}\n";
  EXPECT_TRUE(teaches(begin + "{{ m.content }}<|im_end|>\n{% endfor %}"));
  EXPECT_TRUE(teaches(begin + "{{ m.content }} END\n{% endfor %}")) << "words may end a turn";
  EXPECT_FALSE(teaches(begin + "{{ m.content }}\n{% endfor %}"));
  EXPECT_FALSE(teaches(begin + "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
                               "{% endgeneration %}{% else %}{{ m.content }}{% endif %}"
                               "<|im_end|>\n{% endfor %}"))
      << "the end is outside of what is learned";
  EXPECT_TRUE(teaches("{{ raise_exception('only with tools') }}")) << "it is not known";
}

TEST(ChatTurns, InTheMiddleEndWithTheTokenThatTheyHaveThere) {
  EXPECT_THAT(learned_by("channels", R"({"messages": [{"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
                {"role": "assistant", "content": "d"}]})"),
              HasSubstr("«<|channel|>final{<|message|>}b{<|end|>}»{<|start|>}user"));
}

TEST(ChatTurns, InTheMiddleEndBeforeTheNextHeaderWhateverEndsTheWholeText) {
  EXPECT_EQ(learned_by("role_tokens", R"({"messages": [{"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
                {"role": "assistant", "content": "d"}]})"),
            "{<|user|>}a{<|end|>}{<|assistant|>}«b{<|end|>}»{<|user|>}c{<|end|>}{<|assistant|>}"
            "«d{<|end|>}{</s>}»");
}

TEST(ChatTurns, ThatBeginTheConversationDoNotLearnTheirHeader) {
  const TempFolder folder;
  const auto tokenizer = tokenizer_of_all(folder);
  const ChatTemplate chat(
      tokenizer, {.forms = {{"default", "t",
                             "{% for m in messages %}{{ '<s>' if loop.first }}<|start_header_id|>"
                             "{{ m.role }}<|end_header_id|>\n{{ m.content }}<|eot_id|>{% endfor %}"
                             "{% if add_generation_prompt %}<|start_header_id|>assistant"
                             "<|end_header_id|>\n{% endif %}"}}});
  const Conversation talk(std::vector<Message>{{"assistant", "a"}, {"user", "b"}});
  EXPECT_EQ(shown_turns(*tokenizer, chat.render(talk)),
            "{<s>}{<|start_header_id|>}assistant{<|end_header_id|>}\n«a{<|eot_id|>}»"
            "{<|start_header_id|>}user{<|end_header_id|>}\nb{<|eot_id|>}");
}

TEST(ChatTurns, BeginAfterTheHeaderWhateverWhiteSpaceIsInIt) {
  const TempFolder folder;
  const auto tokenizer = tokenizer_of_all(folder);
  const ChatTemplate chat(
      tokenizer, {.forms = {{"default", "t",
                             "{% for m in messages %}{% if not loop.first %} {% endif %}"
                             "<|{{ m.role }}|>\n{{ m.content }}</s>{% endfor %}"
                             "{% if add_generation_prompt %}\n\n <|assistant|>\n{% endif %}"}}});
  const Conversation talk(std::vector<Message>{{"user", "a"}, {"assistant", "\n b"}});
  EXPECT_EQ(shown_turns(*tokenizer, chat.render(talk)),
            "{<|user|>}\na{</s>} {<|assistant|>}\n«\n b{</s>}»");
}

TEST(ChatTurns, OfTemplatesThatAlwaysPromptEndBeforeThePrompt) {
  const TempFolder folder;
  const auto tokenizer = tokenizer_of_all(folder);
  const auto chat = [&](const std::string& text, const std::string& prompt) {
    return ChatTemplate(
        tokenizer,
        {.forms = {{"default", "t", "{% for m in messages %}" + text + "{% endfor %}" + prompt}}});
  };
  const Conversation talk(
      std::vector<Message>{{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "d"}});
  const ChatTemplate alike = chat(
                         "<|start_header_id|>{{ m.role }}<|end_header_id|>"
                         "{{ m.content }}<|eot_id|>",
                         "<|start_header_id|>assistant<|end_header_id|>"),
                     apart = chat("<|{{ m.role }}|>{{ m.content }}<|end|>\n", "<|assistant|>");
  EXPECT_EQ(shown_turns(*tokenizer, alike.render(talk)),
            "{<|start_header_id|>}user{<|end_header_id|>}a{<|eot_id|>}"
            "{<|start_header_id|>}assistant{<|end_header_id|>}«b{<|eot_id|>}»"
            "{<|start_header_id|>}user{<|end_header_id|>}c{<|eot_id|>}"
            "{<|start_header_id|>}assistant{<|end_header_id|>}«d{<|eot_id|>}»"
            "{<|start_header_id|>}assistant{<|end_header_id|>}");
  EXPECT_EQ(shown_turns(*tokenizer, apart.render(talk)),
            "{<|user|>}a{<|end|>}\n{<|assistant|>}«b{<|end|>}»\n"
            "{<|user|>}c{<|end|>}\n{<|assistant|>}«d{<|end|>}»\n{<|assistant|>}");
  Conversation with_tools = talk;
  with_tools.variables = talk_of(R"({"messages": [], "tools": [{"f": "x"}]})").variables;
  const ChatTemplate listed = chat(
      "{{ tools[0].f if loop.first }}<|{{ m.role }}|>{{ m.content }}"
      "<|end|>",
      "<|assistant|>");
  EXPECT_THAT(shown_turns(*tokenizer, listed.render(with_tools)),
              testing::EndsWith("{<|assistant|>}«d{<|end|>}»{<|assistant|>}"));
  EXPECT_EQ(tokenizer->decode(alike.end_of_turn()), "<|eot_id|>");
  EXPECT_EQ(tokenizer->decode(apart.end_of_turn()), "<|end|>");
}

TEST(ChatTurns, AreTheMarkedOnesIfTheTemplateMarksThem) {
  EXPECT_EQ(learned_by("marked", R"({"messages": [{"role": "user", "content": "a"},
                {"role": "assistant", "content": ""}]})"),
            "{<|im_start|>}user\na{<|im_end|>}\n{<|im_start|>}assistant\n«{<|im_end|>}»\n");
}

TEST(ChatTurns, WithoutWordsLearnTheirEnd) {
  EXPECT_THAT(learned_by("chatml_default_system", R"({"messages": [
                {"role": "user", "content": ""}, {"role": "assistant", "content": ""}]})"),
              testing::EndsWith("user\n{<|im_end|>}\n{<|im_start|>}assistant\n«{<|im_end|>}»\n"));
}

TEST(ChatTurns, OfTheSameTextAreTheSameWhetherContentIsEmptyOrMissing) {
  // As gemma4's: the results of a call stand before the content of its message.
  const std::string looks_ahead =
      "{%- for m in messages -%}{%- if m.role != 'tool' -%}<|start|>{{ m.role }}<|message|>"
      "{%- set at = loop.index0 -%}{%- for c in m.tool_calls or [] -%}call:{{ c.function.name }}"
      "<|call|>{%- for r in messages[at + 1:] -%}{%- if r.role == 'tool' -%}<|return|>"
      "{{ r.content }}<|end|>{%- endif -%}{%- endfor -%}{%- endfor -%}{{ m.content or '' }}"
      "<|end|>{%- endif -%}{%- endfor -%}"
      "{%- if add_generation_prompt -%}<|start|>assistant<|message|>{%- endif -%}";
  const TempFolder folder;
  const auto tokenizer = tokenizer_of_all(folder);
  const ChatTemplate form(tokenizer,
                          {.forms = {{"default", "looks_ahead", looks_ahead}}, .tokens = {}},
                          {.variables = {}, .now = parse_chat_date("2024-07-26", "day")});
  const auto shown = [&](const std::string& json) {
    return shown_turns(*tokenizer, form.render(talk_of(json)));
  };
  const std::string missing = replaced(kCall, "\"content\": \"\", ", "");
  EXPECT_EQ(shown(kCall), shown(missing));
  EXPECT_THAT(shown(missing), HasSubstr("«call:f{<|call|>}"));
  for (const char* name : {"chatml_tools", "channels", "inst_tools"})
    EXPECT_EQ(learned_by(name, kCall), learned_by(name, missing)) << name;
}

TEST(ChatTurns, DataNeverFormSpecialTokensWhateverTheTemplate) {
  const TempFolder folder;
  const auto tokenizer = tokenizer_of_all(folder);
  std::string all;
  for (const auto& [content, token] : tokenizer->added_tokens()) all += content;
  const auto talk = [&](const std::string& words) {
    return Conversation(std::vector<Message>{
        {"user", words}, {"assistant", words + "x"}, {"user", "<" + words}, {"assistant", words}});
  };
  const auto specials = [&](const ChatTemplate& chat, const Conversation& of) {
    std::vector<std::int32_t> found;
    for (std::int32_t token : chat.render(of).tokens)
      if (tokenizer->is_special(token)) found.push_back(token);
    return found;
  };
  int templates = 0;
  for (const char* name : {"chatml_default_system",
                           "chatml_tools",
                           "thinking_last_turn",
                           "headers_dates",
                           "inst",
                           "inst_system",
                           "inst_tools",
                           "model_turns",
                           "declared_calls",
                           "role_tokens",
                           "role_lines",
                           "flags",
                           "documents_and_results",
                           "python_types",
                           "xml_calls",
                           "observations",
                           "channels",
                           "citations",
                           "plain_names",
                           "set_blocks",
                           "last_turn_apart",
                           "attributes",
                           "marked"}) {
    const ChatTemplate chat = template_of(tokenizer, name);
    const auto want = specials(chat, talk("harmless"));
    EXPECT_EQ(specials(chat, talk(all)), want) << name;
    EXPECT_EQ(specials(chat, talk("im_start|>")), want) << name;
    templates += !want.empty();
  }
  EXPECT_GT(templates, 15);
}

TEST(ChatTurns, FollowThePromptThatGenerationWillGive) {
  const TempFolder folder;
  const auto tokenizer = tokenizer_of_all(folder);
  const Conversation asked(std::vector<Message>{{"user", " a\n"}});
  const Conversation answered(std::vector<Message>{{"user", " a\n"}, {"assistant", "\n b"}});
  for (const char* name : {"chatml_default_system", "chatml_tools", "headers_dates", "inst",
                           "inst_system", "model_turns", "role_tokens", "xml_calls", "channels",
                           "observations", "citations", "set_blocks", "attributes", "marked"}) {
    const ChatTemplate chat = template_of(tokenizer, name);
    const auto prompt = chat.prompt(asked);
    const auto all = chat.render(answered);
    ASSERT_LE(prompt.size(), all.tokens.size()) << name;
    EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), all.tokens.begin())) << name;
    const auto first = std::ranges::find(all.learned, true) - all.learned.begin();
    EXPECT_EQ(first, std::ssize(prompt)) << name;
  }
}

TEST(ChatTurns, OfToolsMayBeAnyValue) {
  const auto talk = [](const std::string& role) {
    return talk_of(R"({"messages": [{"role": ")" + role + R"(", "content": {"sky": [1]}}]})");
  };
  const ChatTemplate chat(make_tokenizer("bytes"),
                          {.forms = {{"default", "t", "{{ messages[0].content | tojson }}"}}});
  EXPECT_EQ(chat.text(talk("tool"), true).bytes(), R"({"sky": [1]})");
  EXPECT_THAT([&] { talk("user"); },
              testing::ThrowsMessage<UsageError>(HasSubstr("a string or a list of parts")));
}

TEST(ChatTurns, OfTheTemplateForToolsAreUsedIfThereAreTools) {
  const auto bytes = make_tokenizer("bytes");
  const ChatTemplate chat(bytes,
                          {.forms = {{"default", "d", "default"}, {"tool_use", "t", "tools"}}});
  Conversation talk = talk_of(R"({"messages": [{"role": "user", "content": "x"}]})");
  EXPECT_EQ(chat.text(talk, true).bytes(), "default");
  talk = talk_of(R"({"messages": [{"role": "user", "content": "x"}], "tools": "[{}]"})");
  EXPECT_EQ(chat.text(talk, true).bytes(), "tools");
}
