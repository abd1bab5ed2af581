// Who may write to output.dir: one job at a time, and no run over another one unless asked.
#include "axonn/run/records/run_folder.h"

#include <atomic>
#include <filesystem>
#include <map>

#include <gmock/gmock.h>
#include <unistd.h>

#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/sequences.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/plan/measure/dry_run.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/records/run_end.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

namespace {

/// Name and contents of every file in a folder and below, but for the lock.
std::map<std::string, std::string> files_in(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() != "lock")
      files[entry.path()] = test::slurp(entry.path());
  return files;
}

}  // namespace

TEST(RunFolder, OfALiveRunIsRefusedWithItsProcessBeforeAnythingIsWritten) {
  test::TemporaryPath folder;
  const Config config = on_grid(tiny_config(folder / "out"), {.z = 2});
  {
    const FolderLock other(config.output.dir);
    EXPECT_EQ(other.warning(), "");
    EXPECT_THAT(failure_of(config),
                AllOf(HasSubstr("another run writes to " + config.output.dir + ": process " +
                                std::to_string(::getpid()) + " on "),
                      HasSubstr(" since 20"), HasSubstr("--output.dir")));
    EXPECT_THAT(test::names_in(config.output.dir), ElementsAre("lock"));
  }
  EXPECT_EQ(failure_of(config), "");  // the lock was released; its file is still there
}

TEST(RunFolder, WithARunIsRefusedAndUnchangedUnlessReplacingItIsAllowed) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  train_on_threads(config);
  const auto before = files_in(config.output.dir);
  config.training.steps = 4;
  EXPECT_THAT(failure_of(config),
              AllOf(HasSubstr("holds a run with a checkpoint of step 10"),
                    HasSubstr("--checkpoint.resume auto"), HasSubstr("--output.overwrite")));
  EXPECT_EQ(files_in(config.output.dir), before);

  const std::string mine = config.output.dir + "/nonfinite-steps",
                    old = config.output.dir + "/nonfinite-step-12";
  for (const std::string& name : {mine, old}) {
    fs::create_directory(name);
    test::spill(name + "/batch.json", "{}");
  }
  config.output.overwrite = true;
  EXPECT_EQ(failure_of(config), "");
  EXPECT_TRUE(fs::exists(mine));
  EXPECT_FALSE(fs::exists(old)) << "a step that the replaced run saved";
  EXPECT_THAT(test::names_in(config.output.dir + "/checkpoints"), ElementsAre("latest", "step-4"));
  EXPECT_EQ(metrics_of(config).size(), 4u);
  for (const char* file : {"/config.toml", "/checkpoints/step-4/config.toml"})
    EXPECT_THAT(test::slurp(config.output.dir + file), Not(HasSubstr("overwrite = true")));
}

TEST(RunFolder, KeepsItsRunIfTheOneThatReplacesOrResumesItCannotStart) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  train_on_threads(config);
  fs::remove(config.output.dir + "/logs/rank-0.log");
  const auto before = files_in(config.output.dir);
  Config other = config;
  other.output.overwrite = true;
  other.data.synthetic = 0;
  other.data.text = {folder / "none.txt"};
  EXPECT_THAT(failure_of(other), HasSubstr("none.txt"));
  other = config;
  other.checkpoint.resume = "auto";
  other.model.ffn = 48;
  EXPECT_THAT(failure_of(other), HasSubstr("model.ffn was 96 and is 48"));
  other = config;
  other.output.overwrite = true;
  other.model.path = config.output.dir + "/checkpoints";
  EXPECT_THAT(failure_of(other), AllOf(HasSubstr("model.path = "), HasSubstr("is read")));
  fs::remove(config.output.dir + "/logs/rank-0.log");
  EXPECT_EQ(files_in(config.output.dir), before);
}

