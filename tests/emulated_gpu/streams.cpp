#include <algorithm>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {

namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point now() {
  const Unseen unseen;  // ThreadSanitizer reports the clock's stack, which streams run on, too
  return Clock::now();
}

/// When work was last enqueued or done.
Clock::time_point& last_progress() {
  static Clock::time_point time = now();
  return time;
}

/// Runs the stream's first work, or a piece of it if it is a graph. False: it cannot run yet.
bool run_some_of(CUstream_st& stream) {
  Item& first = *stream.queue.front();
  bool done = true;
  if (first.launch) {
    if (!run_node(stream, first, done)) return false;
  } else {
    if (first.may_run && !first.may_run()) return false;
    run_as(stream.context, stream.device, [&] {
      acquire(&first);
      machine().time = &stream.seconds;
      (*first.run)();
      first.run.reset();
      release(&stream);
    });
    stream.seconds += first.seconds;
  }
  if (!done) return true;
  stream.queue.pop_front();
  ++stream.done;
  return true;
}

/// Runs some work of any stream. False: none can run.
bool step() {
  Machine& m = machine();
  auto& random = random_numbers();
  std::vector<CUstream_st*> busy;
  for (const auto& stream : m.streams)
    if (!stream->queue.empty()) busy.push_back(stream.get());
  if (busy.empty()) return false;
  // Priorities that seldom change let one stream run far ahead of another; a uniform choice would
  // keep all about equally far.
  constexpr int kStepsOfPriority = 8;
  if (random() % kStepsOfPriority == 0) busy[random() % busy.size()]->priority = random();
  std::ranges::sort(busy, std::greater<>(), &CUstream_st::priority);
  for (CUstream_st* const stream : busy) {
    if (!run_some_of(*stream)) continue;
    if (stream->destroyed && stream->queue.empty())
      std::erase_if(m.streams, [&](const auto& one) { return one.get() == stream; });
    last_progress() = now();
    progressed();
    return true;
  }
  return false;
}

/// The work that waits, for messages.
std::string pending_work() {
  std::string text;
  for (const auto& stream : machine().streams)
    if (!stream->queue.empty())
      text += "\n  a stream of device " + std::to_string(stream->device) + ": " +
              name_of(*stream->queue.front()) + " and " + std::to_string(stream->queue.size() - 1) +
              " after it";
  return text.empty() ? "\n  nothing" : text;
}

/// A stream or event that is being captured cannot be waited for.
cudaError_t refused(const Captured& captured) {
  if (!captured.capture || captured.capture->ended) return refused_by_captures();
  return invalidate(*captured.capture, cudaErrorStreamCaptureUnsupported);
}

}  // namespace

void run_as(const Context& context, int device, const std::function<void()>& f) {
  Machine& m = machine();
  void* const host = Context::current();
  m.running_on = device;
  permit_device_memory(true);
  context.enter();
  f();
  Context::enter(host);
  permit_device_memory(false);
  m.running_on = -1;
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  const Locked locked;
  const std::string what = work.what;
  CUstream_st& s = stream_of(stream, what.c_str());
  if (machine().running_on >= 0) violation(what + " is enqueued by work that runs");
  some_progress();
  if (s.captured.capture) return capture(s, std::move(work));
  push(s, std::make_unique<Item>(std::move(work)));
  return cudaSuccess;
}

void push(CUstream_st& stream, std::unique_ptr<Item> item) {
  release(item.get());
  stream.queue.push_back(std::move(item));
  ++stream.enqueued;
  last_progress() = now();
  progressed();
}

void some_progress() {
  // A caller that holds the lock itself is amid changes of its own.
  if (lock_depth() > 1 || machine().running_on >= 0) return;
  static int most = 1;  // changes seldom, so that work is late or early for a while
  constexpr int kChoices[] = {0, 1, 4}, kCallsOfChoice = 64;
  auto& random = random_numbers();
  if (random() % kCallsOfChoice == 0) most = kChoices[random() % std::size(kChoices)];
  for (int n = static_cast<int>(random() % (most + 1)); n > 0 && step();) --n;
}

void wait_until(const std::string& what, const std::function<bool()>& done) {
  if (machine().running_on >= 0) violation(what + " is called by work that runs");
  const auto begin = now();
  while (!done()) {
    if (!step()) {
      const std::chrono::seconds patience(setting("AXONN_EMULATED_PATIENCE", 30));
      if (now() - std::max(begin, last_progress()) > patience)
        violation("deadlock: " + what + " waits for" + pending_work());
      constexpr int kMilliseconds = 10;  // conditions of libraries change without notice
      wait_for_progress(kMilliseconds);
    } else if (lock_depth() == 1) {
      unlock();
      std::this_thread::yield();
      lock();
    }
  }
}

void wait_for_streams(const char* function, std::vector<std::shared_ptr<CUstream_st>> streams) {
  std::vector<std::uint64_t> until;
  for (const auto& stream : streams) until.push_back(stream->enqueued);
  wait_until(function, [&] {
    for (std::size_t i = 0; i < until.size(); ++i)
      if (streams[i]->done < until[i]) return false;
    return true;
  });
  for (const auto& stream : streams) acquire(stream.get());
}

void wait_for_device(const char* function, int device) {
  std::vector<std::shared_ptr<CUstream_st>> streams;
  std::ranges::copy_if(machine().streams, std::back_inserter(streams),
                       [&](const auto& stream) { return stream->device == device; });
  wait_for_streams(function, std::move(streams));
}

