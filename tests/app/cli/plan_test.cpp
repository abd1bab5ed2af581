// axonn plan as a user runs it.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/config/config.h"

#include "tests/app/cli/runs.h"
#include "tests/support/build_paths.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Matcher;
using testing::StartsWith;

namespace {

using Arguments = std::vector<std::string>;

const std::string kGpt2 = test::source_folder() + "/configs/gpt2-124m.toml";

Arguments plan(const Arguments& more) {
  Arguments all = {"plan", kGpt2, "--machine", "frontier"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Finished plan_succeeds(const Arguments& arguments) {
  const Finished finished = run_program(arguments);
  EXPECT_EQ(finished.code, 0) << finished.out << finished.err;
  EXPECT_THAT(finished.complaints(), IsEmpty());
  return finished;
}

void expect_refused(const Arguments& arguments, const Matcher<std::string>& message) {
  const Finished finished = run_program(arguments);
  EXPECT_EQ(finished.code, kUsageError) << finished.out << finished.err;
  EXPECT_THAT(finished.errors(), ElementsAre(message)) << finished.err;
}

}  // namespace

TEST(PlanCommand, WritesItsPlansAsJsonAndPrintsThem) {
  const SmallRun run;
  const std::string file = run / "plan.json";
  const Finished finished =
      plan_succeeds(plan({"--devices", "8", "--batch-tokens", "524288", "--seq-len", "1024",
                          "--train-tokens", "300B", "--top", "2", "--json", file}));
  const auto written = nlohmann::json::parse(test::slurp(file));
  ASSERT_EQ(written.at("plans").size(), 2u);
  EXPECT_EQ(written.at("dtype"), "bf16");
  EXPECT_EQ(written.at("batch_tokens"), 524288);
  EXPECT_EQ(written.at("seq_len"), 1024);
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("Frontier: 8 devices"), HasSubstr("512 sequences of 1,024 tokens"),
                    HasSubstr("300,000,000,000 tokens: ")));
}

