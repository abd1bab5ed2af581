#include "axonn/data/text/chat/chat_template.h"

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/data/text/tokenizer_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::HasSubstr;

namespace {

const std::vector<Message> kTalk{{"system", "Be brief."},
                                 {"user", "  Hi <|eot_id|></s><|im_end|> "},
                                 {"assistant", " Hello. "},
                                 {"user", "Bye"},
                                 {"assistant", "Bye."}};

/// The text, with learned parts in «» and special tokens in {}.
std::string shown(const Tokenizer& tokenizer, const ChatTemplate::Rendered& rendered) {
  std::string text;
  bool learned = false;
  for (std::size_t i = 0; i < rendered.tokens.size(); ++i) {
    if (rendered.learned[i] != learned) text += learned ? "»" : "«";
    learned = rendered.learned[i];
    const std::string bytes(tokenizer.bytes_of(rendered.tokens[i]));
    text += tokenizer.is_special(rendered.tokens[i]) ? '{' + bytes + '}' : bytes;
  }
  return text + (learned ? "»" : "");
}

struct Rendering {
  std::string all, prompt;
};

Rendering render(const TempFolder& folder, const std::string& json, const std::string& name,
                 const std::vector<Message>& talk = kTalk) {
  folder.file("tokenizer.json", json);
  const auto tokenizer = make_tokenizer(folder.path());
  const ChatTemplate chat(tokenizer, find_chat_format(name, folder.path()));
  std::vector<Message> asked = talk;
  asked.pop_back();
  ChatTemplate::Rendered prompt{.tokens = chat.prompt(asked), .learned = {}};
  prompt.learned.resize(prompt.tokens.size());
  const ChatTemplate::Rendered all = chat.render(talk);
  EXPECT_TRUE(std::equal(prompt.tokens.begin(), prompt.tokens.end(), all.tokens.begin()))
      << "the answer of the conversation does not follow the prompt";
  return {shown(*tokenizer, all), shown(*tokenizer, prompt)};
}

std::string template_fault(const std::function<void()>& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(ChatTemplate, OfLlama3WritesHeadersTrimsTextAndLearnsTheEndOfATurn) {
  const TempFolder folder;
  const Rendering got = render(folder, llama3_json(), "llama3");
  EXPECT_EQ(got.all,
            "{<|begin_of_text|>}{<|start_header_id|>}system{<|end_header_id|>}\n\nBe brief."
            "{<|eot_id|>}{<|start_header_id|>}user{<|end_header_id|>}\n\n"
            "Hi <|eot_id|></s><|im_end|>{<|eot_id|>}{<|start_header_id|>}assistant"
            "{<|end_header_id|>}\n\n«Hello.{<|eot_id|>}»{<|start_header_id|>}user"
            "{<|end_header_id|>}\n\nBye{<|eot_id|>}{<|start_header_id|>}assistant"
            "{<|end_header_id|>}\n\n«Bye.{<|eot_id|>}»");
  EXPECT_THAT(got.prompt, testing::EndsWith("Bye{<|eot_id|>}{<|start_header_id|>}assistant"
                                            "{<|end_header_id|>}\n\n"));
  EXPECT_THAT(render(folder, llama3_json(), "llama3.1", {{"user", "a"}, {"assistant", "b"}}).all,
              HasSubstr("system{<|end_header_id|>}\n\nCutting Knowledge Date: December 2023\n"
                        "Today Date: 26 Jul 2024\n\n{<|eot_id|>}"));
}

TEST(ChatTemplate, OfChatmlKeepsTextUnchangedAndDoesNotLearnTheNewlineAfterATurn) {
  const TempFolder folder;
  const Rendering got = render(folder, qwen_json(), "chatml");
  EXPECT_EQ(got.all,
            "{<|im_start|>}system\nBe brief.{<|im_end|>}\n{<|im_start|>}user\n"
            "  Hi <|eot_id|></s><|im_end|> {<|im_end|>}\n{<|im_start|>}assistant\n"
            "« Hello. {<|im_end|>}»\n{<|im_start|>}user\nBye{<|im_end|>}\n{<|im_start|>}assistant\n"
            "«Bye.{<|im_end|>}»\n");
  EXPECT_THAT(got.prompt, testing::EndsWith("{<|im_start|>}assistant\n"));
}

TEST(ChatTemplate, OfLlama2PutsTheSystemMessageIntoTheFirstQuestion) {
  const TempFolder folder;
  const Rendering got = render(folder, llama2_json(), "llama2");
  EXPECT_EQ(got.all,
            "{<s>} [INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n  Hi <|eot_id|></s><|im_end|> [/INST]"
            "« Hello. {</s>}»{<s>} [INST] Bye [/INST]« Bye. {</s>}»");
  EXPECT_THAT(got.prompt, testing::EndsWith("{<s>} [INST] Bye [/INST]"));
}

TEST(ChatTemplate, OfBytesIsChatmlWithMarkersAsText) {
  const auto bytes = make_tokenizer("bytes");
  const ChatTemplate chat(bytes, find_chat_format("auto", "bytes"));
  const std::vector<Message> talk{{"user", "Hi"}, {"assistant", "Yes"}};
  EXPECT_EQ(shown(*bytes, chat.render(talk)),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n");
  EXPECT_EQ(bytes->decode(chat.end_of_turn()), "<|im_end|>");
  EXPECT_THAT(template_fault([&] { ChatTemplate(bytes, find_chat_format("llama3", "bytes")); }),
              HasSubstr("the tokenizer bytes has no token <|begin_of_text|>"));
}

TEST(ChatTemplate, IsFoundInTheTokenizersFolder) {
  const TempFolder folder;
  const auto found = [&](const std::string& config) {
    folder.file("tokenizer_config.json", config);
    return find_chat_format("auto", folder.path()).forms;
  };
  EXPECT_EQ(found(R"({"chat_template": "a"})").front().text, "a");
  const auto forms = found(R"({"chat_template": [{"name": "tool_use", "template": "x"},
                               {"name": "default", "template": "y"}]})");
  ASSERT_EQ(forms.size(), 2);
  EXPECT_EQ(forms[0].name + forms[0].text + forms[1].text, "tool_usexy");
  EXPECT_THAT(
      template_fault([&] { found(R"({"chat_template": [{"name": "x", "template": ""}]})"); }),
      HasSubstr("chat_template: wanted a string, or a list with an entry named"));
  EXPECT_THAT(template_fault([&] { found("{}"); }),
              HasSubstr("has no chat template (chat_template.jinja, or chat_template in "
                        "tokenizer_config.json); name one in data.chat_template: chatml"));
  EXPECT_THAT(template_fault([&] { found("{\"chat_template\": 3}"); }),
              HasSubstr("wanted a string"));
  const std::string jinja = folder.file("chat_template.jinja", "newer");
  EXPECT_EQ(found(R"({"chat_template": "a"})").front().text, "newer");
  EXPECT_EQ(find_chat_format(jinja, "bytes").forms.front().file, jinja);
  EXPECT_THAT(template_fault([&] { find_chat_format("llama4", folder.path()); }),
              HasSubstr("data.chat_template = \"llama4\" is unknown"));
}

/// Folder and texts of transformers 5.23, which keeps the tools' template in a folder of its own.
TEST(ChatTemplate, ForToolsIsFoundInTheFolderOfNamedTemplates) {
  const TempFolder folder;
  const auto rest = [](const std::string& begin) {
    return begin + ":{%- for m in messages -%}[{{ m.role }}]{{ m.content }}</s>{%- endfor -%}";
  };
  folder.file("tokenizer_config.json", R"({"chat_template": "not read"})");
  const std::string named = std::string(kNamedTemplates) + "/tool_use.jinja";
  folder.file(named, rest("with {{ tools | length }} tools"));
  EXPECT_THAT(template_fault([&] { find_chat_format("auto", folder.path()); }),
              HasSubstr("has no chat template"))
      << "tokenizer_config.json is not read beside such files";
  folder.file("chat_template.jinja", rest("plain"));
  const ChatTemplate chat(make_tokenizer("bytes"), find_chat_format("auto", folder.path()));
  Conversation talk(std::vector<Message>{{"user", "fox 202"}, {"assistant", "ok"}});
  EXPECT_EQ(chat.text(talk, false).bytes(), "plain:[user]fox 202</s>[assistant]ok</s>");
  talk.variables.emplace_back("tools", *parse_chat_json(R"([{"type": "function"}])"));
  EXPECT_EQ(chat.text(talk, false).bytes(), "with 1 tools:[user]fox 202</s>[assistant]ok</s>");
}

TEST(ChatTemplate, OfTheFolderHasTheTokensThatItsConfigNames) {
  const TempFolder folder;
  folder.file("tokenizer.json", llama3_json());
  folder.file("chat_template.jinja",
              "{{ bos_token }}|{{ pad_token }}|{{ unk_token is defined }}|"
              "{{ eos_token }}|{{ tools is none }}");
  folder.file("tokenizer_config.json",
              R"({"bos_token": {"content": "<|begin_of_text|>"}, "pad_token": "P",
                  "unk_token": null, "add_bos_token": true, "eos_token": "<|eot_id|>"})");
  const ChatTemplate chat(make_tokenizer(folder.path()), find_chat_format("auto", folder.path()));
  EXPECT_EQ(chat.text(Conversation(std::vector<Message>{{"user", "x"}}), false).bytes(),
            "<|begin_of_text|>|P|False|<|eot_id|>|True");
}

