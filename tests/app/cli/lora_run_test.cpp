// Training and use of adapters, as a user runs them.
#include <filesystem>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

class LoraCommand : public testing::Test {
 protected:
  LoraCommand() { run(base_.train()); }

  static std::string run(const std::vector<std::string>& arguments) {
    const Finished finished = run_program(arguments);
    EXPECT_EQ(finished.code, 0) << finished.out << finished.err;
    return finished.out;
  }

  std::vector<std::string> adapt(const std::string& to, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"train",          tuned_.config(),
                                       "--model.path",   base_.out() + "/checkpoints",
                                       "--output.dir",   tuned_ / to,
                                       "--lora.rank",    "4",
                                       "--lora.dropout", "0.1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  static std::string text(const std::string& folder, const std::string& grid) {
    return run({"generate", "--model", folder + "/checkpoints", "--tokens", "20", "--prompt", "To",
                "--temperature", "0.7", "--grid", grid});
  }

  SmallRun base_, tuned_;
};

}  // namespace

TEST_F(LoraCommand, AdaptersResumeOnAnotherGridAndWriteTheSameTextOnEveryGrid) {
  run(adapt("once", {"--training.steps", "12"}));
  run(adapt("twice", {"--training.steps", "12", "--checkpoint.every", "6"}));
  // Resumes the run of twelve steps from its checkpoint after six.
  const std::string half = tuned_ / "twice" + "/checkpoints/step-6";
  run(adapt("resumed", {"--training.steps", "12", "--checkpoint.resume", half, "--parallelism.x",
                        "2", "--parallelism.z", "2"}));
  const std::string once = text(tuned_ / "once", "1,1,1,1");
  EXPECT_EQ(text(tuned_ / "once", "2,2,1,1"), once);
  EXPECT_EQ(text(tuned_ / "resumed", "1,1,1,1"), once);
  EXPECT_NE(text(base_.out(), "1,1,1,1"), once) << "the base model writes a different text";
}

TEST_F(LoraCommand, FinetuneIsTrainWithDefaultsThatFlagsOverride) {
  test::spill(tuned_ / "notes.txt", std::string(4000, 'a'));
  const std::vector<std::string> arguments{"finetune",           base_.out() + "/checkpoints",
                                           tuned_ / "notes.txt", "--training.seq_len=8",
                                           "--lora.rank",        "4",
                                           "--training.threads", "1",
                                           "--output.dir",       tuned_ / "fine"};
  std::vector<std::string> too_many = arguments;
  too_many.insert(too_many.end(), {"--training.micro_batch", "9"});
  const Finished refused = run_program(too_many);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, testing::AllOf(HasSubstr("micro_batch"),
                                          testing::Not(HasSubstr("the same command"))));
  const Finished finished = run_program(arguments);
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.err,
              testing::AllOf(HasSubstr("\n  axonn train \\\n    --model.path " + base_.out()),
                             HasSubstr("    --training.epochs 3.0 \\\n"),
                             HasSubstr("    --lora.rank 4 \\\n    --lora.alpha 8.0 \\\n"),
                             HasSubstr("    --optimizer.lr 2e-04 \\\n"),
                             HasSubstr("    --data.text " + tuned_ / "notes.txt")));
  EXPECT_THAT(finished.out, HasSubstr("178 steps are about 3.00 epochs"));
  EXPECT_THAT(finished.out, HasSubstr("--adapter " + tuned_ / "fine" + "/checkpoints --prompt"));
  EXPECT_THAT(run({"info", tuned_ / "fine"}),
              testing::AllOf(HasSubstr("178 of 178 (100%), "), HasSubstr(", epoch 3.00\n"),
                             testing::ContainsRegex("; validation [0-9.]+, best [0-9.]+\n"),
                             HasSubstr(" tokens/s; ")));
  std::filesystem::create_directory(tuned_ / "begun");
  test::spill(tuned_ / "begun/config.toml", "[training]\nsteps = 7\n");
  EXPECT_THAT(
      run({"info", tuned_ / "."}),
      testing::AllOf(testing::ContainsRegex("run +state +step +loss +val. loss +best\n"),
                     testing::ContainsRegex("/begun +[a-z]+ +0/7 +- +- +-\n"),
                     testing::ContainsRegex("/fine +ended +178/178( +[0-9]+[.][0-9]{4}){3}\n")));
  EXPECT_THAT(run({"finetune", "--full", base_.out() + "/checkpoints", "chats.jsonl.gz",
                   "--training.steps", "5", "--print-config"}),
              testing::AllOf(testing::ContainsRegex("\nlr = 1e-05 +# axonn finetune\n"),
                             testing::ContainsRegex("\nrank = 0 +# default\n"),
                             testing::ContainsRegex("\nepochs = 0.0 +# default\n"),
                             HasSubstr("\njsonl = [\"chats.jsonl.gz\"]"),
                             testing::ContainsRegex("\ndir = \"out/[^/]+-chats\" ")));
}

