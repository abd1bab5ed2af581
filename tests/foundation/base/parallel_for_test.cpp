#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "axonn/foundation/base/host.h"

using namespace axonn;

TEST(ParallelFor, CallsEachIndexOnce) {
  for (const int threads : {0, 1, 4, 100}) {
    std::vector<std::atomic<int>> calls(57);
    parallel_for(calls.size(), threads, [&](std::size_t i) { ++calls[i]; });
    for (const auto& count : calls) EXPECT_EQ(count, 1) << threads << " threads";
  }
  parallel_for(0, 4, [](std::size_t) { FAIL(); });
}

TEST(ParallelFor, ThrowsTheErrorOfTheLowestIndex) {
  for (int run = 0; run < 50; ++run) {
    std::atomic<bool> thrown = false;
    const auto fail_late = [&](std::size_t i) {
      if (i == 3)  // waits until a later index has failed
        while (!thrown) std::this_thread::yield();
      if (i < 3) return;
      thrown = true;
      throw std::runtime_error(std::to_string(i));
    };
    try {
      parallel_for(100, 4, fail_late);
      FAIL() << "no error";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "3");
    }
  }
}

TEST(UsableCores, AreThoseThatTheThreadIsBoundTo) {
  const std::vector<int> all = usable_cores();
  ASSERT_FALSE(all.empty());
  std::thread([&] {
    ASSERT_TRUE(bind_this_thread({all.back()}));
    EXPECT_EQ(usable_cores(), std::vector{all.back()});
    EXPECT_EQ(usable_core_count(), 1);
  }).join();
  EXPECT_EQ(usable_core_count(), std::ssize(all));
}
