#include <atomic>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>

#include "tests/emulated_gpu/runtime_test.h"

extern "C" __attribute__((weak)) void __tsan_acquire(void* address);

namespace emulated_gpu {

namespace {

/// What f enqueues on the stream, as a graph.
class TestGraph {
 public:
  TestGraph(const TestStream& stream, const std::function<void()>& f) {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), cudaSuccess);
    f();
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    EXPECT_EQ(
        cudaGraphInstantiateWithFlags(&graph_, graph, cudaGraphInstantiateFlagUseNodePriority),
        cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  TestGraph(const TestGraph&) = delete;
  TestGraph& operator=(const TestGraph&) = delete;
  ~TestGraph() { EXPECT_EQ(cudaGraphExecDestroy(graph_), cudaSuccess); }

  void launch(const TestStream& stream) const {
    EXPECT_EQ(cudaGraphLaunch(graph_, stream), cudaSuccess);
  }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

/// The error with which a capture ends in which f is called.
cudaError_t end_of_capture(const std::function<void(const TestStream&)>& f,
                           cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed) {
  const TestStream stream;
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  f(stream);
  const cudaError_t error = cudaStreamEndCapture(stream, &graph);
  EXPECT_EQ(graph != nullptr, error == cudaSuccess);
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();
  return error;
}

cudaStreamCaptureStatus status_of(const TestStream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  EXPECT_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
  return status;
}

TEST(EmulatedGraphs, RunWhatWasCapturedWhenTheyAreLaunched) {
  const TestStream stream;
  std::string steps;
  {
    const TestGraph graph(stream, [&] {
      EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusActive);
      for (const char step : {'a', 'b', 'c'}) stream.run([&steps, step] { steps += step; });
    });
    EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusNone);
    stream.synchronize();
    EXPECT_EQ(steps, "");
    graph.launch(stream);
    stream.run([&] { steps += '.'; });
    graph.launch(stream);
  }  // destroyed before it has run
  stream.synchronize();
  EXPECT_EQ(steps, "abc.abc");
}

TEST(EmulatedGraphs, RunBranchesInAnyOrderBetweenForkAndJoin) {
  const TestStream stream, other;
  TestSteps steps;
  const TestGraph graph(stream, [&] {
    stream.run([&] { steps.add('('); });
    order(stream, other);
    EXPECT_EQ(status_of(other), cudaStreamCaptureStatusActive);
    stream.run([&] { steps.add('a'); });
    other.run([&] { steps.add('b'); });
    order(other, stream);
    stream.run([&] { steps.add(')'); });
  });
  EXPECT_EQ(status_of(other), cudaStreamCaptureStatusNone);
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    graph.launch(stream);
    stream.synchronize();
    seen.insert(steps.take());
  }
  EXPECT_EQ(seen, (std::set<std::string>{"(ab)", "(ba)"}));
}

TEST(EmulatedGraphs, GoOnWhileANodeWaits) {
  const TestStream stream, other;
  std::atomic<bool> open = false;
  int closed_runs = 0;
  const TestGraph graph(stream, [&] {
    order(stream, other);
    other.run([&] { ++closed_runs; }, [&] { return open.load(); });
    stream.run([&] { open = true; });
    order(other, stream);
  });
  for (int i = 0; i < 10; ++i) {
    graph.launch(stream);
    stream.synchronize();
    open = false;
  }
  EXPECT_EQ(closed_runs, 10);
}

TEST(EmulatedGraphs, RunOneLaunchAfterTheOtherAlsoOnTwoStreams) {
  const TestStream a, b;
  int running = 0;
  const TestGraph graph(a, [&] {
    a.run([&] { EXPECT_EQ(running++, 0); });
    a.run([&] { --running; });
  });
  for (int i = 0; i < 50; ++i) {
    graph.launch(a);
    graph.launch(b);
  }
  a.synchronize();
  b.synchronize();
}

TEST(EmulatedGraphs, MayBeEmpty) {
  const TestStream stream;
  const TestGraph graph(stream, [] {});
  graph.launch(stream);
  stream.synchronize();
}

