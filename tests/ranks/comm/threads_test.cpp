#include "axonn/ranks/comm/threads/threads.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/ranks/comm/grid.h"

#include "tests/ranks/comm/collectives.h"
#include "tests/support/sanitized.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

namespace {

/// A watchdog's timeout in seconds: far longer than ranks wait for each other if none hangs.
constexpr double kTimeout = 1;

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

Work sum(Communicator& comm, std::vector<float>& x, std::string_view label = {}) {
  return comm.all_reduce(buffer(std::span<float>(x)), label);
}

}  // namespace

TEST(Threads, RunEveryCollectiveOnGroupsOfEverySizeBitForBit) {
  run_ranks(some_ranks().back(), check_transport);
}

TEST(Threads, RunManyCollectivesOnSeveralGroupsWithAnyOrderOfWaitsAndAnyDelays) {
  const int most = testing_support::sanitized() ? 5 : 8;
  for (int ranks : {2, 3, most})
    for (std::uint64_t seed : {1, 2})
      run_ranks(ranks, [](Communicator& world) { check_many_in_flight(world, 60); },
                {.max_delay_us = 200, .delay_seed = seed});
}

TEST(Threads, ExchangeDifferentCountsWithAnyDelays) {
  const int most = testing_support::sanitized() ? 3 : 5;
  for (int ranks : {2, most})
    for (std::uint64_t seed : {1, 2})
      run_ranks(ranks, check_exchange, {.max_delay_us = 200, .delay_seed = seed});
}

TEST(Threads, GiveTheSameBitsWhicheverThreadDoesTheWork) {
  std::vector<std::uint64_t> hashes;
  for (std::uint64_t seed : {1, 2, 3})
    run_ranks(4,
              [&](Communicator& world) {
                const std::uint64_t hash = hash_of_sums(world);
                if (world.rank() == 1) hashes.push_back(hash);
              },
              {.max_delay_us = 100, .delay_seed = seed});
  EXPECT_THAT(hashes, testing::Each(hashes.front()));
}

