#include "axonn/ranks/comm/timeout.h"

#include <vector>

#include <gtest/gtest.h>

using namespace axonn;

TEST(RunningClock, CountsALongPauseAsTheLongestOne) {
  double now = 1000;
  RunningClock clock(0.5, [&] { return now; });
  EXPECT_EQ(clock.now(), 0);
  now += 0.25;
  EXPECT_EQ(clock.now(), 0.25);
  now += 3600;  // stopped
  EXPECT_EQ(clock.now(), 0.75);
  now += 0.5;
  EXPECT_EQ(clock.now(), 1.25);
}

TEST(Timeout, LosesTwoSlicesWhenTheProcessIsStoppedForAnyTime) {
  for (const double timeout : {0.5, 600.}) {
    double now = 0;
    Timeout wait(timeout, [&] { return now; });
    EXPECT_LE(wait.slice(), timeout / 10);
    now += 100 * timeout;
    EXPECT_DOUBLE_EQ(wait.waited(), 2 * wait.slice());
    EXPECT_FALSE(wait.over(1, 0));
  }
}

TEST(Timeout, IsOverWhenOneRankHasMadeNoProgressForTheTimeout) {
  double now = 0;
  Timeout wait(100, [&] { return now; });
  const auto run = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      ++now;
      wait.look_due();
    }
  };
  run(60);
  EXPECT_FALSE(wait.over(1, 7));
  run(60);
  EXPECT_TRUE(wait.over(1, 7));
  EXPECT_FALSE(wait.over(1, 8));  // progress
  run(99);
  EXPECT_FALSE(wait.over(1, -1));  // no answer
  run(1);
  EXPECT_TRUE(wait.over(1, -1));
  EXPECT_FALSE(wait.over(2, -1));  // it is another rank that holds the wait up
  run(50);
  EXPECT_FALSE(wait.over(2, 3));
  run(100);
  EXPECT_TRUE(wait.over(2, 3));
}

TEST(Timeout, LooksAtFirstEarlyAndThenTenTimesWithinTheTimeout) {
  double now = 0;
  Timeout wait(600, [&] { return now; });
  std::vector<int> looks;
  for (now = 1; now <= 300; ++now)
    if (wait.look_due()) looks.push_back(static_cast<int>(now));
  EXPECT_EQ(looks, (std::vector{5, 10, 20, 40, 80, 140, 200, 260}));
}
