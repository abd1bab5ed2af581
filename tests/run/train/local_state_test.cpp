// Runs that go on with local checkpoints after a failure, to the bit.
#include "axonn/run/train/local_state.h"

#include <filesystem>
#include <functional>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
namespace fs = std::filesystem;

namespace {

/// Four ranks on two nodes, without a checkpoint before the end.
Config local_config(const test::TemporaryPath& folder, const std::string& name) {
  Config config = on_grid(tiny_config(folder / name), {1, 1, 2, 2});
  config.checkpoint = {.every_minutes = 0,
                       .resume = "auto",
                       .local_every = 1,
                       .local_folder = folder / name + "-local",
                       .local_node_ranks = 2};
  return config;
}

std::string local(const Config& config, const std::string& node) {
  return config.checkpoint.local_folder + '/' + node;
}

/// Shards and copies on both nodes that are whole.
int shards_of(const Config& config, std::int64_t step) {
  int count = 0;
  std::error_code none;  // yet
  for (const char* node : {"node-0", "node-1"})
    for (const auto& run : fs::directory_iterator(local(config, node), none))
      if (const fs::path of = run.path() / step_name(step); fs::exists(of))
        for (const std::string& name : test::names_in(of))
          count += fs::path(name).extension().empty() ? 1 : 0;
  return count;
}

/// Trains until all ranks fail after a step, before its local checkpoint, but not before that of
/// step `whole` is on both nodes. 0: whatever is there.
void fail_after(const Config& config, std::int64_t step, std::int64_t whole = 0) {
  const TrainOptions options{.after_step = [&](Training&, std::int64_t done) {
    if (done != step) return;
    constexpr double kHangs = 120;  // seconds
    for (const double begin = now_seconds(); whole > 0 && shards_of(config, whole) < 8;)
      ASSERT_LT(now_seconds() - begin, kHangs) << "the local checkpoint is not written";
    fail(Where::here(), "killed");
  }};
  EXPECT_THROW(train_on_threads(config, options), Error);
}

/// What the log says of the starts that `work` makes.
std::string log_of(const Config& config, const std::function<void()>& work) {
  const std::string file = config.output.dir + "/logs/rank-0.log";
  const std::size_t before = test::slurp(file).size();
  work();
  return test::slurp(file).substr(before);
}

std::string finish(const Config& config) {
  return log_of(config, [&] { train_on_threads(config); });
}

/// Expects the losses and final weights of a run that did not fail.
void expect_same_run(const Config& config, Config undisturbed) {
  undisturbed.checkpoint.local_every = 0;
  train_on_threads(undisturbed);
  for (const char* key : {"loss", "grad_norm", "lr"})
    EXPECT_EQ(column(metrics_of(config), key), column(metrics_of(undisturbed), key)) << key;
  for (const char* kind : {"master", "exp_avg"})
    EXPECT_EQ(weights_of(config.output.dir + "/checkpoints/step-10", kind),
              weights_of(undisturbed.output.dir + "/checkpoints/step-10", kind));
}

}  // namespace

TEST(LocalState, OfTheLastStepIsContinuedToTheBitAfterAFailureAndTheLossOfANode) {
  for (const std::string lost : {"", "node-0", "node-1"}) {
    SCOPED_TRACE(lost);
    test::TemporaryPath folder;
    const Config config = local_config(folder, "out");
    fail_after(config, 7, 6);
    if (!lost.empty()) fs::remove_all(local(config, lost));
    EXPECT_THAT(finish(config),
                AllOf(HasSubstr("/step-6/rank-00000-"), HasSubstr("the next step is 7"),
                      HasSubstr("a copy on another of 2 nodes")));
    expect_same_run(config, local_config(folder, "undisturbed"));
    EXPECT_THAT(test::names_in(config.output.dir), Not(testing::Contains("local.json")));
    for (const char* node : {"node-0", "node-1"})
      EXPECT_THAT(test::names_in(local(config, node)), IsEmpty());
  }
}

