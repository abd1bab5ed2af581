#include "axonn/comm/patience.h"

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

TEST(Patience, LosesTwoSlicesWhenTheProcessIsStoppedForAnyTime) {
  for (const double timeout : {0.5, 600.}) {
    double now = 0;
    Patience patience(timeout, [&] { return now; });
    EXPECT_LE(patience.slice(), timeout / 10);
    now += 100 * timeout;
    EXPECT_DOUBLE_EQ(patience.waited(), 2 * patience.slice());
    EXPECT_FALSE(patience.over(1, 0));
  }
}

TEST(Patience, IsOverWhenOneRankHasMadeNoProgressForTheTimeout) {
  double now = 0;
  Patience patience(100, [&] { return now; });
  const auto run = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      ++now;
      patience.look_due();
    }
  };
  run(60);
  EXPECT_FALSE(patience.over(1, 7));
  run(60);
  EXPECT_TRUE(patience.over(1, 7));
  EXPECT_FALSE(patience.over(1, 8));  // progress
  run(99);
  EXPECT_FALSE(patience.over(1, -1));  // no answer
  run(1);
  EXPECT_TRUE(patience.over(1, -1));
  EXPECT_FALSE(patience.over(2, -1));  // it is another rank that holds the wait up
  run(50);
  EXPECT_FALSE(patience.over(2, 3));
  run(100);
  EXPECT_TRUE(patience.over(2, 3));
}

TEST(Patience, LooksAtFirstEarlyAndThenTenTimesWithinTheTimeout) {
  double now = 0;
  Patience patience(600, [&] { return now; });
  std::vector<int> looks;
  for (now = 1; now <= 300; ++now)
    if (patience.look_due()) looks.push_back(static_cast<int>(now));
  EXPECT_EQ(looks, (std::vector{5, 10, 20, 40, 80, 140, 200, 260}));
}
