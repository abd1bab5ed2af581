// The chat template and the ends of a run follow its model through all commands and forms.
#include "axonn/data/text/model_text.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/run/config/stored_config.h"

#include "tests/app/cli/runs.h"
#include "tests/data/text/tokenizer_files.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

namespace {

constexpr const char* kBaseTemplate =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end_of_text|>"
    "{% endfor %}";
constexpr const char* kRunTemplate =
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>"
    "{{ shout }}{{ m.content }}<|eot_id|>{% endfor %}";

/// A model with a tokenizer of Llama 3 and a template, and runs that begin with it.
class ModelTextOfRuns : public testing::Test {
 protected:
  ModelTextOfRuns() {
    fs::create_directory(run_ / "base");
    test::spill(run_ / "base/tokenizer.json", test::llama3_json());
    test::spill(run_ / "base/tokenizer_config.json", json{{"bos_token", "<|begin_of_text|>"},
                                                          {"eos_token", "<|end_of_text|>"},
                                                          {"chat_template", kBaseTemplate}}
                                                         .dump());
    test::spill(run_ / "run.jinja", kRunTemplate);
    std::string chats;
    for (const char* word : {"fox", "tide", "port", "town"})
      chats += json{{"messages",
                     {{{"role", "user"}, {"content", word}},
                      {{"role", "assistant"}, {"content", std::string(word) + " ok"}}}}}
                   .dump() +
               '\n';
    test::spill(run_ / "chats.jsonl", chats);
    const auto tokenizer = make_tokenizer(run_ / "base");
    end_ = *tokenizer->added_token("<|end_of_text|>");
    turn_ = *tokenizer->added_token("<|eot_id|>");
    test::spill(run_ / "pretrain.toml",
                "[model]\nfamily = \"llama\"\nlayers = 1\nhidden = 16\nheads = 4\nvocab = 320\n"
                "positions = 64\n[data]\nsynthetic = 20000\ntokenizer = \"bytes\"\n"
                "[training]\nsteps = 2\nseq_len = 32\nglobal_batch = 4\nthreads = 1\n"
                "[optimizer]\nlr = 1e-2\n");
    run({"train", run_ / "pretrain.toml", "--output.dir", run_ / "new"});
    run({"convert", "--model", run_ / "new", "--out", run_ / "llama", "--tokenizer",
         run_ / "base"});
  }

  static std::string run(const std::vector<std::string>& arguments,
                         const ProgramOptions& options = {}) {
    const Finished finished = run_program(arguments, options);
    EXPECT_EQ(finished.code, 0) << finished.out << finished.err;
    return finished.out;
  }

