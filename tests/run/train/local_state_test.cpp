// Runs that go on with local checkpoints after a failure, to the bit.
#include "axonn/run/train/local_state.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include <gmock/gmock.h>

#include "axonn/data/storage/checkpoint/state_hash.h"
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
    const int shards = 2 * config.parallelism.grid().ranks();
    for (const double begin = now_seconds(); whole > 0 && shards_of(config, whole) < shards;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ASSERT_LT(now_seconds() - begin, kHangs) << "the local checkpoint is not written";
    }
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

/// The same run without local checkpoints and with one after step 6, with which it goes on.
Config with_checkpoint(Config config, const std::string& folder) {
  config.output.dir = folder;
  config.checkpoint.local_every = 0;
  config.checkpoint.every = 6;
  fail_after(config, 7);
  config.checkpoint.every = 0;
  return config;
}

/// Expects that both runs had the same losses and end with the same values, to the bit.
void expect_same_end(const Config& config, const Config& other) {
  for (const char* key : {"loss", "grad_norm", "lr"})
    EXPECT_EQ(column(metrics_of(config), key), column(metrics_of(other), key)) << key;
  const auto hash = [](const Config& of) {
    return hash_of_state(CheckpointReader(of.output.dir + "/checkpoints/step-10"));
  };
  EXPECT_EQ(hash(config), hash(other));
}

