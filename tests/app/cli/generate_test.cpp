// axonn generate as a user runs it.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace {

class GenerateProgram : public testing::Test {
 protected:
  GenerateProgram() {
    EXPECT_EQ(
        run_program(trained_.train({"--training.steps", "60", "--training.seq_len", "16"})).code,
        0);
  }

  Finished generate(std::vector<std::string> more) const {
    more.insert(more.begin(), {"generate", "--model", trained_.out() + "/checkpoints"});
    return run_program(more);
  }
  std::string text(const std::vector<std::string>& more) const {
    const Finished finished = generate(more);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return finished.out;
  }

  SmallRun trained_;
};

}  // namespace

TEST_F(GenerateProgram, KeepsKeysAndValuesAsItIsTold) {
  const std::vector<std::string> common{"--prompt", "The town", "--tokens", "30", "--kv-cache"};
  const auto with = [&](const std::string& value) {
    std::vector<std::string> more = common;
    more.push_back(value);
    return generate(more);
  };
  EXPECT_EQ(with("dtype").out, text({"--prompt", "The town", "--tokens", "30"}));
  EXPECT_EQ(with("q8_0").code, 0);
  for (const char* value : {"q4_0", "Q8_0", "none", "", "q8_0,q8_0", "8"}) {
    const Finished refused = with(value);
    EXPECT_EQ(refused.code, kUsageError) << value;
    EXPECT_THAT(refused.err, AllOf(HasSubstr("--kv-cache"), HasSubstr("{dtype,q8_0}")));
  }
}

TEST_F(GenerateProgram, WritesTheSameWithAModelThatGuesses) {
  const std::string result = trained_ / "out.json";
  const std::vector<std::string> plain{"--prompt", "The town", "--tokens", "30"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), plain.begin(), plain.end());
    return generate(more);
  };
  const std::string itself = trained_.out() + "/checkpoints";
  EXPECT_EQ(with({"--draft", itself, "--json", result, "--grid", "2,1,1,1"}).out, text(plain));
  const json stats = json::parse(test::slurp(result));
  EXPECT_GT(stats.at("drafted_tokens"), 5);
  EXPECT_GT(stats.at("kept_drafted_tokens"), 0);
  EXPECT_THAT(with({"--draft", trained_ / "none"}).err, HasSubstr("--draft: there is no"));
  EXPECT_THAT(with({"--draft", itself, "--drafts", "16"}).err, HasSubstr("--drafts"));
}

TEST_F(GenerateProgram, WritesTheSameForAPromptAloneAndAmongOthers) {
  const std::string file = trained_ / "prompts.jsonl", result = trained_ / "out.json";
  test::spill(file, "{\"prompt\": \"The town\"}\n\n{\"text\": \"She\"}\n");
  const std::vector<std::string> common{"--tokens", "30", "--temperature", "0"};
  std::vector<std::string> all{"--prompt", "A",      "--prompts", file,      "--json",
                               result,     "--grid", "1,1,2,1",   "--batch", "1"};
  all.insert(all.end(), common.begin(), common.end());
  const std::string written = text(all);
  const json generations = json::parse(test::slurp(result)).at("generations");
  ASSERT_EQ(generations.size(), 3u);
  for (int i = 0; const std::string prompt : {"A", "The town", "She"}) {
    std::vector<std::string> alone{"--prompt", prompt};
    alone.insert(alone.end(), common.begin(), common.end());
    const std::string one = text(alone);
    EXPECT_THAT(one, StartsWith(prompt));
    EXPECT_THAT(written, HasSubstr("--- " + std::to_string(i + 1) + " of 3\n" + one));
    const json& generation = generations.at(i++);
    EXPECT_EQ(generation.at("prompt"), prompt);
    EXPECT_EQ(prompt + generation.at("text").get<std::string>() + "\n", one);
    EXPECT_EQ(generation.at("tokens").size(), 30u);
    EXPECT_EQ(generation.at("finish_reason"), "max_tokens");
  }
}

TEST_F(GenerateProgram, EndsBeforeAStopString) {
  const std::vector<std::string> common{"--prompt", "A", "--tokens", "60", "--temperature", "0"};
  const std::string whole = text(common);
  ASSERT_GT(whole.size(), 20u);
  const std::string stop = whole.substr(12, 4);
  std::vector<std::string> stopped = common;
  stopped.insert(stopped.end(), {"--stop", "no such text", "--stop", stop});
  EXPECT_EQ(text(stopped), whole.substr(0, whole.find(stop, 1)) + "\n");
}