namespace {

/// A plan of a named model in which there is nothing to search.
Arguments one_grid(const std::string& model, const Arguments& more) {
  Arguments all{"plan",     "--model",
                model,      "--machine",
                "frontier", "--devices",
                "64",       "--parallelism.grid",
                "1,1,64,1", "--training.micro_batch",
                "1",        "--activation_checkpoint.mode",
                "none"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST(PlanCommand, ANamedModelHasADefaultLengthAndBatch) {
  const auto of = [](const std::string& model, const Arguments& more) {
    return plan_succeeds(one_grid(model, more)).out;
  };
  EXPECT_THAT(of("gpt-5b", {}), HasSubstr("2,048 sequences of 2,048 tokens"));
  EXPECT_THAT(of("gpt2-124m", {}), HasSubstr("4,096 sequences of 1,024 tokens"));
  EXPECT_THAT(of("gpt-5b", {"--batch-tokens", "131072"}),
              HasSubstr("64 sequences of 2,048 tokens"));
}

TEST(PlanCommand, SaysWhatItAssumedIfThereIsNoConfig) {
  const SmallRun run;
  const std::string file = run / "plan.json", config = run / "own.toml";
  const Finished named = plan_succeeds(one_grid("gpt2-124m", {"--json", file}));
  EXPECT_THAT(named.out,
              HasSubstr("assumed   bf16 (--training.dtype), sequences of 1,024 tokens (--seq-len), "
                        "steps of 4,194,304 tokens (--batch-tokens)\n"));
  EXPECT_EQ(nlohmann::json::parse(test::slurp(file)).at("assumed").size(), 3u);
  // A config's plan is of its run, whose type is f32 unless it says another.
  test::spill(config,
              "[model]\nname = \"gpt2-124m\"\n[training]\nseq_len = 256\nglobal_batch = 16\n");
  const Finished own =
      plan_succeeds({"plan", config, "--machine", "frontier", "--devices", "4", "--json", file});
  EXPECT_THAT(own.out, testing::Not(HasSubstr("assumed")));
  const auto written = nlohmann::json::parse(test::slurp(file));
  EXPECT_EQ(written.at("dtype"), name_of(Config().training.dtype));
  EXPECT_TRUE(written.at("assumed").empty());
}

TEST(PlanCommand, ABatchMayBeGivenInPowersOfTwo) {
  EXPECT_THAT(plan_succeeds(plan({"--devices", "1", "--batch-tokens", "16Ki"})).out,
              HasSubstr("64 sequences of 256 tokens, 16,384 tokens"));
}

TEST(PlanCommand, TheConfigMayBeGivenAsTheModel) {
  const Arguments as_model = {"plan", "--model", kGpt2, "--machine", "frontier", "--devices", "4"};
  const auto table = [](const std::string& out) { return out.substr(out.find("x,y,z,data")); };
  EXPECT_EQ(table(plan_succeeds(as_model).out), table(plan_succeeds(plan({"--devices", "4"})).out));
}

TEST(PlanCommand, AFlagForAnAxisFixesIt) {
  const SmallRun run;
  const std::string file = run / "plan.json";
  plan_succeeds(plan({"--devices", "4", "--parallelism.x", "2", "--json", file}));
  const auto plans = nlohmann::json::parse(test::slurp(file)).at("plans");
  ASSERT_FALSE(plans.empty());
  for (const auto& one : plans) EXPECT_EQ(one.at("grid").at("x"), 2);
}

TEST(PlanCommand, SeveralNumbersOfDevicesGiveATableAndACurve) {
  const SmallRun run;
  const std::string json_path = run / "plan.json", svg = run / "plan.svg";
  const Finished finished = plan_succeeds(
      plan({"--devices", "1,2,4", "--scaling", "weak", "--json", json_path, "--svg", svg}));
  EXPECT_THAT(finished.out, AllOf(HasSubstr("weak scaling"), HasSubstr("curve: " + svg)));
  const auto points = nlohmann::json::parse(test::slurp(json_path)).at("points");
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[2].at("batch_tokens").get<int>(), 4 * points[0].at("batch_tokens").get<int>());
  EXPECT_THAT(test::slurp(svg), StartsWith("<svg"));
}

TEST(PlanCommand, PublishedStepsAreShownBesideTheirPredictions) {
  const SmallRun run;
  test::spill(run / "steps.toml", R"([[model]]
name = "gpt2"
family = "gpt"
layers = 12
hidden = 768
ffn = 3072
heads = 12
vocab = 50304
[[program]]
name = "another"
[[step]]
program = "another"
model = "gpt2"
machine = "dgx-a100"
grid = "1,1,1,8"
seq_len = 1024
micro_batch = 64
global_batch = 512
tokens_per_s = 200000
)");
  const Finished searched = plan_succeeds({"plan", "--published", run / "steps.toml"});
  EXPECT_THAT(searched.out, AllOf(HasSubstr("| dgx-a100 | another | gpt2 | 1,1,1,8 | 200,000 | "),
                                  HasSubstr(" | 1,1,1,8 | "), HasSubstr("1 steps: mean error")));
  const Finished shown = plan_succeeds({"plan", "--published", "--without-search"});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("| dgx-h100 | LLMQ | "), HasSubstr("mean error")));
  expect_refused({"plan", "--published", run / "none.toml"}, HasSubstr("none.toml"));
}

TEST(PlanCommand, InvalidArgumentsAreRefusedInOneLine) {
  expect_refused(plan({"--devices", "0"}), HasSubstr("--devices 0"));
  expect_refused(plan({}), HasSubstr("--devices"));
  expect_refused(plan({"--devices", "8", "--batch-tokens", "1000", "--seq-len", "256"}),
                 AllOf(HasSubstr("no whole number of sequences"), HasSubstr("give 768 or 1024")));
  expect_refused(plan({"--devices", "8", "--batch-tokens", "4M", "--seq-len", "1024"}),
                 AllOf(HasSubstr("4M is 4,000,000 tokens"),
                       HasSubstr("give 4Mi (4,194,304), 3999744 or 4000768")));
  for (const char* const none : {"many", "4i", "i", "Mi", "4MiB", "-1"})
    expect_refused(plan({"--devices", "8", concat("--batch-tokens=", none)}), HasSubstr(none));
  expect_refused(plan({"--devices", "8", "--strategy", "5d"}), HasSubstr("5d"));
  expect_refused(plan({"--devices", "7", "--parallelism.y", "7"}),
                 HasSubstr("none of the 1 grids of 7 devices"));
  expect_refused(plan({"--devices", "8", "--svg", "a.svg"}), HasSubstr("--svg"));
  expect_refused({"plan", kGpt2, "--machine", "frontire", "--devices", "8"}, HasSubstr("frontier"));
  const SmallRun run;
  test::spill(run / "bare.toml", "[machine]\nname = \"Bare\"\ndevices_per_node = 4\n");
  expect_refused({"plan", kGpt2, "--machine", run / "bare.toml", "--devices", "8"},
                 HasSubstr("bare.toml"));
}
