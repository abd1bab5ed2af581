#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {

/// A graph that can be launched.
struct Executable {
  std::vector<Node> nodes;
  std::vector<std::unique_ptr<Context>> lanes;
  std::uint64_t launches = 0, done = 0;

  explicit Executable(const std::vector<Node>& of) : nodes(of) {
    int count = 0;
    for (const Node& node : nodes) count = std::max(count, node.lane + 1);
    for (int i = 0; i < count; ++i) lanes.push_back(std::make_unique<Context>());
  }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;
  ~Executable() {
    for (const Node& node : nodes) acquire(&node);  // whose work is destroyed now
  }
};

/// A launch that is on a stream.
struct Launch {
  std::shared_ptr<Executable> graph;
  std::uint64_t turn = 0;  ///< launches of the same graph before this one
  bool begun = false;
  std::vector<int> missing;  ///< of each node: those before it that are not done
  std::vector<int> ready;    ///< nodes with none missing
  std::size_t left = 0;      ///< nodes that are not done
};

namespace {

void begin(Launch& launch) {
  const auto& nodes = launch.graph->nodes;
  launch.begun = true;
  launch.left = nodes.size();
  for (int i = 0; i < std::ssize(nodes); ++i) {
    launch.missing.push_back(static_cast<int>(nodes[i].after.size()));
    if (nodes[i].after.empty()) launch.ready.push_back(i);
  }
}

void run(CUstream_st& stream, const Item& item, int i) {
  Launch& launch = *item.launch;
  const auto& nodes = launch.graph->nodes;
  const Node& node = nodes[i];
  run_as(*launch.graph->lanes[node.lane], node.device, [&] {
    acquire(&item);
    acquire(&stream);  // what was before the launch
    for (const int before : node.after) acquire(&nodes[before]);
    machine().time = &stream.seconds;
    node.work.run();
    release(&node);
  });
  stream.seconds += node.work.seconds;  // as if its nodes ran one after the other
  --launch.left;
  for (int later = i + 1; later < std::ssize(nodes); ++later)
    if (std::ranges::find(nodes[later].after, i) != nodes[later].after.end() &&
        --launch.missing[later] == 0)
      launch.ready.push_back(later);
}

/// Whether the origin has waited, perhaps through other streams, for each stream of the capture
/// after it had joined: CUDA's guide demands that also of a stream without work. And all nodes of
/// the capture come before the tail.
bool joined(const Capture& capture, const std::vector<int>& tail) {
  std::vector<bool> returned(capture.lanes);
  returned[0] = true;
  for (int round = 1; round < capture.lanes; ++round)
    for (const auto& [from, to] : capture.waits)
      if (returned[to]) returned[from] = true;
  if (std::ranges::find(returned, false) != returned.end()) return false;

  std::vector<bool> before(capture.nodes.size());
  for (const int i : tail) before[i] = true;
  for (int i = static_cast<int>(before.size()) - 1; i >= 0; --i)
    if (before[i])
      for (const int earlier : capture.nodes[i].after) before[earlier] = true;
  return std::ranges::all_of(before, [](bool b) { return b; });
}

void add(std::vector<int>& tail, const std::vector<int>& more) {
  tail.insert(tail.end(), more.begin(), more.end());
  std::ranges::sort(tail);
  tail.erase(std::ranges::unique(tail).begin(), tail.end());
}

thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

}  // namespace

Item::Item(std::unique_ptr<Launch> of) : what("cudaGraphLaunch"), launch(std::move(of)) {}
Item::Item(Work work)
    : what(std::move(work.what)),
      run(std::make_unique<std::function<void()>>(std::move(work.run))),
      may_run(std::move(work.may_run)),
      seconds(work.seconds) {}

Item::~Item() = default;

bool run_node(CUstream_st& stream, Item& item, bool& done) {
  Launch& launch = *item.launch;
  done = false;
  if (launch.graph->done < launch.turn) return false;
  if (!launch.begun) begin(launch);
  std::ranges::shuffle(launch.ready, random_numbers());
  const auto it = std::ranges::find_if(launch.ready, [&](int i) {
    const Work& work = launch.graph->nodes[i].work;
    return !work.may_run || work.may_run();
  });
  if (it == launch.ready.end() && launch.left > 0) return false;
  if (launch.left > 0) {
    const int i = *it;
    launch.ready.erase(it);
    run(stream, item, i);
  }
  if (launch.left > 0) return true;
  done = true;
  ++launch.graph->done;
  run_as(stream.context, stream.device, [&] {
    acquire(&item);
    for (const Node& node : launch.graph->nodes) acquire(&node);
    release(&stream);
  });
  return true;
}