TEST(Threads, RunAs512Ranks) {
  run_ranks(512, [](Communicator& world) {
    const Grid grid(world, {8, 4, 8, 2});
    std::vector<float> x(10'000, 1.f), y(3, 1.f);
    Work all = sum(world, x);
    for (Axis axis : kAxes) {
      std::fill(y.begin(), y.end(), 1.f);
      sum(grid.along(axis), y).wait();
      EXPECT_THAT(y, testing::Each(static_cast<float>(grid.extent(axis))));
    }
    all.wait();
    EXPECT_EQ(std::ranges::count(x, 512.f), 10'000);
  });
}

TEST(Threads, FinishAWorkThatIsPolledAndNeverWaitedFor) {
  run_ranks(3, [](Communicator& world) {
    std::vector<float> x(100'000, 1.f);
    Work work = sum(world, x);
    while (!work.done()) std::this_thread::yield();
    EXPECT_EQ(x[99'999], 3.f);
  });
}

TEST(Threads, WaitInTheDestructorOfAWork) {
  run_ranks(2, [](Communicator& world) {
    std::vector<float> x(100'000, 1.f);
    if (world.rank() == 1) sleep_seconds(0.02);
    { const Work work = sum(world, x); }
    EXPECT_EQ(x[50'000], 2.f);
  });
}

TEST(Threads, RethrowTheFirstErrorWithItsTypeAndItsRank) {
  const auto throws = [](auto error) {
    return [error] {
      run_ranks(4, [&](Communicator& world) {
        if (world.rank() == 3) throw error;
        world.barrier();
      });
    };
  };
  EXPECT_THAT(throws(UsageError("no such key")), ThrowsMessage<UsageError>("rank 3: no such key"));
  EXPECT_THAT(throws(Error("broken", "a.cpp:1")), ThrowsMessage<Error>("rank 3: broken"));
  EXPECT_THAT(throws(std::out_of_range("at")), ThrowsMessage<Error>("rank 3: at"));
  EXPECT_THROW(throws(7)(), int);
}

TEST(Threads, ThrowAbortedWithTheReasonOnEveryGroupOfTheOtherRanksIfOneThrows) {
  std::atomic<int> aborted = 0;
  const auto body = [&](Communicator& world) {
    const auto halves = world.split(world.rank() / 2, "halves");
    const auto alone = world.split(world.rank(), "alone");
    if (world.rank() == 0) {
      sleep_seconds(0.02);
      throw Error("lost");
    }
    try {
      (world.rank() == 1 ? *halves : world).barrier();
    } catch (const Aborted& e) {
      EXPECT_STREQ(e.what(), "rank 0: lost");
      EXPECT_THAT([&] { alone->barrier(); }, ThrowsMessage<Aborted>("rank 0: lost"));
      EXPECT_THAT([&] { halves->split(0, "x"); }, ThrowsMessage<Aborted>("rank 0: lost"));
      ++aborted;
      throw;
    }
  };
  EXPECT_THAT([&] { run_ranks(4, body); }, ThrowsMessage<Error>("rank 0: lost"));
  EXPECT_EQ(aborted, 3);
}

TEST(Threads, NeverTouchABufferThatARankFreedWhenItThrew) {  // ASan and TSan detect it
  for (int round = 0; round < 30; ++round) {
    const auto body = [&](Communicator& world) {
      std::vector<float> x(200'000, 1.f), y(200'000, 1.f);
      Work first = sum(world, x);
      Work second = world.rank() == 2 ? Work() : sum(world, y);
      if (world.rank() == round % 4) throw Error("lost");
      first.wait();
      second.wait();
    };
    EXPECT_THROW(run_ranks(4, body, {.max_delay_us = 50}), Error);
  }
}

TEST(Threads, EndOnAnExplicitAbortWithItsReason) {
  const auto body = [](Communicator& world) {
    if (world.rank() == 1) return world.abort("enough");
    world.barrier();
  };
  EXPECT_THAT([&] { run_ranks(3, body); }, ThrowsMessage<Error>("enough"));
}

TEST(Threads, NameARankThatReturnsWhileOthersWaitForIt) {
  const auto early = [](Communicator& world) {
    std::vector<float> x(2);
    sum(world, x, "first").wait();
    if (world.rank() == 2) return;
    sum(world, x, "second").wait();
  };
  const auto late = [](Communicator& world) {
    std::vector<float> x(2);
    sum(world, x, "first").wait();
    if (world.rank() == 2) return;
    sleep_seconds(0.05);
    sum(world, x, "second").wait();
  };
  for (const auto& body : {std::function<void(Communicator&)>(early), {late}})
    EXPECT_THAT([&] { run_ranks(3, body); },
                ThrowsMessage<Error>(
                    AllOf(HasSubstr("all_reduce (sum) of 2 f32 'second' (call 1 of group world)"),
                          HasSubstr("rank 2 has returned without it, after all_reduce 'first'"))));
}

TEST(Threads, NameTheTwoRanksWhoseCallsDoNotMatch) {
  const auto body = [](Communicator& world) {
    std::vector<float> x(world.rank() == 1 ? 3 : 2);
    sum(world, x, "width").wait();
  };
  EXPECT_THAT([&] { run_ranks(2, body); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("all_reduce (sum) of 2 f32 'width'"), HasSubstr("on rank 0"),
                        HasSubstr("all_reduce (sum) of 3 f32 'width'"), HasSubstr("on rank 1"),
                        HasSubstr("call 0 of group world"))));
  const auto kinds = [](Communicator& world) {
    if (world.rank() == 0) return world.barrier();
    std::vector<float> x;
    sum(world, x).wait();
  };
  EXPECT_THAT([&] { run_ranks(2, kinds); },
              ThrowsMessage<Error>(AllOf(HasSubstr("barrier"), HasSubstr("all_reduce"))));
}

TEST(Threads, NameTheTwoRanksAndTheCountsOfAnExchangeThatDoNotMatch) {
  const auto exchange = [](Communicator& world, std::int64_t wrong) {
    std::vector<std::int64_t> to(3, 2), from(3, 2);
    if (world.rank() == 1) to[2] += wrong;
    std::vector<float> inp(6 + (world.rank() == 1 ? wrong : 0)), out(6);
    world.all_to_all(buffer(std::span(out)), buffer(std::span(inp)), {to, from}, "rows").wait();
  };
  const auto body = [&](Communicator& world) {
    const auto group = world.split(world.rank() / 3, "group");
    exchange(*group, world.rank() >= 3 ? 5 : 0);
  };
  for (const std::uint64_t seed : {1, 2, 3})  // whichever of the two ranks is the last to arrive
    EXPECT_THAT([&] { run_ranks(6, body, {.max_delay_us = 200, .delay_seed = seed}); },
                ThrowsMessage<Error>(
                    AllOf(HasSubstr("all_to_all ("), HasSubstr("'rows' (call 0 of group group)"),
                          HasSubstr("rank 4 gives 7 elements to rank 5, which expects 2"))));
  const auto one_uniform = [](Communicator& world) {
    const std::vector<std::int64_t> ones{1, 1};
    std::vector<float> inp(2), out(2);
    const Buffer to = buffer(std::span(out)), from = buffer(std::span(inp));
    (world.rank() == 0 ? world.all_to_all(to, from) : world.all_to_all(to, from, {ones, ones}))
        .wait();
  };
  EXPECT_THAT([&] { run_ranks(2, one_uniform); },
              ThrowsMessage<Error>(AllOf(HasSubstr("all_to_all of 2 f32"),
                                         HasSubstr("all_to_all (2 given, 2 taken) of 2 f32"),
                                         HasSubstr("does not match"))));
}

TEST(Threads, NameTwoRanksThatGiveAGroupDifferentNames) {
  const auto body = [](Communicator& world) {
    world.split(world.rank() / 2, world.rank() == 3 ? "rows" : "columns");
  };
  EXPECT_THAT([&] { run_ranks(4, body); },
              ThrowsMessage<Error>(HasSubstr("split of group world: its rank 2 names the new group "
                                             "columns, its rank 3 rows")));
}

TEST(ThreadsWatchdog, NamesTheRanksThatArrivedTheMissingRankAndItsLastCall) {
  const auto body = [](Communicator& world) {
    const auto pair = world.split(world.rank() / 2, "pair");
    std::vector<float> x(8);
    sum(*pair, x, "block 1 qkv").wait();
    if (world.rank() == 1)  // computes until the world ends
      while (world.end_reason().empty()) sleep_seconds(0.01);
    sum(world, x, "block 2 mlp").wait();
  };
  EXPECT_THAT([&] { run_ranks(4, body, {.timeout_seconds = kTimeout}); },
              ThrowsMessage<Error>(AllOf(
                  StartsWith("rank 1 has started no call and made no progress for 1 s (its last: "
                             "all_reduce 'block 1 qkv' (call 0 of group pair); "
                             "parallelism.timeout_seconds is the limit); rank "),
                  HasSubstr(" waits for it in all_reduce 'block 2 mlp' (call "))));
}

TEST(ThreadsWatchdog, FollowsTheWaitsToTheRankThatHoldsAllUp) {
  const auto body = [](Communicator& world) {  // on the grid 2,2
    const auto x = world.split(world.rank() / 2, "x"), y = world.split(world.rank() % 2, "y");
    std::vector<float> data(8);
    if (world.rank() == 2)  // computes until the world ends
      while (world.end_reason().empty()) sleep_seconds(0.01);
    if (world.rank() >= 2) sum(*x, data, "qkv").wait();
    if (world.rank() % 2 == 1) sum(*y, data, "mlp").wait();
    if (world.rank() < 2) sum(*x, data, "head").wait();
  };
  const std::string direct = "rank 3 waits for it in all_reduce 'qkv' (call 0 of group x)";
  EXPECT_THAT([&] { run_ranks(4, body, {.timeout_seconds = kTimeout}); },
              ThrowsMessage<Error>(AllOf(
                  StartsWith("rank 2 has started no call and made no progress for 1 s (its last: "),
                  HasSubstr(direct))));
}

TEST(ThreadsWatchdog, NamesRanksThatWaitForEachOther) {
  const auto body = [](Communicator& world) {
    const auto a = world.split(0, "a"), b = world.split(0, "b");
    (world.rank() == 0 ? a : b)->barrier("first");
    (world.rank() == 0 ? b : a)->barrier("second");
  };
  EXPECT_THAT([&] { run_ranks(2, body, {.timeout_seconds = kTimeout}); },
              ThrowsMessage<Error>(AllOf(
                  HasSubstr(" and ranks that it waits for wait for each other for 1 s; rank "),
                  HasSubstr("rank 0 waits for"), HasSubstr("rank 1 waits for"),
                  HasSubstr("in barrier 'first' (call 0 of group a)"),
                  HasSubstr("in barrier 'first' (call 0 of group b)"))));
}

TEST(ThreadsWatchdog, WaitsForARankThatNotesProgress) {
  run_ranks(3,
            [](Communicator& world) {
              const auto pair = world.split(world.rank() / 2, "pair");
              for (int i = 0; i < 60 && world.rank() == 0; ++i) {
                sleep_seconds(kTimeout / 20);
                pair->note_progress();
              }
              if (world.rank() < 2) pair->barrier("tokens");
              world.barrier("data");
            },
            {.timeout_seconds = kTimeout});
}

TEST(ThreadsWatchdog, DoesNotCountTheTimeInWhichTheProcessIsStopped) {
  constexpr double kStopped = 2 * kTimeout;
  int ready[2], wake[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(wake), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    const auto body = [&](Communicator& world) {
      if (world.rank() == 1 && (write(ready[1], &byte, 1) != 1 || read(wake[0], &byte, 1) != 1))
        throw Error("the pipe is broken");
      world.barrier("step");
    };
    try {
      run_ranks(2, body, {.timeout_seconds = kTimeout});
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGSTOP);
  sleep_seconds(kStopped);
  EXPECT_EQ(write(wake[1], &byte, 1), 1);
  kill(child, SIGCONT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const int end : {ready[0], ready[1], wake[0], wake[1]}) close(end);
}

TEST(ThreadsWatchdog, ReportsAtOnceEvenIfTheMissingRankStillRuns) {
  std::atomic<bool> reported = false;
  const auto body = [&](Communicator& world) {
    while (world.rank() == 1 && !reported) sleep_seconds(0.01);
    world.barrier("step");
  };
  const auto on_hang = [&](const std::string& report) {
    EXPECT_THAT(
        report,
        AllOf(StartsWith("rank 1 has started no call and made no progress for 1 s (its last: "
                         "no collective"),
              HasSubstr("barrier 'step'")));
    EXPECT_FALSE(reported.exchange(true)) << "reported twice";
  };
  EXPECT_THROW(run_ranks(3, body, {.timeout_seconds = kTimeout, .on_hang = on_hang}), Error);
  EXPECT_TRUE(reported);
}

TEST(Threads, MeasureTheTimeTheyWait) {
  constexpr int kRounds = 10;
  constexpr double kLate = 0.02;
  std::atomic<int> waiting = 0;
  std::array<double, 2> waited{}, at_most{};
  run_ranks(2, [&](Communicator& world) {
    for (int round = 1; round <= kRounds; ++round) {
      if (world.rank() == 0) {
        waiting = round;
      } else {
        while (waiting < round) std::this_thread::yield();
        sleep_seconds(kLate);
      }
      const double begin = now_seconds();
      world.barrier();
      at_most[world.rank()] += now_seconds() - begin;
    }
    waited[world.rank()] = world.stats().waited_seconds_by[static_cast<int>(Operation::barrier)];
  });
  // Half, because rank 0 may reach a barrier late, but hardly in every round.
  EXPECT_GT(waited[0], kRounds * kLate / 2);
  for (int rank : {0, 1}) EXPECT_LE(waited[rank], at_most[rank]) << "more than it waited";
}

TEST(Threads, RefuseToRunZeroRanks) {
  EXPECT_THAT([] { run_ranks(0, [](Communicator&) {}); },
              ThrowsMessage<Error>(HasSubstr("at least one rank, got 0")));
}
