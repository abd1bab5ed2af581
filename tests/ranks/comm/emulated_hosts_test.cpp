// The MPI transport between hosts: TCP over links of limited bandwidth that scripts/emulated-hosts
// sets up.
#include <array>
#include <cstdio>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/ranks/comm/collectives.h"
#include "tests/support/build_paths.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

const std::string kProgram = test::build_folder() + "/tests/ranks/comm/comm_mpi_program";

struct Result {
  int exit_code;
  std::string output;
};

Result hosts(const std::string& words) {
  const std::string command =
      concat("timeout 120 ", test::source_folder(), "/scripts/emulated-hosts ", words, " 2>&1");
  FILE* pipe = popen(command.c_str(), "r");
  AXONN_CHECK(pipe, command, " did not start");
  Result result;
  std::array<char, 4096> text;
  while (const std::size_t n = fread(text.data(), 1, text.size(), pipe))
    result.output.append(text.data(), n);
  result.exit_code = WEXITSTATUS(pclose(pipe));
  return result;
}

/// Three hosts; skipped if this machine cannot emulate them.
class EmulatedHosts : public testing::Test {
 protected:
  void SetUp() override {
    if (hosts("able").exit_code != 0)
      GTEST_SKIP() << "this machine does not allow network namespaces";
    const Result up = hosts("up 3 1gbit");
    up_ = up.exit_code == 0;
    if (up.output.find("are already up") != std::string::npos)
      GTEST_SKIP() << "another process uses the emulated hosts";
    ASSERT_TRUE(up_) << up.output;
  }
  void TearDown() override {
    if (up_) hosts("down");
  }

 private:
  bool up_ = false;
};

}  // namespace

TEST_F(EmulatedHosts, RanksOnDifferentHostsRunEveryCollective) {
  const Result run = hosts(concat("run 1 ", kProgram, " check"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

TEST_F(EmulatedHosts, SeveralRanksOfAHostRunEveryCollectiveInTwoLevels) {
  const Result run = hosts(concat("run 2 ", kProgram, " check 100 0 two-level"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

TEST_F(EmulatedHosts, AHostSendsEachValueOnceInTwoLevels) {
  const Result run = hosts(concat("run 2 ", kProgram, " leaving_bytes"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

TEST_F(EmulatedHosts, RanksOnDifferentHostsGetTheSameBitsAsThreads) {
  std::uint64_t want = 0;
  run_ranks(3, [&](Communicator& world) {
    const std::uint64_t hash = hash_of_sums(world);
    if (world.rank() == 0) want = hash;
  });
  const Result run = hosts(concat("run 1 ", kProgram, " hash"));
  EXPECT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("hash " + std::to_string(want)));
}

TEST_F(EmulatedHosts, AProbeOfTheNetworkFindsTheHostWithASlowLink) {
  ASSERT_EQ(hosts("rate 400mbit").exit_code, 0);
  ASSERT_EQ(hosts("rate 50mbit 2").exit_code, 0);
  const std::string file = testing::TempDir() + "axonn-nodes.json";
  // Only a link that is four times as slow is certainly below; the hosts share this machine's
  // cores.
  const Result run =
      hosts(concat("run 1 ", test::program(),
                   " probe --network --quick --threads 1 --tolerance 60 --json ", file));
  EXPECT_EQ(run.exit_code, 1) << run.output;
  std::ifstream stream(file);
  const auto nodes = nlohmann::json::parse(stream).at("nodes");
  ASSERT_EQ(nodes.size(), 3u) << run.output;
  EXPECT_EQ(nodes[1].at("host"), "axh2");
  EXPECT_THAT(nodes[1].at("marks").dump(), testing::AllOf(HasSubstr("out -"), HasSubstr("in -")))
      << run.output;
}
