// axonn memorize as a user runs it: the study and the audit.
#include <filesystem>
#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

namespace {

/// A study of a few seconds, too short for the model to memorize anything.
std::vector<std::string> study(const SmallRun& run, const std::vector<std::string>& more = {}) {
  std::vector<std::string> all{"memorize",
                               run.config(),
                               "--output.dir",
                               run / "study",
                               "--training.seq_len",
                               "128",
                               "--training.steps",
                               "8",
                               "--lr_scheduler.warmup_steps",
                               "2",
                               "--training.goldfish.k",
                               "2",
                               "--memorize.bucket_size",
                               "3",
                               "--memorize.epochs",
                               "1,2",
                               "--memorize.trials",
                               "2"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST(MemorizeProgram, WritesItsReportsAndKeepsFinishedRuns) {
  const SmallRun run;
  const Finished dry = run_program(study(run, {"--dry-run"}));
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out,
              AllOf(HasSubstr("study: 2 trials, each a warm-up of 2 steps and 6 steps with "
                              "each of 2 losses (standard, goldfish): 28 steps\n"),
                    HasSubstr("9 a trial, 3 in each of 3 buckets (0, 1, 2 epochs)"),
                    HasSubstr("injected: 9 of "), HasSubstr("\nmemory "),
                    HasSubstr("the same command without --dry-run trains")));
  EXPECT_FALSE(std::filesystem::exists(run / "study"));
  const Finished many = run_program(study(run, {"--dry-run", "--memorize.epochs", "500"}));
  EXPECT_EQ(many.code, 2);
  EXPECT_THAT(many.err, HasSubstr("set training.steps to "));

  const Finished first = run_program(study(run));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_THAT(first.out, AllOf(HasSubstr("control"), HasSubstr("2 epochs"), HasSubstr("goldfish"),
                               HasSubstr("report.html")));
  const json report = json::parse(test::slurp(run / "study/report.json"));
  EXPECT_EQ(report.at("runs").size(), 4u) << "two losses, two trials";
  for (const json& one : report.at("runs")) {
    std::set<std::int64_t> documents;
    for (const json& recitation : one.at("recitations"))
      documents.insert(recitation.at("document").get<std::int64_t>());
    EXPECT_FALSE(one.at("readings").empty());
    for (const json& reading : one.at("readings"))
      EXPECT_TRUE(documents.contains(reading.at("document").get<std::int64_t>()))
          << "a document of trial " << one.at("trial");
  }
  const std::string page = test::slurp(run / "study/report.html");
  EXPECT_THAT(page, AllOf(HasSubstr("<svg"), HasSubstr("\"title\":\"Memorization study\"")));

  const Finished again = run_program(study(run));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("trial 2, goldfish: already done"));
  json repeated = json::parse(test::slurp(run / "study/report.json"));
  EXPECT_EQ(repeated.at("origin").at("command"), report.at("origin").at("command"));
  EXPECT_THAT(report.at("origin").at("command").get<std::string>(),
              testing::StartsWith("axonn memorize " + run.config()));
  repeated.at("origin") = report.at("origin");  // its date differs
  EXPECT_EQ(repeated, report);
  const Finished other = run_program(study(run, {"--memorize.suffix_tokens", "40"}));
  EXPECT_EQ(other.code, kUsageError);
  EXPECT_THAT(other.err, HasSubstr("holds another study"));
}

TEST(MemorizeProgram, AuditsAModelWithControls) {
  const SmallRun run;
  ASSERT_EQ(run_program(run.train({"--training.seq_len", "128"})).code, 0);
  for (const char* seed : {"1", "2"})
    ASSERT_EQ(run_program({"data", "synthetic", "--records", "4", "--seed", seed, "--out",
                           run / (std::string(seed) + ".jsonl")})
                  .code,
              0);
  const std::vector<std::string> audit{
      "memorize",         "--audit",         "--model",   run.out() + "/checkpoints",
      "--documents",      run / "1.jsonl",   "--control", run / "2.jsonl",
      "--prompt-lengths", "16,32",           "--json",    run / "audit.json",
      "--html",           run / "audit.html"};
  const Finished finished = run_program(audit);
  ASSERT_EQ(finished.code, 0) << finished.err;
  EXPECT_THAT(finished.out, AllOf(HasSubstr("documents"), HasSubstr("control"), HasSubstr("16")));
  const json report = json::parse(test::slurp(run / "audit.json"));
  EXPECT_EQ(report.at("runs").at(0).at("recitations").size(), 3u * 8u);
  EXPECT_TRUE(report.at("near").empty());
  EXPECT_THAT(test::slurp(run / "audit.html"), HasSubstr("Memorization audit"));
  std::vector<std::string> near = audit;
  near.insert(near.end(), {"--near", "0,1", "--near-beams", "2", "--near-distance", "hamming",
                           "--near-samples", "7"});
  ASSERT_EQ(run_program(near).code, 0);
  json asked = json::parse(test::slurp(run / "audit.json"));
  EXPECT_EQ(asked.at("near").size(), 2u * 2 * 7 * 4) << "groups, distances, n, p";
  for (const json& one : asked.at("runs").at(0).at("recitations"))
    EXPECT_EQ(one.contains("near"), one.at("prompt") == 0) << "with the whole prompt";
  EXPECT_EQ(asked.at("near_mass").at(3).at("samples"), 4 * 7);
  EXPECT_EQ(asked.at("runs").at(0).at("readings").size(), 8U);
  std::vector<std::string> swept = audit;
  swept.insert(swept.end(), {"--offsets", "0,10", "--n", "1,7", "--p", "0.25", "--stride", "10",
                             "--seq-len", "100"});
  const Finished sweep = run_program(swept);
  ASSERT_EQ(sweep.code, 0) << sweep.err;
  asked = json::parse(test::slurp(run / "audit.json"));
  EXPECT_GT(asked.at("groups").at(0).at("documents"), 8) << "windows";
  EXPECT_EQ(asked.at("prompt_offsets"), (json{-1, -1, -1, 0, 0, 10, 10}));
  EXPECT_EQ(asked.at("extraction").size(), 2u * 7 * 2 * 2) << "groups, prompts, policies, n";
}

TEST(MemorizeProgram, NamesMissingAndWrongArguments) {
  const SmallRun run;
  const auto error = [](const std::vector<std::string>& arguments) {
    const Finished finished = run_program(arguments);
    EXPECT_EQ(finished.code, kUsageError);
    return finished.err;
  };
  EXPECT_THAT(error({"memorize", "--audit"}), HasSubstr("--model DIR"));
  EXPECT_THAT(error({"memorize", "--audit", "--model", run.out()}), HasSubstr("--documents"));
  EXPECT_THAT(error({"memorize", run.config(), "--model", run.out()}), HasSubstr("--audit"));
  EXPECT_THAT(error({"memorize", run.config(), "--audit", "--model", run.out()}),
              HasSubstr("--audit uses no config: leave out " + run.config()));
  EXPECT_THAT(error({"memorize", "--audit", "--training.seed", "3"}),
              HasSubstr("--audit uses no config: leave out --training.seed"));
  for (const char* flag : {"--suffix", "--seq-len", "--batch", "--prompt-lengths"})
    EXPECT_THAT(error({"memorize", "--audit", "--model", run.out(), "--documents", run.config(),
                       flag, "9223372036854775807"}),
                AllOf(HasSubstr(flag), HasSubstr("not in range"), HasSubstr("2147483647")));
  for (const auto& [flag, value, message] :
       {std::tuple{"--offsets", "3", "--offsets needs --prompt-lengths"},
        {"--n", "7,1", "--n: numbers of samples ascend"},
        {"--near-samples", "5", "--near-samples needs distances"},
        {"--p", "0", "--p: probabilities ascend"}})
    EXPECT_THAT(error({"memorize", "--audit", "--model", run.out(), "--documents", run.config(),
                       flag, value}),
                HasSubstr(message));
  EXPECT_THAT(error({"memorize", run.config()}), HasSubstr("goldfish.k is 0"));
  EXPECT_THAT(error(study(run, {"--memorize.epochs", "100"})), HasSubstr("set training.steps to"));
  EXPECT_THAT(error(study(run, {"--memorize.near.samples", "5"})),
              HasSubstr("near.samples need distances"));
}
