#include <atomic>
#include <cstring>
#include <functional>
#include <span>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/ranks/comm/device/device_communicator.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/ranks/comm/collectives.h"
#include "tests/support/gpu_of_host_memory.h"
#include "tests/support/queued_gpu.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;
using testing_support::GpuOfHostMemory;
using testing_support::QueuedDevice;
using testing_support::QueuedGpu;

namespace {

/// Makes start_on() public.
struct Opened : Communicator {
  using Communicator::start_on;
};

std::atomic<int> transposes = 0, latest_blocks = 0;

/// A link that runs collectives on a host group and is ready after some polls. It does not support
/// send and recv, because it is ready only when the collective is done.
class HostLink final : public DeviceLink {
 public:
  explicit HostLink(std::unique_ptr<Communicator> group, int ready_after = 2)
      : group_(std::move(group)), ready_after_(ready_after) {}

  void enqueue(const Call& call, Stream&) override {
    begin();
    work_ = Work(Opened::start_on(*group_, call));
  }
  void enqueue(const Transpose& of, Stream&) override {
    ++transposes;
    for (std::int64_t row = 0; row < of.rows; ++row)
      for (std::int64_t column = 0; column < of.columns; ++column)
        std::memcpy(static_cast<char*>(of.out) + (column * of.rows + row) * of.bytes,
                    static_cast<const char*>(of.inp) + (row * of.columns + column) * of.bytes,
                    of.bytes);
  }
  void begin_split(const Split& split) override {
    begin();
    EXPECT_EQ(split.key, group_->rank());
    part_ = group_->split(split.color, "link");
    if (split.color < 0) part_ = nullptr;
    latest_blocks = split.blocks;
  }
  std::shared_ptr<DeviceLink> take_split() override {
    if (!part_) return nullptr;
    return std::make_shared<HostLink>(std::move(part_));
  }
  bool ready() override { return polls_++ >= ready_after_ && work_.done(); }
  std::string trouble() override { return {}; }

 private:
  void begin() {
    EXPECT_TRUE(ready()) << "a call begins before the previous one is ready";
    polls_ = 0;
  }

  std::unique_ptr<Communicator> group_, part_;
  int ready_after_, polls_ = 1 << 20;
  Work work_;
};

/// A link whose collectives are work of the stream, which runs when something waits for it.
class LateLink final : public DeviceLink {
 public:
  LateLink() = default;
  LateLink(const LateLink&) = delete;
  LateLink& operator=(const LateLink&) = delete;
  ~LateLink() override { EXPECT_TRUE(*done_) << "a group ends before its collective"; }

  void enqueue(const Call&, Stream& stream) override {
    *done_ = false;
    static_cast<QueuedGpu::QueuedStream&>(stream).push(
        {.run = [done = done_] { *done = true; }, .after = {}});
  }
  void enqueue(const Transpose&, Stream&) override {}
  void begin_split(const Split&) override {}
  std::shared_ptr<DeviceLink> take_split() override { return nullptr; }
  bool ready() override { return true; }
  std::string trouble() override { return {}; }

 private:
  std::shared_ptr<std::atomic<bool>> done_ = std::make_shared<std::atomic<bool>>(true);
};

class HostLibrary final : public DeviceLibrary {
 public:
  void enter_thread() override {}
  void abort(std::span<const std::shared_ptr<DeviceLink>>) noexcept override {}
};

using LinkedBody = std::function<void(Communicator&, GpuOfHostMemory&)>;

/// Runs body on a linked world of `ranks` ranks, of which `per_host` share each pretended host.
void run_linked(int ranks, const LinkedBody& body, double timeout_seconds = 600,
                int per_host = 64) {
  run_ranks(ranks, [&](Communicator& host) {
    GpuOfHostMemory gpu;
    std::shared_ptr<DeviceWatchdog> watchdog;
    std::shared_ptr<DeviceLink> link;
    if (ranks > 1) {
      watchdog = std::make_shared<DeviceWatchdog>(
          host, std::make_unique<HostLibrary>(),
          DeviceWatchdog::Options{.timeout_seconds = timeout_seconds});
      link = std::make_shared<HostLink>(host.split(0, "links"));
    }
    Arena arena(gpu);
    const auto world =
        make_linked(host, arena, {link, watchdog, concat("host ", host.rank() / per_host)});
    gpu.holds_everything();
    body(*world, gpu);
  });
}

}  // namespace