void wait_to_change_memory(const char* function, int device) {
  if (setting("AXONN_EMULATED_HOLD", 0) == 0) return wait_for_device(function, device);
  machine().holder = std::this_thread::get_id();
  wait_for_streams(function, machine().streams);
  machine().holder = {};
  progressed();
}

void wait_for_holder() {
  const auto others = [] {
    return machine().holder != std::thread::id() && machine().holder != std::this_thread::get_id();
  };
  while (others()) wait_for_progress(/*milliseconds=*/10);
}

CUstream_st& stream_of(cudaStream_t stream, const char* function) {
  if (!stream) violation(std::string(function) + ": the null stream, which waits for all others");
  for (const auto& one : machine().streams)
    if (one.get() == stream && !one->destroyed) return *one;
  violation(std::string(function) + ": no stream, or a destroyed one");
}

CUevent_st& event_of(cudaEvent_t event, const char* function) {
  if (!machine().events.contains(event))
    violation(std::string(function) + ": no event, or a destroyed one");
  return *event;
}

double& stream_seconds() { return *machine().time; }

int device_of(cudaStream_t stream) {
  const Locked locked;
  return stream_of(stream, "device_of").device;
}

}  // namespace emulated_gpu

using namespace emulated_gpu;

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call(__func__, [&] {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return call(__func__, [&] {
    if (!stream || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    auto made = std::make_shared<CUstream_st>();
    made->device = current_device();
    made->priority = random_numbers()();
    *stream = made.get();
    machine().streams.push_back(std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const char* const function = __func__;
  return call(function, [&] {
    CUstream_st& s = stream_of(stream, function);
    if (s.captured.capture)
      return invalidate(*s.captured.capture, cudaErrorStreamCaptureUnsupported);
    s.destroyed = true;
    if (s.queue.empty())
      std::erase_if(machine().streams, [&](const auto& one) { return one.get() == stream; });
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const char* const function = __func__;
  return call(function, [&] {
    CUstream_st& s = stream_of(stream, function);
    if (const cudaError_t error = refused(s.captured); error != cudaSuccess) return error;
    wait_for_streams(function, {s.shared_from_this()});
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call(__func__, [&] {
    if (!event || (flags & ~cudaEventDisableTiming) != 0) return cudaErrorInvalidValue;
    *event = new CUevent_st{.device = current_device(),
                            .timed = flags == cudaEventDefault,
                            .record = nullptr,
                            .captured = {}};
    machine().events.insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const char* const function = __func__;
  return call(function, [&] {
    const CUevent_st& e = event_of(event, function);
    machine().events.erase(event);
    delete &e;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const char* const function = __func__;
  return call(function, [&] {
    CUevent_st& e = event_of(event, function);
    const CUstream_st& s = stream_of(stream, function);
    if (e.device != s.device) return cudaErrorInvalidResourceHandle;
    if (s.captured.capture) {
      if (s.captured.capture->invalidated) return cudaErrorStreamCaptureInvalidated;
      e.captured = s.captured;
      e.lane = s.lane;
      return cudaSuccess;
    }
    e.captured = {};
    e.record = std::make_shared<Record>();
    return enqueue(stream, {.what = function,
                            .run =
                                [record = e.record] {
                                  release(record.get());
                                  record->done = true;
                                  record->seconds = stream_seconds();
                                },
                            .seconds = 0});
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const char* const function = __func__;
  return call(function, [&] {
    CUstream_st& s = stream_of(stream, function);
    const CUevent_st& e = event_of(event, function);
    if (flags != 0) return cudaErrorInvalidValue;
    if (e.captured.capture || s.captured.capture) return capture_wait(s, e);
    if (!e.record) return cudaSuccess;
    return enqueue(stream, {.what = function,
                            .run =
                                [record = e.record] {
                                  acquire(record.get());
                                  stream_seconds() = std::max(stream_seconds(), record->seconds);
                                },
                            .may_run = [record = e.record] { return record->done; },
                            .seconds = 0});
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const char* const function = __func__;
  return call(function, [&] {
    const CUevent_st &a = event_of(begin, function), &b = event_of(end, function);
    if (!milliseconds) return cudaErrorInvalidValue;
    if (!a.timed || !b.timed || !a.record || !b.record || a.device != b.device)
      return cudaErrorInvalidResourceHandle;
    if (!a.record->done || !b.record->done) return cudaErrorNotReady;
    *milliseconds = static_cast<float>(1e3 * (b.record->seconds - a.record->seconds));
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const char* const function = __func__;
  return call(function, [&] {
    const CUevent_st& e = event_of(event, function);
    if (e.captured.capture && e.captured.capture->ended) return cudaErrorCapturedEvent;
    if (const cudaError_t error = refused(e.captured); error != cudaSuccess) return error;
    if (!e.record) return cudaSuccess;
    if (!e.record->done) return cudaErrorNotReady;
    acquire(e.record.get());
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const char* const function = __func__;
  return call(function, [&] {
    const CUevent_st& e = event_of(event, function);
    if (e.captured.capture && e.captured.capture->ended) return cudaErrorCapturedEvent;
    if (const cudaError_t error = refused(e.captured); error != cudaSuccess) return error;
    const auto record = e.record;
    if (!record) return cudaSuccess;
    wait_until(function, [&] { return record->done; });
    acquire(record.get());
    return cudaSuccess;
  });
}