  /// Trains on conversations with the run's template. Returns the folder of the run.
  std::string tune(const std::string& name, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"train",
                               "--model.path",
                               run_ / "llama",
                               "--data.jsonl",
                               run_ / "chats.jsonl",
                               "--data.chat_template",
                               run_ / "run.jinja",
                               "--data.chat_template_args",
                               R"({"shout": "Oh "})",
                               "--training.steps",
                               "4",
                               "--training.seq_len",
                               "32",
                               "--training.global_batch",
                               "4",
                               "--training.threads",
                               "1",
                               "--optimizer.lr",
                               "1e-2",
                               "--output.dir",
                               run_ / name});
    run(more);
    return run_ / name;
  }

  std::string convert(const std::string& model, const std::string& name,
                      std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"convert", "--model", model, "--out", run_ / name});
    run(more);
    return run_ / name;
  }

  /// The loss of the conversations with the template that a command takes by itself.
  double loss(const std::vector<std::string>& model) const {
    std::vector<std::string> arguments{"eval", "--data", run_ / "chats.jsonl", "--seq-len",
                                       "32",   "--json", run_ / "scores.json"};
    arguments.insert(arguments.end(), model.begin(), model.end());
    run(arguments);
    return json::parse(test::slurp(run_ / "scores.json")).at("loss").get<double>();
  }

  /// An answer to a question that is typed.
  static std::string answer(std::vector<std::string> model) {
    model.insert(model.begin(), {"generate", "--chat", "--temperature", "0", "--tokens", "8"});
    return run(model, {.wrapper = {"/bin/sh", "-c", R"(echo fox | exec "$0" "$@")"}});
  }

  /// The conversation and the ends as commands take them from a model by default.
  void expect_own(const std::string& model, const std::string& adapter = "") const {
    const Config config = config_of_model(model, adapter);
    const ModelText text = with_tokenizer(config.data.model_text.get(), config.data.tokenizer);
    const auto tokenizer = std::shared_ptr<const Tokenizer>(make_tokenizer(text.tokenizer));
    const ChatTemplate chat(tokenizer, find_chat_format("auto", text),
                            chat_arguments("auto", "", text, "arguments"));
    EXPECT_EQ(chat.text(Conversation(std::vector<Message>{{"user", "Hi"}}), false).bytes(),
              "<|begin_of_text|><|start_header_id|>user<|end_header_id|>Oh Hi<|eot_id|>")
        << model << ' ' << adapter;
    EXPECT_THAT(stop_tokens(text, *tokenizer), testing::UnorderedElementsAre(end_, turn_))
        << model << ' ' << adapter;
  }

  /// What other programs read in an exported folder.
  void expect_files(const std::string& folder) const {
    EXPECT_THAT(test::slurp(folder + "/chat_template.jinja"), HasSubstr(kRunTemplate));
    EXPECT_THAT(test::slurp(folder + "/tokenizer_config.json"), Not(HasSubstr("chat_template")));
    const auto generation = json::parse(test::slurp(folder + "/generation_config.json"));
    EXPECT_EQ(generation.at("eos_token_id"), (json{end_, turn_})) << folder;
  }

  SmallRun run_;
  std::int32_t end_ = 0, turn_ = 0;
};

}  // namespace

TEST_F(ModelTextOfRuns, FollowsTheModelThroughEveryFormAndBack) {
  const std::string tuned = tune("tuned"), folder = convert(tuned, "folder"),
                    again = convert(folder, "again"), third = convert(again, "third");
  for (const std::string& model : {tuned, folder, again, third}) expect_own(model);
  for (const std::string& model : {folder, third}) {
    expect_files(model);
    const auto config = json::parse(test::slurp(model + "/config.json"));
    EXPECT_EQ(config.at("eos_token_id"), (json{end_, turn_}));
  }
  const double want = loss({"--model", tuned, "--chat-template", run_ / "run.jinja",
                            "--chat-template-args", R"({"shout": "Oh "})"});
  EXPECT_NE(loss({"--model", tuned, "--chat-template", "llama3"}), want);
  fs::remove(run_ / "run.jinja");
  for (const std::string& model : {tuned, folder, again}) {
    EXPECT_EQ(loss({"--model", model}), want) << model;
    EXPECT_EQ(answer({"--model", model}), answer({"--model", tuned})) << model;
  }
}

TEST_F(ModelTextOfRuns, OfAdaptersTakesThePlaceOfTheBases) {
  const std::string tuned = tune("lora", {"--lora.rank", "2"}), base = run_ / "llama",
                    peft = convert(tuned, "peft"), merged = convert(tuned, "merged", {"--merge"}),
                    other = convert(base, "other", {"--adapter", peft});
  expect_own(tuned);
  expect_own(merged);
  expect_own(other);
  expect_own(base, tuned);
  expect_own(base, peft);
  for (const std::string& folder : {peft, merged, other}) expect_files(folder);
  const double want = loss({"--model", tuned});
  EXPECT_EQ(loss({"--model", base, "--adapter", tuned}), want);
  EXPECT_EQ(loss({"--model", base, "--adapter", peft}), want);
}

TEST_F(ModelTextOfRuns, IsTheDefaultOfARunThatGoesOnWithTheModel) {
  const std::string tuned = tune("tuned");
  run({"train", "--model.path", tuned, "--data.jsonl", run_ / "chats.jsonl", "--training.steps",
       "1", "--training.seq_len", "32", "--training.global_batch", "4", "--training.threads", "1",
       "--optimizer.lr", "1e-3", "--output.dir", run_ / "more"});
  expect_own(run_ / "more");
}

