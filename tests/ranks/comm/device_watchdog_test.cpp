#include "axonn/ranks/comm/device/device_watchdog.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::ThrowsMessage;

namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

/// A time in seconds that nothing here takes, even on a busy machine.
constexpr double kForEver = 300;

/// Waits until a watchdog's action has happened.
void await(const std::function<bool()>& happens) {
  const double begin = now_seconds();
  while (!happens()) {
    ASSERT_LT(now_seconds() - begin, kForEver) << "it never happened";
    sleep_ms(1);
  }
}

class ManualEvent final : public Event {
 public:
  explicit ManualEvent(bool done = false) : done_(done) {}
  bool done() const override {
    ++asked_;
    if (failed_) throw Error("CUDA: an illegal memory access");
    return done_;
  }
  void finish() { done_ = true; }
  void fail() { failed_ = true; }
  /// Returns when a loop that polls this event has completed an iteration.
  void await_a_look() const {
    const int before = asked_;
    await([&] { return asked_ >= before + 2; });
  }

 private:
  std::atomic<bool> done_, failed_ = false;
  mutable std::atomic<int> asked_ = 0;
};

std::shared_ptr<ManualEvent> event(bool done = false) {
  return std::make_shared<ManualEvent>(done);
}

class FakeLink final : public DeviceLink {
 public:
  void enqueue(const Call&, Stream&) override {}
  void enqueue(const Transpose&, Stream&) override {}
  void begin_split(const Split&) override {}
  std::shared_ptr<DeviceLink> take_split() override { return nullptr; }
  bool ready() override { return true; }
  std::string trouble() override { return in_trouble_ ? "the network is down" : ""; }
  void get_into_trouble() { in_trouble_ = true; }

 private:
  std::atomic<bool> in_trouble_ = false;
};

/// Records what happens to the links of a rank.
struct Happened {
  std::atomic<int> aborted = 0;           ///< number of aborted links
  std::atomic<bool> told_before = false;  ///< the host group had been aborted before the links
  std::atomic<bool> blocks = false;       ///< abort() blocks until this is false
};

class FakeLibrary final : public DeviceLibrary {
 public:
  FakeLibrary(Communicator& host, std::shared_ptr<Happened> happened)
      : host_(host), happened_(std::move(happened)) {}
  void enter_thread() override {}
  void abort(std::span<const std::shared_ptr<DeviceLink>> links) noexcept override {
    if (!happened_->blocks) happened_->told_before = !host_.end_reason().empty();
    happened_->aborted += static_cast<int>(links.size());
    while (happened_->blocks) sleep_ms(1);
  }

 private:
  Communicator& host_;
  std::shared_ptr<Happened> happened_;
};

/// A watchdog of a single rank, with a link.
struct Alone {
  explicit Alone(DeviceWatchdog::Options options = {}) : watchdog(*host, library(), options) {
    watchdog.add(link);
  }
  std::unique_ptr<DeviceLibrary> library() {
    return std::make_unique<FakeLibrary>(*host, happened);
  }
  bool aborted() const { return happened->aborted > 0; }

  std::shared_ptr<Happened> happened = std::make_shared<Happened>();
  std::unique_ptr<Communicator> host = make_self();
  std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
  DeviceWatchdog watchdog;
};

/// A clock for a watchdog, which advances only by advance().
class Clock {
 public:
  std::function<double()> reader() const {
    return [now = now_] { return now->load(); };
  }
  void advance(double seconds) { *now_ = *now_ + seconds; }
  /// Advances in steps that are shorter than the time between two looks of a watchdog with this
  /// timeout, which checks `event` at each of them.
  void run(double seconds, double timeout, const ManualEvent& event) {
    const int steps = static_cast<int>(std::ceil(seconds / (timeout / 20)));
    for (int i = 0; i < steps; ++i) {
      advance(seconds / steps);
      event.await_a_look();
    }
  }

 private:
  std::shared_ptr<std::atomic<double>> now_ = std::make_shared<std::atomic<double>>(0);
};

const std::string kCall = "all_gather of 8 f32 'block 2 qkv' (call 16 of group z)";

}  // namespace

TEST(DeviceWatchdog, NamesACollectiveThatHangsOnTheDeviceAndEndsTheWorldBeforeTheLinks) {
  Alone rank({.timeout_seconds = 0.05});
  rank.watchdog.begin("z", kCall).on_device(event(true), event());
  await([&] { return rank.aborted(); });
  EXPECT_TRUE(rank.happened->told_before);
  EXPECT_THAT(rank.host->end_reason(),
              AllOf(StartsWith("rank 0: " + kCall + " is not done on the device after 0.05 s"),
                    HasSubstr("timeout_seconds")));
  EXPECT_THAT([&] { rank.watchdog.check(); }, ThrowsMessage<Aborted>(rank.host->end_reason()));
  EXPECT_THAT([&] { rank.watchdog.hold(); }, ThrowsMessage<Aborted>(rank.host->end_reason()));
  EXPECT_THROW(rank.watchdog.add(rank.link), Aborted);
}

