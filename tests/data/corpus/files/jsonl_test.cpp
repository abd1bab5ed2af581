#include "axonn/data/corpus/files/jsonl.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "axonn/data/corpus/corpus.h"
#include "axonn/data/text/bpe/write_bpe.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/text/small_bpe.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

namespace {

std::string jsonl_fault(const std::function<void()>& f) {
  try {
    f();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string fault_of_line(std::string_view line) {
  return jsonl_fault([&] { parse_example(line, "f.jsonl:7"); });
}

std::vector<std::int32_t> coded(const Documents& documents, std::int64_t d) {
  return documents.coded(d);
}

ExampleEncoder bytes_encoder() {
  const auto bytes = make_tokenizer("bytes");
  return ExampleEncoder(bytes, ChatTemplate(bytes, find_chat_format("chatml", "bytes")));
}

}  // namespace

TEST(Jsonl, ReadsLinesOfOtherFormatsAsConversations) {
  const auto roles_and_contents = [](std::string_view line) {
    const Example example = parse_example(line, "f.jsonl:7");
    EXPECT_EQ(example.kind, Example::Kind::messages);
    std::vector<std::string> all;
    for (std::size_t i = 0; i < example.conversation.messages.size(); ++i)
      all.push_back(concat(example.conversation.text(i, "role"), '|',
                           example.conversation.text(i, "content")));
    return all;
  };
  EXPECT_THAT(roles_and_contents(R"({"instruction": "Add.", "input": "2+2", "output": "4",
                                     "system": "Be brief.", "history": [["Hi", "Hello"]],
                                     "text": "all of it again"})"),
              ElementsAre("system|Be brief.", "user|Hi", "assistant|Hello", "user|Add.\n2+2",
                          "assistant|4"));
  EXPECT_THAT(roles_and_contents(R"({"instruction": "Add.", "input": "", "output": "4",
                                     "system": null, "history": []})"),
              ElementsAre("user|Add.", "assistant|4"));
  EXPECT_THAT(roles_and_contents(R"({"conversations": [{"from": "human", "value": "a"},
                  {"from": "chatgpt", "value": "b"}, {"role": "user", "content": "c"},
                  {"from": "model", "value": "d"}], "system": "s", "id": 7})"),
              ElementsAre("system|s", "user|a", "assistant|b", "user|c", "assistant|d"));
  EXPECT_THAT(roles_and_contents(R"({"prompt": "a", "prompt_id": 1, "messages":
                  [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"),
              ElementsAre("user|a", "assistant|b"))
      << "a prompt without a completion is another key";
}

TEST(Jsonl, ReadsCallsAndToolsOfShareGptLinesAsTemplatesExpectThem) {
  const Conversation talk = parse_example(R"({"conversations": [{"from": "system", "value": "own"},
      {"from": "human", "value": "Both?"},
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"n\": 5}}"},
      {"from": "observation", "value": "one"}, {"from": "gpt", "value": "Done."}],
      "system": "other", "tools": "[{\"name\": \"f\", \"parameters\": {}}]"})",
                                          "")
                                .conversation;
  ASSERT_EQ(talk.messages.size(), 5U);
  EXPECT_EQ(talk.text(0, "content"), "own") << "its own system message counts";
  EXPECT_EQ(jinja::to_text(*talk.messages[2].dict()->find("tool_calls")).bytes(),
            "[{'type': 'function', 'function': {'name': 'f', 'arguments': {'n': 5}}}]");
  EXPECT_EQ(talk.text(3, "role"), "tool");
  ASSERT_EQ(talk.variables.size(), 1U);
  EXPECT_EQ(jinja::to_text(talk.variables[0].second).bytes(),
            "[{'type': 'function', 'function': {'name': 'f', 'parameters': {}}}]");
}

