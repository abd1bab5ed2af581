#include "axonn/ranks/comm/device/device_threads.h"

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/ranks/comm/collectives.h"
#include "tests/support/queued_gpu.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using testing_support::QueuedDevice;
using testing_support::QueuedGpu;
using testing_support::QueuedKernels;

namespace {

using QueuedBody = std::function<void(Communicator&, QueuedDevice&)>;

/// Runs body on `ranks` ranks that share the GPU.
void run_on_gpu(int ranks, QueuedGpu& gpu, const QueuedBody& body,
                const ThreadsOptions& options = {}) {
  run_ranks(
      ranks,
      [&](Communicator& host) {
        QueuedDevice device(gpu);
        const auto world = make_device_threads(host, device, std::make_shared<QueuedKernels>());
        body(*world, device);
      },
      options);
}

using Floats = std::vector<float>;
Buffer whole(Floats& values) { return buffer(std::span(values)); }

/// The memory of a rank, and a chain of computations and collectives on it without synchronisation
/// in between.
struct Chain {
  static constexpr int kN = 61, kSteps = 4;
  explicit Chain(int ranks) : a(kN), b(kN), kept(kN), all(ranks * kN), other(2 * kN) {}
  Floats a, b, kept, all, other;

  using Run = std::function<void(std::function<void()>)>;
  void go(Communicator& world, const Run& run) {
    const auto pairs = world.split(world.rank() / 2, "pairs");
    const float mine = 1 + 0.37f * static_cast<float>(world.rank());
    for (int step = 0; step < kSteps; ++step) {
      const float s = mine + static_cast<float>(step);
      run([this, s] {
        for (int i = 0; i < kN; ++i) a[i] = s * static_cast<float>(i + 1) + kept[i] / 3;
        for (float& x : other) x = s * 5;
      });
      Work sum = world.all_reduce(whole(a), "sum");
      Work swap =
          pairs->size() > 1 ? pairs->all_to_all(whole(other), whole(other), "swap") : Work();
      run([this, s] {
        for (std::size_t i = 0; i < all.size(); ++i) all[i] = s / static_cast<float>(i + 1);
      });
      Work cut = world.reduce_scatter(whole(b), whole(all), "cut");
      sum.wait();
      run([this] {
        for (int i = 0; i < kN; ++i) kept[i] += a[i];
        std::ranges::fill(a, -1.0f);  // overwrites the buffer at once
      });
      cut.wait();
      run([this] { std::ranges::fill(all, -2.0f); });
      Work gather = world.all_gather(whole(all), whole(b), "gather");
      swap.wait();
      run([this] {
        for (int i = 0; i < kN; ++i) kept[i] += other[i] + other[kN + i];
        std::ranges::fill(other, -3.0f);
      });
      gather.wait();
      run([this] {
        for (std::size_t i = 0; i < all.size(); ++i) kept[i % kN] += all[i];
        std::ranges::fill(b, -4.0f);
      });
      Work one = world.broadcast(whole(kept), step % world.size(), "one");
      one.wait();
      run([this, s] {
        for (float& x : kept) x *= s;
      });
    }
  }
};

std::vector<Chain> chains(int ranks) { return std::vector<Chain>(ranks, Chain(ranks)); }

std::vector<Floats> results(const std::vector<Chain>& of) {
  std::vector<Floats> kept;
  for (const Chain& chain : of) kept.push_back(chain.kept);
  return kept;
}

std::vector<Floats> chain_on_host(int ranks) {
  std::vector<Chain> memory = chains(ranks);
  run_ranks(ranks, [&](Communicator& world) {
    memory[world.rank()].go(world, [](const std::function<void()>& f) { f(); });
  });
  return results(memory);
}

std::vector<Floats> chain_on_gpu(int ranks, const QueuedGpu::Options& options) {
  std::vector<Chain> memory = chains(ranks);  // outlives work that a fault leaves unfinished
  QueuedGpu gpu(options);
  run_on_gpu(ranks, gpu, [&](Communicator& world, QueuedDevice& device) {
    memory[world.rank()].go(world, [&](std::function<void()> f) { device.run(std::move(f)); });
    device.compute().synchronize();
    world.barrier();
  });
  return results(memory);
}

/// Whether dropping these waits changes a result for some order of the GPU's work.
bool shows(const std::function<bool(bool compute, int nth)>& drops) {
  const auto want = chain_on_host(3);
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    if (chain_on_gpu(3, {.seed = seed, .drops = drops}) != want) return true;
  return false;
}

}  // namespace