TEST_F(GenerateProgram, SearchesByBeamsOnEveryGrid) {
  const std::string result = trained_ / "out.json";
  const std::vector<std::string> common{"--prompt", "A",    "--tokens",         "9", "--beams", "4",
                                        "--json",   result, "--length-penalty", "0"};
  const std::string best = text(common);
  std::vector<std::string> several = common;
  several.insert(several.end(),
                 {"--return-sequences", "3", "--early-stopping", "never", "--grid", "2,1,1,1"});
  EXPECT_THAT(text(several), StartsWith(best + "--- or, with a score of -"));
  const json found = json::parse(test::slurp(result)).at("generations").at(0);
  EXPECT_EQ("A" + found.at("text").get<std::string>() + "\n", best);
  ASSERT_EQ(found.at("others").size(), 2u);
  EXPECT_GT(found.at("score"), found.at("others").at(0).at("score"));
  EXPECT_GT(found.at("others").at(0).at("score"), found.at("others").at(1).at("score"));
  const std::string stop = best.substr(4, 2);
  std::vector<std::string> stopped = common;
  stopped.insert(stopped.end(), {"--stop", stop, "--early-stopping", "never"});
  EXPECT_THAT(text(stopped), Not(HasSubstr(stop)));
  for (const auto& [flag, value, why] :
       {std::tuple{"--temperature", "0.5", "draws no tokens"},
        {"--return-sequences", "5", "wants at least as many --beams"},
        {"--early-stopping", "maybe", "never"}}) {
    std::vector<std::string> wrong = common;
    wrong.insert(wrong.end(), {flag, value});
    const Finished refused = generate(wrong);
    EXPECT_EQ(refused.code, kUsageError) << flag;
    EXPECT_THAT(refused.err, HasSubstr(why));
  }
}

TEST_F(GenerateProgram, ReportsItsSpeedAndAFullContext) {
  const std::vector<std::string> common{"--prompt", "A", "--tokens", "50"};
  std::vector<std::string> stats = common, ends = common;
  stats.emplace_back("--stats");
  ends.emplace_back("--stop-when-full");
  const Finished slid = generate(stats), ended = generate(ends);
  EXPECT_THAT(slid.err,
              AllOf(HasSubstr("filled the context of 16 tokens"),
                    HasSubstr("read 33 tokens in ")));  // the 8 kept tokens are read again, 4 times
  EXPECT_EQ(slid.out.size(), 52u);                      // 50 tokens, the prompt and the newline
  EXPECT_THAT(ended.err, AllOf(HasSubstr("ended because the context of 16 tokens was full"),
                               Not(HasSubstr("tokens/s"))));
  EXPECT_EQ(ended.out.size(), 18u);
}

TEST_F(GenerateProgram, TakesTheLargestNumberOfTokensAsNoLimit) {
  EXPECT_EQ(
      text({"--prompt", "The town", "--tokens", "9223372036854775807", "--stop-when-full",
            "--temperature", "0"}),
      text({"--prompt", "The town", "--tokens", "100", "--stop-when-full", "--temperature", "0"}));
}

TEST_F(GenerateProgram, RefusesPromptsThatItCannotRead) {
  const std::string file = trained_ / "prompts.jsonl";
  EXPECT_THAT(generate({"--prompts", file}).err, HasSubstr("cannot read " + file));
  test::spill(file, "{\"prompt\": \"a\"}\n{\"answer\": \"b\"}\n");
  const Finished refused = generate({"--prompts", file});
  EXPECT_EQ(refused.code, kUsageError);
  EXPECT_THAT(refused.err, HasSubstr("prompts.jsonl:2: neither \"prompt\" nor \"text\""));
  test::spill(file, "{\"prompt\": \n");
  EXPECT_THAT(generate({"--prompts", file}).err, HasSubstr("prompts.jsonl:1: no JSON object"));
  for (const char* flag : {"--batch", "--context", "--top-k"})
    EXPECT_THAT(generate({flag, "9223372036854775807"}).err,
                AllOf(HasSubstr(flag), HasSubstr("not in range"), HasSubstr("2147483647")));
  EXPECT_THAT(generate({"--context", "17"}).err, HasSubstr("the model has 16 positions"));
  EXPECT_THAT(generate({"--prompt", "a", "--stop", ""}).err, HasSubstr("stop string is empty"));
}

TEST_F(GenerateProgram, TakesTheSettingsOfSamplingThatServeTakes) {
  for (const auto& [flag, value, wanted] : {std::tuple{"--temperature", "100.5", "0 to 100"},
                                            {"--temperature", "-1", "0 to 100"},
                                            {"--temperature", "nan", "0 to 100"},
                                            {"--top-p", "1.5", "0 to 1"},
                                            {"--repetition-penalty", "0", "0.001 to 1000"}}) {
    const Finished refused = generate({flag, value});
    EXPECT_EQ(refused.code, kUsageError) << flag;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr(flag), HasSubstr(std::string("a number from ") + wanted),
                      HasSubstr(value)));
  }
  const std::string likeliest = text({"--prompt", "A", "--tokens", "20", "--temperature", "0"});
  EXPECT_EQ(text({"--prompt", "A", "--tokens", "20", "--temperature", "1e-40"}), likeliest);
  EXPECT_EQ(text({"--prompt", "A", "--tokens", "20", "--top-p", "0"}), likeliest);
}
