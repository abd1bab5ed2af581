// The transports for device memory, on this machine's GPUs. Skipped if there is none.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/ranks/comm/device/device_communicator.h"
#include "axonn/ranks/comm/device/device_threads.h"
#include "axonn/ranks/comm/device/nccl.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/support/needs_gpu.h"

using namespace axonn;

namespace {

/// An array in the memory of a rank's GPU.
class OnGpu {
 public:
  OnGpu(Device& device, const std::vector<float>& values)
      : device_(device), count_(std::ssize(values)), memory_(device.allocate(4 * count_)) {
    device_.copy_from_host(memory_, values.data(), 4 * count_);
  }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  ~OnGpu() { device_.release(memory_, 4 * count_); }

  Buffer buffer() const { return {memory_, count_, DType::f32}; }
  std::vector<float> values() const {
    std::vector<float> host(count_);
    device_.copy_to_host(host.data(), memory_, 4 * count_);
    return host;
  }

 private:
  Device& device_;
  std::int64_t count_;
  void* memory_;
};

std::vector<float> given(int rank, std::int64_t count) {
  std::vector<float> values(count);
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>((i * 7919 + rank * 104'729) % 1009) / 997 + 0.1f;
  return values;
}

/// Exchanges parts of the first half of a buffer, a third of n elements for one rank and none for
/// others, into its second half.
Work exchange(Communicator& world, const Buffer& whole) {
  const std::int64_t n = whole.count / world.size(), half = whole.count / 2;
  std::vector<std::int64_t> to, from;
  for (int other = 0; other < world.size(); ++other) {
    to.push_back(n / 6 * ((world.rank() + 2 * other) % 3));
    from.push_back(n / 6 * ((other + 2 * world.rank()) % 3));
  }
  const Buffer inp = part(whole, 0, std::reduce(to.begin(), to.end())),
               out = part(whole, half, std::reduce(from.begin(), from.end()));
  return world.all_to_all(out, inp, {to, from}, "exchange");
}

/// Runs collectives one after another on the same two buffers, without waits of the host, and
/// returns the rank's final values.
template <typename Memory>
std::vector<float> chain(Communicator& world, const Memory& part, const Memory& whole) {
  const auto pairs = world.split(world.rank() / 2, "pairs");
  for (int round = 0; round < 20; ++round) {
    Work sum = world.all_reduce(part.buffer(), "sum");
    Work swap = world.all_to_all(whole.buffer(), whole.buffer(), "swap");
    sum.wait();
    swap.wait();
    world.all_reduce(part.buffer(), "max", ReduceOp::max).wait();
    exchange(world, whole.buffer()).wait();
    world.reduce_scatter(part.buffer(), whole.buffer(), "cut").wait();
    pairs->broadcast(part.buffer(), 0, "one").wait();
    world.all_gather(whole.buffer(), part.buffer(), "gather").wait();
  }
  return whole.values();
}

struct OnHost {
  std::vector<float> kept;
  Buffer buffer() const { return axonn::buffer(std::span(kept)); }
  std::vector<float> values() const { return kept; }
};

using Make = std::function<std::unique_ptr<Communicator>(Communicator& host, Device& device)>;

/// Runs the chain on ranks that are distributed over the GPUs, and on the host, and compares the
/// results.
void expect_as_on_the_host(int ranks, const Make& make) {
  const auto gpu = cuda_status().gpus;
  const int gpus = static_cast<int>(gpu.size());
  // The last: more than the threads of a kernel copy at once, and on a GPU long enough to overlap.
  for (const std::int64_t n : {1, 63, 4096, gpu.front().emulated ? 70'001 : 1'000'003}) {
    std::vector<std::vector<float>> want(ranks), got(ranks);
    run_ranks(ranks, [&](Communicator& host) {
      const int rank = host.rank();
      want[rank] = chain(host, OnHost{given(rank, n)}, OnHost{given(rank + 50, n * ranks)});
      const auto device = make_cuda_device(rank % gpus);
      const OnGpu part(*device, given(rank, n)), whole(*device, given(rank + 50, n * ranks));
      const auto world = make(host, *device);
      got[rank] = chain(*world, part, whole);
      host.barrier("all have read");
    });
    EXPECT_TRUE(got == want) << ranks << " ranks, " << n << " elements";
  }
}

class OnGpus : public testing::Test {
  void SetUp() override {
    if (const std::string trouble = cuda_status().trouble; !trouble.empty())
      test::skip_without_gpu(trouble);
  }
};

}  // namespace

TEST_F(OnGpus, ThreadRanksExchangeByKernelsWithTheSameBitsAsTheHost) {
  for (const int ranks : {2, 3, 8})
    expect_as_on_the_host(ranks, [](Communicator& host, Device& device) {
      auto kernels = make_peer_kernels(host, device);
      AXONN_CHECK(kernels, "the GPUs cannot access each other's memory");
      return make_device_threads(host, device, std::move(kernels));
    });
}

TEST_F(OnGpus, RanksExchangeThroughTheHostWithTheSameBits) {
  expect_as_on_the_host(3, make_staged);
}

TEST_F(OnGpus, NcclGivesTheResultsOfTheHostUpToRounding) {
  EXPECT_NE(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), nullptr);
  const int gpus = static_cast<int>(cuda_status().gpus.size());
  if (gpus < 2) GTEST_SKIP() << "NCCL needs two GPUs";
  for (const int ranks : {2, std::min(gpus, 8)})
    for (const std::int64_t n : {1, 63, 4096})
      run_ranks(ranks, [&](Communicator& host) {
        const int rank = host.rank();
        const auto want = chain(host, OnHost{given(rank, n)}, OnHost{given(rank + 50, n * ranks)});
        const auto device = make_cuda_device(rank);
        const OnGpu part(*device, given(rank, n)), whole(*device, given(rank + 50, n * ranks));
        Arena arena(*device);
        const auto world = make_nccl(host, arena, 60);
        const auto got = chain(*world, part, whole);
        // Two sums of positive values in each of the 20 rounds.
        const float tolerance = 2 * 20 * static_cast<float>(ranks) * 1.2e-7f;
        for (std::size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[i], want[i], tolerance * want[i]) << ranks << " ranks, element " << i;
      });
}

TEST_F(OnGpus, NcclInTwoLevelsGivesTheResultsOfTheHostUpToRounding) {
  const int gpus = static_cast<int>(cuda_status().gpus.size());
  if (gpus < 4) GTEST_SKIP() << "two hosts of two ranks need four GPUs";
  for (const auto& [ranks, per_host] : {std::pair(4, 2), std::pair(8, 2), std::pair(6, 3)})
    for (const std::int64_t n : {1, 64, 4098}) {
      if (ranks > gpus) continue;
      run_ranks(ranks, [&](Communicator& host) {
        const int rank = host.rank();
        const auto want = chain(host, OnHost{given(rank, n)}, OnHost{given(rank + 50, n * ranks)});
        const auto device = make_cuda_device(rank);
        const OnGpu part(*device, given(rank, n)), whole(*device, given(rank + 50, n * ranks));
        Arena arena(*device);
        const auto world = make_nccl(host, arena, 60, concat("host ", rank / per_host));
        world->set_policy({CollectiveMethod::two_level});
        const auto got = chain(*world, part, whole);
        // Two sums of positive values in each of the 20 rounds.
        const float tolerance = 2 * 20 * static_cast<float>(ranks) * 1.2e-7f;
        for (std::size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[i], want[i], tolerance * want[i]) << ranks << " ranks, element " << i;
      });
    }
}

TEST_F(OnGpus, NcclEndsTheWorldWhenARankIsMissing) {
  if (cuda_status().gpus.size() < 2) GTEST_SKIP() << "NCCL needs two GPUs";
  const auto body = [](Communicator& host) {
    const auto device = make_cuda_device(host.rank());
    const OnGpu x(*device, given(host.rank(), 1000));
    Arena arena(*device);
    const auto world = make_nccl(host, arena, 2);
    world->all_reduce(x.buffer(), "first").wait();
    if (host.rank() == 1)
      while (host.end_reason().empty()) std::this_thread::yield();
    world->all_reduce(x.buffer(), "second").wait();
    x.values();
    world->barrier();
  };
  EXPECT_THROW(run_ranks(2, body), Error);
}
