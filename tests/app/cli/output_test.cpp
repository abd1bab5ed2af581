// Standard output and files that cannot be written: every command says so, and training goes on.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/runs.h"
#include "tests/support/build_paths.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

namespace {

/// Runs a line of bash, in which $AXONN is the program; returns its exit code and stderr.
Finished shell(const std::string& line) {
  const test::TemporaryPath folder;
  const std::string err = folder / "err", command = "AXONN='" + test::program() + "'; " + line;
  const int status = std::system(("bash -c \"set -o pipefail; " + command + "\" 2>" + err).c_str());
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .out = {}, .err = test::slurp(err)};
}

}  // namespace

TEST(Output, EveryCommandFailsIfItsOutputCannotBeWritten) {
  const SmallRun run;
  ASSERT_EQ(run_program(run.train()).code, 0);
  test::spill(run / "text.txt", "a text to evaluate");
  const std::string model = " --model " + run.out() + "/checkpoints";
  for (const std::string& command :
       {std::string("--version"), std::string("help"), std::string("train --help"),
        std::string("info"), std::string("data"), "train " + run.config() + " --print-config",
        "train " + run.config() + " --dry-run --output.dir " + (run / "new"),
        "bench " + run.config(), "check " + run.config() + " --steps 1 --grids '1,1,1,1 1,1,1,1'",
        "plan " + run.config() + " --machine alps --devices 4", "tune " + run.config(),
        "generate --tokens 4" + model, "eval --seq-len 4 --data " + (run / "text.txt") + model}) {
    const Finished finished = shell("\\$AXONN " + command + " >/dev/full");
    EXPECT_EQ(finished.code, kFailed) << command << finished.err;
    EXPECT_THAT(finished.err, HasSubstr("cannot write to standard output: No space left on device"))
        << command;
  }
  EXPECT_THAT(shell("\\$AXONN help >&-").err, StartsWith("error: cannot write to standard output"));
}

TEST(Output, GenerationEndsWhenItsReaderIsGone) {
  const SmallRun run;
  ASSERT_EQ(run_program(run.train()).code, 0);
  const Finished finished = shell("\\$AXONN generate --tokens 100000000 --model " + run.out() +
                                  "/checkpoints | head -c 10 >/dev/null");
  EXPECT_EQ(finished.code, kFailed) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("cannot write to standard output: Broken pipe"));
}

TEST(Output, TrainingGoesOnWithoutATerminalAndSaysSoInItsLog) {
  for (const std::string gone : {"| head -n 1 >/dev/null", ">/dev/full", ">&-"}) {
    const SmallRun run;
    const Finished finished =
        shell("\\$AXONN train " + run.config() + " --training.steps 200 " + gone);
    EXPECT_EQ(finished.code, 0) << gone << finished.err;
    EXPECT_EQ(run.metrics().size(), 200u) << gone;
    EXPECT_THAT(test::slurp(run.out() + "/logs/rank-0.log"), HasSubstr("goes on without it"));
    EXPECT_TRUE(std::filesystem::exists(run.out() + "/checkpoints/step-200")) << gone;
  }
}

TEST(Output, AHangupIsIgnoredUnderNohup) {
  const SmallRun run;
  const Finished finished = shell("trap '' HUP; \\$AXONN train " + run.config() +
                                  " --training.steps 100 >/dev/null & sleep 0.5; kill -HUP \\$!; "
                                  "wait \\$!");
  EXPECT_EQ(finished.code, 0) << finished.err;
}

TEST(Output, AFileBeyondTheLimitIsAnErrorThatNamesIt) {
  const SmallRun run;
  const Finished finished =
      shell("ulimit -f 4; \\$AXONN data synthetic --bytes 100000 --out " + (run / "big.txt"));
  EXPECT_EQ(finished.code, kFailed) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr("big.txt"));
  EXPECT_THAT(finished.err, HasSubstr("File too large; raise the limit"));
  EXPECT_FALSE(std::filesystem::exists(run / "big.txt"));
}

TEST(Output, ADeviceOrPipeIsWrittenAndNotReplaced) {
  const test::TemporaryPath folder;
  const std::string pipe = folder / "pipe", file = folder / "file";
  const Finished finished =
      shell("mkfifo " + pipe + "; cat " + pipe + " >" + file +
            " & \\$AXONN data synthetic --bytes 300 --out " + pipe + " && wait && test -p " + pipe);
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_GE(test::slurp(file).size(), 300u);
}

TEST(Output, SlowWorkSaysOnStandardErrorHowFarItIs) {
  const SmallRun run;
  const std::int64_t bytes = 100 << 20;
  std::ofstream(run / "text.txt") << std::string(bytes, 'x');
  Program program({"data", "tokenize", "--text", run / "text.txt", "--out", run / "text.bin"});
  const auto begun = [&] {
    return std::ranges::any_of(test::names_in(run / ""), [](const std::string& name) {
      return name.starts_with("text.bin.tmp-");
    });
  };
  for (int i = 0; i < 100'000 && !begun(); ++i)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  ::kill(program.pid(), SIGSTOP);  // makes it slow: the first second is silent
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  ::kill(program.pid(), SIGCONT);
  const Finished finished = program.finish();
  EXPECT_EQ(finished.code, 0);
  EXPECT_THAT(finished.out, StartsWith("tokenizing 100.00MiB of 100.00MiB, 104,857,600 tokens"));
  EXPECT_THAT(finished.err, MatchesRegex("(tokenizing: [0-9.]+MiB of 100.00MiB \\([0-9]+%\\)"
                                         "(, [0-9.]+.iB/s, [0-9.]+s left)?\n)+"));
  EXPECT_TRUE(finished.complaints().empty());
}

TEST(Output, OfALauncherCannotCommandTheTerminalEither) {
  if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
  const SmallRun run;
  ASSERT_EQ(run_program(run.train()).code, 0);
  const std::vector<std::string> generate{
      "generate", "--model",  run.out() + "/checkpoints", "--tokens",
      "1",        "--prompt", "a\x1b]0;title\x07!"};
  EXPECT_THAT(run_program(generate, {.ranks = 1}).out, StartsWith("a\\x1b]0;title\\x07!"));
  EXPECT_THAT(run_program(generate).out, StartsWith("a\x1b]0;title\x07!")) << "into a file";
}

TEST(Output, MessagesCannotCommandTheTerminal) {
  EXPECT_THAT(run_program({"\x1b]0;title\x07"}).err,
              StartsWith("error: there is no command '\\x1b]0;title\\x07'; the commands are "));
}
