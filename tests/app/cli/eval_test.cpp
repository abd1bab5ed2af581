// axonn eval as a user runs it.
#include <cmath>
#include <numbers>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::HasSubstr;

namespace {

class EvalCommand : public testing::Test {
 protected:
  EvalCommand() {
    EXPECT_EQ(run_program(run_.train()).code, 0);
    test::spill(run_ / "text.txt", "Once there was a town by the river, and it was small.");
    test::spill(run_ / "questions.jsonl",
                R"({"question": "Once", "choices": ["there", "x"], "answer": "A"})");
  }

  std::vector<std::string> eval(std::vector<std::string> more) const {
    more.insert(more.begin(), {"eval", "--model", run_.out() + "/checkpoints"});
    return more;
  }

  /// The --json output of a run with these flags.
  json figures(std::vector<std::string> more) const {
    more.insert(more.end(), {"--json", run_ / "scores.json"});
    const Finished finished = run_program(eval(more));
    EXPECT_EQ(finished.code, 0) << finished.err;
    return json::parse(test::slurp(run_ / "scores.json"));
  }

  std::string refused(std::vector<std::string> more) const {
    const Finished finished = run_program(eval(std::move(more)));
    EXPECT_EQ(finished.code, kUsageError) << finished.out;
    EXPECT_EQ(finished.errors().size(), 1u);
    return finished.err;
  }

  SmallRun run_;
};

}  // namespace

TEST_F(EvalCommand, WritesConsistentLossPerplexityBitsAndTokens) {
  const json one = figures({"--data", run_ / "text.txt", "--seq-len", "8"});
  EXPECT_EQ(one.at("tokens"), 52);  // of 53 bytes
  EXPECT_EQ(one.at("bytes"), 52);
  EXPECT_NEAR(one.at("loss"), std::log(256), 2);
  EXPECT_DOUBLE_EQ(one.at("perplexity"), std::exp(one.at("loss").get<double>()));
  EXPECT_NEAR(one.at("bits_per_byte"), one.at("loss").get<double>() / std::numbers::ln2, 1e-12);
  const json four =
      figures({"--data", run_ / "text.txt", "--seq-len", "8", "--grid", "2,1,2,1", "--batch", "2"});
  EXPECT_EQ(four.at("tokens"), 52);
  EXPECT_NEAR(four.at("loss"), one.at("loss").get<double>(), 1e-5);
  EXPECT_EQ(four.at("grid"), "2,1,2,1");
  EXPECT_NE(figures({"--data", run_ / "text.txt", "--seq-len", "5"}).at("loss"), one.at("loss"));
}

TEST_F(EvalCommand, ScoresWithKeysAndValuesAsACacheKeepsThem) {
  const std::vector<std::string> data{"--data", run_ / "text.txt", "--seq-len", "8"};
  const auto loss = [&](std::vector<std::string> more) {
    more.insert(more.begin(), data.begin(), data.end());
    return figures(more).at("loss").get<double>();
  };
  const double values = loss({}), codes = loss({"--kv-cache", "q8_0"});
  EXPECT_EQ(loss({"--kv-cache", "dtype"}), values);
  EXPECT_NE(codes, values);
  EXPECT_NEAR(codes, values, 1e-2);
  EXPECT_NEAR(loss({"--kv-cache", "q8_0", "--grid", "2,1,1,1"}), codes, 1e-4);
  EXPECT_THAT(refused({"--data", run_ / "text.txt", "--kv-cache", "int8"}),
              HasSubstr("--kv-cache"));
}

TEST_F(EvalCommand, SeparatesDocumentsAsTheModelWasTrainedOrAsAFlagSays) {
  test::spill(run_ / "lines.jsonl", R"({"text": "Once there was a town."}
{"text": "It was small."}
)");
  const std::vector<std::string> data{"--data", run_ / "lines.jsonl", "--seq-len", "8"};
  const json joined = figures(data);
  EXPECT_EQ(joined.at("documents"), "joined");
  EXPECT_EQ(joined.at("tokens"), 34);
  std::vector<std::string> flag = data;
  flag.insert(flag.end(), {"--document-mode", "separate"});
  const json separate = figures(flag);
  EXPECT_EQ(separate.at("tokens"), 33);
  EXPECT_EQ(separate.at("bytes"), 33);
  EXPECT_EQ(run_program(run_.train({"--data.documents", "separate", "--data.text",
                                    run_ / "lines.jsonl", "--data.synthetic", "0",
                                    "--training.seq_len", "8", "--output.overwrite", "true"}))
                .code,
            0);
  EXPECT_EQ(figures(data).at("documents"), "separate");
}

TEST_F(EvalCommand, ScoresTheAnswersOfConversations) {
  test::spill(run_ / "chats.jsonl", R"({"instruction": "Where?", "output": "There."}
)");
  const json scores = figures({"--data", run_ / "chats.jsonl", "--seq-len", "8"});
  EXPECT_EQ(scores.at("tokens"), 16) << "There.<|im_end|>";
  EXPECT_EQ(scores.at("documents"), "packed");
  EXPECT_EQ(scores.at("bits_per_byte"), nullptr);
  EXPECT_THAT(refused({"--data", run_ / "chats.jsonl", "--document-mode", "joined"}),
              HasSubstr("--document-mode is for texts"));
  EXPECT_THAT(refused({"--data", run_ / "text.txt", "--chat-template", "chatml"}),
              HasSubstr("--chat-template is for conversations"));
}

TEST_F(EvalCommand, AnswersQuestionsWithTheirLogLikelihoods) {
  const json report = figures({"--choices", run_ / "questions.jsonl", "--tokenizer", "bytes"});
  EXPECT_EQ(report.at("count"), 1);
  const json& question = report.at("questions").at(0);
  EXPECT_EQ(question.at("answer"), 0);
  EXPECT_EQ(question.at("log_likelihoods").size(), 2u);
  for (const std::string name : {"", "_norm", "_bytes"}) {
    EXPECT_EQ(report.at("acc" + name), question.at("chosen" + name) == 0 ? 1.0 : 0.0);
    EXPECT_EQ(report.at("acc" + name + "_stderr"), 0.0);
  }
}

TEST_F(EvalCommand, RefusesInputThatDoesNotFitTheModelAndSaysWhy) {
  test::spill(run_ / "short.txt", "x");
  EXPECT_THAT(refused({}), HasSubstr("--data FILE or --choices"));
  EXPECT_THAT(refused({"--data", run_ / "short.txt"}), HasSubstr("has 1 tokens"));
  EXPECT_THAT(refused({"--data", run_ / "none.txt"}), HasSubstr("none.txt"));
  EXPECT_THAT(refused({"--data", run_ / "text.txt", "--seq-len", "9"}), HasSubstr("8 positions"));
  EXPECT_THAT(refused({"--data", run_ / "text.txt", "--dtype", "f64"}), HasSubstr("--dtype"));
  EXPECT_THAT(refused({"--data", run_ / "text.txt", "--grid", "1,3,1,1"}), HasSubstr("width"));
}
