// axonn tune, and training with the cached choices.
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/app/cli/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ContainsRegex;
using testing::HasSubstr;

namespace {

/// Runs axonn tune with SmallRun's config and a cache in its folder.
Finished tune(const SmallRun& run, const std::vector<std::string>& more,
              const ProgramOptions& options = {}) {
  std::vector<std::string> arguments{"tune", run.config(), "--training.tune_cache", run / "cache"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments, options);
}

}  // namespace

TEST(TuneCommand, PrintsAndWritesItsChoicesAndTrainingReusesThem) {
  const SmallRun run;
  const Finished tuned = tune(run, {"--json", run / "tuned.json"});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_THAT(tuned.out, ContainsRegex("product +calls +default +ms +chosen: ms +gain +way"));
  EXPECT_THAT(tuned.out, HasSubstr("f32 NT 32x48x16 + bias"));
  EXPECT_THAT(tuned.out, HasSubstr("kept in " + (run / "cache")));
  EXPECT_THAT(tuned.err, HasSubstr("15 timed, 0 known from before"));
  const auto json = nlohmann::json::parse(test::slurp(run / "tuned.json"));
  EXPECT_EQ(json.at("products").size(), 15u);
  EXPECT_TRUE(json.at("device").is_string());

  const Finished trained =
      run_program(run.train({"--training.tune", "--training.tune_cache", run / "cache"}));
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("0 timed, 15 known from before"));
  EXPECT_EQ(nlohmann::json::parse(test::slurp(run.out() + "/products.json")).at("products").size(),
            15u);
}

TEST(TuneCommand, UnderMpirunPrintsOneTableForAllRanks) {
  if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
  const SmallRun run;
  const Finished tuned = tune(run, {"--parallelism.x", "2"}, {.ranks = 2});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_EQ(tuned.out.find("product "), tuned.out.rfind("product "));
  EXPECT_THAT(tuned.out, HasSubstr("f32 NT 32x24x16"));
}

TEST(TuneCommand, WarnsIfTheCacheCannotBeWritten) {
  const SmallRun run;
  test::spill(run / "file", "");
  const Finished tuned =
      run_program({"tune", run.config(), "--training.tune_cache", run / "file/products.json"});
  EXPECT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_THAT(tuned.err, HasSubstr("tuning results are not kept"));
}
