#include "axonn/text/chat/chat_template.h"

#include <gmock/gmock.h>

#include "axonn/base/check.h"

#include "tests/text/tokenizer_files.h"

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

TEST(ChatTemplate, IsRecognisedFromTheTokenizersFolder) {
  const TempFolder folder;
  const auto found = [&](const std::string& config) {
    folder.file("tokenizer_config.json", config);
    return find_chat_format("auto", folder.path());
  };
  const std::string header = "{{ '<|start_header_id|>' + role + '<|end_header_id|>' }}<|eot_id|>";
  EXPECT_EQ(found("{\"chat_template\": \"" + header + "\"}").kind, ChatKind::llama3);
  EXPECT_EQ(found("{\"chat_template\": \"" + header + "\"}").preamble, "");
  EXPECT_THAT(found("{\"chat_template\": \"Cutting Knowledge Date" + header + "\"}").preamble,
              HasSubstr("December 2023"));
  EXPECT_EQ(found("{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}, "
                  "{\"name\": \"default\", \"template\": \"[INST] <<SYS>>\"}]}")
                .kind,
            ChatKind::llama2);
  const ChatFormat qwen = found(
      "{\"chat_template\": \"{{ '<|im_start|>system\\\\n' + x }}{{ "
      "'<|im_start|>system\\\\nYou are Qwen.<|im_end|>\\\\n' }}\"}");
  EXPECT_EQ(qwen.kind, ChatKind::chatml);
  EXPECT_EQ(qwen.default_system, "You are Qwen.");
  EXPECT_FALSE(qwen.begins);
  EXPECT_THAT(
      template_fault([&] { found("{\"chat_template\": \"[INST] {{ x }}\"}"); }),
      HasSubstr("has a chat template that is not recognised; if the model also reads one of "
                "chatml, llama3, llama3.1, llama2, name it in data.chat_template"));
  EXPECT_THAT(template_fault([&] { found("{}"); }), HasSubstr("has no chat template"));
  EXPECT_THAT(template_fault([&] { found("{\"chat_template\": 3}"); }),
              HasSubstr("wanted a string"));
  folder.file("chat_template.jinja", "<|im_start|><|im_end|>{{ bos_token }}");
  EXPECT_EQ(found("{\"chat_template\": \"[INST] <<SYS>>\"}").kind, ChatKind::chatml)
      << "the newer file is preferred";
  EXPECT_TRUE(found("{}").begins);
  EXPECT_THAT(template_fault([&] { find_chat_format("llama4", folder.path()); }),
              HasSubstr("data.chat_template = \"llama4\" is unknown"));
}

TEST(ChatTemplate, ExplainsWhyMessagesAreNotAConversation) {
  const auto bytes = make_tokenizer("bytes");
  const ChatTemplate chatml(bytes, {.kind = ChatKind::chatml});
  const auto fault = [&](const std::vector<Message>& talk, bool prompted) {
    return chatml.fault(talk, prompted);
  };
  EXPECT_EQ(fault(kTalk, false), "");
  EXPECT_EQ(fault({{"user", ""}}, true), "");
  EXPECT_EQ(fault({}, true), "the conversation has no messages");
  EXPECT_THAT(fault({{"tool", "x"}}, true), HasSubstr("message 1 has the role 'tool'"));
  EXPECT_THAT(fault({{"user", "x"}, {"system", "x"}}, true),
              HasSubstr("a system message must be the first"));
  EXPECT_THAT(fault({{"user", "x"}}, false), HasSubstr("nothing to learn"));
  EXPECT_THAT(fault(kTalk, true), HasSubstr("the last message is the assistant's"));
  const TempFolder folder;
  folder.file("tokenizer.json", llama2_json());
  const ChatTemplate llama2(make_tokenizer(folder.path()), {.kind = ChatKind::llama2});
  EXPECT_THAT(llama2.fault(std::vector<Message>{{"user", "x"}, {"user", "x"}}, true),
              HasSubstr("alternate"));
  EXPECT_THAT(llama2.fault(std::vector<Message>{{"assistant", "x"}}, false),
              HasSubstr("the user begins"));
}