TEST_F(ModelTextOfRuns, IsInAGgufFile) {
  const std::string file = convert(tune("tuned"), "tuned.gguf", {"--to", "gguf"});
  const std::string bytes = test::slurp(file);
  const auto number = [](const std::string& key, std::int32_t token) {
    constexpr std::uint32_t kUint32 = 4;
    std::string wanted = key;
    for (const std::uint32_t word : {kUint32, static_cast<std::uint32_t>(token)})
      wanted.append(reinterpret_cast<const char*>(&word), sizeof word);
    return wanted;
  };
  EXPECT_THAT(bytes, HasSubstr(number("tokenizer.ggml.eos_token_id", end_)));
  EXPECT_THAT(bytes, HasSubstr(number("tokenizer.ggml.eot_token_id", turn_)));
  EXPECT_THAT(bytes, HasSubstr("tokenizer.chat_template"));
  EXPECT_THAT(bytes, HasSubstr(kRunTemplate));
  EXPECT_THAT(bytes, Not(HasSubstr(kBaseTemplate)));
}

TEST_F(ModelTextOfRuns, IsReadFromAGgufFileInEveryCommand) {
  const std::string tuned = tune("tuned"), file = convert(tuned, "tuned.gguf", {"--to", "gguf"}),
                    folder = convert(file, "folder", {"--to", "hf"}),
                    again = convert(file, "again.gguf", {"--to", "gguf"});
  expect_files(folder);
  const double want = loss({"--model", tuned});
  for (const std::string& model : {file, folder, again}) {
    expect_own(model);
    EXPECT_EQ(loss({"--model", model}), want) << model;
    EXPECT_EQ(answer({"--model", model}), answer({"--model", tuned})) << model;
  }
  run({"train", "--model.path", file, "--data.jsonl", run_ / "chats.jsonl", "--training.steps", "1",
       "--training.seq_len", "32", "--training.global_batch", "4", "--training.threads", "1",
       "--optimizer.lr", "1e-9", "--lora.rank", "2", "--output.dir", run_ / "more"});
  expect_own(run_ / "more");
  EXPECT_NEAR(loss({"--model", run_ / "more"}), want, 1e-5) << "a step with a tiny learning rate";
  std::ofstream(run_ / "pairs.jsonl") << R"({"prompt": "a", "chosen": "b", "rejected": "c"})"
                                         "\n";
  run({"prefer", file, run_ / "pairs.jsonl", "--training.steps", "1", "--training.global_batch",
       "1", "--training.seq_len", "32", "--output.dir", run_ / "preferred"});
  expect_own(run_ / "preferred");
}

TEST_F(ModelTextOfRuns, TheLastLineOfFinetuneWorksWhenTyped) {
  const std::string folder = run_ / "it's new";
  for (const bool full : {false, true}) {
    std::vector<std::string> arguments{"finetune",
                                       run_ / "llama",
                                       run_ / "chats.jsonl",
                                       "--data.chat_template",
                                       "llama3",
                                       "--training.steps",
                                       "2",
                                       "--training.seq_len",
                                       "32",
                                       "--training.threads",
                                       "1",
                                       "--data.validation",
                                       "0",
                                       "--training.eval_every",
                                       "0",
                                       "--output.dir",
                                       concat(folder, full)};
    if (full) arguments.emplace_back("--full");
    std::string last;
    std::istringstream lines(run(arguments));
    for (std::string line; std::getline(lines, line);) last = line;
    constexpr std::string_view kBegins = "to try it: axonn ";
    ASSERT_TRUE(last.starts_with(kBegins)) << last;
    EXPECT_THAT(last, HasSubstr("--chat"));
    const std::string typed =
        concat("echo Hi | \"$0\" ", last.substr(kBegins.size()), " --tokens 4");
    run({}, {.wrapper = {"/bin/sh", "-c", typed}});
  }
}