TEST(Jsonl, ReadsConversationsInTheFormThatServingGivesTemplates) {
  const Conversation talk = parse_example(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": "b", "thinking": "hm", "name": null, "tool_calls": [
          {"type": "function", "function": {"name": "f", "arguments": "{\"n\": 5}"}}]}],
      "tools": []})",
                                          "")
                                .conversation;
  EXPECT_EQ(jinja::to_text(*talk.messages[1].dict()->find("tool_calls")).bytes(),
            "[{'type': 'function', 'function': {'name': 'f', 'arguments': '{\"n\": 5}'}}]")
      << "the template decides whether arguments become an object";
  EXPECT_EQ(talk.text(1, "reasoning_content"), "hm");
  EXPECT_FALSE(talk.messages[1].dict()->find("name"));
  EXPECT_TRUE(talk.variables.empty());
}

TEST(Jsonl, RefusesInvalidLinesOfOtherFormatsWithTheReason) {
  EXPECT_THAT(fault_of_line(R"({"question": "a", "answer": "b"})"),
              HasSubstr("\"conversations\" (ShareGPT); \"instruction\" and \"output\" (alpaca); "
                        "\"prompt\" and \"completion\", both strings or both lists of messages; "
                        "\"text\"; this one has none of them, but: \"question\", \"answer\""));
  EXPECT_THAT(fault_of_line(R"({"instruction": "a"})"), HasSubstr("\"output\" is missing"));
  EXPECT_THAT(fault_of_line(R"({"instruction": ["a"], "output": "b"})"),
              HasSubstr(":7: \"instruction\" is not a string"));
  EXPECT_THAT(fault_of_line(R"({"instruction": "a", "output": "b", "history": [["c"]]})"),
              HasSubstr("\"history\" must be a list of pairs"));
  EXPECT_THAT(fault_of_line(R"({"conversations": "x"})"), HasSubstr("is not a list"));
  EXPECT_THAT(fault_of_line(R"({"conversations": [{"from": "human"}]})"),
              HasSubstr(":7: entry 1 of \"conversations\": wanted {\"from\": \"...\", \"value\""));
  EXPECT_THAT(fault_of_line(R"({"conversations": [{"from": "wizard", "value": "x"}]})"),
              HasSubstr("is from 'wizard'; known are human, user, gpt"));
  EXPECT_THAT(fault_of_line(R"({"conversations": [{"from": "function_call", "value": "f 5"}]})"),
              HasSubstr("a function call must be the JSON of"));
  EXPECT_THAT(fault_of_line(R"({"conversations": [], "tools": "f"})"),
              HasSubstr("\"tools\" is not a list"));
  EXPECT_THAT(fault_of_line(R"({"conversations": [], "messages": []})"),
              HasSubstr("more than one"));
}

TEST(JsonlDocuments, OfExamplesWithoutAnAnswerAreEmpty) {
  const TempFolder folder;
  const auto encoded = [&](const std::string& lines) {
    return encode_examples({folder.file("a.jsonl", lines)}, bytes_encoder(), {}, {});
  };
  const auto talks = encoded(R"({"instruction": "a", "output": ""}
{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " \n"}]}
{"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": "b"}]}
)");
  ASSERT_EQ(talks->count(), 3);
  EXPECT_EQ(talks->size(0), 0);
  EXPECT_EQ(talks->size(1), 0);
  EXPECT_GT(talks->size(2), 0);
  const auto completions = encoded("{\"prompt\": \"a\", \"completion\": \"\"}\n");
  EXPECT_EQ(completions->size(0), 0);
  const Example call = parse_example(R"({"messages": [{"role": "assistant", "content": "",
      "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]})",
                                     "");
  EXPECT_FALSE(call.lacks_answer()) << "a call is an answer";
}