TEST(DeviceThreads, RunEveryCollectiveOnEveryGroupBitForBit) {
  for (int ranks : some_ranks()) {
    QueuedGpu gpu({.seed = 1, .host_waits = true});
    run_on_gpu(ranks, gpu, [](Communicator& world, QueuedDevice&) { check_transport(world); });
  }
}

TEST(DeviceThreads, GiveTheSameBitsAsTheHostTransport) {
  std::uint64_t on_host = 0, on_gpu = 0;
  run_ranks(4, [&](Communicator& world) {
    const std::uint64_t hash = hash_of_sums(world);
    if (world.rank() == 0) on_host = hash;
  });
  QueuedGpu gpu({.host_waits = true});
  run_on_gpu(4, gpu, [&](Communicator& world, QueuedDevice&) {
    const std::uint64_t hash = hash_of_sums(world);
    if (world.rank() == 0) on_gpu = hash;
  });
  EXPECT_EQ(on_host, on_gpu);
}

TEST(DeviceThreads, AreCorrectWithoutHostWaitsForEveryOrderOfTheGpusWork) {
  for (int ranks : {1, 2, 3, 8}) {
    const auto want = chain_on_host(ranks);
    for (std::uint64_t seed = 0; seed < 10; ++seed)
      EXPECT_EQ(chain_on_gpu(ranks, {.seed = seed}), want) << ranks << " ranks, seed " << seed;
  }
}

TEST(DeviceThreads, FailThisTestWithoutAnyOneOfTheirWaits) {
  EXPECT_TRUE(shows([](bool compute, int) { return compute; })) << "all of the compute streams";
  EXPECT_TRUE(shows([](bool compute, int) { return !compute; })) << "all of the group's streams";
  EXPECT_TRUE(shows([](bool compute, int nth) { return compute && nth == 5; })) << "one of compute";
  // Waits of the last rank's stream of the world, in order: one for each of three ranks' buffers,
  // one for all of them, and one for each of three parts.
  for (const int place : {0, 1, 2, 4, 5, 6})
    EXPECT_TRUE(shows([place](bool compute, int nth) { return !compute && nth % 7 == place; }))
        << "wait " << place;
}

TEST(DeviceThreads, NameTheTwoRanksWhoseCallsDoNotMatch) {
  QueuedGpu gpu({});
  const auto body = [](Communicator& world, QueuedDevice&) {
    Floats x(world.rank() == 1 ? 3 : 2);
    world.all_reduce(whole(x), "width").wait();
  };
  EXPECT_THAT([&] { run_on_gpu(2, gpu, body); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("all_reduce (sum) of 2 f32 'width'"), HasSubstr("on rank 0"),
                        HasSubstr("all_reduce (sum) of 3 f32 'width'"), HasSubstr("on rank 1"))));
}

