#include "axonn/ranks/comm/device/device_communicator.h"

#include <functional>
#include <span>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/ranks/comm/collectives.h"
#include "tests/support/gpu_of_host_memory.h"

using namespace axonn;
using testing::HasSubstr;
using testing_support::GpuOfHostMemory;

namespace {

/// Runs body on a staged world of `ranks` ranks, each with its own device.
void run_staged(int ranks, const std::function<void(Communicator&, GpuOfHostMemory&)>& body) {
  run_ranks(ranks, [&](Communicator& host) {
    GpuOfHostMemory gpu;
    const auto world = make_staged(host, gpu);
    body(*world, gpu);
  });
}

}  // namespace

TEST(StagedCommunicator, RunsEveryCollectiveOnDeviceMemoryBitForBit) {
  for (int ranks : some_ranks())
    run_staged(ranks, [](Communicator& world, GpuOfHostMemory& gpu) {
      gpu.holds_everything();
      check_transport(world);
      EXPECT_GT(gpu.copies(), world.size() > 1 ? 100 : 0);
    });
}

TEST(StagedCommunicator, PassesHostMemoryToTheHostGroup) {
  run_staged(3, [](Communicator& world, GpuOfHostMemory& gpu) {
    check_collectives(world, 7);
    EXPECT_EQ(gpu.copies(), 0);
  });
}

TEST(StagedCommunicator, GivesTheSameSumsAsTheHostTransport) {
  std::uint64_t on_host = 0, on_gpus = 0;
  run_ranks(4, [&](Communicator& world) {
    const std::uint64_t hash = hash_of_sums(world);
    if (world.rank() == 0) on_host = hash;
  });
  run_staged(4, [&](Communicator& world, GpuOfHostMemory& gpu) {
    gpu.holds_everything();
    const std::uint64_t hash = hash_of_sums(world);
    if (world.rank() == 0) on_gpus = hash;
  });
  EXPECT_EQ(on_host, on_gpus);
}

TEST(StagedCommunicator, CopiesOnTheDeviceInAGroupOfOneRank) {
  const auto host = make_self();
  GpuOfHostMemory gpu;
  gpu.holds_everything();
  const auto world = make_staged(*host, gpu);
  const std::vector<float> inp{1, 2, 3};
  std::vector<float> out(3);
  world->all_gather(buffer(std::span(out)), buffer(std::span(inp))).wait();
  EXPECT_EQ(out, inp);
  EXPECT_EQ(gpu.copies(), 1);
}

TEST(StagedCommunicator, RefusesACallWithOneBufferOnTheHostAndOneOnTheDevice) {
  const auto host = make_self();
  GpuOfHostMemory gpu;
  const auto world = make_staged(*host, gpu);
  auto* out = static_cast<float*>(gpu.allocate(4096));
  const std::vector<float> inp{1, 2, 3};
  EXPECT_THAT(
      [&] {
        world->all_gather({out, 3, DType::f32}, buffer(std::span(inp)), "it");
      },
      testing::ThrowsMessage<Error>(HasSubstr("one buffer is in device memory")));
  gpu.release(out, 4096);
}