TEST(Jsonl, ReadsThreeKindsOfLines) {
  EXPECT_EQ(parse_example(R"({"text": "a\nb", "id": 7})", "").text, "a\nb");
  const Example completion = parse_example(R"({"completion":"c","prompt":""})", "");
  EXPECT_EQ(completion.kind, Example::Kind::completion);
  EXPECT_EQ(completion.text, "c");
  const Example talk = parse_example(
      R"({"messages":[{"role":"user","content":"é"},{"content":"","role":"x"}]})", "");
  ASSERT_EQ(talk.conversation.messages.size(), 2);
  EXPECT_EQ(talk.conversation.text(0, "content"), "é");
  EXPECT_EQ(talk.conversation.text(1, "role"), "x");
}

TEST(Jsonl, RefusesAnInvalidLineWithPlaceAndReason) {
  EXPECT_THAT(
      fault_of_line("{\"text\": "),
      StartsWith("f.jsonl:7: this is not JSON: column 10: syntax error while parsing value - "
                 "unexpected end of input"));
  EXPECT_THAT(fault_of_line("{\"text\": NaN}"), HasSubstr("JSON has no NaN or Infinity"));
  EXPECT_THAT(fault_of_line(R"({"text": "a\ud800"})"), HasSubstr("column 18: syntax error"));
  EXPECT_THAT(fault_of_line(R"({"text": 1e999})"), HasSubstr("number overflow parsing '1e999'"));
  EXPECT_THAT(fault_of_line("7"), HasSubstr("this is not a JSON object: 7"));
  EXPECT_THAT(
      fault_of_line("[1]"),
      HasSubstr("this is not a JSON object: [1]; an array of objects becomes lines by: jq"));
  EXPECT_THAT(fault_of_line("{\"text\": \"a\xff\"}"), HasSubstr(":7: byte 12 of the line is not"));
  EXPECT_THAT(fault_of_line("{\"txt\": 1}"), HasSubstr("this one has none of them"));
  EXPECT_THAT(fault_of_line(R"({"text": "", "messages": []})"), HasSubstr("more than one of them"));
  EXPECT_THAT(fault_of_line(R"({"text": null})"), HasSubstr("none of them, but: \"text\" (null)"));
  EXPECT_THAT(fault_of_line(R"({"prompt": "x"})"), HasSubstr("\"completion\" is missing"));
  EXPECT_THAT(fault_of_line(R"({"messages": {}})"), HasSubstr("\"messages\" is not a list"));
  EXPECT_THAT(fault_of_line(R"({"messages": [{"role": "user"}]})"), HasSubstr(":7: message 1: "));
  EXPECT_THAT(fault_of_line(R"({"messages": [{"role": "user", "content": ["x"]}]})"),
              HasSubstr("message 1: a part of the content is no object with a \"type\""));
  EXPECT_THAT(fault_of_line(R"({"messages": [{"role": 1, "content": ""}]})"),
              HasSubstr("message 1: wanted {\"role\""));
  EXPECT_THAT(fault_of_line(R"({"messages": [], "tools": "x"})"),
              HasSubstr("f.jsonl:7: \"tools\" is not a list"));
  EXPECT_THAT(fault_of_line(R"({"messages": [], "chat_template_kwargs": []})"),
              HasSubstr("\"chat_template_kwargs\" is not an object"));
  EXPECT_THAT(fault_of_line(std::string(200000, '[')), HasSubstr("this is not JSON: "));
  EXPECT_THAT(fault_of_line(R"({"prompt": [{"role": "user", "content": "a"}], "completion": "b"})"),
              HasSubstr(":7: \"completion\" is not a list of messages, as the prompt is; both"));
}

