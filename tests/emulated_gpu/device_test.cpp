// The device of the CUDA backend, on emulated GPUs.
#include <vector>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/compute/tensor/scratch.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/moment.h"
#include "axonn/foundation/base/trace.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/ranks/comm/device/nccl.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/emulated_gpu/platform.h"

using namespace axonn;

TEST(CudaDevice, KeepsPinnedMemoryUntilItsCopiesAreDone) {
  for (int i = 0; i < 20; ++i) {
    auto device = make_cuda_device(0);
    const std::vector<float> values(64, 1);
    void* const memory = device->allocate(256);
    for (int n = 0; n < 3; ++n) device->copy_from_host(memory, values.data(), 256);
    device.reset();
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
  }
}

TEST(CudaDevice, SynchronizingAStreamWaitsForItsWork) {
  const auto device = make_cuda_device(0);
  void* const memory = device->allocate(4);
  for (int i = 0; i < 20; ++i) {
    for (int n = 0; n < 5; ++n) device->fill_zero(memory, 4);
    const auto done = device->compute().record();
    device->compute().synchronize();
    EXPECT_TRUE(done->done());
  }
  device->release(memory, 4);
}

TEST(CudaDevice, ReportsAnErrorThatTheStreamHasWhenItsValuesAreRead) {
  const auto device = make_cuda_device(0);
  void* const memory = device->allocate(4);
  device->fill_zero(memory, 4);
  float value = 1;
  emulated_gpu::fail_call("cudaStreamSynchronize", 1);
  EXPECT_THROW(device->copy_to_host(&value, memory, 4), Error);
  device->copy_to_host(&value, memory, 4);
  EXPECT_EQ(value, 0);
  device->release(memory, 4);
}

TEST(CudaDevice, TellsTheTimeBetweenMomentsOfItsStreams) {
  const auto device = make_cuda_device(0);
  const auto other = device->make_stream(StreamPriority::normal);
  void* const memory = device->allocate(4);
  const Moment begin = device->moment(device->compute());
  for (int n = 0; n < 3; ++n) device->fill_zero(memory, 4);
  const Moment filled = device->moment(device->compute());
  other->wait(*device->compute().record());
  const Moment waited = device->moment(*other);
  device->fill_zero(memory, 4);
  const Moment end = device->moment(device->compute());
  device->compute().synchronize();
  EXPECT_TRUE(end.known());
  const double of_a_fill = emulated_gpu::Work{}.seconds;
  EXPECT_NEAR(filled.seconds() - begin.seconds(), 3 * of_a_fill, 1e-8);
  EXPECT_NEAR(waited.seconds() - begin.seconds(), 3 * of_a_fill, 1e-8);
  EXPECT_NEAR(end.seconds() - begin.seconds(), 4 * of_a_fill, 1e-8);
  EXPECT_NEAR(begin.seconds(), now_seconds(), 60) << "the host's clock";
  device->release(memory, 4);
}

TEST(CudaDevice, CountsWaitsForCollectivesByTheTimeThatItStandsStill) {
  constexpr int kFills = 2;
  const double of_a_fill = emulated_gpu::Work{}.seconds;
  run_ranks(2, [&](Communicator& host) {
    const auto device = make_cuda_device(host.rank());
    Arena arena(*device);
    const auto world = make_nccl(host, arena, 60);
    Trace trace;
    world->set_trace(&trace);
    Scratch memory(arena);
    const Buffer sum{memory.take<float>(8), 8, DType::f32};
    void* const beside = memory.take<float>(1);
    const auto exposed = [&](int fills) {
      const auto waited = [&] {
        device->compute().synchronize();
        return world->stats().waited_seconds_by[static_cast<int>(Operation::all_reduce)];
      };
      const double before = waited();
      device->fill_zero(sum.data, sum.bytes());
      Work work = world->all_reduce(sum, "sum");
      for (int n = 0; n < fills; ++n) device->fill_zero(beside, 4);
      work.wait();
      return waited() - before;
    };
    EXPECT_NEAR(exposed(0), emulated_gpu::kCollectiveSeconds, 1e-8);
    EXPECT_NEAR(exposed(kFills), emulated_gpu::kCollectiveSeconds - kFills * of_a_fill, 1e-8);
    EXPECT_NEAR(exposed(9), 0, 1e-8);
    trace.start();
    exposed(kFills);
    trace.stop();
    const auto events = nlohmann::json::parse(trace_file({trace.events(0, "rank")}))["traceEvents"];
    std::vector<std::string> names;
    for (const auto& event : events)
      if (event["ph"] == "X") {
        EXPECT_EQ(event["name"], "wait for world all_reduce sum");
        EXPECT_NEAR(event["dur"].get<double>(),
                    1e6 * (emulated_gpu::kCollectiveSeconds - kFills * of_a_fill), 0.1);
      } else if (event["ph"] == "b" || event["ph"] == "e") {
        names.push_back(event["name"]);
        EXPECT_EQ(event["cat"], "world");
      }
    EXPECT_THAT(names, testing::ElementsAre("all_reduce sum", "all_reduce sum"));
    world->set_trace(nullptr);
    host.barrier("end");
  });
}

TEST(NcclGroups, HaveAtMostTheBlocksOfTheirPolicy) {
  run_ranks(2, [](Communicator& host) {
    const auto device = make_cuda_device(host.rank());
    Arena arena(*device);
    const auto blocks_of = [&](int wanted, const char* name) {
      host.set_policy({.gpu_blocks = wanted});
      const auto world = make_nccl(host, arena, 60);
      const auto part = world->split(0, name);
      const int blocks = emulated_gpu::latest_nccl_blocks();
      world->barrier("seen");
      return blocks;
    };
    EXPECT_EQ(blocks_of(-1, "z"), 8);
    EXPECT_EQ(blocks_of(-1, "data"), 8);
    EXPECT_EQ(blocks_of(-1, "x"), 16);
    EXPECT_EQ(blocks_of(0, "z"), 0) << "as NCCL chooses";
    EXPECT_EQ(blocks_of(5, "z"), 5);
  });
}
