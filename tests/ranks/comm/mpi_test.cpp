#include <chrono>
#include <map>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <signal.h>

#include "axonn/ranks/comm/launcher.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/ranks/comm/collectives.h"
#include "tests/ranks/comm/launched.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;

namespace {

/// Longer than mpirun takes to start and end on a busy machine with few cores, and shorter than the
/// watchdogs' timeout in the tests in which they must not report anything.
constexpr double kPatience = 100;

/// Runs the program on two pretended hosts, expects it to fail with this exit code, and returns the
/// ranks' output.
std::string output_of_failure(const char* what, const char* timeout, int exit_code,
                              const char* method = "auto") {
  Launched job(4, {what, timeout, "0", method, "aabb"});
  EXPECT_EQ(job.finish(kPatience), exit_code);
  EXPECT_EQ(count_of("error: ", job.output()), 1) << "expected one message:\n" << job.output();
  return job.output();
}

}  // namespace

TEST(Mpi, GivesTheSameBitsAsThreads) {
  for (int ranks : {1, 2, 3, 4, 6}) {
    std::uint64_t want = 0;
    run_ranks(ranks, [&](Communicator& world) {
      const std::uint64_t hash = hash_of_sums(world);
      if (world.rank() == 0) want = hash;
    });
    Launched job(ranks, {"hash"});
    EXPECT_EQ(job.finish(kPatience), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("hash " + std::to_string(want))) << ranks << " ranks";
  }
}

TEST(Mpi, RunsEveryCollectiveAlsoOnSixRanks) {
  Launched job(6, {"check"});
  EXPECT_EQ(job.finish(3 * kPatience), 0) << job.output();
}

TEST(Mpi, RunsEveryCollectiveInTwoLevelsBitForBitWhereverTheRanksAre) {
  // Hosts of equal and of different sizes, ranks of a host that are apart, and a host with one rank
  // and so many clients that their messages must not overlap.
  for (const std::string hosts : {"aabb", "abcab", "aaaaabbc"}) {
    Launched job(static_cast<int>(hosts.size()), {"check", "120", "0", "two-level", hosts});
    EXPECT_EQ(job.finish(3 * kPatience), 0) << hosts << '\n' << job.output();
  }
}

TEST(Mpi, RunsEveryCollectiveInLogarithmicRoundsBitForBitOnAnyNumberOfRanks) {
  for (const std::string hosts : {"aabb", "aaabb", "aaabbbb"}) {
    Launched job(static_cast<int>(hosts.size()), {"check", "120", "0", "recursive", hosts});
    EXPECT_EQ(job.finish(3 * kPatience), 0) << hosts << '\n' << job.output();
  }
}

TEST(Mpi, RunsEveryCollectiveBitForBitWithChecksumsOfMessages) {
  for (const char* method : {"flat+sums", "two-level+sums", "recursive+sums"}) {
    Launched job(6, {"check", "120", "0", method, "aabbbc"});
    EXPECT_EQ(job.finish(3 * kPatience), 0) << method << '\n' << job.output();
  }
}

TEST(Mpi, NamesBothRanksAndTheOperationOfAMessageThatArrivesAltered) {
  for (const char* method : {"flat+sums", "two-level+sums", "recursive+sums"})
    EXPECT_THAT(output_of_failure("altered", "60", 1, method),
                AllOf(HasSubstr("silent corruption: rank 1: all_reduce (sum) of "),
                      HasSubstr("f32 'block 3' (call "), HasSubstr("a message from rank "),
                      HasSubstr("is not what that rank has sent: its checksum differs")))
        << method;
}

TEST(Mpi, LetsCollectivesInTwoLevelsOverlapInAnyOrderAndWithDelays) {
  for (const char* method : {"two-level", "recursive"}) {
    Launched job(6, {"own_order", "60", "200", method, "aabbbc"});
    EXPECT_EQ(job.finish(3 * kPatience), 0) << method << '\n' << job.output();
  }
}

