// NCCL of emulated GPUs: results, and that what NCCL forbids is found.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nccl.h>

#include "tests/emulated_gpu/platform.h"

using namespace emulated_gpu;

namespace {

#define OK(call) ASSERT_EQ(call, 0) << ncclGetLastError(nullptr)

/// A rank: its GPU, a stream, and a communicator of all ranks.
struct Rank {
  int rank = 0, ranks = 0;
  bool blocking = true;
  cudaStream_t stream = nullptr;
  ncclComm_t world = nullptr;

  /// Waits for a call's end.
  ncclResult_t end(ncclResult_t result, const ncclComm_t& comm) const {
    while (result == ncclInProgress)
      if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) return ncclInternalError;
    return result;
  }
  ncclResult_t end(ncclResult_t result) const { return end(result, world); }
};

/// An array on the calling thread's GPU.
template <typename T>
class Array {
 public:
  Array(const Rank& on, std::vector<T> values) : on_(on), bytes_(values.size() * sizeof(T)) {
    EXPECT_EQ(cudaMalloc(&memory_, bytes_), cudaSuccess);
    EXPECT_EQ(cudaMallocHost(&host_, bytes_), cudaSuccess);
    std::memcpy(host_, values.data(), bytes_);
    EXPECT_EQ(cudaMemcpyAsync(memory_, host_, bytes_, cudaMemcpyHostToDevice, on_.stream),
              cudaSuccess);
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    cudaFree(memory_);
    cudaFreeHost(host_);
  }
  T* data() const { return static_cast<T*>(memory_); }
  std::vector<T> values() const {
    EXPECT_EQ(cudaMemcpyAsync(host_, memory_, bytes_, cudaMemcpyDeviceToHost, on_.stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(on_.stream), cudaSuccess);
    const T* const begin = static_cast<const T*>(host_);
    return {begin, begin + bytes_ / sizeof(T)};
  }

 private:
  const Rank& on_;
  std::size_t bytes_;
  void *memory_ = nullptr, *host_ = nullptr;
};

using Body = std::function<void(Rank&)>;

/// Runs ranks as threads, each on its GPU. They must end their communicators other than world.
void on_ranks(int ranks, bool blocking, const Body& body) {
  ncclUniqueId id{};
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Rank self{rank, ranks, blocking};
      OK(cudaSetDevice(rank));
      OK(cudaStreamCreateWithPriority(&self.stream, cudaStreamNonBlocking, 0));
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = blocking;
      OK(self.end(ncclCommInitRankConfig(&self.world, ranks, id, rank, &config), self.world));
      body(self);
      if (self.world) {
        OK(ncclCommDestroy(self.world));
      }
      OK(cudaStreamDestroy(self.stream));
    });
  for (std::thread& thread : threads) thread.join();
}

class Nccl : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Modes, Nccl, testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Blocking" : "NonBlocking"; });

using Floats = std::vector<float>;

float value(int rank, int i) { return static_cast<float>(rank * 100 + i); }

Floats values_of(int rank, int count) {
  Floats values;
  for (int i = 0; i < count; ++i) values.push_back(value(rank, i));
  return values;
}

}  // namespace

TEST_P(Nccl, CollectivesGiveTheirResults) {
  constexpr int n = 5;
  for (const int ranks : {1, 2, 3, 8})
    on_ranks(ranks, GetParam(), [&](Rank& r) {
      const Array<float> one(r, values_of(r.rank, n)), all(r, values_of(r.rank, n * ranks));
      Floats sum(n * ranks), most(n), every;
      for (int i = 0; i < n * ranks; ++i)
        for (int k = 0; k < ranks; ++k) sum[i] += value(k, i);
      for (int i = 0; i < n; ++i) most[i] = value(ranks - 1, i);

      OK(r.end(
          ncclReduceScatter(all.data(), one.data(), n, ncclFloat32, ncclSum, r.world, r.stream)));
      EXPECT_EQ(one.values(), Floats(sum.begin() + r.rank * n, sum.begin() + (r.rank + 1) * n));
      OK(r.end(ncclAllGather(one.data(), all.data(), n, ncclFloat32, r.world, r.stream)));
      EXPECT_EQ(all.values(), sum);

      const Array<float> mine(r, values_of(r.rank, n));
      OK(r.end(
          ncclAllReduce(mine.data(), mine.data(), n, ncclFloat32, ncclMax, r.world, r.stream)));
      EXPECT_EQ(mine.values(), most);
      const Array<float> last(r, values_of(r.rank, n));
      OK(r.end(
          ncclBroadcast(last.data(), last.data(), n, ncclFloat32, ranks - 1, r.world, r.stream)));
      EXPECT_EQ(last.values(), values_of(ranks - 1, n));
    });
}

