// Damaged checkpoints and full disks give a clear message and leave good checkpoints intact.
#include <filesystem>

#include <gmock/gmock.h>
#include <unistd.h>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/runs.h"
#include "tests/support/small_disk.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace {

namespace fs = std::filesystem;

/// A run with the checkpoints step-3 and step-6.
class Damage : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run_program(run_.train({"--checkpoint.every", "3"})).code, 0); }

  std::string step(int step) const {
    return run_.out() + "/checkpoints/step-" + std::to_string(step);
  }

  /// resume = "auto" skips step-6 and repeats its steps.
  void expect_fall_back() const {
    const auto older = test::slurp(step(3) + "/rank-00000.safetensors");
    const Finished finished = run_program(run_.train({"--checkpoint.resume", "auto"}));
    EXPECT_EQ(finished.code, 0) << finished.err;
    EXPECT_THAT(finished.out + finished.err, ContainsRegex("warning: .*step-6"));
    EXPECT_THAT(finished.out, HasSubstr("resumed from " + step(3)));
    EXPECT_EQ(test::slurp(step(3) + "/rank-00000.safetensors"), older);
    EXPECT_EQ(run_.metrics().size(), 6u);
  }

  const SmallRun run_;
};

}  // namespace

TEST_F(Damage, ATruncatedCheckpointIsRefusedByPathAndSkippedByAuto) {
  for (const char* file : {"/rank-00000.safetensors", "/index.json", "/state.json"}) {
    fs::resize_file(step(6) + file, fs::file_size(step(6) + file) / 2);
    const auto before = run_.checkpoints();
    const Finished finished = run_program(run_.train({"--checkpoint.resume", step(6)}));
    EXPECT_EQ(finished.code, kUsageError);
    EXPECT_THAT(finished.errors(), ElementsAre(HasSubstr(step(6)))) << file;
    EXPECT_EQ(run_.checkpoints(), before);
    expect_fall_back();  // also writes a new step-6 for the next round
  }
}

TEST_F(Damage, AnAlteredCheckpointIsRefusedByPathAndSkippedByAuto) {
  const std::string file = step(6) + "/rank-00000.safetensors";
  test::flip(file, fs::file_size(file) - 100, 1);
  const auto before = run_.checkpoints();
  const Finished finished = run_program(run_.train({"--checkpoint.resume", step(6)}));
  EXPECT_EQ(finished.code, kUsageError);
  EXPECT_THAT(finished.errors(), ElementsAre(HasSubstr(file)));
  EXPECT_EQ(run_.checkpoints(), before);
  expect_fall_back();
}

TEST_F(Damage, AutoFailsIfEveryCheckpointIsDamagedAndNamesTheNewest) {
  for (const int which : {3, 6}) {
    const std::string file = step(which) + "/rank-00000.safetensors";
    test::flip(file, fs::file_size(file) - 100, 1);
  }
  const auto before = run_.checkpoints();
  const Finished finished =
      run_program(run_.train({"--checkpoint.resume", "auto", "--parallelism.x", "2"}));
  EXPECT_EQ(finished.code, kUsageError);
  EXPECT_THAT(finished.errors(), ElementsAre(HasSubstr(step(6))));
  EXPECT_EQ(run_.checkpoints(), before);
}

TEST_F(Damage, AnAlteredCheckpointIsRefusedUnderMpirunByOneRank) {
  if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
  const std::string file = step(6) + "/rank-00000.safetensors";
  test::flip(file, fs::file_size(file) - 100, 1);
  const Finished finished = run_program(
      run_.train({"--checkpoint.resume", step(6), "--parallelism.x", "2"}), {.ranks = 2});
  EXPECT_EQ(finished.code, kUsageError);
  EXPECT_THAT(finished.errors(), ElementsAre(HasSubstr(file)));
}

TEST_F(Damage, ACheckpointOfAnotherModelIsRefusedWithTheParameters) {
  const auto before = run_.checkpoints();
  const Finished finished =
      run_program(run_.train({"--checkpoint.resume", step(6), "--model.ffn", "32"}));
  EXPECT_EQ(finished.code, kUsageError);
  EXPECT_THAT(finished.errors(), ElementsAre(HasSubstr("model.ffn was 64 and is 32")));
  EXPECT_THAT(finished.err, AllOf(HasSubstr("is not a checkpoint of this model"),
                                  HasSubstr("h.0.mlp.c_fc.weight")));
  EXPECT_EQ(run_.checkpoints(), before);
}

