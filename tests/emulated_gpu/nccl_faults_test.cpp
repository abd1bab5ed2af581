// The program's groups on NCCL (comm/device/nccl.h) when a call of NCCL or CUDA fails, or a rank is
// missing: an error on every rank, whatever the call.
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/device/nccl.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/emulated_gpu/platform.h"

using namespace axonn;

namespace {

constexpr double kTimeout = 1;  // seconds

/// Two ranks make groups and call each collective.
void work(Communicator& host) {
  const auto device = make_cuda_device(host.rank());
  constexpr std::int64_t n = 10;
  Arena arena(*device);
  void* const memory = arena.allocate(8 * n);
  {
    const Buffer whole{memory, 2 * n, DType::f32}, one{memory, n, DType::f32};
    const auto world = make_nccl(host, arena, kTimeout);
    world->all_reduce(one, "sum").wait();
    const auto part = world->split(0, "part");
    part->all_to_all(whole, whole, "swap").wait();
    const std::vector<std::int64_t> mine(2, host.rank() == 0 ? 3 : 0), theirs{3, 0};
    const std::int64_t given = mine[0] + mine[1];
    part->all_to_all({memory, 3, DType::f32},
                     {given > 0 ? static_cast<float*>(memory) + n : nullptr, given, DType::f32},
                     {mine, theirs}, "exchange")
        .wait();
    std::vector<float> values(2 * n);
    device->copy_to_host(values.data(), memory, 8 * n);
    world->barrier("end");
  }
}

/// Bytes of the GPU that are allocated.
std::size_t used_bytes(int gpu) {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(cudaSetDevice(gpu), cudaSuccess);
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return total - free;
}

}  // namespace

TEST(NcclFaults, AFailedCallIsAnErrorAndTheOtherRankEndsToo) {
  int failed = 0;
  for (const char* const function :
       {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommSplit", "ncclCommCount",
        "ncclCommGetAsyncError", "ncclAsync", "ncclAllReduce", "ncclSend", "ncclRecv",
        "ncclGroupStart", "ncclGroupEnd", "cudaMalloc", "cudaMemcpyAsync", "cudaEventRecord",
        "cudaStreamWaitEvent"})
    for (const int nth : {1, 2, 7}) {
      SCOPED_TRACE(std::string(function) + ", call " + std::to_string(nth));
      const std::size_t before = used_bytes(0) + used_bytes(1);
      emulated_gpu::fail_call(function, nth);
      try {
        run_ranks(2, work);
      } catch (const Error&) {
        ++failed;
      }
      EXPECT_EQ(used_bytes(0) + used_bytes(1), before);
    }
  EXPECT_GE(failed, 20);
}

TEST(NcclFaults, ARankThatIsMissingWhenACollectiveConnectsTheRanksEndsTheWorld) {
  const auto body = [](Communicator& host) {
    const auto device = make_cuda_device(host.rank());
    void* const memory = device->allocate(4);
    {
      Arena arena(*device);
      const auto world = make_nccl(host, arena, kTimeout);
      while (host.rank() == 1 && host.end_reason().empty()) std::this_thread::yield();
      world->all_reduce({memory, 1, DType::f32}, "sum").wait();
    }
    device->release(memory, 4);
  };
  EXPECT_THROW(run_ranks(2, body), Error);
}