TEST(Jsonl, OfPromptAndCompletionInMessagesOnlyTheCompletionIsLearned) {
  const Example talk = parse_example(
      R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
          {"role": "user", "content": "c"}], "id": 3, "messages": null, "tools": [{"name": "f"}],
          "completion": [{"role": "assistant", "content": "d"}]})",
      "f.jsonl:7");
  EXPECT_EQ(talk.kind, Example::Kind::messages);
  ASSERT_EQ(talk.conversation.messages.size(), 4);
  EXPECT_THAT(talk.conversation.not_learned, ElementsAre(1));
  EXPECT_EQ(talk.conversation.text(3, "content"), "d");
  EXPECT_EQ(talk.conversation.variables.size(), 1);
  EXPECT_THAT(talk.line_keys, testing::IsEmpty());
  const auto rendered = bytes_encoder().encode(talk, "f.jsonl:7");
  std::string learned;
  for (std::size_t i = 0; i < rendered.tokens.size(); ++i)
    if (rendered.learned[i]) learned += static_cast<char>(rendered.tokens[i]);
  EXPECT_THAT(learned, StartsWith("d<|im_end|>"));
}

TEST(Jsonl, ACompletionAndItsEndOfTextAreLearned) {
  const TempFolder folder;
  const ExampleEncoder encoder(make_tokenizer(small_bpe(folder)), {});
  const auto both =
      encoder.encode({.kind = Example::Kind::completion, .prompt = "ab", .text = "hell"}, "");
  EXPECT_THAT(both.tokens, ElementsAre('a', 'b', 258, kSmallEnd));
  EXPECT_THAT(both.learned, ElementsAre(false, false, true, true));
  const auto text = encoder.encode({.prompt = {}, .text = "hell"}, "");
  EXPECT_THAT(text.tokens, ElementsAre(258, kSmallEnd));
  EXPECT_THAT(text.learned, ElementsAre(true, true));
  EXPECT_THAT(jsonl_fault([&] {
                bytes_encoder().encode({.kind = Example::Kind::messages,
                                        .conversation = std::vector<Message>{{"wizard", "x"}}},
                                       "f.jsonl:3");
              }),
              StartsWith("f.jsonl:3: message 1 has the role 'wizard'"));
}

TEST(Jsonl, AllTokensAreLearnedOnRequest) {
  const auto bytes = make_tokenizer("bytes");
  const auto chat = [&] { return ChatTemplate(bytes, find_chat_format("chatml", "bytes")); };
  const ExampleEncoder answers(bytes, chat()), all(bytes, chat(), true);
  EXPECT_NE(answers.fingerprint(), all.fingerprint());
  for (
      const char* line :
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
       R"({"prompt": "a", "completion": "b"})"}) {
    const Example example = parse_example(line, "f.jsonl:7");
    const auto few = answers.encode(example, "f.jsonl:7"), whole = all.encode(example, "f.jsonl:7");
    EXPECT_EQ(whole.tokens, few.tokens);
    EXPECT_LT(std::ranges::count(few.learned, true), std::ssize(few.learned));
    EXPECT_EQ(std::ranges::count(whole.learned, true), std::ssize(whole.tokens));
  }
  EXPECT_THAT(
      jsonl_fault([&] {
        all.encode(parse_example(R"({"messages": [{"role": "user", "content": "a"},
                    {"role": "assistant", "content": "b", "weight": 0},
                    {"role": "assistant", "content": "c"}]})",
                                 "f.jsonl:7"),
                   "f.jsonl:7");
      }),
      testing::AllOf(HasSubstr("f.jsonl:7: a message says"), HasSubstr("data.train_on_prompt")));
  EXPECT_THAT(jsonl_fault([] {
                check_data({.jsonl = {"f.jsonl"}, .mask_history = true, .train_on_prompt = true});
              }),
              HasSubstr("leave one of them out"));
}