TEST(Mpi, LetsRanksCallTheirGroupsInDifferentOrdersAndWithDelays) {
  Launched job(4, {"own_order", "60", "200"});
  EXPECT_EQ(job.finish(3 * kPatience), 0) << job.output();
}

TEST(Mpi, SendsALateRankNoMoreThanItCanKeep) {
  // Over TCP, where messages of this size are sent at once, as between hosts.
  Launched job(2, {"runs_ahead"}, {{"OMPI_MCA_btl", "tcp,self"}, {"OMPI_MCA_pml", "ob1"}});
  EXPECT_EQ(job.finish(kPatience), 0) << job.output();
}

TEST(Mpi, EndsTheJobWithOneMessageWhenARankThrows) {
  EXPECT_THAT(output_of_failure("throws", "120", 1), HasSubstr("error: rank 2: lost the way"));
}

TEST(Mpi, LargeMessagesDoNotReachBuffersThatAreFreedWhenARankThrows) {
  for (const char* transport : {"vader,self", "tcp,self"})
    for (int time = 0; time < 3; ++time) {
      Launched job(4, {"throws_amid_large_messages"}, {{"OMPI_MCA_btl", transport}});
      EXPECT_EQ(job.finish(kPatience), 1) << transport << '\n' << job.output();
      EXPECT_THAT(job.output(), AllOf(HasSubstr("error: rank 2: lost the way"),
                                      Not(HasSubstr("Segmentation fault"))));
    }
}

TEST(Mpi, LetsRank0UnwindBeforeAFailedRankEndsTheJob) {
  EXPECT_THAT(output_of_failure("rank_0_unwinds", "120", 1),
              AllOf(HasSubstr("error: rank 2: lost the way"), HasSubstr("published")));
}

TEST(Mpi, EndsTheJobAlsoIfRank0DoesNotUnwind) {
  EXPECT_THAT(output_of_failure("rank_0_hangs", "3", 1), HasSubstr("error: rank 2: lost the way"));
}

TEST(Mpi, TellsAllRanksOfTheProgressThatRanksNote) {
  Launched job(4, {"notes"});
  EXPECT_EQ(job.finish(kPatience), 0) << job.output();
}

TEST(Mpi, ReportsOnlyTheLowestRankWhenAllThrowAndKeepsTheExitCodeOfAUsageError) {
  EXPECT_THAT(output_of_failure("all_throw", "120", 2), HasSubstr("error: rank 0: no such key"));
}

TEST(Mpi, EndsTheJobOnAnExplicitAbort) {
  EXPECT_THAT(output_of_failure("aborts", "120", 1), HasSubstr("error: enough of this"));
}

TEST(Mpi, EndsTheJobWhenARankIsKilled) {
  Launched job(4, {"for_ever"});
  ASSERT_TRUE(job.read_until("pid ", 4, kPatience)) << job.output();
  kill(job.pid_of(2), SIGKILL);
  EXPECT_GT(job.finish(kPatience), 0);
  EXPECT_THAT(job.output(), HasSubstr("signal 9"));  // the launcher's message
}

TEST(MpiWatchdog, ReportsThatAStoppedRankGaveNoAnswer) {
  Launched job(4, {"for_ever", "1.5"});
  ASSERT_TRUE(job.read_until("pid ", 4, kPatience)) << job.output();
  kill(job.pid_of(2), SIGSTOP);
  EXPECT_EQ(job.finish(kPatience), 1);
  EXPECT_EQ(count_of("error: ", job.output()), 1) << job.output();
  EXPECT_THAT(job.output(),
              AllOf(HasSubstr("error: rank 2 gave no answer for 1.5 s: it is stopped, dead or cut "
                              "off; rank "),
                    HasSubstr(" waits for it in all_reduce 'block 3 qkv' (call ")));
}