std::string name_of(const Item& item) {
  if (!item.launch || item.launch->ready.empty()) return item.what;
  std::string names;
  for (const int i : item.launch->ready)
    names += (names.empty() ? "" : ", ") + item.launch->graph->nodes[i].work.what;
  return item.what + " (" + names + ")";
}

cudaError_t invalidate(Capture& capture, cudaError_t error) {
  capture.invalidated = true;
  return error;
}

cudaError_t refused_by_captures() {
  const auto me = std::this_thread::get_id();
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (const auto& capture : machine().captures) {
    const bool mine = capture->thread == me;
    if (mine ? capture->mode != cudaStreamCaptureModeRelaxed
             : capture->mode == cudaStreamCaptureModeGlobal &&
                   mode_of_thread == cudaStreamCaptureModeGlobal)
      return invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
}

cudaError_t capture(CUstream_st& stream, Work work) {
  Capture& capture = *stream.captured.capture;
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  capture.nodes.push_back({std::move(work), stream.device, stream.lane, stream.captured.tail});
  stream.captured.tail = {static_cast<int>(capture.nodes.size()) - 1};
  return cudaSuccess;
}

cudaError_t capture_wait(CUstream_st& stream, const CUevent_st& event) {
  const auto& of = event.captured.capture;
  Captured& to = stream.captured;
  if (to.capture && to.capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (of && of->ended)
    return to.capture ? invalidate(*to.capture, cudaErrorCapturedEvent) : cudaErrorCapturedEvent;
  if (!of)
    return event.record ? invalidate(*to.capture, cudaErrorStreamCaptureIsolation) : cudaSuccess;
  if (of->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (to.capture && to.capture != of) {
    invalidate(*of, cudaSuccess);
    return invalidate(*to.capture, cudaErrorStreamCaptureMerge);
  }
  if (!to.capture) {
    to.capture = of;
    stream.lane = of->lanes++;
  }
  add(to.tail, event.captured.tail);
  of->waits.emplace(event.lane, stream.lane);
  return cudaSuccess;
}

}  // namespace emulated_gpu

struct CUgraph_st {
  std::vector<emulated_gpu::Node> nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<emulated_gpu::Executable> graph;
};

using namespace emulated_gpu;

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const char* const function = __func__;
  return call(function, [&] {
    const auto& capture = stream_of(stream, function).captured.capture;
    *status = !capture               ? cudaStreamCaptureStatusNone
              : capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                     : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call(__func__, [&] {
    std::swap(*mode, mode_of_thread);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const char* const function = __func__;
  return call(function, [&] {
    CUstream_st& s = stream_of(stream, function);
    if (s.captured.capture)
      return invalidate(*s.captured.capture, cudaErrorStreamCaptureUnsupported);
    auto capture = std::make_shared<Capture>();
    capture->origin = stream;
    capture->mode = mode;
    s.lane = capture->lanes++;
    machine().captures.insert(capture);
    s.captured = {.capture = std::move(capture), .tail = {}};
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const char* const function = __func__;
  return call(function, [&] {
    CUstream_st& s = stream_of(stream, function);
    if (!graph) return cudaErrorInvalidValue;
    *graph = nullptr;
    const auto capture = s.captured.capture;
    if (!capture) return cudaErrorInvalidValue;
    if (capture->origin != stream) return invalidate(*capture, cudaErrorStreamCaptureUnmatched);
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id())
      return invalidate(*capture, cudaErrorStreamCaptureWrongThread);
    const bool all_joined = joined(*capture, s.captured.tail);
    capture->ended = true;
    machine().captures.erase(capture);
    for (const auto& one : machine().streams)
      if (one->captured.capture == capture) one->captured = {};
    if (capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    if (!all_joined) return cudaErrorStreamCaptureUnjoined;
    *graph = new CUgraph_st{std::move(capture->nodes)};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* graph, cudaGraph_t of, unsigned flags) {
  return call(__func__, [&] {
    if (!graph || !of || (flags & ~cudaGraphInstantiateFlagUseNodePriority))
      return cudaErrorInvalidValue;
    *graph = new CUgraphExec_st{std::make_shared<Executable>(of->nodes)};
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  const char* const function = __func__;
  return call(function, [&] {
    CUstream_st& s = stream_of(stream, function);
    if (!graph) return cudaErrorInvalidValue;
    if (s.captured.capture)
      violation("cudaGraphLaunch: a stream that captures, which is not emulated");
    auto launch = std::make_unique<Launch>();
    launch->graph = graph->graph;
    launch->turn = graph->graph->launches++;
    push(s, std::make_unique<Item>(std::move(launch)));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return call(__func__, [&] {
    if (!graph) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call(__func__, [&] {
    if (!graph) return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
  });
}
