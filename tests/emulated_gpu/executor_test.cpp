#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/emulated_gpu/platform.h"
#include "tests/emulated_gpu/warp_cpu.cuh"

extern "C" __attribute__((weak)) void __asan_init();  // null without AddressSanitizer

using namespace axonn;
using namespace axonn::cuda;
using emulated_gpu::run_kernel;

namespace {

int executor_thread() { return static_cast<int>(threadIdx.x); }
int executor_lane() { return executor_thread() % kWarp; }

TEST(Executor, RunsEachThreadOfEachBlockOnceAtItsPlace) {
  const dim3 blocks(3, 2, 4), threads(5, 6, 7);
  std::vector<int> runs(3 * 2 * 4 * 5 * 6 * 7);
  run_kernel("count", blocks, threads, [&] {
    ASSERT_EQ(gridDim.x, 3u);
    ASSERT_EQ(blockDim.z, 7u);
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x,
                   thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    ++runs[block * 210 + thread];
  });
  EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
}

/// The order in which some of eight run.
struct Order {
  std::array<std::atomic<int>, 8> who;
  std::atomic<int> count = 0;

  void add(unsigned one) { who[count++] = static_cast<int>(one); }
  std::vector<int> get() const { return {who.begin(), who.end()}; }
};

TEST(Executor, RunsBlocksAndThreadsInChangingOrders) {
  std::set<std::vector<int>> begun, continued, blocks;
  for (int i = 0; i < 20; ++i) {
    Order begin, after, block;
    run_kernel("orders", 8, 8, [&] {
      if (executor_thread() == 0) block.add(blockIdx.x);
      if (blockIdx.x == 0) begin.add(threadIdx.x);
      __syncthreads();
      if (blockIdx.x == 0) after.add(threadIdx.x);
    });
    begun.insert(begin.get());
    continued.insert(after.get());
    blocks.insert(block.get());
  }
  EXPECT_GT(begun.size(), 15u);
  EXPECT_GT(continued.size(), 15u);
  EXPECT_GT(blocks.size(), 15u);
}

TEST(Executor, LetsAllThreadsArriveAtABarrierBeforeAnyContinues) {
  for (const int count : {1, 31, 256, 1024}) {
    std::array<std::atomic<int>, 3> arrived{};
    run_kernel("barriers", 2, count, [&] {
      for (std::atomic<int>& n : arrived) {
        ++n;
        __syncthreads();
        ASSERT_EQ(n % count, 0);
        __syncthreads();
      }
    });
    for (const int n : arrived) EXPECT_EQ(n, 2 * count);
  }
}

TEST(Executor, TellsAllThreadsWhetherAnyIsTrueAtABarrier) {
  for (const int who : {-1, 0, 77, 99})
    run_kernel("or", 1, 100, [&] {
      ASSERT_EQ(__syncthreads_or(executor_thread() == who), who >= 0);
      ASSERT_FALSE(__syncthreads_or(false));
    });
}

template <typename T>
T* shared_pair() {
  AXONN_SHARED(pair, T[2]);
  return pair;
}

TEST(Executor, GivesEachBlockNewSharedMemoryForEachPlaceAndInstance) {
  run_kernel("shared", 5, 64, [&] {
    AXONN_SHARED(ints, int[64]);
    AXONN_SHARED(one, float);
    std::uint32_t bits;
    std::memcpy(&bits, &one, sizeof one);
    ASSERT_EQ(bits, 0xffffffffu);
    ASSERT_EQ(ints[executor_thread()], -1);
    ints[executor_thread()] = executor_thread();
    __syncthreads();
    ASSERT_EQ(ints[63 - executor_thread()], 63 - executor_thread());
    if (executor_thread() == 0) one = 1;
    ASSERT_NE(static_cast<void*>(shared_pair<int>()), static_cast<void*>(shared_pair<float>()));
    ASSERT_NE(shared_pair<double>(), shared_pair<double>() + 1);
    ASSERT_EQ(shared_pair<int>(), shared_pair<int>());
  });
}

TEST(Executor, ShufflesValuesBetweenLanes) {
  run_kernel("shuffles", 2, 4 * kWarp, [&] {
    for (int mask = 0; mask < kWarp; ++mask) {
      const int from = executor_thread() ^ mask;
      ASSERT_EQ(shuffle_xor(executor_thread(), mask), from);
      ASSERT_EQ(shuffle_xor(0.5f * static_cast<float>(executor_thread()), mask), 0.5f * from);
      ASSERT_EQ(shuffle_xor(1e-300 * executor_thread(), mask), 1e-300 * from);
    }
  });
}

TEST(Executor, TellsALaneWhichLanesPassTrue) {
  run_kernel("ballots", 1, 2 * kWarp, [&] {
    for (int k = 0; k < kWarp; ++k) {
      const Lanes lanes = lanes_with(executor_lane() >= k);
      ASSERT_EQ(lanes, static_cast<Lanes>(~Lanes{0} << k));
      ASSERT_EQ(lowest(lanes), k);
    }
    ASSERT_EQ(lanes_with(false), 0u);
  });
}

TEST(Executor, HasNoBitsForLanesThatTheLastWarpLacks) {
  run_kernel("partial", 1, kWarp + 3, [&] {
    const Lanes lanes = lanes_with(true);
    ASSERT_EQ(lanes, executor_thread() < kWarp ? ~Lanes{0} : Lanes{7});
  });
}

float element(int row, int col) { return static_cast<float>((row * 7 + col * 5) % 23 - 11); }

std::uint32_t word_of(float low, float high) {
  bf16 a, b;
  put(a, low);
  put(b, high);
  return a.bits | static_cast<std::uint32_t>(b.bits) << 16;
}

/// 16 rows of 16, 16 bytes apart.
struct Rows {
  static constexpr int kStride = 24;
  alignas(16) bf16 values[16 * kStride];
};

/// c = 1 + a · the transpose of b, and 1 + a · b, with b in shared memory. The lanes' elements are
/// those of fragment.h.
TEST(Executor, MultipliesMatricesOfAWarp) {
  using Layout = Fragment<kWarp>;
  constexpr int kElements = Layout::kElements;
  run_kernel("products", 1, 2 * kWarp, [] {
    AXONN_SHARED(memory, Rows);
    if (executor_thread() < 16)
      for (int col = 0; col < 16; ++col)
        put(memory.values[executor_thread() * Rows::kStride + col],
            element(executor_thread() + 3, col));
    __syncthreads();
    const auto row = [](int i) { return Layout::row(executor_lane(), Layout::row_of(i)); };
    const auto col = [](int i) { return Layout::col(executor_lane(), i); };
    std::uint32_t a[kElements / 2];
    for (int i = 0; i < kElements; i += 2)
      a[i / 2] = word_of(element(row(i), col(i)), element(row(i), col(i) + 1));
    float across[kElements], down[kElements];
    std::fill_n(across, kElements, 1.0f);
    std::fill_n(down, kElements, 1.0f);
    std::uint32_t left[kElements / 2], right[kElements / 2];
    load_left(left, memory.values, Rows::kStride);
    for (int i = 0; i < kElements; i += 2)
      ASSERT_EQ(left[i / 2], word_of(element(row(i) + 3, col(i)), element(row(i) + 3, col(i) + 1)));
    load_right(right, memory.values, Rows::kStride);
    mma(across, a, right);
    load_right_transposed(right, memory.values, Rows::kStride);
    mma(down, a, right);
    for (int i = 0; i < kElements; ++i) {
      float by_row = 1, by_col = 1;  // exact: small integers
      for (int k = 0; k < 16; ++k) {
        by_row += element(row(i), k) * element(col(i) + 3, k);
        by_col += element(row(i), k) * element(k + 3, col(i));
      }
      ASSERT_EQ(across[i], by_row);
      ASSERT_EQ(down[i], by_col);
    }
  });
}

void expect_violation(const std::string& message, int threads, const std::function<void()>& body) {
  EXPECT_DEATH(run_kernel("bad", 2, threads, body), message);
}

TEST(Executor, ReportsThreadsThatEndBeforeABarrier) {
  expect_violation(
      "kernel bad, block \\([01], 0, 0\\) of 64 threads.*do not come.*barrier at "
      ".*executor_test.cpp:[0-9]+: threads 0-4, 6-63; ended: threads 5",
      64, [] {
        if (executor_thread() != 5) __syncthreads();
      });
}

TEST(Executor, ReportsThreadsThatWaitAtDifferentBarriers) {
  expect_violation("different places: a barrier.*threads 0-7; a barrier.*threads 8-63", 64, [] {
    if (executor_thread() < 8)
      __syncthreads();
    else
      __syncthreads();
  });
}

TEST(Executor, ReportsLanesThatDiverge) {
  expect_violation("do not come: a barrier at .*: threads 1-63; a shuffle at .*: threads 0", 64,
                   [] {
                     if (executor_thread() == 0) shuffle_xor(1, 1);
                     __syncthreads();
                   });
  expect_violation("different places: a ballot at .*: threads 1-.*; a shuffle at .*: threads 0",
                   2 * kWarp, [] {
                     if (executor_thread() == 0)
                       shuffle_xor(1, 1);
                     else if (executor_thread() < kWarp)
                       lanes_with(true);
                   });
  expect_violation("do not come: a ballot at .*: threads 0-8; ended: threads 9-", kWarp, [] {
    if (executor_thread() < 9) lanes_with(true);
  });
}

TEST(Executor, ReportsShufflesThatHaveNoSourceOrAnotherType) {
  expect_violation("lane 0 shuffles with lane 8, which does not exist", 8,
                   [] { shuffle_xor(1, 8); });
  expect_violation("different types", kWarp, [] {
    const auto& type = executor_thread() == 3 ? typeid(float) : typeid(int);
    emulated_gpu::shuffle_xor(0, 1, type, emulated_gpu::Line::current());
  });
}

TEST(Executor, ReportsMatricesThatCannotBeLoaded) {
  if (kWarp != 32) GTEST_SKIP() << "only warps of 32 have the instruction";
  static bf16 elsewhere[16 * Rows::kStride];
  const auto load = [](int offset, bool outside) {
    AXONN_SHARED(memory, Rows);
    std::uint32_t to[4];
    load_left(to, outside ? elsewhere : memory.values + offset, Rows::kStride);
  };
  expect_violation("not aligned to 16 bytes", 32, [&] { load(4, false); });
  expect_violation("outside of shared memory", 32, [&] { load(16 * Rows::kStride, false); });
  expect_violation("outside of shared memory", 32, [&] { load(0, true); });
  expect_violation("warp of 32 lanes", 16, [&] { load(0, false); });
}

TEST(Executor, ReportsMatrixInstructionsOfOtherWarps) {
  const auto multiply = [] {
    const std::uint32_t four[4] = {}, two[2] = {};
    float c[4] = {};
    if (kWarp == 64)
      emulated_gpu::mma(c, four, two, emulated_gpu::Line::current());
    else
      emulated_gpu::mfma(c, two, two, emulated_gpu::Line::current());
  };
  expect_violation(kWarp == 64 ? "warp of 32 lanes" : "warp of 64 lanes", kWarp, multiply);
}

/// Bytes of shared memory that a block may have.
constexpr int kMostShared = (kWarp == 64 ? 64 : 48) << 10;

TEST(Executor, ReportsTooMuchSharedMemory) {
  run_kernel("most", 1, 1, [] {
    AXONN_SHARED(most, char[kMostShared]);
    most[0] = 0;
  });
  expect_violation(
      "executor_test.cpp:[0-9]+, has [0-9]+ bytes, more than " + std::to_string(kMostShared), 1,
      [] {
        AXONN_SHARED(most, char[kMostShared]);
        AXONN_SHARED(more, int);
        most[more] = 0;
      });
}

TEST(Executor, GivesTheSharedMemoryOfALaunch) {
  run_kernel("launched", 3, {dim3(64), 64 * sizeof(int)}, [] {
    AXONN_SHARED_OF_LAUNCH(values, int[64]);
    values[executor_thread()] = executor_thread();
    __syncthreads();
    ASSERT_EQ(values[63 - executor_thread()], 63 - executor_thread());
  });
  expect_violation("its launch has 0 bytes, but the kernel has 4 at .*executor_test.cpp", 1, [] {
    AXONN_SHARED_OF_LAUNCH(value, int[1]);
    value[0] = 0;
  });
}

TEST(Executor, ReportsCallsFromOutsideOfAKernel) {
  EXPECT_DEATH(__syncthreads(), "outside of a kernel");
}

TEST(Executor, LetsAddressSanitizerSeeTheBoundsOfSharedObjects) {
  if (!__asan_init) GTEST_SKIP() << "needs AddressSanitizer";
  EXPECT_DEATH(run_kernel("bounds", 1, 2,
                          [] {
                            AXONN_SHARED(values, volatile float[3]);
                            AXONN_SHARED(others, float[3]);
                            volatile const float* const begin = values;
                            others[0] = begin[3 + executor_thread()];
                          }),
               "AddressSanitizer: use-after-poison");
}

__global__ void executor_add(float* out, const float* a, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] += a[i];
}