TEST(MpiWatchdog, DoesNotCountTheTimeInWhichTheJobIsStopped) {
  Launched job(4, {"awaits_signal", "3"});
  ASSERT_TRUE(job.read_until("pid ", 4, kPatience)) << job.output();
  for (int rank = 0; rank < 4; ++rank) kill(job.pid_of(rank), SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(6));
  kill(job.pid_of(1), SIGUSR1);
  for (int rank : {0, 2, 3}) kill(job.pid_of(rank), SIGCONT);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // nodes do not wake together
  kill(job.pid_of(1), SIGCONT);
  EXPECT_EQ(job.finish(kPatience), 0) << job.output();
}

TEST(MpiWatchdog, NamesTheRankThatHoldsTheOthersUpAndItsLastCall) {
  EXPECT_THAT(
      output_of_failure("is_missing", "1.5", 1),
      AllOf(HasSubstr("error: rank 1 has started no call and made no progress for 1.5 s "
                      "(its last: all_reduce 'block 1 qkv' (call 0 of group pair); "
                      "parallelism.timeout_seconds is the limit); rank "),
            HasSubstr(" waits for it in all_reduce 'block 2 mlp' (call 1 of group world)")));
}

TEST(MpiWatchdog, FollowsTheWaitsToTheRankThatHoldsAllUp) {
  EXPECT_THAT(output_of_failure("is_missing_far_away", "1.5", 1),
              AllOf(HasSubstr("error: rank 2 has started no call and made no progress"),
                    HasSubstr("rank 3 waits for it in all_reduce 'qkv' (call 0 of group x)")));
}

TEST(MpiWatchdog, NamesRanksThatWaitForEachOther) {
  EXPECT_THAT(output_of_failure("wait_for_each_other", "1.5", 1),
              AllOf(HasSubstr(" and ranks that it waits for wait for each other for 1.5 s; rank "),
                    HasSubstr("in barrier 'first' (call "), HasSubstr("of group world)"),
                    HasSubstr("of group pair)")));
}

TEST(MpiWatchdog, WaitsForARankThatNotesProgress) {
  Launched job(4, {"works_alone", "1"});
  EXPECT_EQ(job.finish(kPatience), 0) << job.output();
}

TEST(MpiWatchdog, DoesNotBlameARankThatReturnsLate) {
  Launched job(4, {"returns_late", "5", "2000000"});  // each call is delayed by up to 2 s
  EXPECT_EQ(job.finish(kPatience), 0) << job.output();
}

TEST(MpiWatchdog, NamesARankThatReturnedLongBeforeTheTimeout) {
  EXPECT_THAT(output_of_failure("returns_early", "3600", 1),
              AllOf(HasSubstr("error: rank 3 has returned, after all_reduce 'block 1 qkv'"),
                    HasSubstr("rank"), HasSubstr(" in all_reduce 'block 2 mlp' (call 1 of group")));
}

TEST(Mpi, NamesTheTwoRanksWhoseCallsDoNotMatch) {
  EXPECT_THAT(output_of_failure("differs", "120", 1),
              AllOf(HasSubstr("all_reduce (sum) of 9000 f32 'block 4 mlp'"),
                    HasSubstr("all_reduce (sum) of 5000 f32 'block 4 mlp'"), HasSubstr("on rank 1"),
                    HasSubstr("does not match")));
  EXPECT_THAT(output_of_failure("differs_in_kind", "120", 1),
              AllOf(HasSubstr("all_reduce (sum) of 8 f32 'block 4 mlp'"),
                    HasSubstr("barrier 'step'"), HasSubstr("does not match")));
}

TEST(Mpi, NamesTheTwoRanksAndTheCountsOfAnExchangeThatDoNotMatch) {
  EXPECT_THAT(output_of_failure("differs_in_counts", "120", 1),
              AllOf(HasSubstr("all_to_all ("), HasSubstr("'block 4 rows' (call 0 of group world)"),
                    HasSubstr("rank 1 gives 2097152 elements to rank 3, which expects 1048576")));
}