TEST(LinkedCommunicator, RunsEveryCollectiveOfEveryGroupByItsLink) {
  for (int ranks : {1, 2, 5})
    run_linked(ranks, [](Communicator& world, GpuOfHostMemory&) {
      for (std::int64_t count : {0, 1, 7, 4097}) check_collectives(world, count);
      check_exchange(world);
      check_many_in_flight(world, 10);
      check_split(world);
    });
}

TEST(LinkedCommunicator, GivesThePartsOfItsGroupTheBlocksOfTheirNames) {
  run_linked(2, [](Communicator& world, GpuOfHostMemory&) {
    for (const auto& [wanted, name, blocks] : {std::tuple(-1, "data", 8),
                                               {-1, "same experts", 8},
                                               {-1, "y", 16},
                                               {-1, "context", 16},
                                               {0, "data", 0},
                                               {3, "y", 3}}) {
      world.set_policy({.gpu_blocks = wanted});
      latest_blocks = -1;
      world.barrier("before");
      const auto part = world.split(0, name);
      EXPECT_EQ(latest_blocks, blocks) << name;
      world.barrier("after");
    }
  });
}

TEST(LinkedCommunicator, TellsTheDeviceTheBlocksOfCollectivesInFlight) {
  run_linked(2, [](Communicator& world, GpuOfHostMemory& gpu) {
    for (const bool spares : {true, false}) {
      world.set_policy({.gpu_blocks = -1, .spares = spares});
      const auto z = world.split(0, "z"), x = world.split(0, "x");
      std::vector<float> a(3), b(3), c(3);
      Work first = z->all_reduce(buffer(std::span(a)), "a"),
           second = z->all_reduce(buffer(std::span(b)), "b");
      EXPECT_EQ(gpu.lent(), spares ? 8 : 0) << "one after another";
      {
        const Work third = x->all_reduce(buffer(std::span(c)), "c");
        EXPECT_EQ(gpu.lent(), spares ? 8 + 16 : 0) << "at the same time";
      }
      first.wait();
      EXPECT_EQ(gpu.lent(), spares ? 8 : 0);
      second.wait();
      second.wait();
      EXPECT_EQ(gpu.lent(), 0);
    }
  });
}