cudaError_t launch_add(dim3 blocks, dim3 threads, std::size_t shared, cudaStream_t stream,
                       std::vector<float>& out, const std::vector<float>& in) {
  float* to = out.data();
  const float* a = in.data();
  int n = static_cast<int>(out.size());
  void* args[] = {&to, &a, &n};
  return cudaLaunchKernel(executor_add, blocks, threads, args, shared, stream);
}

__global__ void executor_bad(int*, double) {
  if (executor_thread() > 0) __syncthreads();
}

TEST(Executor, NamesALaunchedKernelByItsParameters) {
  const auto run = [] {
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0);
    int* p = nullptr;
    double x = 0;
    void* args[] = {&p, &x};
    cudaLaunchKernel(executor_bad, 1, 2, args, 0, stream);
    cudaStreamSynchronize(stream);
  };
  EXPECT_DEATH(run(), "kernel \\(int\\*, double\\), block");
}

TEST(Executor, LaunchesKernelsOnStreamsWithinLimits) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  std::vector<float> out(1000, 1), in(1000, 2);
  const auto launch = [&](dim3 blocks, dim3 threads, std::size_t shared = 0) {
    return launch_add(blocks, threads, shared, stream, out, in);
  };
  for (const auto& [blocks, threads] : std::vector<std::pair<dim3, dim3>>{{0, 1},
                                                                          {{1, 0}, 1},
                                                                          {{1, 1, 0}, 1},
                                                                          {1, 0},
                                                                          {1, {1, 0}},
                                                                          {1, {1, 1, 0}},
                                                                          {1, 1025},
                                                                          {1, {32, 33}},
                                                                          {1, {1, 1, 65}},
                                                                          {0x80000000u, 1},
                                                                          {{1, 65536}, 1},
                                                                          {{1, 1, 65536}, 1},
                                                                          {1, {1024, 1024, 64}}})
    EXPECT_EQ(launch(blocks, threads), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1, kMostShared + 1), cudaErrorInvalidValue) << "unasked";
  emulated_gpu::fail_call("cudaLaunchKernel", 1);
  EXPECT_NE(launch(1, 1), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(out, std::vector<float>(1000, 1));

  cudaGetLastError();
  EXPECT_EQ(launch(4, 256, kMostShared), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(out, std::vector<float>(1000, 3));

  const auto permit = [](std::size_t bytes) {
    return cudaFuncSetAttribute(executor_add, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
  };
  constexpr std::size_t kMostPermitted = (kWarp == 64 ? 64 : 99) << 10;
  EXPECT_EQ(permit(kMostPermitted + 1), cudaErrorInvalidValue);
  EXPECT_EQ(permit(kMostPermitted), cudaSuccess);
  EXPECT_EQ(launch(1, 1, kMostPermitted), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(permit(0), cudaSuccess);
  cudaGetLastError();
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