TEST(EmulatedCaptures, FailIfABranchIsNotJoined) {
  const TestStream other;
  EXPECT_EQ(end_of_capture([&](const TestStream& stream) {
              order(stream, other);
              other.run([] {});
            }),
            cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(status_of(other), cudaStreamCaptureStatusNone);
  const TestStream between;  // also a branch without work
  EXPECT_EQ(end_of_capture([&](const TestStream& stream) {
              order(stream, between);
              order(between, other);
              order(between, stream);
            }),
            cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(end_of_capture([&](const TestStream& stream) {
              order(stream, between);
              order(between, other);
              order(other, between);
              order(between, stream);
            }),
            cudaSuccess);
}

TEST(EmulatedCaptures, FailIfTheyWaitForWhatIsOutsideOrWaitOnTheHost) {
  const TestStream outside;
  const TestEvent before, inside;
  before.record(outside);
  EXPECT_EQ(end_of_capture([&](const TestStream& stream) {
              EXPECT_EQ(cudaStreamWaitEvent(stream, before), cudaErrorStreamCaptureIsolation);
              EXPECT_EQ(status_of(stream), cudaStreamCaptureStatusInvalidated);
              EXPECT_EQ(cudaMemsetAsync(TestMemory(1).get(), 0, 4, stream),
                        cudaErrorStreamCaptureInvalidated);
            }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end_of_capture([&](const TestStream& stream) {
              EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
            }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end_of_capture([&](const TestStream& stream) {
              inside.record(stream);
              EXPECT_EQ(cudaEventQuery(inside), cudaErrorStreamCaptureUnsupported);
            }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end_of_capture([&](const TestStream& stream) { inside.record(stream); }), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(inside), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaStreamWaitEvent(outside, inside), cudaErrorCapturedEvent);
  inside.record(outside);
  EXPECT_EQ(cudaEventSynchronize(inside), cudaSuccess);
  cudaGetLastError();
}

TEST(EmulatedCaptures, DoNotMergeAndEndOnTheStreamThatBegan) {
  const TestStream other;
  EXPECT_EQ(end_of_capture([&](const TestStream& stream) {
              const TestEvent event;
              event.record(stream);
              EXPECT_EQ(end_of_capture([&](const TestStream& second) {
                          EXPECT_EQ(cudaStreamWaitEvent(second, event),
                                    cudaErrorStreamCaptureMerge);
                        }),
                        cudaErrorStreamCaptureInvalidated);
            }),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(end_of_capture([&](const TestStream& stream) {
              cudaGraph_t graph = nullptr;
              order(stream, other);
              EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
            }),
            cudaErrorStreamCaptureInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(other, &graph), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(EmulatedCaptures, FailByCallsThatTheirModeForbids) {
  const TestStream outside;
  const TestEvent event;
  event.record(outside);
  const auto allocate = [](const TestStream&) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, 4) == cudaSuccess) cudaFree(memory);
  };
  const auto query_from_other_thread = [&](cudaStreamCaptureMode mode) {
    return [&event, mode](const TestStream&) {
      std::thread([&] {
        cudaStreamCaptureMode exchanged = mode;
        EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&exchanged), cudaSuccess);
        EXPECT_EQ(exchanged, cudaStreamCaptureModeGlobal);
        cudaEventQuery(event);
      }).join();
    };
  };
  constexpr auto kGlobal = cudaStreamCaptureModeGlobal;
  constexpr auto kThread = cudaStreamCaptureModeThreadLocal;
  constexpr auto kInvalid = cudaErrorStreamCaptureInvalidated;
  EXPECT_EQ(end_of_capture(allocate), cudaSuccess);
  EXPECT_EQ(end_of_capture(allocate, kThread), kInvalid);
  EXPECT_EQ(end_of_capture(allocate, kGlobal), kInvalid);
  EXPECT_EQ(end_of_capture(query_from_other_thread(kGlobal), kGlobal), kInvalid);
  EXPECT_EQ(end_of_capture(query_from_other_thread(kThread), kGlobal), cudaSuccess);
  EXPECT_EQ(end_of_capture(query_from_other_thread(kGlobal), kThread), cudaSuccess);
}

TEST(EmulatedGraphsDeathTest, ReportADeadlockWithTheNodesThatWait) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("AXONN_EMULATED_PATIENCE", "1", 1);
  const auto stuck = [] {
    const TestStream stream;
    const TestGraph graph(stream, [&] { stream.run([] {}, [] { return false; }); });
    graph.launch(stream);
    stream.synchronize();
  };
  EXPECT_DEATH(stuck(), "device 0: cudaGraphLaunch \\(the work\\) and 0 after it");
  unsetenv("AXONN_EMULATED_PATIENCE");
}

TEST(EmulatedGraphsDeathTest, RacesOfBranchesAreFound) {
  if (!__tsan_acquire) GTEST_SKIP() << "needs a build with ThreadSanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto branches_write = [](bool same) {
    const TestStream stream, other;
    int values[2] = {};
    const TestGraph graph(stream, [&] {
      stream.run([&] { values[0] = values[1] = 1; });
      order(stream, other);
      stream.run([&] { ++values[0]; });
      other.run([&] { ++values[same ? 0 : 1]; });
      order(other, stream);
      stream.run([&] { values[0] += values[1]; });
    });
    for (int i = 0; i < 3; ++i) graph.launch(stream);
    stream.synchronize();
    std::exit(values[0] > 0 ? 0 : 1);
  };
  EXPECT_EXIT(branches_write(false), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(branches_write(true), testing::ExitedWithCode(66), "data race");
}

}  // namespace

}  // namespace emulated_gpu
