#include "tests/emulated_gpu/runtime_test.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

extern "C" __attribute__((weak)) void __tsan_acquire(void* address);

namespace emulated_gpu {

namespace {

using Kind = TestMemory::Kind;

constexpr int kTrials = 100;  // of a random order; the rarer of two has a share far above 1/100

TEST(EmulatedDevices, AreAsManyAsAskedForWithUuidsOfTheirOwn) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, device_count());
  std::set<std::string> uuids;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    ASSERT_EQ(cudaGetDeviceProperties(&properties, i), cudaSuccess);
    EXPECT_STREQ(properties.name, "Emulated GPU");
    uuids.emplace(properties.uuid.bytes, 16);
  }
  EXPECT_EQ(std::ssize(uuids), count);
  EXPECT_EQ(cudaSetDevice(count), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST(EmulatedDevices, AreCurrentForOneThread) {
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  std::thread([] {
    int device = -1;
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    EXPECT_EQ(device, 0);
  }).join();
  const TestStream stream;
  EXPECT_EQ(device_of(stream), 2);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(EmulatedErrors, AreKeptForTheThreadUntilTheyAreAskedFor) {
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  std::thread([] { EXPECT_EQ(cudaGetLastError(), cudaSuccess); }).join();
  const TestStream fine;
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady");
}

TEST(EmulatedErrors, AreInjectedIntoTheNthCallOnce) {
  const TestStream stream;
  fail_call("cudaStreamSynchronize", 2);
  fail_call("cudaMalloc", 1);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorUnknown);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  const TestMemory next(1);
}

TEST(EmulatedErrorsDeathTest, AreInjectedFromTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto calls = [] {
    int device = 0;
    const bool first = cudaGetDevice(&device) == cudaSuccess;
    const bool second = cudaGetDevice(&device) == cudaErrorUnknown;
    std::exit(first && second ? 0 : 1);
  };
  setenv("AXONN_EMULATED_FAIL", "cudaMalloc:3,cudaGetDevice:2", 1);
  EXPECT_EXIT(calls(), testing::ExitedWithCode(0), "");
  setenv("AXONN_EMULATED_FAIL", "cudaMalloc", 1);
  EXPECT_DEATH(calls(), "\"cudaMalloc\" is not FUNCTION:NUMBER");
  unsetenv("AXONN_EMULATED_FAIL");
}

TEST(EmulatedStreams, RunTheirWorkInOrder) {
  const TestStream stream;
  std::vector<int> order;
  for (int i = 0; i < kTrials; ++i) stream.run([&order, i] { order.push_back(i); });
  stream.synchronize();
  EXPECT_EQ(std::ssize(order), kTrials);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(EmulatedStreams, RunTheirWorkAsStreamsOfTheirDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const TestStream stream;
  const TestMemory memory(1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  stream.run([&] { writes(memory.get(), sizeof(int), "the work"); });
  stream.synchronize();
}

TEST(EmulatedStreams, AreNotOrderedWithoutAnEvent) {
  const TestStream a, b;
  TestSteps steps;
  std::set<std::string> orders;
  for (int i = 0; i < kTrials; ++i) {
    a.run([&] { steps.add('a'); });
    b.run([&] { steps.add('b'); });
    a.synchronize();
    b.synchronize();
    orders.insert(steps.take());
  }
  EXPECT_EQ(orders, (std::set<std::string>{"ab", "ba"}));
}

TEST(EmulatedStreams, WaitForEvents) {
  const TestStream a, b;
  for (int i = 0; i < kTrials; ++i) {
    std::string steps;
    a.run([&] { steps += 'a'; });
    order(a, b);  // which also destroys the event before it is over
    b.run([&] { steps += 'b'; });
    b.synchronize();
    EXPECT_EQ(steps, "ab");
  }
}

TEST(EmulatedStreams, WaitForTheRecordOfTheTimeOfTheCall) {
  const TestStream a, b;
  const TestEvent event;
  bool first = false, open = false;
  ASSERT_EQ(cudaStreamWaitEvent(b, event), cudaSuccess);  // never recorded: no wait
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  ASSERT_EQ(cudaEventQuery(event), cudaSuccess);
  a.run([&] { first = true; });
  event.record(a);
  ASSERT_EQ(cudaStreamWaitEvent(b, event), cudaSuccess);
  a.run([] {}, [&] { return open; });
  event.record(a);
  b.run([&] { EXPECT_TRUE(first); });
  b.synchronize();  // although the second record is not reached
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  open = true;
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

TEST(EmulatedStreams, MakeProgressWhileTheirEventIsQueried) {
  const TestStream stream;
  const TestEvent event;
  for (int i = 0; i < kTrials; ++i) stream.run([] {});
  event.record(stream);
  while (cudaEventQuery(event) == cudaErrorNotReady) {
  }
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
}

TEST(EmulatedStreams, FinishTheirWorkAfterTheyAreDestroyed) {
  const TestEvent event;
  bool done = false;
  {
    const TestStream stream;
    stream.run([&] { done = true; });
    event.record(stream);
  }
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_TRUE(done);
}

TEST(EmulatedStreams, OfSeveralThreadsMeet) {
  constexpr int kRanks = 4, kMeetings = 50;
  std::vector<std::atomic<int>> arrived(kMeetings), left(kMeetings);
  const auto rank = [&](int device) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    const TestStream stream;
    for (int i = 0; i < kMeetings; ++i) {
      stream.run([&arrived, i] { ++arrived[i]; });
      stream.run([&left, i] { ++left[i]; }, [&arrived, i] { return arrived[i] == kRanks; });
      if (i % 8 == device) stream.synchronize();
    }
    stream.synchronize();
  };
  std::vector<std::thread> ranks;
  for (int i = 0; i < kRanks; ++i) ranks.emplace_back(rank, i);
  for (std::thread& one : ranks) one.join();
  for (const auto& count : left) EXPECT_EQ(count, kRanks);
}

TEST(EmulatedStreams, RecordNoEventOfAnotherDevice) {
  const TestStream stream;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const TestEvent event;
  EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(EmulatedStreamsDeathTest, ReportWhatIsAgainstTheRules) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(cudaStreamSynchronize(nullptr), "the null stream");
  EXPECT_DEATH(
      {
        cudaStream_t stream = nullptr;
        cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
        cudaStreamDestroy(stream);
        cudaStreamSynchronize(stream);
      },
      "cudaStreamSynchronize: no stream, or a destroyed one");
  EXPECT_DEATH(
      {
        const TestStream stream;
        stream.run([&] { stream.synchronize(); });
        stream.synchronize();
      },
      "cudaStreamSynchronize is called by work that runs");
}

TEST(EmulatedStreamsDeathTest, ReportADeadlockWithTheWorkThatWaits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("AXONN_EMULATED_PATIENCE", "1", 1);
  const auto stuck = [](const auto& wait) {
    const TestStream stream;
    stream.run([] {}, [] { return false; });
    wait(stream);
  };
  EXPECT_DEATH(stuck([](const auto& stream) { stream.synchronize(); }),
               "deadlock: cudaStreamSynchronize waits for\n.*device 0: the work and 0 after it");
  EXPECT_DEATH(stuck([](const auto&) { const TestMemory memory(1); }), "deadlock: cudaMalloc");
  unsetenv("AXONN_EMULATED_PATIENCE");
}

TEST(EmulatedMemory, IsCopiedAndSet) {
  const TestStream stream;
  const TestMemory host(4, Kind::pinned), device(4), other(4);
  for (int i = 0; i < 4; ++i) host.get()[i] = i;
  ASSERT_EQ(cudaMemcpyAsync(device.get(), host.get(), 16, cudaMemcpyHostToDevice, stream),
            cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device.get(), 1, 4, stream), cudaSuccess);
  ASSERT_EQ(cudaMemset2DAsync(device.get() + 1, 8, 2, 4, 2, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(other.get(), device.get(), 16, cudaMemcpyDeviceToDevice, stream),
            cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(host.get(), other.get(), 16, cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  stream.synchronize();
  EXPECT_EQ(std::vector<int>(host.get(), host.get() + 4),
            (std::vector<int>{0x01010101, 0x02020202, 2, 0x02020202}));
}

TEST(EmulatedMemory, IsPoisonedWhenItIsNew) {
  const TestStream stream;
  const TestMemory host(1, Kind::pinned), device(1);
  EXPECT_EQ(*host.get(), -1);
  *host.get() = 0;
  ASSERT_EQ(cudaMemcpyAsync(host.get(), device.get(), 4, cudaMemcpyDeviceToHost, stream),
            cudaSuccess);
  stream.synchronize();
  EXPECT_EQ(*host.get(), -1);
}

TEST(EmulatedMemory, OfTheHostIsReadEarlyOrLate) {
  if (__tsan_acquire) GTEST_SKIP() << "ThreadSanitizer finds the fault of this test";
  const TestStream stream;
  const TestMemory host(1, Kind::pinned), device(1);
  std::set<int> seen;
  int count = 0;
  for (int i = 0; i < kTrials; ++i) {
    *host.get() = 1;
    ASSERT_EQ(cudaMemcpyAsync(device.get(), host.get(), 4, cudaMemcpyHostToDevice, stream),
              cudaSuccess);
    cudaGetDeviceCount(&count);  // as any call, it may run some work
    *host.get() = 2;             // the fault: it does not wait for the stream
    stream.synchronize();
    ASSERT_EQ(cudaMemcpyAsync(host.get(), device.get(), 4, cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    stream.synchronize();
    seen.insert(*host.get());
  }
  EXPECT_EQ(seen, (std::set<int>{1, 2}));
}

TEST(EmulatedMemory, IsLimitedOnEachDevice) {
  std::size_t free = 0, total = 0, then = 0;
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, free + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, nullptr);
  cudaGetLastError();
  const TestMemory some(100);
  ASSERT_EQ(cudaMemGetInfo(&then, &total), cudaSuccess);
  EXPECT_EQ(then, free - 400);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&then, &total), cudaSuccess);
  EXPECT_EQ(then, total);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(EmulatedMemory, IsFreedOnceByItsBeginning) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 8), cudaSuccess);
  EXPECT_EQ(cudaFree(static_cast<char*>(memory) + 4), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  cudaGetLastError();
}

TEST(EmulatedMemory, CallsThatMayWaitForTheDeviceDo) {
  const TestStream stream;
  const auto waits = [&](const std::function<void()>& call) {
    bool done = false;
    for (int i = 0; i < 10; ++i) stream.run([] {});
    stream.run([&] { done = true; });
    call();
    EXPECT_TRUE(done);
  };
  void *memory = nullptr, *host = nullptr;
  waits([&] { cudaMalloc(&memory, 1); });
  waits([&] { cudaFree(memory); });
  waits([&] { cudaMallocHost(&host, 1); });
  cudaFreeHost(host);
}

TEST(EmulatedMemoryDeathTest, PinnedMemoryIsNotFreedBeforeItsCopies) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const TestStream stream;
        const TestMemory device(4);
        void* host = nullptr;
        cudaMallocHost(&host, 4 * sizeof(float));
        for (int i = 0; i < 10; ++i) stream.run([] {});
        cudaMemcpyAsync(device.get(), host, 4, cudaMemcpyHostToDevice, stream);
        cudaFreeHost(host);
        cudaStreamSynchronize(stream);
      },
      "4 bytes at .* are not in memory that cudaMalloc or cudaMallocHost returned");
}