TEST(ChatTemplate, ExplainsWhyMessagesAreNotAConversation) {
  const auto bytes = make_tokenizer("bytes");
  const ChatTemplate chatml(bytes, find_chat_format("chatml", "bytes"));
  const auto fault = [&](const std::vector<Message>& talk, bool prompted) {
    return template_fault([&] {
      if (prompted)
        chatml.prompt(talk, "f.jsonl:7");
      else
        chatml.render(talk, "f.jsonl:7");
    });
  };
  EXPECT_EQ(fault(kTalk, false), "");
  EXPECT_EQ(fault({{"user", ""}}, true), "");
  EXPECT_EQ(fault({}, true), "f.jsonl:7: the conversation has no messages");
  EXPECT_THAT(fault({{"wizard", "x"}}, true),
              HasSubstr("f.jsonl:7: message 1 has the role 'wizard', which the chat template"));
  EXPECT_THAT(fault({{"user", "x"}, {"system", "x"}}, true),
              HasSubstr("f.jsonl:7: the chat template refuses this conversation: message 2: a "
                        "system message must be the first"));
  EXPECT_THAT(fault({{"user", "x"}}, false), HasSubstr("nothing to learn"));
  EXPECT_THAT(fault(kTalk, true), HasSubstr("the last message is the assistant's"));
  const TempFolder folder;
  folder.file("tokenizer.json", llama2_json());
  const ChatTemplate llama2(make_tokenizer(folder.path()), find_chat_format("llama2", "bytes"));
  const auto refused = [&](const std::vector<Message>& talk) {
    return template_fault([&] { llama2.render(talk); });
  };
  EXPECT_THAT(refused({{"user", "x"}, {"user", "x"}, {"assistant", "y"}}), HasSubstr("alternate"));
  EXPECT_THAT(refused({{"assistant", "x"}}), HasSubstr("the user begins"));
}