TEST(JsonlDocuments, AreOnePerLineInOrderFromMemoryAndFromTheCache) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 3000; ++i)
    lines += concat("{\"prompt\":\"", i, "\",\"completion\":\"x\"}", i % 3 ? "\n" : "\r\n\n");
  const std::vector<std::string> files{
      folder.file("a.jsonl", lines),
      folder.file("b.jsonl", "{\"prompt\":\"\",\"completion\":\"y\"}")};
  const std::string cache = folder.path("cache");
  const auto memory = encode_examples(files, bytes_encoder(), {}, {});
  ASSERT_EQ(memory->count(), 3001);
  EXPECT_THAT(coded(*memory, 17), ElementsAre(~'1', ~'7', 'x'));
  EXPECT_THAT(coded(*memory, 3000), ElementsAre('y'));
  EXPECT_EQ(memory->learned(17), 1);
  EXPECT_EQ(memory->learned(3000), 0) << "the first token is never a target";
  for (int round = 0; round < 2; ++round) {  // made, then opened
    const auto mapped = encode_examples(files, bytes_encoder(), {.folder = cache}, {});
    ASSERT_EQ(mapped->count(), memory->count());
    for (std::int64_t d = 0; d < memory->count(); ++d) {
      EXPECT_EQ(coded(*mapped, d), coded(*memory, d));
      EXPECT_EQ(mapped->learned(d), memory->learned(d));
    }
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache), {}), 2)
      << "the list and its part";
  const ExampleEncoder other(make_tokenizer(small_bpe(folder)), {});
  encode_examples(files, other, {.folder = cache}, {});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(cache), {}), 4)
      << "another tokenizer, another file";
}

TEST(JsonlExamples, ThatBeginWithTheBeginOfTextGetNoSecondOne) {
  const TempFolder folder;
  const std::string json = to_tokenizer_json(read_bpe_vocab(small_bpe(folder)));
  folder.file("tokenizer.json", json);
  folder.file("tokenizer_config.json",
              R"({"bos_token":"<|endoftext|>","eos_token":"<|endoftext|>","add_bos_token":true})");
  const ExampleEncoder encoder(make_tokenizer(folder.path()), {});
  const auto tokens = [&](std::string_view line) {
    return encoder.encode(parse_example(line, "f.jsonl:1"), "f.jsonl:1").tokens;
  };
  EXPECT_THAT(tokens(R"({"text": "<|endoftext|>hello"})"), ElementsAre(kSmallEnd, 259, kSmallEnd));
  EXPECT_EQ(tokens(R"({"text": "<|endoftext|>hello"})"), tokens(R"({"text": "hello"})"));
  EXPECT_EQ(tokens(R"({"prompt": "<|endoftext|>he", "completion": "ll"})"),
            tokens(R"({"prompt": "he", "completion": "ll"})"));
}

TEST(JsonlDocuments, AreMadeAgainIfTheCacheIsDamaged) {
  const TempFolder folder;
  const std::vector<std::string> files{folder.file("a.jsonl", "{\"text\":\"hello\"}\n")};
  encode_examples(files, bytes_encoder(), {.folder = folder.path("cache")}, {});
  const auto file = std::filesystem::directory_iterator(folder.path("cache"))->path();
  std::filesystem::resize_file(file, 20);
  EXPECT_EQ(encode_examples(files, bytes_encoder(), {.folder = folder.path("cache")}, {})->tokens(),
            5);
}

TEST(JsonlDocuments, NameTheFirstLineThatIsInvalidOrOfAnotherKind) {
  const TempFolder folder;
  const auto fault = [&](const std::string& lines) {
    const std::string file = folder.file("a.jsonl", lines);
    return jsonl_fault([&] { encode_examples({file}, bytes_encoder(), {}, {}); });
  };
  EXPECT_THAT(fault("{\"text\":\"a\"}\n\n{\"prompt\":\"a\",\"completion\":\"b\"}\n{]"),
              HasSubstr("a.jsonl:3: this line has prompt and completion, the first one text"));
  const std::string file = folder.file("b.jsonl", "{\"text\":\"a\"}\n{\"messages\":[]}");
  EXPECT_THAT(jsonl_fault([&] { open_corpus({.jsonl = {file}}, {}); }),
              HasSubstr("b.jsonl:2: this line has messages, the first one text"));
  EXPECT_THAT(fault("{\"text\":\"a\"}\n{]\n{\"txt\":1}"),
              HasSubstr("a.jsonl:2: this is not JSON: column 2"));
  EXPECT_THAT(fault("\n \n"), HasSubstr("has no line with an example"));
}