TEST(Mpi, NamesTheTwoRanksWhoseMethodsDoNotMatch) {
  EXPECT_THAT(
      output_of_failure("differs_in_method", "120", 1),
      AllOf(HasSubstr("all_reduce (sum) of 9000 f32 'block 4 mlp'"), HasSubstr(" uses the method "),
            HasSubstr("two-level"), HasSubstr("flat"), HasSubstr("parallelism.collectives")));
}

TEST(Mpi, ReportsFailuresInTwoLevelsAsInFlatCollectives) {
  EXPECT_THAT(output_of_failure("differs", "120", 1, "two-level"), HasSubstr("does not match"));
  EXPECT_THAT(
      output_of_failure("is_missing", "1.5", 1, "two-level"),
      AllOf(HasSubstr("error: rank 1 has started no call and made no progress for 1.5 s"),
            HasSubstr(" waits for it in all_reduce 'block 2 mlp' (call 1 of group world)")));
  EXPECT_THAT(output_of_failure("returns_early", "3600", 1, "recursive"),
              HasSubstr("error: rank 3 has returned, after all_reduce 'block 1 qkv'"));
  Launched job(4, {"for_ever", "120", "0", "two-level", "aabb"});
  ASSERT_TRUE(job.read_until("pid ", 4, kPatience)) << job.output();
  kill(job.pid_of(2), SIGKILL);
  EXPECT_GT(job.finish(kPatience), 0);
  EXPECT_THAT(job.output(), HasSubstr("signal 9"));
}

TEST(Mpi, NamesTwoRanksThatGiveAGroupDifferentNames) {
  EXPECT_THAT(output_of_failure("differs_in_name", "120", 1),
              HasSubstr("split of group world: its rank 2 names the new group columns, its rank 3 "
                        "rows; the names must be the same"));
}

TEST(UnderLauncher, DetectsLaunchersButNotAShellInAnAllocation) {
  using Variables = std::map<std::string, std::string>;
  const auto lookup = [](const Variables& variables) {
    return [&](const char* name) -> const char* {
      const auto at = variables.find(name);
      return at == variables.end() ? nullptr : at->second.c_str();
    };
  };
  const auto under = [&](const Variables& variables) { return under_launcher(lookup(variables)); };
  EXPECT_FALSE(under({}));
  EXPECT_TRUE(under({{"OMPI_COMM_WORLD_SIZE", "4"}}));
  EXPECT_TRUE(under({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}}));
  EXPECT_TRUE(under({{"PMIX_RANK", "0"}}));
  EXPECT_TRUE(under({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}}));
  EXPECT_FALSE(under({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "8"}}));         // salloc
  EXPECT_FALSE(under({{"SLURM_JOB_ID", "17"}, {"SLURM_PROCID", "0"}}));         // sbatch
  EXPECT_FALSE(under({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));  // srun --pty bash

  const auto here = [&](const Variables& variables) { return launched_here(lookup(variables)); };
  EXPECT_EQ(here({}), 1);
  EXPECT_EQ(here({{"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}}), 8);
  EXPECT_EQ(here({{"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"}}), 4);

  const auto size = [&](const Variables& variables) { return launched_size(lookup(variables)); };
  EXPECT_EQ(size({}), 0);
  EXPECT_EQ(size({{"PMIX_RANK", "0"}}), 0) << "a launcher that does not say";
  EXPECT_EQ(size({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}), 4);
  EXPECT_EQ(size({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}), 0);
  // mpirun starts its daemons, one on each of four nodes, by srun.
  EXPECT_EQ(size({{"SLURM_PROCID", "0"},
                  {"SLURM_STEP_NUM_TASKS", "4"},
                  {"OMPI_COMM_WORLD_SIZE", "2"},
                  {"OMPI_COMM_WORLD_RANK", "0"}}),
            2);

  const auto rank = [&](const Variables& variables) { return launched_rank(lookup(variables)); };
  EXPECT_EQ(rank({}), 0);
  EXPECT_EQ(rank({{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}}), 3);
  EXPECT_EQ(rank({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "8"}}), 3);
  EXPECT_EQ(rank({{"SLURM_PROCID", "3"}}), 0) << "not under a launcher";
}