TEST_P(Nccl, AGroupOfMessagesIsAnAllToAll) {
  constexpr int n = 3, ranks = 4;
  on_ranks(ranks, GetParam(), [&](Rank& r) {
    const Array<float> from(r, values_of(r.rank, n * ranks)), to(r, Floats(n * ranks));
    for (int round = 0; round < 3; ++round) {
      OK(ncclGroupStart());
      OK(ncclGroupStart());
      for (int peer = 0; peer < ranks; ++peer) {
        OK(ncclSend(from.data() + peer * n, n, ncclFloat32, peer, r.world, r.stream));
        OK(ncclRecv(to.data() + peer * n, n, ncclFloat32, peer, r.world, r.stream));
      }
      OK(ncclGroupEnd());
      OK(r.end(ncclGroupEnd()));
    }
    Floats want;
    for (int peer = 0; peer < ranks; ++peer)
      for (int i = 0; i < n; ++i) want.push_back(value(peer, r.rank * n + i));
    EXPECT_EQ(to.values(), want);
  });
}

TEST_P(Nccl, SumsAreNotInRankOrderButTheSameOnAllRanksAndInEveryRun) {
  constexpr int n = 64, ranks = 6;
  std::vector<std::vector<std::uint16_t>> sums(2 * ranks);
  for (int run = 0; run < 2; ++run)
    on_ranks(ranks, GetParam(), [&](Rank& r) {
      std::vector<std::uint16_t> values(n);  // bf16 between 1 and 2
      for (int i = 0; i < n; ++i)
        values[i] = static_cast<std::uint16_t>(0x3f80 + (i * 37 + r.rank * 51) % 128);
      const Array<std::uint16_t> x(r, values);
      OK(r.end(ncclAllReduce(x.data(), x.data(), n, ncclBfloat16, ncclSum, r.world, r.stream)));
      sums[run * ranks + r.rank] = x.values();
    });
  for (const auto& sum : sums) EXPECT_EQ(sum, sums[0]);
  int in_rank_order = 0;
  for (int i = 0; i < n; ++i) {
    const auto as_float = [](std::uint16_t bits) {
      const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
      float value = 0;
      std::memcpy(&value, &wide, 4);
      return value;
    };
    float exact = 0;
    for (int k = 0; k < ranks; ++k)
      exact += as_float(static_cast<std::uint16_t>(0x3f80 + (i * 37 + k * 51) % 128));
    EXPECT_NEAR(as_float(sums[0][i]), exact, ranks * exact / 256);
    in_rank_order += as_float(sums[0][i]) == exact;
  }
  EXPECT_LT(in_rank_order, n);
}

TEST_P(Nccl, ASplitMakesPartsInTheOrderOfTheirKeys) {
  constexpr int ranks = 5;
  on_ranks(ranks, GetParam(), [&](Rank& r) {
    ncclComm_t part = nullptr;
    const int color = r.rank == 4 ? NCCL_SPLIT_NOCOLOR : r.rank % 2;
    OK(r.end(ncclCommSplit(r.world, color, -r.rank, &part, nullptr)));
    EXPECT_EQ(part == nullptr, r.rank == 4);
    if (!part) return;
    OK(r.end(GetParam() ? ncclSuccess : ncclInProgress, part));
    int size = 0;
    OK(ncclCommCount(part, &size));
    EXPECT_EQ(size, 2);
    const Array<float> one(r, {static_cast<float>(r.rank)}), both(r, {0, 0});
    OK(r.end(ncclAllGather(one.data(), both.data(), 1, ncclFloat32, part, r.stream), part));
    EXPECT_EQ(both.values(), (Floats{float(2 + r.rank % 2), float(r.rank % 2)}));
    OK(ncclCommDestroy(part));
  });
}

TEST_P(Nccl, CapturedCollectivesRunInEachLaunchOfTheGraph) {
  on_ranks(2, GetParam(), [&](Rank& r) {
    const Array<float> x(r, {float(r.rank + 1)});
    const auto sum = [&] {
      return r.end(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, r.world, r.stream));
    };
    OK(sum());
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    OK(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    OK(sum());
    OK(cudaStreamEndCapture(r.stream, &graph));
    OK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
    for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(executable, r.stream));
    EXPECT_EQ(x.values(), Floats{3 * 8});
    OK(cudaGraphExecDestroy(executable));
    OK(cudaGraphDestroy(graph));
  });
}

