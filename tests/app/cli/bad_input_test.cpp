// Usage errors: one clear line, exit code 2, and no existing file is damaged.
#include <filesystem>

#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/runs.h"
#include "tests/app/cli/token_bytes.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Matcher;

namespace {

namespace fs = std::filesystem;

void expect_error(const std::vector<std::string>& arguments, const Matcher<std::string>& message,
                  int code = kUsageError, int ranks = 0) {
  const Finished finished = run_program(arguments, {.ranks = ranks});
  EXPECT_EQ(finished.code, code) << finished.err;
  EXPECT_THAT(finished.errors(), ElementsAre(message)) << finished.err;
}

/// A run with a good checkpoint, which must be unchanged at the end of the test although a run that
/// starts may replace it.
class BadInput : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_program(run_.train({"--checkpoint.every", "3"})).code, 0);
    good_ = run_.checkpoints();
    ASSERT_EQ(good_.size(), 11u);  // `latest` and two checkpoints of five files
    test::spill(run_.config(), test::slurp(run_.config()) + "overwrite = true\n");
  }
  void TearDown() override { EXPECT_EQ(run_.checkpoints(), good_); }

  const SmallRun run_;
  std::map<std::string, std::string> good_;
};

}  // namespace

TEST_F(BadInput, AnUnknownKeyIsNamedWithItsPlaceAndASuggestion) {
  test::spill(run_ / "typo.toml", "[model]\nlayers = 1\n\n[training]\nmicro_bacth = 4\n");
  expect_error({"train", run_ / "typo.toml"}, "error: [training] has no key 'micro_bacth' (" +
                                                  (run_ / "typo.toml") +
                                                  ":5:1); did you mean 'micro_batch'?");
  expect_error(run_.train({"--training.micro_bacth", "4"}),
               "error: [training] has no key 'micro_bacth' (--training.micro_bacth); did you mean "
               "'micro_batch'?");
  test::spill(run_ / "typo.toml", "[trainning]\nsteps = 1\n");
  expect_error({"train", run_ / "typo.toml"}, HasSubstr("did you mean [training]?"));
}

TEST_F(BadInput, AWrongTypeOrValueIsNamedWithWhatIsWanted) {
  test::spill(run_ / "type.toml", "[training]\nsteps = \"many\"\n");
  expect_error({"train", run_ / "type.toml"},
               AllOf(HasSubstr("steps"), HasSubstr("type.toml:2:"), HasSubstr("integer")));
  expect_error(run_.train({"--training.steps", "-3"}), HasSubstr("steps"));
  expect_error(run_.train({"--optimizer.kind", "adam"}), HasSubstr("adamw"));
  test::spill(run_ / "broken.toml", "[training\nsteps = 3\n");
  expect_error({"train", run_ / "broken.toml"}, HasSubstr("broken.toml:"));
}

TEST_F(BadInput, AMissingOrUnreadableFileIsNamed) {
  expect_error({"train", run_ / "none.toml"}, HasSubstr("none.toml"));
  expect_error({"train", run_.out()}, HasSubstr(run_.out()));  // a folder
  for (const char* key : {"--data.text", "--data.tokens"}) {
    expect_error(run_.train({"--data.synthetic", "0", key, run_ / "none.txt"}),
                 HasSubstr("none.txt"));
    fs::create_directories(run_ / "folder.bin");
    expect_error(run_.train({"--data.synthetic", "0", key, run_ / "folder.bin"}),
                 HasSubstr("folder.bin"));
  }
  test::spill(run_ / "empty.txt", "");
  expect_error(run_.train({"--data.synthetic", "0", "--data.text", run_ / "empty.txt"}),
               HasSubstr("empty.txt"));
  expect_error(run_.train({"--data.tokenizer", run_ / "none"}), HasSubstr(run_ / "none"));
  expect_error(run_.train({"--model.path", run_ / "none"}), HasSubstr(run_ / "none"));
}

TEST_F(BadInput, AnOutputFolderThatCannotBeCreatedIsNamed) {
  test::spill(run_ / "file", "");
  for (const std::string& dir : {run_ / "file", std::string("/proc/none/out")}) {
    const Finished finished = run_program(run_.train({"--output.dir", dir}));
    EXPECT_THAT(finished.code, testing::AnyOf(kFailed, kUsageError));
    EXPECT_THAT(finished.errors(), ElementsAre(HasSubstr(dir)));
  }
}