TEST(DeviceWatchdog, CountsTheTimeoutFromWhenTheDeviceCouldBegin) {
  constexpr double kLimit = 0.1;
  Clock clock;
  Alone rank({.timeout_seconds = kLimit, .clock = clock.reader()});
  const auto ready = event(), first = event(), second = event();
  rank.watchdog.begin("z", "first").on_device(ready, first);
  rank.watchdog.begin("z", "second").on_device(event(true), second);
  clock.run(0.3, kLimit, *first);  // the rank's own compute is not counted
  ready->finish();
  first->await_a_look();
  clock.run(0.06, kLimit, *first);
  EXPECT_FALSE(rank.aborted());
  first->finish();
  second->await_a_look();
  clock.run(0.06, kLimit, *second);
  EXPECT_FALSE(rank.aborted());  // `second` waited for `first`, not for another rank
  clock.run(0.03, kLimit, *second);
  EXPECT_FALSE(rank.aborted());
  clock.advance(0.005);
  second->await_a_look();
  clock.advance(0.01);
  await([&] { return rank.aborted(); });
  EXPECT_THAT(rank.host->end_reason(), StartsWith("rank 0: second is not done on the device"));
}

TEST(DeviceWatchdog, DoesNotCountTheTimeInWhichTheProcessIsStopped) {
  Clock clock;
  Alone rank({.timeout_seconds = 0.1, .clock = clock.reader()});
  const auto late = event();
  rank.watchdog.begin("z", "late").on_device(event(true), late);
  late->await_a_look();
  clock.advance(3600);
  late->await_a_look();
  EXPECT_FALSE(rank.aborted());
}

TEST(DeviceWatchdog, WaitsForARankThatNotesProgress) {
  constexpr double kLimit = 0.1;
  Clock clock;
  const auto late = event();
  std::atomic<bool> waited = false;
  const auto body = [&](Communicator& host) {
    DeviceWatchdog watchdog(host, std::make_unique<FakeLibrary>(host, std::make_shared<Happened>()),
                            {.timeout_seconds = kLimit, .clock = clock.reader()});
    if (host.rank() == 0) watchdog.begin("z", "late").on_device(event(true), late);
    for (int i = 0; i < 5; ++i) {
      host.barrier("noted");
      if (host.rank() == 1) host.note_progress();
      host.barrier("runs");
      if (host.rank() == 0) clock.run(0.6 * kLimit, kLimit, *late);
    }
    host.barrier("waited");
    waited = true;
    while (host.end_reason().empty() && host.rank() == 0) {
      clock.advance(kLimit / 30);
      sleep_ms(1);
    }
    host.barrier("end");
  };
  EXPECT_THAT([&] { run_ranks(2, body); },
              ThrowsMessage<Error>(HasSubstr("late is not done on the device after 0.1 s")));
  EXPECT_TRUE(waited) << "it ended although a rank had noted progress";
}

TEST(DeviceWatchdog, WatchesEachGroupSeparately) {
  Alone rank({.timeout_seconds = 0.1});
  rank.watchdog.begin("x", "waits for compute").on_device(event(), event());
  rank.watchdog.begin("z", "hangs").on_device(event(true), event());
  await([&] { return rank.aborted(); });
  EXPECT_THAT(rank.host->end_reason(), StartsWith("rank 0: hangs"));
}

TEST(DeviceWatchdog, NamesACallThatHangsOnTheHost) {
  Alone rank({.timeout_seconds = 0.05});
  const auto entry = rank.watchdog.begin("z", "making the group (call 0 of group z)");
  await([&] { return rank.aborted(); });
  EXPECT_THAT(rank.host->end_reason(),
              StartsWith("rank 0: making the group (call 0 of group z) is not done after 0.05 s"));
}

TEST(DeviceWatchdog, ForgetsFinishedOperations) {
  Clock clock;
  Alone rank({.timeout_seconds = 0.05, .clock = clock.reader()});
  for (int i = 0; i < 200; ++i) {
    const auto finished = event();
    rank.watchdog.begin("x", "on the device").on_device(event(true), finished);
    { const auto entry = rank.watchdog.begin("y", "on the host"); }
    finished->finish();
    clock.advance(0.01);
    if (i % 8 == 0) sleep_ms(1);
  }
  const auto last = event();  // of the last group: when it is checked, the others have been
  rank.watchdog.begin("z", "waits for compute").on_device(event(), last);
  clock.run(0.1, 0.05, *last);
  EXPECT_FALSE(rank.aborted());
  rank.watchdog.check();
}

