#include <algorithm>
#include <mutex>

#include <gmock/gmock.h>

#include "axonn/foundation/base/host.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/load/devices.h"

using namespace axonn;
using testing::IsEmpty;

namespace {

/// Cores that the ranks, which are threads, may use while OwnCores lives (of all ranks together,
/// sorted); their compute threads; and the cores that each may use afterwards.
struct Seen {
  std::vector<int> during, threads;
  std::vector<std::vector<int>> after;
};

Seen seen_by(int ranks, const TrainingConfig& training) {
  Config config;
  config.training = training;
  const std::vector<int> all = usable_cores();
  Seen seen;
  std::mutex mutex;
  run_ranks(ranks, [&](Communicator& world) {
    std::vector<int> during;
    int threads = 0;
    {
      const OwnCores cores(config, world);
      threads = cores.threads();
      during = usable_cores();
    }
    const std::lock_guard lock(mutex);
    std::ranges::copy(during, std::back_inserter(seen.during));
    seen.threads.push_back(threads);
    seen.after.push_back(usable_cores());
  });
  std::ranges::sort(seen.during);
  return seen;
}

}  // namespace

TEST(OwnCores, OfRanksInOneProcessAreDisjointAndReleasedAfterwards) {
  const std::vector<int> all = usable_cores();
  const int ranks = static_cast<int>(all.size());
  if (ranks == 1) GTEST_SKIP() << "this process may use only one core";
  const Seen seen = seen_by(ranks, {});
  EXPECT_EQ(seen.during, all);
  EXPECT_EQ(seen.threads, std::vector<int>(ranks, 1));
  for (const std::vector<int>& cores : seen.after) EXPECT_EQ(cores, all);
}

TEST(OwnCores, AreAllCoresForOneRankAndIfRanksOrThreadsOutnumberThem) {
  const std::vector<int> all = usable_cores();
  const int cores = static_cast<int>(all.size());
  const Seen one = seen_by(1, {});
  EXPECT_EQ(one.during, all);
  EXPECT_EQ(one.threads, std::vector<int>{cores});
  EXPECT_EQ(seen_by(cores + 1, {}).during.size(), all.size() * (cores + 1));
  const Seen many = seen_by(2, {.threads = cores + 1});
  EXPECT_EQ(many.during.size(), 2 * all.size());
  EXPECT_EQ(many.threads, std::vector<int>(2, cores + 1));
}

TEST(OwnCores, AreNotBoundIfTheConfigForbidsIt) {
  EXPECT_EQ(seen_by(2, {.bind_cores = false}).during.size(), 2 * usable_cores().size());
}