TEST_F(BadInput, ATokenOutsideTheVocabularyIsNamedWithItsPlace) {
  std::vector<std::uint16_t> tokens(100, 97);
  tokens[20] = 999;  // of the first step: nothing of the old run is replaced before that
  test::spill(run_ / "tokens.bin", token_file_bytes(tokens));
  expect_error(run_.train({"--data.synthetic", "0", "--data.tokens", run_ / "tokens.bin",
                           "--data.shuffle", "false", "--data.validation", "0"}),
               AllOf(HasSubstr("token 20 of " + (run_ / "tokens.bin") + " is 999"),
                     HasSubstr("vocabulary has 256 tokens; set model.vocab to at least 1000")));
}

TEST_F(BadInput, AFileThatIsNoTokenFileOrIsTruncatedIsNamed) {
  test::spill(run_ / "noise.bin", std::string(5000, 'x'));
  expect_error(run_.train({"--data.synthetic", "0", "--data.tokens", run_ / "noise.bin"}),
               HasSubstr("noise.bin"));
  test::spill(run_ / "cut.bin",
              token_file_bytes(std::vector<std::uint16_t>(500, 7)).substr(0, 1500));
  expect_error(run_.train({"--data.synthetic", "0", "--data.tokens", run_ / "cut.bin"}),
               HasSubstr("cut.bin"));
}

TEST_F(BadInput, AGridThatCannotCutTheModelIsRefusedWithValidExtents) {
  expect_error(
      run_.train({"--parallelism.y", "3"}),
      HasSubstr("a width of 16 cannot be cut over y = 3; y must be one of 1, 2, 4, 8, 16"));
  expect_error(run_.train({"--parallelism.z", "3", "--training.micro_batch", "3"}),
               HasSubstr("micro_batch = 3 is more than 2, the most sequences that a rank has of "
                         "global_batch = 4"));
  expect_error(run_.train({"--model.heads", "5"}), HasSubstr("heads = 5 does not divide"));
}

TEST_F(BadInput, ASizeBeyondEveryMachineIsRefused) {
  const std::string largest = "9223372036854775807";
  expect_error({"data", "synthetic", "--bytes", largest, "--out", run_ / "x"},
               HasSubstr("--bytes " + largest + " is more than the "));
  expect_error({"plan", run_.config(), "--machine", "alps", "--devices", "2", "--seq-len", largest},
               HasSubstr("--seq-len"));
  expect_error({"eval", "--model", "x", "--data", "x", "--batch", largest}, HasSubstr("--batch"));
}

TEST_F(BadInput, ADataSetTooShortForOneSampleIsNamed) {
  expect_error(run_.train({"--data.synthetic", "5"}), HasSubstr("seq_len"));
}

TEST_F(BadInput, ALogOrMetricsFileThatCannotBeWrittenIsNamed) {
  fs::create_directories(run_ / "other/metrics.jsonl");
  expect_error(run_.train({"--output.dir", run_ / "other"}), HasSubstr("metrics.jsonl"));
  fs::create_directories(run_ / "more/logs/rank-0.log");
  expect_error(run_.train({"--output.dir", run_ / "more"}), HasSubstr("rank-0.log"));
}

TEST_F(BadInput, UnderMpirunOneRankPrintsTheErrorOfAll) {
  if (!no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
  expect_error(run_.train({"--training.micro_bacth", "4"}), HasSubstr("did you mean"), kUsageError,
               2);
  expect_error(run_.train({"--parallelism.x", "4"}), HasSubstr("needs 4 ranks, but there are 2"),
               kUsageError, 2);
}

TEST(BadAdapters, OfAServerAreRefusedBeforeTheModelIsRead) {
  const auto expect = [](const std::vector<std::string>& adapters, const std::string& wanted) {
    std::vector<std::string> arguments{"serve",  "--model", "some/base",
                                       "--port", "0",       "--adapters"};
    arguments.insert(arguments.end(), adapters.begin(), adapters.end());
    expect_error(arguments, HasSubstr(wanted));
  };
  expect({"a=one", "a=two"}, "'a' is also the name of another model");
  expect({"base=one"}, "'base' is also the name of another model");
  expect({"=one"}, "--adapters =one: wanted NAME=DIR");
  expect({"one="}, "--adapters one=: wanted NAME=DIR");
}

TEST(BadPort, IsRefusedBeforeTheModelIsRead) {
  const int taken = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(taken, 1), 0);
  ASSERT_EQ(::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  expect_error({"serve", "--model", "nowhere", "--port", port},
               HasSubstr("cannot listen on 127.0.0.1 at port " + port));
  ::close(taken);
}