TEST(LocalState, HoldsWhateverACheckpointHolds) {
  const std::vector<std::pair<const char*, std::function<void(Config&)>>> runs = {
      {"every third step", [](Config& c) { c.checkpoint.local_every = 3; }},
      {"factors, on a grid with replicas",
       [](Config& c) {
         c = on_grid(c, {2, 2, 1, 1});
         c.optimizer.kind = OptimizerKind::adafactor;
       }},
      {"moments in 8 bits and averages",
       [](Config& c) {
         c.optimizer.moments = MomentType::eight_bits;
         c.optimizer.ema_decay = 0.9;
       }},
      {"scale of the loss", [](Config& c) { c.training.dtype = DType::f16; }},
      {"means of outliers", [](Config& c) { c.training.skip_outliers = 1.01; }}};
  for (const auto& [name, change] : runs) {
    SCOPED_TRACE(name);
    test::TemporaryPath folder;
    Config config = local_config(folder, "out"), undisturbed = local_config(folder, "undisturbed");
    change(config);
    change(undisturbed);
    fail_after(config, 7, 6);
    fs::remove_all(local(config, "node-1"));
    EXPECT_THAT(finish(config), HasSubstr("the next step is 7"));
    undisturbed.checkpoint.local_every = 0;
    train_on_threads(undisturbed);
    for (const char* key : {"loss", "grad_norm"})
      EXPECT_EQ(column(metrics_of(config), key), column(metrics_of(undisturbed), key)) << key;
    EXPECT_EQ(weights_of(config.output.dir + "/checkpoints/step-10"),
              weights_of(undisturbed.output.dir + "/checkpoints/step-10"));
  }
}

TEST(LocalState, ThatIsNotWholeGivesWayToTheCheckpointAndItsRunIsNotTakenAgain) {
  test::TemporaryPath folder;
  Config config = local_config(folder, "out");
  config.checkpoint.every = 5;
  fail_after(config, 7, 6);
  fs::rename(local(config, "node-0"), folder / "kept-0");
  fs::rename(local(config, "node-1"), folder / "kept-1");
  const auto again = [&] { fail_after(config, 6); };  // before its first local checkpoint
  EXPECT_THAT(log_of(config, again), AllOf(HasSubstr("no local checkpoint after step 5 is whole"),
                                           HasSubstr("the next step is 6")));
  fs::rename(folder / "kept-0", local(config, "node-0"));  // the nodes come back
  fs::rename(folder / "kept-1", local(config, "node-1"));
  EXPECT_THAT(finish(config), HasSubstr("the next step is 6"));
  expect_same_run(config, local_config(folder, "undisturbed"));
}

TEST(LocalState, OfAnotherGridOrOfAReplacedRunIsNotTaken) {
  test::TemporaryPath folder;
  Config config = local_config(folder, "out");
  fail_after(config, 7, 6);
  const Config other = on_grid(config, {1, 1, 4, 1});
  EXPECT_THAT(log_of(other, [&] { fail_after(other, 2); }),
              AllOf(HasSubstr("are of the grid 1,1,2,2, and its grid is 1,1,4,1"),
                    HasSubstr("starting at step 1")));
  fail_after(config, 7, 6);
  config.output.overwrite = true;
  config.checkpoint.resume = "";
  fail_after(config, 1);  // before its first local checkpoint
  config.output.overwrite = false;
  config.checkpoint.resume = "auto";
  EXPECT_THAT(log_of(config, [&] { fail_after(config, 4); }), HasSubstr("starting at step 1"));
}

TEST(LocalState, OlderThanTheNewestCheckpointIsNotTaken) {
  test::TemporaryPath folder;
  Config config = local_config(folder, "out");
  config.checkpoint.every = 1;
  config.checkpoint.local_every = 4;
  fail_after(config, 7, 4);
  EXPECT_THAT(finish(config), HasSubstr("checkpoints/step-6 (written"));
  expect_same_run(config, local_config(folder, "undisturbed"));
}

TEST(LocalState, OfAFinishedRunThatWasNotSavedIsSaved) {
  test::TemporaryPath folder;
  Config config = local_config(folder, "out");
  fail_after(config, 7, 6);
  config.training.steps = 6;
  train_on_threads(config);
  EXPECT_THAT(test::names_in(config.output.dir + "/checkpoints"), ElementsAre("latest", "step-6"));
  EXPECT_THAT(test::names_in(local(config, "node-0")), IsEmpty());
}
