#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tests/emulated_gpu/platform.h"

namespace emulated_gpu {

namespace {

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  return stream;
}

cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  return event;
}

/// Enqueues a function that a stream runs.
void on(cudaStream_t stream, std::function<void()> run, std::function<bool()> may_run = {}) {
  ASSERT_EQ(enqueue(stream, {.what = "work", .run = std::move(run), .may_run = std::move(may_run)}),
            cudaSuccess);
}

TEST(Streams, RunTheirWorkInOrder) {
  cudaStream_t stream = make_stream();
  std::vector<int> order;
  for (int i = 0; i < 50; ++i) on(stream, [&order, i] { order.push_back(i); });
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_EQ(order.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[i], i);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST(Streams, WaitForTheRecordThatAnEventHasAtTheTimeOfTheCall) {
  for (int i = 0; i < 50; ++i) {
    cudaStream_t a = make_stream(), b = make_stream();
    cudaEvent_t event = make_event();
    int value = 0, seen = -1;
    on(a, [&] { value = 1; });
    ASSERT_EQ(cudaEventRecord(event, a), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(b, event), cudaSuccess);
    on(b, [&] { seen = value; });
    ASSERT_EQ(cudaStreamSynchronize(b), cudaSuccess);
    EXPECT_EQ(seen, 1);
    cudaEventDestroy(event);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
  }
}

TEST(Memory, CopiesToAndFromTheDevice) {
  cudaStream_t stream = make_stream();
  void *host = nullptr, *device = nullptr;
  ASSERT_EQ(cudaMallocHost(&host, 12), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&device, 12), cudaSuccess);
  std::memcpy(host, "hello world", 12);
  ASSERT_EQ(cudaMemcpyAsync(device, host, 12, cudaMemcpyHostToDevice, stream), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device, 'j', 1, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(host, device, 12, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_STREQ(static_cast<char*>(host), "jello world");
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
  cudaStreamDestroy(stream);
}

}  // namespace

}  // namespace emulated_gpu