TEST(RunFolder, SaysHowItsRunEnded) {
  test::TemporaryPath folder;
  Config config = on_grid(tiny_config(folder / "out"), {.x = 2, .data = 2});
  config.checkpoint.resume = "auto";
  const std::string& out = config.output.dir;
  EXPECT_EQ(read_run_process(out).text, "");
  const std::atomic<bool> stop = true;
  EXPECT_EQ(train_on_threads(config, {.stop = &stop}), TrainEnd::stopped);
  EXPECT_EQ(read_run_process(out).end, RunEnd::stopped);

  // Of one rank, in its sequences; the others are aborted.
  struct Broken : Sequences {
    std::int64_t count() const override { return 12 * 20; }
    Size size(std::int64_t) const override { return {.targets = 8, .inputs = 8}; }
    std::string where(std::int64_t) const override { return "here"; }
    void read(std::int64_t n, Sequence& to) const override {
      if (n == 12 * 7 - 1) throw Error("sample 83\nis broken");
      to.ids.assign(8, 1);
      to.targets = to.ids;
    }
  };
  config.checkpoint.changed_data = ChangedData::restart;
  EXPECT_THROW(train_on_threads(config, {.make_sequences =
                                             [](const Config&, const Corpus&) {
                                               return std::make_unique<Broken>();
                                             }}),
               Error);
  RunProcess process = read_run_process(out);
  EXPECT_EQ(process.end, RunEnd::failed);
  EXPECT_THAT(process.why, HasSubstr("sample 83 is broken"));
  EXPECT_THAT(process.when, testing::MatchesRegex("20..-..-.. ..:..:.. UTC"));
  EXPECT_EQ(process.process, ::getpid());
  EXPECT_THAT(test::slurp(out + "/logs/rank-0.log"), HasSubstr("Z error "));

  config.checkpoint.changed_data = ChangedData::refuse;
  config.training.seed = 2;
  EXPECT_THAT(failure_of(config), HasSubstr("training.seed was 1"));
  EXPECT_THAT(read_run_process(out).why, HasSubstr("training.seed was 1")) << "before a step";

  config.checkpoint.resume = "";
  const std::string before = test::slurp(out + "/lock");
  EXPECT_THAT(failure_of(config), HasSubstr("would be overwritten"));
  EXPECT_EQ(test::slurp(out + "/lock"), before) << "a start that was refused is no part of the run";
  config.output.overwrite = true;
  EXPECT_EQ(failure_of(config), "");
  process = read_run_process(out);
  EXPECT_EQ(process.end, RunEnd::finished);
  EXPECT_EQ(process.why, "all steps are done");
}

TEST(RunFolder, TheFirstEndThatIsNotedStaysAndFitsIntoABlock) {
  test::TemporaryPath folder;
  note_run_end(folder.path(), RunEnd::failed, "nobody runs here");
  EXPECT_FALSE(fs::exists(folder / "lock"));
  const FolderLock lock(folder.path());
  note_run_end(folder.path(), RunEnd::failed, std::string(100'000, 'x'));
  note_run_end(folder.path(), RunEnd::finished, "too late");
  EXPECT_LE(fs::file_size(folder / "lock"), 4096U);
  EXPECT_EQ(read_run_process(folder.path()).end, RunEnd::failed);
  for (const char* text : {"", "x", "process", "process 1 on", "process x on y, since z\nfailed",
                           "process 7 on y, since z\nfailed, : ", "\n\n\xff", "\nfine, a: b"}) {
    test::spill(folder / "lock", text);
    EXPECT_EQ(read_run_process(folder.path()).why, "") << text;
  }
}

TEST(RunFolder, LosesTheCheckpointsThatAKilledRunWasWritingOrRemoving) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  config.checkpoint.resume = "auto";
  train_on_threads(config);
  const std::string left = config.output.dir + "/checkpoints/step-4.tmp-0123456789abcdef";
  fs::create_directory(left);
  test::spill(left + "/index.json", "{");
  train_on_threads(config);  // all steps are done, so nothing is saved
  EXPECT_FALSE(fs::exists(left));
}

TEST(RunFolder, WithARunWithoutACheckpointIsRefusedOrStartedAgain) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  train_on_threads(config);
  fs::remove_all(config.output.dir + "/checkpoints");
  EXPECT_THAT(failure_of(config), AllOf(HasSubstr("holds a run without a checkpoint"),
                                        Not(HasSubstr("--checkpoint.resume"))));
  config.checkpoint.resume = "auto";
  EXPECT_EQ(failure_of(config), "");
  EXPECT_EQ(metrics_of(config).size(), 10u);
}