TEST(EmulatedMemory, HasAttributes) {
  const TestMemory host(2, Kind::pinned), device(2);
  const int local = 0;
  const auto type = [](const void* memory) {
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
    return attributes.type;
  };
  EXPECT_EQ(type(host.get() + 1), cudaMemoryTypeHost);
  EXPECT_EQ(type(device.get() + 1), cudaMemoryTypeDevice);
  EXPECT_EQ(type(&local), cudaMemoryTypeUnregistered);
}

TEST(EmulatedMemory, OfAPeerIsAccessibleOnceThatIsEnabled) {
  int can = 0;
  ASSERT_EQ(cudaDeviceCanAccessPeer(&can, 3, 4), cudaSuccess);
  EXPECT_TRUE(can);
  ASSERT_EQ(cudaSetDevice(4), cudaSuccess);
  const TestMemory memory(1);
  ASSERT_EQ(cudaSetDevice(3), cudaSuccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(4, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(4, 0), cudaErrorPeerAccessAlreadyEnabled);
  cudaGetLastError();
  const TestStream stream;
  ASSERT_EQ(cudaMemsetAsync(memory.get(), 0, 4, stream), cudaSuccess);
  stream.synchronize();
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
}

TEST(EmulatedMemoryDeathTest, ReportsAccessesThatAreAgainstTheRules) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto copy = [](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    const TestStream stream;
    cudaMemcpyAsync(to, from, bytes, kind, stream);
    stream.synchronize();
  };
  const TestMemory pinned(4, Kind::pinned), device(4);
  int pageable[4] = {};
  EXPECT_DEATH(copy(device.get(), pageable, 4, cudaMemcpyHostToDevice), "not in pinned host mem");
  EXPECT_DEATH(copy(device.get(), device.get() + 1, 4, cudaMemcpyDeviceToHost), "not in pinned");
  EXPECT_DEATH(copy(device.get(), pinned.get(), 4, cudaMemcpyDeviceToDevice), "not in device");
  EXPECT_DEATH(copy(device.get(), device.get() + 1, 8, cudaMemcpyDeviceToDevice), "overlap");
  EXPECT_DEATH(copy(device.get() + 1, pinned.get(), 16, cudaMemcpyHostToDevice),
               "cudaMemcpyAsync's destination: 16 bytes at .* begin at byte 4 of an allocation "
               "of 16");
  const auto of_other_device = [&] {
    cudaSetDevice(1);
    copy(device.get(), pinned.get(), 16, cudaMemcpyHostToDevice);
  };
  EXPECT_DEATH(of_other_device(), "memory of device 0, to which device 1 has no access");
}

