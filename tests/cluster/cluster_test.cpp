#include <cstdio>

#include <gmock/gmock.h>

#include "tests/support/build_paths.h"

using namespace axonn;
using ::testing::HasSubstr;

namespace {

struct Answer {
  int code = -1;
  std::string output;
};

/// Runs axonn_cluster with these words.
Answer cluster(const std::string& words) {
  Answer answer;
  const std::string command = test::build_folder() + "/tests/cluster/axonn_cluster " + words;
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) return answer;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe))
    answer.output += static_cast<char>(c);
  answer.code = WEXITSTATUS(pclose(pipe));
  return answer;
}

/// The hash behind the last "schedule" of an output.
std::string schedule_of(const std::string& output) {
  return output.substr(output.rfind("schedules ") + 10, 16);
}

}  // namespace

// What the seeds of this list have found is in docs/faults.md. Another draw in job.cpp or trial.cpp
// makes other trials of them.
class KeptSeed : public testing::TestWithParam<int> {};

TEST_P(KeptSeed, KeepsAllPromises) {
  const Answer answer = cluster("--replay " + std::to_string(GetParam()));
  EXPECT_EQ(answer.code, 0) << answer.output;
}

INSTANTIATE_TEST_SUITE_P(All, KeptSeed, testing::Values(1, 57, 79, 103));

TEST(Cluster, KeepsAllPromisesWithProcessesOfMpi) {
  const Answer answer = cluster("--seeds 11 4 --mpi");  // the first has a message that is cut
  if (answer.code == 77) GTEST_SKIP() << "built without MPI";
  EXPECT_EQ(answer.code, 0) << answer.output;
}

TEST(Cluster, FindsTransportsThatDoNotCheckTheirMessages) {
  const Answer answer = cluster("--seeds 1 3 --mpi --planted unchecked-messages");
  if (answer.code == 77) GTEST_SKIP() << "built without MPI";
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.output, HasSubstr("--mpi --planted unchecked-messages --replay 3"));
}

TEST(Cluster, RepeatsASeedToTheLastPointOfItsSchedule) {
  const Answer once = cluster("--replay 4"), again = cluster("--replay 4"),
               other = cluster("--replay 5");
  EXPECT_EQ(schedule_of(once.output), schedule_of(again.output));
  EXPECT_NE(schedule_of(once.output), schedule_of(other.output));
}

TEST(Cluster, FindsDisksThatForgetSyncs) {
  for (const std::string fault : {"forgotten-file-syncs", "forgotten-folder-syncs"}) {
    const Answer answer = cluster("--seeds 10 4 --planted " + fault);
    EXPECT_EQ(answer.code, 1) << fault;
    EXPECT_THAT(answer.output, HasSubstr("--planted " + fault + " --replay "));
  }
}