TEST(RunFolder, IsResumedFromItsOwnCheckpointsButNotOverwrittenByARunThatResumesAnother) {
  test::TemporaryPath folder;
  const Config first = tiny_config(folder / "first");
  Config second = tiny_config(folder / "second");
  train_on_threads(first);
  train_on_threads(second);
  second.checkpoint.resume = first.output.dir + "/checkpoints/step-5";
  EXPECT_THAT(failure_of(second), HasSubstr("holds a run with a checkpoint of step 10"));
  second.checkpoint.resume = second.output.dir + "/../second/checkpoints";
  second.training.steps = 12;
  EXPECT_EQ(failure_of(second), "");
  EXPECT_EQ(metrics_of(second).size(), 12u);
  second.checkpoint.resume = first.output.dir + "/checkpoints/step-5";
  second.output.overwrite = true;
  EXPECT_EQ(failure_of(second), "");
  EXPECT_EQ(metrics_of(second).front().at("step"), 6);
}

TEST(RunFolder, GoesBackBehindAnIntactCheckpointOnlyIfItMayBeRemoved) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  train_on_threads(config);
  const std::string own = config.output.dir + "/checkpoints";
  const auto before = files_in(own);
  config.checkpoint.resume = own + "/step-5";
  config.training.steps = 8;
  EXPECT_THAT(failure_of(config),
              AllOf(HasSubstr("step-5 goes back behind"), HasSubstr("step-10, which the run would"),
                    HasSubstr("--output.dir"), HasSubstr("--output.overwrite")));
  EXPECT_THAT(dry_run(prepared(config), 0).fault, HasSubstr("goes back behind"));
  EXPECT_EQ(files_in(own), before);
  config.output.overwrite = true;
  EXPECT_EQ(failure_of(config), "");
  EXPECT_THAT(test::names_in(own), ElementsAre("latest", "step-5", "step-8"));
  EXPECT_EQ(metrics_of(config).size(), 8u);

  config.output.overwrite = false;  // a damaged one is no reason, and stays until its step
  fs::resize_file(own + "/step-8/index.json", 100);
  config.training.steps = 7;
  EXPECT_EQ(failure_of(config), "");
  EXPECT_THAT(test::names_in(own), ElementsAre("latest", "step-5", "step-7", "step-8"));
}

TEST(RunFolder, NamesItsOnlyCheckpointAgainIfAKillCameBeforeTheName) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  train_on_threads(config);
  const std::string own = config.output.dir + "/checkpoints";
  fs::remove_all(own + "/step-5");
  fs::remove(own + "/latest");
  config.checkpoint.resume = "auto";
  EXPECT_EQ(failure_of(config), "");
  EXPECT_EQ(test::slurp(own + "/latest"), "step-10\n");
}

TEST(RunFolder, WithTooLittleRoomForACheckpointIsRefusedBeforeTheFirstStep) {
  test::TemporaryPath folder;
  const Config config = tiny_config(folder / "out");
  const std::int64_t free = free_bytes(folder.path());
  EXPECT_EQ(disk_fault(config, free / 2), "");
  EXPECT_THAT(disk_fault(config, 2 * free),
              AllOf(HasSubstr("a checkpoint takes "), HasSubstr(config.output.dir + " has only")));
}

TEST(RunFolder, WithARunIsAFaultOfADryRunToo) {
  test::TemporaryPath folder;
  const Config config = resolved(tiny_config(folder / "out"));
  EXPECT_EQ(dry_run(prepared(config), 0).fault, "");
  train_on_threads(config);
  EXPECT_THAT(dry_run(prepared(config), 0).fault, HasSubstr("holds a run"));
}

TEST(RunFolder, IsNotWrittenByADryRun) {
  test::TemporaryPath folder;
  Config config = resolved(tiny_config(folder / "out"));
  const std::string text = folder / "text.txt";
  config.data.synthetic = 0;
  config.data.text = {text};
  test::spill(text, std::string(5000, 'a'));
  train_on_threads(config);
  test::spill(text, std::string(6000, 'b'));  // the cache has no tokens of this text
  test::spill(config.output.dir + "/cache/tokens-1.bin.tmp-0123456789abcdef", "");
  const auto before = files_in(config.output.dir);
  EXPECT_THAT(dry_run(prepared(config), 0).input, HasSubstr("bbb"));
  EXPECT_EQ(files_in(config.output.dir), before);
}