TEST_P(Nccl, AnAbortLetsTheStreamEndWhenARankIsMissing) {
  on_ranks(3, GetParam(), [&](Rank& r) {
    const Array<float> x(r, {float(r.rank)});
    const auto sum = [&] {
      return r.end(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, r.world, r.stream));
    };
    OK(sum());
    if (r.rank != 2) {
      OK(sum());
    }
    OK(ncclGroupStart());
    OK(ncclCommAbort(std::exchange(r.world, nullptr)));
    OK(ncclGroupEnd());
    EXPECT_LE(x.values().at(0), 3);  // of the first sum, which may have been aborted too
  });
}

TEST_P(Nccl, AnAbortEndsACallThatWaitsForAMissingRank) {
  std::atomic<bool> aborted = false;
  on_ranks(2, GetParam(), [&](Rank& r) {
    if (r.rank == 1) {
      while (!aborted) std::this_thread::yield();
      OK(ncclCommAbort(std::exchange(r.world, nullptr)));
      return;
    }
    const Array<float> x(r, {1});
    const ncclComm_t world = std::exchange(r.world, nullptr);
    std::thread watchdog([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ncclCommAbort(world);
      aborted = true;
    });
    ncclResult_t now = ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, world, r.stream);
    EXPECT_EQ(now, GetParam() ? ncclInternalError : ncclInProgress);
    watchdog.join();
    EXPECT_EQ(x.values(), Floats{1});
  });
}

TEST_P(Nccl, CallsFailAsInjected) {
  on_ranks(1, GetParam(), [&](Rank& r) {
    const Array<float> x(r, {1});
    fail_call("ncclAllReduce", 1);
    const auto sum = [&] {
      return r.end(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, r.world, r.stream));
    };
    EXPECT_NE(sum(), ncclSuccess);
    EXPECT_STRNE(ncclGetLastError(r.world), "");
    OK(sum());
    fail_call("ncclAsync", 1);
    ncclResult_t error = ncclSuccess;
    OK(ncclCommGetAsyncError(r.world, &error));
    EXPECT_TRUE(error == ncclRemoteError || error == ncclSystemError);
    EXPECT_EQ(sum(), error);
    OK(ncclCommAbort(std::exchange(r.world, nullptr)));
  });
}

TEST_P(Nccl, WrongArgumentsAreErrors) {
  on_ranks(2, GetParam(), [&](Rank& r) {
    const Array<float> x(r, {1});
    const auto sum = [&](ncclDataType_t type, ncclComm_t comm) {
      return ncclAllReduce(x.data(), x.data(), 1, type, ncclSum, comm, r.stream);
    };
    EXPECT_EQ(sum(ncclFloat32, nullptr), ncclInvalidArgument);
    EXPECT_EQ(sum(static_cast<ncclDataType_t>(77), r.world), ncclInvalidArgument);
    EXPECT_EQ(ncclBroadcast(x.data(), x.data(), 1, ncclFloat32, 2, r.world, r.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclAllReduce(x.data(), nullptr, 1, ncclFloat32, ncclSum, r.world, r.stream),
              ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    OK(ncclAllReduce(x.data(), x.data(), 0, ncclFloat32, ncclSum, r.world, r.stream));
    ncclUniqueId id{};
    std::strcpy(id.internal, "of another process");
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, nullptr), ncclInvalidUsage);
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 1, nullptr), ncclInvalidArgument);
  });
}

TEST(NcclInit, RefusesTwoRanksOnAGpu) {
  ncclUniqueId id{};
  OK(ncclGetUniqueId(&id));
  const auto join = [&](int rank) {
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, nullptr), ncclInvalidUsage);
    EXPECT_STREQ(ncclGetLastError(nullptr), "Duplicate GPU detected");
    OK(ncclCommAbort(comm));
  };
  std::thread other(join, 1);
  join(0);
  other.join();
}

namespace {

/// Runs two ranks, for which the process must end with the message.
void expect_violation(const char* message, const Body& body, bool blocking = true) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(on_ranks(2, blocking, body), message);
}

/// All-reduces one float, and waits for the result.
void sum_one(Rank& r, const Array<float>& x, std::size_t count = 1) {
  OK(r.end(ncclAllReduce(x.data(), x.data(), count, ncclFloat32, ncclSum, r.world, r.stream)));
  x.values();
}

}  // namespace