TEST(LinkedCommunicator, WorksInTwoLevelsInsideTheHostsAndAcrossThem) {
  // Blocks of a power of two, so that a tree of the ranks has the sums of the hosts in it.
  for (const auto& [ranks, per_host] : {std::pair(4, 2), std::pair(8, 2), std::pair(8, 4)}) {
    const auto all = [](Communicator& world, CollectiveMethod method) {
      world.set_policy({method});
      std::vector<float> kept;
      for (const std::int64_t n : {0, 1, 7, 8, 1001}) {
        std::vector<float> part(n), whole(n * world.size()), of_all(n * world.size());
        for (std::int64_t i = 0; i < std::ssize(whole); ++i)
          whole[i] = static_cast<float>((i * 7919 + world.rank() * 104'729) % 1009) / 997;
        world.reduce_scatter(buffer(std::span(part)), buffer(std::span(whole)), "cut").wait();
        world.all_gather(buffer(std::span(of_all)), buffer(std::span(part)), "gather").wait();
        world.all_reduce(buffer(std::span(whole)), "sum").wait();
        world.all_reduce(buffer(std::span(part)), "max", ReduceOp::max).wait();
        for (const auto& values : {part, whole, of_all})
          kept.insert(kept.end(), values.begin(), values.end());
      }
      return kept;
    };
    transposes = 0;
    run_linked(
        ranks,
        [&](Communicator& world, GpuOfHostMemory&) {
          const auto flat = all(world, CollectiveMethod::flat);
          EXPECT_EQ(transposes, 0);
          world.barrier();
          EXPECT_EQ(all(world, CollectiveMethod::two_level), flat);
          const auto half = world.split(world.rank() % 2, "half");  // inherits the policy
          EXPECT_EQ(half->policy().method, CollectiveMethod::two_level);
          all(*half, CollectiveMethod::two_level);
        },
        600, per_host);
    // Of each rank: 4 all_gathers and 4 reduce_scatters with elements; none in groups with a rank
    // on each host.
    EXPECT_EQ(transposes, ranks * 8 * (per_host > 2 ? 2 : 1));
  }
}

TEST(LinkedCommunicator, StaysFlatWhereHostsHaveDifferentNumbersOfRanks) {
  transposes = 0;
  run_linked(
      5,
      [](Communicator& world, GpuOfHostMemory&) {
        world.set_policy({CollectiveMethod::two_level});
        for (std::int64_t count : {1, 7}) check_collectives(world, count);
      },
      600, 2);
  EXPECT_EQ(transposes, 0);
}

TEST(LinkedCommunicator, FinishesItsCollectivesBeforeItsLinkEnds) {
  run_ranks(2, [](Communicator& host) {
    QueuedGpu gpu({});
    QueuedDevice device(gpu);
    Arena arena(device);
    const auto watchdog = std::make_shared<DeviceWatchdog>(host, std::make_unique<HostLibrary>(),
                                                           DeviceWatchdog::Options{});
    for (int i = 0; i < 20; ++i) {
      const auto group = make_linked(host, arena, {std::make_shared<LateLink>(), watchdog});
      std::vector<float> x(8);
      group->all_reduce(buffer(std::span(x)), "sum").wait();
    }
    gpu.finish();
  });
}

TEST(LinkedCommunicator, NamesACollectiveThatNeverReachesTheDevice) {
  const auto body = [](Communicator& world, GpuOfHostMemory&) {
    std::vector<float> x(8);
    world.all_reduce(buffer(std::span(x)), "first").wait();
    if (world.rank() == 1) {  // makes other calls
      while (world.end_reason().empty()) std::this_thread::yield();
      world.barrier();
    }
    world.all_reduce(buffer(std::span(x)), "block 2 mlp").wait();
  };
  EXPECT_THAT([&] { run_linked(2, body, 1); },
              ThrowsMessage<Error>(AllOf(
                  StartsWith("rank 0: all_reduce (sum) of 8 f32 'block 2 mlp' (call 2 of group "
                             "world) is not done after 1 s"),
                  HasSubstr("another rank has died"))));
}

TEST(LinkedCommunicator, EndsAllRanksAndGroupsWithTheReasonOfAnAbort) {
  const auto body = [](Communicator& world, GpuOfHostMemory&) {
    const auto pairs = world.split(world.rank() / 2, "pairs");
    if (world.rank() == 3) return pairs->abort("enough");
    std::vector<float> x(8);
    while (true) pairs->all_reduce(buffer(std::span(x))).wait();
  };
  EXPECT_THAT([&] { run_linked(4, body); }, ThrowsMessage<Error>("enough"));
}

TEST(LinkedCommunicator, ReportsTheErrorOfARankThatThrows) {
  const auto body = [](Communicator& world, GpuOfHostMemory&) {
    std::vector<float> x(8);
    if (world.rank() == 1) throw Error("the disk is full");
    world.all_reduce(buffer(std::span(x))).wait();
  };
  EXPECT_THAT([&] { run_linked(3, body); }, ThrowsMessage<Error>("rank 1: the disk is full"));
}