TEST(JsonlCorpus, AFolderStandsForItsFilesOfLines) {
  const TempFolder folder;
  folder.file("d/a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  folder.file("d/b.csv", "text\nc\n");
  folder.file("d/readme.txt", "words");
  DataConfig data;
  data.jsonl = {folder.path("d")};
  EXPECT_EQ(open_corpus(data, {}).train_documents.end, 3);
  folder.file("e/readme.txt", "words");
  data.jsonl = {folder.path("e")};
  EXPECT_THAT(jsonl_fault([&] { open_corpus(data, {}); }), HasSubstr("e has no .jsonl, .parquet"));
}

TEST(JsonlCorpus, SplitsOffTheLastDocumentsOrReadsAnotherFile) {
  const TempFolder folder;
  std::string lines;
  for (char c = 'a'; c <= 'j'; ++c) lines += concat("{\"text\":\"", c, c, "\"}\n");
  const std::string file = folder.file("a.jsonl", lines),
                    other = folder.file("b.jsonl", "{\"text\":\"zz\"}");
  const Corpus split = open_corpus({.jsonl = {file}, .validation = "0.2"}, {});
  EXPECT_EQ(split.train_documents.end, 8);
  EXPECT_EQ(split.validation_documents.begin, 8);
  EXPECT_EQ(split.validation_documents.end, 10);
  EXPECT_EQ(validation_sequences(split, 4, 256)->count(), 1);
  EXPECT_EQ(training_sequences(split, {.seq_len = 4})->count(), 2);
  EXPECT_THAT(jsonl_fault([&] { open_corpus({.jsonl = {file}, .validation = "0.9999"}, {}); }),
              HasSubstr("data.validation = 0.9999 leaves none of the 10 examples"));
  EXPECT_THAT(jsonl_fault([&] { open_corpus({.jsonl = {file}}, {.vocab = 255}); }),
              HasSubstr("name this model's tokenizer with data.tokenizer or --tokenizer, or, "
                        "for a new model, set model.vocab to 256"));
  const Corpus two = open_corpus({.jsonl = {file}, .validation = other}, {});
  EXPECT_EQ(two.train_documents.end, 10);
  EXPECT_THAT(coded(*two.validation_documents.documents, 0), ElementsAre('z', 'z'));
  EXPECT_EQ(validation_sequences(open_corpus({.jsonl = {file}, .validation = ""}, {}), 4, 0),
            nullptr);
}

TEST(JsonlDocuments, OfAFileThatIsCutShortMeanwhileAreAnErrorWithItsName) {
  const TempFolder folder;
  std::string lines;
  for (int i = 0; i < 9; ++i) lines += concat("{\"text\":\"", std::string(4'000'000, 'x'), "\"}\n");
  const OnOneCore one;
  const std::string path = folder.file("a.jsonl", lines);
  EXPECT_THAT(
      [&] {
        encode_examples({path}, bytes_encoder(), {},
                        [&](const TokenizeProgress&) { std::filesystem::resize_file(path, 10); });
      },
      ThrowsMessage<UsageError>(HasSubstr("a.jsonl is cut short")));
}

TEST(JsonlDocuments, ContinueWhereARunThatEndedHadCome) {
  const TempFolder folder;
  const OnOneCore one;
  std::vector<std::string> files;
  std::int64_t each = 0;
  for (const char c : {'a', 'b'}) {  // three batches of lines, which differ
    std::string lines;
    for (int i = 0; i < 200; ++i)
      lines += concat("{\"text\":\"", i, std::string(100'000, c), "\"}\n");
    each = std::ssize(lines);
    files.push_back(folder.file(concat(c, ".jsonl"), lines));
  }
  const ExampleEncoder encoder = bytes_encoder();
  const auto all_of = [](const Documents& documents) {
    std::vector<std::vector<std::int32_t>> all;
    for (std::int64_t d = 0; d < documents.count(); ++d) all.push_back(coded(documents, d));
    return all;
  };
  const auto want = all_of(*encode_examples(files, encoder, {}, {}));
  const TokenCache cache{.folder = folder.path("cache"), .part_seconds = 0};
  std::int64_t begun = -1;
  const auto open = [&](std::int64_t most) {
    begun = -1;
    return encode_examples(files, encoder, cache, [&](const TokenizeProgress& progress) {
      EXPECT_EQ(progress.total_bytes, 2 * each);
      if (begun < 0) begun = progress.bytes;
      AXONN_CHECK(progress.bytes <= most, "the run ends");
    });
  };
  EXPECT_THROW(open(each / 2), Error);
  EXPECT_THROW(open(each), Error);
  EXPECT_GT(begun, each / 2) << "the first part is kept";
  const auto documents = open(2 * each);
  EXPECT_GT(begun, each);
  ASSERT_EQ(all_of(*documents), want);
  std::vector<std::int32_t> some(3);
  documents->read(399, 100'000, some);
  EXPECT_THAT(some, ElementsAre('b', 'b', 'b'));
  EXPECT_EQ(all_of(*open(0)), want) << "nothing is encoded";

  for (const auto& entry : std::filesystem::directory_iterator(cache.folder))
    if (entry.path().string().ends_with("-2")) std::filesystem::resize_file(entry, 10);
  EXPECT_EQ(all_of(*open(2 * each)), want);
  EXPECT_GT(begun, each / 2) << "parts before the damaged one are kept";
}

TEST(JsonlDocuments, NameTheLineOfAFaultAfterAnEarlierPart) {
  const TempFolder folder;
  const OnOneCore one;
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += concat("{\"text\":\"", std::string(100'000, 'x'), "\"}\n");
  const std::string path = folder.file("a.jsonl", lines + "{\"txt\": 1}\n");
  const TokenCache cache{.folder = folder.path("cache"), .part_seconds = 0};
  for (int i = 0; i < 2; ++i)
    EXPECT_THAT([&] { encode_examples({path}, bytes_encoder(), cache, {}); },
                ThrowsMessage<UsageError>(HasSubstr("a.jsonl:101: ")));
}

TEST(JsonlDocuments, OfACacheThatDoesNotWriteAreReadOrMadeInMemory) {
  const TempFolder folder;
  const std::string path = folder.file("a.jsonl", "{\"text\":\"abc\"}\n");
  TokenCache cache{.folder = folder.path("cache"), .writes = false};
  const auto open = [&] { return encode_examples({path}, bytes_encoder(), cache, {}); };
  EXPECT_EQ(open()->name(), path);
  EXPECT_FALSE(std::filesystem::exists(cache.folder));
  cache.writes = true;
  const std::string name = open()->name();
  EXPECT_NE(name, path);
  cache.writes = false;
  EXPECT_EQ(open()->name(), name);
}

TEST(JsonlDocuments, MayHaveLinesThatAreLongerThanAnyBlock) {
  const TempFolder folder;
  const std::size_t longest = 40'000'000;
  const std::string path =
      folder.file("a.jsonl", concat("{\"text\":\"a\"}\n{\"text\":\"", std::string(longest, 'x'),
                                    "\"}\n\n{\"text\":\"bc\"}"));
  const auto documents = encode_examples({path}, bytes_encoder(), {}, {});
  ASSERT_EQ(documents->count(), 3);
  EXPECT_EQ(documents->size(1), static_cast<std::int64_t>(longest));
  EXPECT_THAT(documents->coded(2), ElementsAre('b', 'c'));
}