TEST(DeviceWatchdog, ReportsAnErrorOfTheLibrary) {
  Alone rank;
  rank.link->get_into_trouble();
  await([&] { return rank.aborted(); });
  EXPECT_EQ(rank.host->end_reason(), "rank 0: the network is down");
}

TEST(DeviceWatchdog, NamesTheCollectiveDuringWhichTheDeviceFailed) {
  Alone rank;
  const auto finished = event();
  finished->fail();
  rank.watchdog.begin("z", kCall).on_device(event(true), finished);
  await([&] { return rank.aborted(); });
  EXPECT_EQ(rank.host->end_reason(),
            "rank 0: " + kCall + ": the device has failed: CUDA: an illegal memory access");
}

TEST(DeviceWatchdog, AbortsTheLinksOfAllRanksWhenTheWorldEnds) {
  std::vector<std::shared_ptr<Happened>> happened(3);
  for (auto& one : happened) one = std::make_shared<Happened>();
  const auto body = [&](Communicator& host) {
    DeviceWatchdog watchdog(host, std::make_unique<FakeLibrary>(host, happened[host.rank()]), {});
    watchdog.add(std::make_shared<FakeLink>());
    watchdog.add(std::make_shared<FakeLink>());
    if (host.rank() == 1) watchdog.abort("enough");
    await([&] { return happened[host.rank()]->aborted == 2; });
    watchdog.check();
  };
  EXPECT_THAT([&] { run_ranks(3, body); }, ThrowsMessage<Error>("enough"));
  for (const auto& one : happened) EXPECT_TRUE(one->told_before);
}

TEST(DeviceWatchdog, KeepsTheMessageOfARankThatEndsWithAnError) {
  auto happened = std::make_shared<Happened>();
  const auto body = [&](Communicator& host) {
    DeviceWatchdog watchdog(host, std::make_unique<FakeLibrary>(host, happened), {});
    watchdog.add(std::make_shared<FakeLink>());
    watchdog.end_links();
    await([&] { return happened->aborted == 1; });
    EXPECT_EQ(host.end_reason(), "");
    throw Error("the disk is full");
  };
  EXPECT_THAT([&] { run_ranks(1, body); }, ThrowsMessage<Error>("rank 0: the disk is full"));
}

TEST(DeviceWatchdog, DoesNotWaitForAnAbortThatNeedsOtherRanks) {
  auto happened = std::make_shared<Happened>();
  happened->blocks = true;
  {
    const auto host = make_self();
    DeviceWatchdog watchdog(*host, std::make_unique<FakeLibrary>(*host, happened), {});
    watchdog.add(std::make_shared<FakeLink>());
    watchdog.end_links();
  }
  EXPECT_EQ(happened->aborted, 1);
  happened->blocks = false;
}

TEST(DeviceWatchdog, GivesUpOnARankThatDoesNotReturn) {
  std::atomic<bool> reported = false;
  auto happened = std::make_shared<Happened>();
  const auto body = [&](Communicator& host) {
    DeviceWatchdog watchdog(host, std::make_unique<FakeLibrary>(host, happened),
                            {.timeout_seconds = 0.05, .grace_seconds = 0.05});
    watchdog.begin("z", "it").on_device(event(true), event());
    const auto links = watchdog.hold();  // the rank is stuck in the library itself
    await([&] { return reported.load(); });
  };
  const auto on_hang = [&](const std::string& report) {
    EXPECT_THAT(report, AllOf(StartsWith("rank "), HasSubstr(": it is not done")));
    reported = true;
  };
  EXPECT_THROW(run_ranks(2, body, {.on_hang = on_hang}), Error);
  EXPECT_TRUE(reported);
}

TEST(DeviceWatchdog, DoesNotGiveUpOnARankThatReturns) {
  const auto body = [&](Communicator& host) {
    DeviceWatchdog watchdog(host, std::make_unique<FakeLibrary>(host, std::make_shared<Happened>()),
                            {.timeout_seconds = 0.05, .grace_seconds = 2 * kForEver});
    watchdog.begin("z", "it").on_device(event(true), event());
    await([&] { return !host.end_reason().empty(); });
  };
  const auto on_hang = [&](const std::string& report) { ADD_FAILURE() << report; };
  const double begin = now_seconds();
  EXPECT_THROW(run_ranks(2, body, {.on_hang = on_hang}), Error);
  EXPECT_LT(now_seconds() - begin, kForEver) << "it waited for the grace period";
}