TEST(NcclRules, RanksMakeTheSameCalls) {
  expect_violation("calls of ranks differ", [](Rank& r) {
    const Array<float> x(r, {1, 2});
    sum_one(r, x, r.rank + 1);
  });
  expect_violation("calls of ranks differ", [](Rank& r) {
    const Array<float> x(r, {1, 2});
    sum_one(r, x);
    const auto type = r.rank == 0 ? ncclFloat32 : ncclInt32;
    OK(ncclAllReduce(x.data(), x.data(), 1, type, ncclSum, r.world, r.stream));
    x.values();
  });
}

TEST(NcclRules, ANonBlockingCallEndsBeforeTheNext) {
  const auto body = [](Rank& r) {
    const Array<float> x(r, {1});
    for (int i = 0; i < 2; ++i)
      ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, r.world, r.stream);
  };
  expect_violation("its last call is in progress", body, false);
}

TEST(NcclRules, ACommunicatorIsNotUsedAfterItsEnd) {
  expect_violation("has been destroyed or aborted", [](Rank& r) {
    OK(ncclCommAbort(r.world));
    int count = 0;
    ncclCommCount(r.world, &count);
  });
  expect_violation("has been finalized", [](Rank& r) {
    const Array<float> x(r, {1});
    OK(ncclCommFinalize(r.world));
    sum_one(r, x);
  });
  expect_violation("waits forever for a graph", [](Rank& r) {
    const Array<float> x(r, {1});
    sum_one(r, x);
    cudaGraph_t graph = nullptr;
    OK(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    OK(ncclAllReduce(x.data(), x.data(), 1, ncclFloat32, ncclSum, r.world, r.stream));
    OK(cudaStreamEndCapture(r.stream, &graph));
  });
}

TEST(NcclRules, ACommunicatorIsUsedByOneThreadAtATime) {
  expect_violation("another thread uses the communicator", [](Rank& r) {
    const Array<float> x(r, {1});
    if (r.rank == 1)
      for (;;) std::this_thread::yield();
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      int count = 0;
      ncclCommCount(r.world, &count);
    });
    sum_one(r, x);
    other.join();
  });
}

TEST(NcclRules, BuffersOverlapOnlyInPlace) {
  expect_violation("must be the rank's part of the output", [](Rank& r) {
    const Array<float> x(r, Floats(4));
    ncclAllGather(x.data() + 1, x.data(), 2, ncclFloat32, r.world, r.stream);
  });
  expect_violation("must be the rank's part of the input", [](Rank& r) {
    const Array<float> x(r, Floats(4));
    ncclReduceScatter(x.data(), x.data() + 1, 2, ncclFloat32, ncclSum, r.world, r.stream);
  });
  expect_violation("input and output overlap", [](Rank& r) {
    const Array<float> x(r, Floats(4));
    ncclAllReduce(x.data(), x.data() + 1, 2, ncclFloat32, ncclSum, r.world, r.stream);
  });
  expect_violation("bytes at", [](Rank& r) {
    const Array<float> x(r, Floats(1));
    sum_one(r, x, 2);
  });
}

TEST(NcclRules, AGroupIsEnded) {
  expect_violation("ends within ncclGroupStart", [](Rank&) { OK(ncclGroupStart()); });
}

namespace {

/// Two communicators, whose sums two ranks call on different streams, in an order of theirs.
void two_communicators(Rank& r, bool same_order) {
  ncclComm_t other = nullptr;
  cudaStream_t stream = nullptr;
  OK(ncclCommSplit(r.world, 0, r.rank, &other, nullptr));
  OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
  const Array<float> x(r, {1}), y(r, {1});
  OK(cudaStreamSynchronize(r.stream));
  const auto sum = [&](bool of_world) {
    float* const at = of_world ? x.data() : y.data();
    OK(ncclAllReduce(at, at, 1, ncclFloat32, ncclSum, of_world ? r.world : other,
                     of_world ? r.stream : stream));
  };
  sum(true);  // connects
  sum(false);
  for (int i = 0; i < 50; ++i) {
    const bool first = same_order || r.rank == 0;
    sum(first);
    sum(!first);
  }
  OK(cudaStreamSynchronize(stream));
  x.values();
  OK(ncclCommDestroy(other));
  OK(cudaStreamDestroy(stream));
}

}  // namespace

TEST(NcclRules, CommunicatorsOfAGpuNeedTheOrderOfLaunches) {
  ::unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  expect_violation("wait for each other", [](Rank& r) { two_communicators(r, true); });
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 1);
  on_ranks(2, true, [](Rank& r) { two_communicators(r, true); });
  expect_violation("in different orders", [](Rank& r) { two_communicators(r, false); });
  ::unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}
