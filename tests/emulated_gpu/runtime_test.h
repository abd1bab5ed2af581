#pragma once

#include <functional>
#include <utility>

#include <gtest/gtest.h>

#include "tests/emulated_gpu/platform.h"

// Handles and work of the tests of the emulated runtime.
namespace emulated_gpu {

/// Owns a stream.
class TestStream {
 public:
  TestStream() {
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
  }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }

  operator cudaStream_t() const { return stream_; }
  /// Enqueues work.
  void run(std::function<void()> run, std::function<bool()> may_run = {}) const {
    EXPECT_EQ(enqueue(stream_,
                      {.what = "the work", .run = std::move(run), .may_run = std::move(may_run)}),
              cudaSuccess);
  }
  void synchronize() const { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Owns an event.
class TestEvent {
 public:
  TestEvent() { EXPECT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  ~TestEvent() { EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess); }

  operator cudaEvent_t() const { return event_; }
  void record(const TestStream& stream) const {
    EXPECT_EQ(cudaEventRecord(event_, stream), cudaSuccess);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// `after` continues after what is on `before` now.
inline void order(const TestStream& before, const TestStream& after) {
  const TestEvent event;
  event.record(before);
  EXPECT_EQ(cudaStreamWaitEvent(after, event), cudaSuccess);
}

/// Device memory of ints, or pinned host memory.
class TestMemory {
 public:
  enum class Kind { device, pinned };

  explicit TestMemory(std::size_t count, Kind kind = Kind::device) : kind_(kind) {
    EXPECT_EQ(kind == Kind::device ? cudaMalloc(&memory_, count * sizeof(int))
                                   : cudaMallocHost(&memory_, count * sizeof(int)),
              cudaSuccess);
  }
  TestMemory(const TestMemory&) = delete;
  TestMemory& operator=(const TestMemory&) = delete;
  ~TestMemory() {
    EXPECT_EQ(kind_ == Kind::device ? cudaFree(memory_) : cudaFreeHost(memory_), cudaSuccess);
  }

  int* get() const { return static_cast<int*>(memory_); }

 private:
  Kind kind_;
  void* memory_ = nullptr;
};

}  // namespace emulated_gpu