TEST(DeviceThreads, NameTheRanksOfTheWorldAndTheCallIfThoseOfASmallerGroupDoNotMatch) {
  QueuedGpu gpu({});
  const auto body = [](Communicator& world, QueuedDevice& device) {
    const auto pairs = world.split(world.rank() / 2, "pairs");
    Floats x(world.rank() == 3 ? 3 : 2);
    pairs->all_reduce(whole(x), "width").wait();
    device.compute().synchronize();  // before x is freed
  };
  EXPECT_THAT(
      [&] { run_on_gpu(4, gpu, body); },
      ThrowsMessage<Error>(AllOf(HasSubstr("all_reduce (sum) of 2 f32 'width' in device memory"),
                                 HasSubstr("on rank 2"), HasSubstr("(call 0 of group pairs)"),
                                 HasSubstr("all_reduce (sum) of 3 f32 'width' in device memory"),
                                 HasSubstr("on rank 3"))));
}

TEST(DeviceThreads, NameTheRankWhoseMemoryIsOnTheHostWhereOthersUseTheDevice) {
  QueuedGpu gpu({});
  const auto body = [&](Communicator& host) {
    QueuedDevice device(gpu);
    const auto world = make_device_threads(host, device, std::make_shared<QueuedKernels>());
    Floats x(2);
    (host.rank() == 0 ? *world : host).all_reduce(whole(x), "it").wait();
  };
  EXPECT_THAT([&] { run_ranks(2, body); },
              ThrowsMessage<Error>(AllOf(HasSubstr("does not match"),
                                         HasSubstr("all_reduce (sum) of 2 f32 'it' in device"))));
}

TEST(DeviceThreads, LeaveTheBuffersAloneAfterADeviceHasFailedHalfWay) {
  class FailingKernels : public QueuedKernels {
   public:
    void enqueue(Stream&, const PeerWork&) override { throw Error("the GPU is lost"); }
  };
  QueuedGpu gpu({});
  std::atomic<int> failed = 0;
  const auto body = [&](Communicator& host) {
    QueuedDevice device(gpu);
    const bool fails = host.rank() == 2;
    const auto world = make_device_threads(
        host, device,
        fails ? std::make_shared<FailingKernels>() : std::make_shared<QueuedKernels>());
    Floats x(61, 1.f);
    EXPECT_THAT([&] { world->all_reduce(whole(x), "it").wait(); },
                ThrowsMessage<Error>(HasSubstr("the GPU is lost")));
    std::ranges::fill(x, -1.f);
    ++failed;
    while (failed < 3) std::this_thread::yield();
    gpu.finish();
    EXPECT_THAT(x, testing::Each(-1.f));
  };
  run_ranks(3, body);
}

TEST(DeviceThreads, NameAMissingRankAsTheHostTransportDoes) {
  QueuedGpu gpu({});
  const auto body = [](Communicator& world, QueuedDevice&) {
    Floats x(2);
    if (world.rank() == 1)
      while (world.end_reason().empty()) std::this_thread::yield();
    world.all_reduce(whole(x), "it").wait();
  };
  EXPECT_THAT([&] { run_on_gpu(3, gpu, body, {.timeout_seconds = 1}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("rank 1 has started no call"),
                                         HasSubstr(" waits for it in all_reduce 'it' (call "))));
}

TEST(DeviceThreads, NeverTouchABufferThatARankFreedWhenItThrew) {  // ASan and TSan detect it
  for (int round = 0; round < 30; ++round) {
    QueuedGpu gpu({.seed = static_cast<std::uint64_t>(round)});
    const auto body = [&](Communicator& world, QueuedDevice& device) {
      const auto pairs = world.split(world.rank() / 2, "pairs");
      Floats x(2000, 1.f), y(2000, 1.f);
      const struct Freed {  // finishes all work first, as a GPU does when memory is freed
        QueuedGpu& gpu;
        ~Freed() { gpu.finish(); }
      } freed{gpu};
      Work first = world.all_reduce(whole(x));
      Work second = world.rank() == 2 ? Work() : pairs->all_reduce(whole(y));
      if (world.rank() == round % 4) throw Error("lost");
      first.wait();
      second.wait();
      device.compute().synchronize();
    };
    EXPECT_THROW(run_on_gpu(4, gpu, body, {.max_delay_us = 50}), Error);
  }
}