/// Eight ranks on two nodes, and then fewer or more, on nodes of half of them.
constexpr GridShape kEightRanks{2, 1, 2, 2};
Config of_eight_ranks(const test::TemporaryPath& folder) {
  Config config = on_grid(local_config(folder, "out"), kEightRanks);
  config.checkpoint.local_node_ranks = 4;
  return config;
}
Config now_on(Config config, const GridShape& grid) {
  config.checkpoint.local_node_ranks = std::max(grid.ranks() / 2, 1);
  return on_grid(config, grid);
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

TEST(LocalState, IsContinuedOnAnotherGridWithTheBitsOfACheckpoint) {
  for (const auto& [grid, lost] :
       std::vector<std::pair<GridShape, std::string>>{{{2, 1, 2, 1}, "node-0"},
                                                      {{1, 2, 1, 2}, "node-1"},
                                                      {{1, 1, 4, 3}, "node-0"},
                                                      {{4, 1, 1, 1}, "none"},
                                                      {{1, 1, 1, 1}, "node-1"}}) {
    SCOPED_TRACE(to_string(grid) + " without " + lost);
    test::TemporaryPath folder;
    Config config = of_eight_ranks(folder);
    Config shared = with_checkpoint(config, folder / "shared");
    fail_after(config, 7, 6);
    fs::remove_all(local(config, lost));
    config = now_on(config, grid);
    shared = now_on(shared, grid);
    EXPECT_THAT(finish(config),
                AllOf(HasSubstr("/step-6 (written by 8 ranks)"), HasSubstr("the next step is 7")));
    EXPECT_THAT(finish(shared), HasSubstr("checkpoints/step-6 (written by 8 ranks)"));
    expect_same_end(config, shared);
    Config alone = on_grid(local_config(folder, "alone"), {1, 1, 1, 1});
    alone.checkpoint.local_every = 0;
    train_on_threads(alone);
    EXPECT_LT(
        largest_difference(column(metrics_of(config), "loss"), column(metrics_of(alone), "loss")),
        2e-6);
    EXPECT_THAT(test::names_in(config.output.dir), Not(testing::Contains("local.json")));
    for (const std::string& node : test::names_in(config.checkpoint.local_folder))
      EXPECT_THAT(test::names_in(local(config, node)), IsEmpty());
  }
}

TEST(LocalState, HoldsOnAnotherGridWhateverACheckpointHolds) {
  const std::vector<std::pair<const char*, std::function<void(Config&)>>> runs = {
      {"factors", [](Config& c) { c.optimizer.kind = OptimizerKind::adafactor; }},
      {"moments in 8 bits and averages",
       [](Config& c) {
         c.model.hidden = 72;  // matrices of more than SmallLayout::kLeast elements
         c.optimizer.moments = MomentType::eight_bits;
         c.optimizer.ema_decay = 0.9;
       }},
      {"moments in bf16", [](Config& c) { c.optimizer.moments = MomentType::bf16; }},
      {"scale of the loss", [](Config& c) { c.training.dtype = DType::f16; }},
      {"means of outliers", [](Config& c) { c.training.skip_outliers = 1.01; }}};
  for (const auto& [name, change] : runs) {
    SCOPED_TRACE(name);
    test::TemporaryPath folder;
    Config config = of_eight_ranks(folder);
    change(config);
    const Config shared = with_checkpoint(config, folder / "shared");
    fail_after(config, 7, 6);
    fs::remove_all(local(config, "node-1"));
    const GridShape grid{1, 2, 2, 1};
    EXPECT_THAT(finish(now_on(config, grid)), HasSubstr("the next step is 7"));
    finish(now_on(shared, grid));
    expect_same_end(config, shared);
  }
}

TEST(LocalState, OfAnotherGridStaysUntilOneOfThisGridIsWhole) {
  test::TemporaryPath folder;
  Config config = of_eight_ranks(folder);
  Config shared = with_checkpoint(config, folder / "shared");
  fail_after(config, 7, 6);
  config = now_on(config, {2, 1, 2, 1});
  fail_after(config, 7);  // before its first local checkpoint
  const auto again = [&] { fail_after(config, 7); };
  EXPECT_THAT(log_of(config, again), HasSubstr("/step-6 (written by 8 ranks)"));
  config = now_on(config, {1, 2, 1, 1});
  shared = now_on(shared, {1, 2, 1, 1});
  EXPECT_THAT(log_of(config, [&] { fail_after(config, 9, 8); }),
              HasSubstr("/step-6 (written by 8 ranks)"));
  for (const char* node : {"node-0", "node-1"})
    EXPECT_THAT(test::names_in(local(config, node)), testing::SizeIs(1)) << "runs are left";
  EXPECT_THAT(finish(config), AllOf(HasSubstr("/step-8/rank-00000-"), Not(HasSubstr("warning"))));
  finish(shared);
  expect_same_end(config, shared);
}

TEST(LocalState, OfTheFirstGridIsContinuedThereIfTheSecondHasNone) {
  test::TemporaryPath folder;
  const Config config = of_eight_ranks(folder);
  fail_after(config, 7, 6);
  fail_after(now_on(config, {2, 1, 2, 1}), 7);  // before its first local checkpoint
  EXPECT_THAT(log_of(config, [&] { fail_after(config, 7); }), HasSubstr("/step-6/rank-00000-"));
  EXPECT_THAT(finish(config), HasSubstr("/step-6/rank-00000-"));
  Config undisturbed = on_grid(local_config(folder, "undisturbed"), kEightRanks);
  undisturbed.checkpoint.local_every = 0;
  train_on_threads(undisturbed);
  expect_same_end(config, undisturbed);
}

TEST(LocalState, OfAnotherGridThatIsNotWholeGivesWayToTheCheckpointAndNamesWhatIsMissing) {
  test::TemporaryPath folder;
  Config config = of_eight_ranks(folder);
  config.checkpoint.every = 5;
  fail_after(config, 7, 6);
  for (const std::string node : {"node-0", "node-1"})
    for (const auto& run : fs::directory_iterator(local(config, node)))
      for (const auto& shard : fs::directory_iterator(run.path() / "step-6"))
        if (const std::string name = shard.path().filename();
            name.starts_with("rank-00002-") || name.starts_with("rank-00005-"))
          fs::remove_all(shard);
  const Config now = now_on(config, {2, 1, 2, 1});
  EXPECT_THAT(finish(now),
              AllOf(HasSubstr("local checkpoint step-6 is not whole: no node has an intact shard "
                              "of ranks 2 and 5"),
                    HasSubstr("no local checkpoint after step 5 is whole"),
                    HasSubstr("checkpoints/step-5 (written by 8 ranks)")));
}

TEST(LocalState, OfAReplacedRunIsNotTaken) {
  test::TemporaryPath folder;
  Config config = local_config(folder, "out");
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

TEST(LocalState, OfARunThatFailedAtItsEndIsRemovedByTheNextStart) {
  test::TemporaryPath folder;
  const Config config = local_config(folder, "out");
  fail_after(config, 7, 6);
  const std::string file = config.output.dir + "/local.json", kept = folder / "kept";
  fs::copy(config.checkpoint.local_folder, kept, fs::copy_options::recursive);
  fs::copy(file, kept);
  finish(config);
  // As after a failure between the last checkpoint and the end.
  fs::copy(kept + "/local.json", file);
  for (const std::string node : {"node-0", "node-1"})
    fs::copy(kept + '/' + node, local(config, node),
             fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  finish(config);
  for (const char* node : {"node-0", "node-1"})
    EXPECT_THAT(test::names_in(local(config, node)), IsEmpty());
  EXPECT_FALSE(fs::exists(file));
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