TEST(EmulatedMemoryDeathTest, ReportsAccessesByTheHostIfItIsProtected) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("AXONN_EMULATED_PROTECT", "1", 1);
  const auto copy_and_read = [](bool directly) {
    const TestStream stream;
    const TestMemory freed(1), host(1, Kind::pinned), device(1);
    *host.get() = 7;
    cudaMemcpyAsync(device.get(), host.get(), 4, cudaMemcpyHostToDevice, stream);
    cudaMemcpyAsync(host.get(), device.get(), 4, cudaMemcpyDeviceToHost, stream);
    stream.synchronize();
    std::exit(directly ? *device.get() : *host.get());
  };
  EXPECT_EXIT(copy_and_read(false), testing::ExitedWithCode(7), "");
  EXPECT_DEATH(copy_and_read(true), "host code accesses device memory");
  unsetenv("AXONN_EMULATED_PROTECT");
}

/// Tests that need ThreadSanitizer.
class EmulatedRacesDeathTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!__tsan_acquire) GTEST_SKIP() << "needs a build with ThreadSanitizer";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  /// Two streams write the same int, with or without an order.
  static void two_streams_write(bool with_wait) {
    const TestStream a, b;
    int value = 0;
    a.run([&] { value = 1; });
    if (with_wait) order(a, b);
    b.run([&] { value = 2; });
    b.synchronize();
    a.synchronize();
    std::exit(value > 0 ? 0 : 1);
  }
};

TEST_F(EmulatedRacesDeathTest, BetweenStreamsWithoutAWaitAreFound) {
  constexpr int kRaces = 66;  // ThreadSanitizer's exit status
  EXPECT_EXIT(two_streams_write(true), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(two_streams_write(false), testing::ExitedWithCode(kRaces), "data race");
}

TEST_F(EmulatedRacesDeathTest, BetweenAStreamAndTheHostAreFound) {
  const auto copy_and_write = [](bool with_wait) {
    const TestStream stream;
    const TestMemory host(1, Kind::pinned), device(1);
    *host.get() = 1;
    cudaMemcpyAsync(device.get(), host.get(), 4, cudaMemcpyHostToDevice, stream);
    int count = 0;
    for (int i = 0; i < kTrials; ++i) cudaGetDeviceCount(&count);
    if (with_wait) stream.synchronize();
    *host.get() = 2;
    std::exit(0);
  };
  EXPECT_EXIT(copy_and_write(true), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(copy_and_write(false), testing::ExitedWithCode(66), "data race");
}

}  // namespace

}  // namespace emulated_gpu