TEST_F(Damage, AFullDiskAtCheckpointsIsReportedAndTheEarlierOneKept) {
  const std::string folder = run_.out() + "-disk";
  const SmallDisk disk(folder, "320k");  // two checkpoints of 92 KiB, and half of another
  if (!disk.mounted()) GTEST_SKIP() << kNoMount;
  const std::vector<std::string> arguments = {"--output.dir", folder, "--checkpoint.every", "1"};
  ASSERT_EQ(run_program(run_.train({"--output.dir", folder, "--training.steps", "2"})).code, 0);
  const std::string good = test::slurp(folder + "/checkpoints/step-2/rank-00000.safetensors");
  const Finished finished =
      run_program(run_.train({"--output.dir", folder, "--checkpoint.every", "1",
                              "--checkpoint.resume", "auto", "--parallelism.x", "2"}));
  EXPECT_EQ(finished.code, kFailed) << finished.out;
  for (const char* step : {"4", "5"})
    EXPECT_THAT(finished.out,
                ContainsRegex(std::string("warning: .*step-") + step + " failed on "));
  EXPECT_THAT(finished.errors(),
              ElementsAre(AllOf(HasSubstr("step-6"), HasSubstr("free space there"))));
  EXPECT_EQ(test::slurp(folder + "/checkpoints/step-2/rank-00000.safetensors"), good);
  EXPECT_EQ(test::slurp(folder + "/checkpoints/latest"), "step-3\n");
  EXPECT_THAT(test::names_in(folder + "/checkpoints"), ElementsAre("latest", "step-2", "step-3"));
}

TEST_F(Damage, ADiskWithoutRoomForACheckpointIsRefusedBeforeTheFirstStep) {
  const std::string folder = run_.out() + "-disk";
  const SmallDisk disk(folder, "64k");
  if (!disk.mounted()) GTEST_SKIP() << kNoMount;
  const Finished finished = run_program(run_.train({"--output.dir", folder}));
  EXPECT_EQ(finished.code, kFailed) << finished.out;
  EXPECT_THAT(finished.errors(), ElementsAre(AllOf(HasSubstr("a checkpoint takes "),
                                                   HasSubstr("output.dir to another disk"))));
  EXPECT_THAT(finished.out, Not(HasSubstr("step 1/")));
}

TEST_F(Damage, AFullDiskWhenWritingMetricsIsReportedOnceAndTheLastCheckpointFails) {
  const std::string folder = run_.out() + "-disk";
  const SmallDisk disk(folder, "160k");
  if (!disk.mounted()) GTEST_SKIP() << kNoMount;
  const Finished finished =
      run_program(run_.train({"--output.dir", folder, "--training.steps", "1000"}));
  EXPECT_EQ(finished.code, kFailed) << finished.out;
  EXPECT_THAT(finished.out,
              ContainsRegex("warning: cannot write .*metrics.jsonl: No space left on"));
  EXPECT_THAT(finished.out, HasSubstr("step 1000/1000 "));
  EXPECT_THAT(finished.errors(), ElementsAre(HasSubstr("step-1000")));
}

TEST_F(Damage, NanStopsTheRunAndKeepsTheCheckpoints) {
  const auto before = run_.checkpoints();
  for (const int ranks : {0, 2}) {
    if (ranks > 0 && !no_mpirun().empty()) continue;
    const Finished finished =
        run_program(run_.train({"--checkpoint.resume", "auto", "--training.steps", "9",
                                "--optimizer.lr", "1e38", "--parallelism.z", "2"}),
                    {.ranks = ranks});
    EXPECT_EQ(finished.code, kFailed) << finished.err;
    EXPECT_THAT(finished.errors(), ElementsAre(ContainsRegex(
                                       "step 8: the loss is .* it arose first in layer [a-z.0_1]+, "
                                       "operation [a-z_]+ \\((forward|backward)\\), on rank "
                                       "[01] \\(x 0")));
    EXPECT_EQ(run_.checkpoints(), before);
  }
}