TEST_F(LoraCommand, ADryRunNamesARemedyForLongConversationsThatTheModelAllows) {
  const std::string turn(3000, 'a');
  test::spill(tuned_ / "long.jsonl", R"({"prompt": "b", "completion": ")" + turn + "\"}\n" +
                                         R"({"prompt": "c", "completion": ")" + turn + "\"}\n");
  const Finished dry = run_program({"finetune", base_.out() + "/checkpoints", tuned_ / "long.jsonl",
                                    "--data.validation", "0", "--dry-run"});
  EXPECT_THAT(dry.err, testing::AllOf(HasSubstr("2 of 2 conversations are longer than "),
                                      HasSubstr("cannot be raised, since the model has "),
                                      HasSubstr("excess_length_strategy = \"drop\"")));
}

TEST_F(LoraCommand, FinetuneFitsItsLengthToFewExamplesUnlessItIsGiven) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += "{\"text\": \"a b c " + std::to_string(i) + "\"}\n";
  test::spill(tuned_ / "few.jsonl", lines);
  const auto config_of = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"finetune", base_.out() + "/checkpoints", tuned_ / "few.jsonl"});
    flags.push_back("--print-config");
    return run_program(flags);
  };
  const Finished fitted = config_of({});
  EXPECT_THAT(fitted.err, HasSubstr("note: 19 examples make "));
  EXPECT_THAT(fitted.out, testing::AllOf(testing::ContainsRegex("\nglobal_batch = 1 "),
                                         testing::ContainsRegex("\nepochs = 6.0 ")));
  EXPECT_THAT(config_of({"--parallelism.data", "4"}).out,
              testing::ContainsRegex("\nglobal_batch = 4 "));
  // A grid that is none is refused by its name.
  const Finished refused = run_program({"finetune", base_.out() + "/checkpoints",
                                        tuned_ / "few.jsonl", "--parallelism.context", "2"});
  EXPECT_EQ(refused.code, kUsageError);
  EXPECT_THAT(refused.err, HasSubstr("context"));
  const Finished given = config_of({"--training.epochs", "3"});
  EXPECT_THAT(given.out, testing::AllOf(testing::ContainsRegex("\nglobal_batch = 8 "),
                                        testing::ContainsRegex("\nepochs = 3.0 ")));
  EXPECT_THAT(given.err, testing::Not(HasSubstr("examples make")));
}

TEST_F(LoraCommand, ADryRunShowsFrozenAndTrainedParameters) {
  const std::string out = run(adapt("dry", {"--dry-run"}));
  EXPECT_THAT(out, HasSubstr("frozen; "));
  EXPECT_THAT(out, HasSubstr(" in adapters are trained"));
}

TEST_F(LoraCommand, AdaptersAreRefusedAsAModelToStartFrom) {
  run(adapt("first", {"--training.steps", "2"}));
  const Finished refused =
      run_program({"train", tuned_.config(), "--model.path", tuned_ / "first" + "/checkpoints"});
  EXPECT_EQ(refused.code, kUsageError);
  EXPECT_THAT(refused.err, HasSubstr("holds only adapters of the model at"));
}
