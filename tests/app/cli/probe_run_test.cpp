#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/app/cli/command.h"

#include "tests/app/cli/program.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;

TEST(ProbeNetworkRun, WritesEveryNodeAndEndsWithOneOnlyIfANodeIsMarked) {
  for (const int ranks : {0, 2, 3}) {
    if (ranks > 0 && !no_mpirun().empty()) GTEST_SKIP() << no_mpirun();
    SCOPED_TRACE(testing::Message() << ranks << " ranks under mpirun");
    const test::TemporaryPath folder;
    std::vector<std::string> probe{"probe",       "--network", "--quick", "--devices-per-node", "1",
                                   "--tolerance", "99",        "--json",  folder / "nodes.json"};
    if (ranks == 0) probe.insert(probe.end(), {"--ranks", "3"});
    const Finished finished = run_program(probe, {.ranks = ranks});
    EXPECT_EQ(finished.code, 0) << finished.err;
    EXPECT_THAT(finished.out, AllOf(HasSubstr("products"), HasSubstr("0 of ")));
    const auto nodes = nlohmann::json::parse(test::slurp(folder / "nodes.json")).at("nodes");
    EXPECT_EQ(nodes.size(), ranks == 0 ? 3u : static_cast<std::size_t>(ranks));
    for (const auto& node : nodes) EXPECT_GT(node.at("flops_per_s"), 0);
  }
}

TEST(ProbeNetworkRun, RefusesItsFlagsWithoutNetwork) {
  const Finished finished = run_program({"probe", "--json", "nodes.json"});
  EXPECT_EQ(finished.code, kUsageError);
  EXPECT_THAT(finished.err, HasSubstr("--network"));
}
