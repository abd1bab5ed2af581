#include "axonn/compute/tensor/gpu/cuda_device.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/gpu/gpu_platform.h"
#include "axonn/compute/tensor/gpu/runtime.cuh"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/base/moment.h"

namespace axonn {

namespace cuda {

namespace {

constexpr std::string_view kMemoryRemedy =
    "; use more ranks, a smaller micro_batch or activation checkpointing";

/// A buffer of pinned host memory for copies.
class Slot {
 public:
  // Large enough that a copy takes far longer than its start.
  static constexpr std::int64_t kBytes = std::int64_t{1} << 20;

  Slot() { check("cudaMallocHost", cudaMallocHost(&memory_, kBytes)); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot() {
    cudaEventSynchronize(last_.handle());  // an error was reported, or will be, by another call
    cudaFreeHost(memory_);
  }

  void* memory() const { return memory_; }
  /// Marks the work that is on the stream now as the last user of this buffer.
  void used_until_here(const CudaStream& stream) {
    check("cudaEventRecord", cudaEventRecord(last_.handle(), stream.handle()));
  }
  /// Waits for the last user; returns at once if there was none.
  void wait() const { check("cudaEventSynchronize", cudaEventSynchronize(last_.handle())); }

 private:
  void* memory_ = nullptr;
  CudaEvent last_;
};

/// Copies between host and device through pinned memory. Copies from pageable memory would wait for
/// the stream before they start. The pinned memory is allocated at once, because that may wait for
/// all work of the GPU.
class Staging {
 public:
  /// Returns as soon as `host` may be overwritten.
  void to_device(const CudaStream& stream, void* device, const void* host, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += Slot::kBytes) {
      const auto n = static_cast<std::size_t>(std::min(Slot::kBytes, bytes - at));
      Slot& slot = next();
      std::memcpy(slot.memory(), static_cast<const char*>(host) + at, n);
      check("cudaMemcpyAsync", cudaMemcpyAsync(static_cast<char*>(device) + at, slot.memory(), n,
                                               cudaMemcpyHostToDevice, stream.handle()));
      slot.used_until_here(stream);
    }
  }

  /// Returns when `host` holds the values. The device sends a piece while the host copies the
  /// previous one out of pinned memory.
  void to_host(const CudaStream& stream, void* host, const void* device, std::int64_t bytes) {
    struct Piece {
      const Slot* slot = nullptr;
      std::int64_t at = 0, bytes = 0;
    } last;
    const auto take = [&](const Piece& piece) {
      if (!piece.slot) return;
      piece.slot->wait();
      std::memcpy(static_cast<char*>(host) + piece.at, piece.slot->memory(),
                  static_cast<std::size_t>(piece.bytes));
    };
    for (std::int64_t at = 0; at < bytes; at += Slot::kBytes) {
      const std::int64_t n = std::min(Slot::kBytes, bytes - at);
      Slot& slot = next();
      check("cudaMemcpyAsync",
            cudaMemcpyAsync(slot.memory(), static_cast<const char*>(device) + at,
                            static_cast<std::size_t>(n), cudaMemcpyDeviceToHost, stream.handle()));
      slot.used_until_here(stream);
      take(std::exchange(last, {&slot, at, n}));
    }
    take(last);
    check("cudaStreamSynchronize",
          cudaStreamSynchronize(stream.handle()));  // reports earlier errors
  }

 private:
  Slot& next() {
    Slot& slot = slots_[next_++ % slots_.size()];
    slot.wait();
    return slot;
  }

  // So many that the host can send the tokens of some micro-batches before the GPU takes them.
  std::array<Slot, 16> slots_;
  std::size_t next_ = 0;
};

/// Timed events that are not in use, for the moments of one device.
class TimedEvents {
 public:
  TimedEvents() = default;
  TimedEvents(const TimedEvents&) = delete;
  TimedEvents& operator=(const TimedEvents&) = delete;
  ~TimedEvents() {
    for (cudaEvent_t const event : unused_) cudaEventDestroy(event);
  }

  cudaEvent_t take() {
    if (!unused_.empty()) {
      cudaEvent_t const event = unused_.back();
      unused_.pop_back();
      return event;
    }
    cudaEvent_t event = nullptr;
    check("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&event, cudaEventDefault));
    return event;
  }
  void give_back(cudaEvent_t event) { unused_.push_back(event); }

 private:
  std::vector<cudaEvent_t> unused_;
};

/// An event in a stream's work. Its time is counted from an earlier event.
class CudaMomentEvent final : public Moment::Event {
 public:
  /// origin null: the stream is idle, and the place is now.
  CudaMomentEvent(std::shared_ptr<TimedEvents> events, const CudaStream& stream,
                  std::shared_ptr<CudaMomentEvent> origin)
      : events_(std::move(events)), event_(events_->take()), origin_(std::move(origin)) {
    check("cudaEventRecord", cudaEventRecord(event_, stream.handle()));
    if (origin_) return;
    check("cudaEventSynchronize", cudaEventSynchronize(event_));
    seconds_ = now_seconds();
  }
  CudaMomentEvent(const CudaMomentEvent&) = delete;
  CudaMomentEvent& operator=(const CudaMomentEvent&) = delete;
  ~CudaMomentEvent() override { events_->give_back(event_); }

  bool passed() override {
    if (seconds_) return true;
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaSuccess) return true;
    if (status != cudaErrorNotReady) check("cudaEventQuery", status);
    cudaGetLastError();
    return false;
  }
  double seconds() override {
    if (seconds_) return *seconds_;
    // The origin may be on another stream, and be passed later.
    const double since = origin_->seconds();
    check("cudaEventSynchronize", cudaEventSynchronize(event_));
    float milliseconds = 0;
    check("cudaEventElapsedTime", cudaEventElapsedTime(&milliseconds, origin_->event_, event_));
    seconds_ = since + 1e-3 * double{milliseconds};
    origin_.reset();
    return *seconds_;
  }

 private:
  std::shared_ptr<TimedEvents> events_;
  cudaEvent_t event_ = nullptr;
  std::shared_ptr<CudaMomentEvent> origin_;
  std::optional<double> seconds_;
};

/// Makes the moments of a device.
class Moments {
 public:
  explicit Moments(const CudaStream& compute) : compute_(compute) {}

  Moment record(const CudaStream& stream) {
    // CUDA counts milliseconds in a float: after ten seconds to a microsecond.
    constexpr double kLongest = 10;
    if (const double now = now_seconds(); !origin_ || now - origin_since_ > kLongest) {
      if (origin_) origin_->seconds();  // lets go of the origin before it
      origin_ = std::make_shared<CudaMomentEvent>(events_, compute_, origin_);
      origin_since_ = now;
    }
    return Moment(std::make_shared<CudaMomentEvent>(events_, stream, origin_));
  }

 private:
  const CudaStream& compute_;
  std::shared_ptr<TimedEvents> events_ = std::make_shared<TimedEvents>();
  std::shared_ptr<CudaMomentEvent> origin_;
  double origin_since_ = 0;
};

/// The work captured from a stream, ready to be launched on the same stream.
class CudaGraph final : public Graph {
 public:
  /// Captures the stream while `work` runs; ends the capture also if `work` throws. The capture
  /// mode is relaxed, so that `work` may allocate device memory if the arena has to grow.
  static std::unique_ptr<Graph> of(const CudaStream& stream, const std::function<void()>& work) {
    check("cudaStreamBeginCapture",
          cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeRelaxed));
    Captured captured{stream.handle()};
    work();
    return std::make_unique<CudaGraph>(stream, captured.end());
  }

  /// Takes ownership of the captured graph.
  CudaGraph(const CudaStream& stream, cudaGraph_t captured) : stream_(stream) {
    // Keeps the priorities of the captured streams: other ranks wait for the work on some of them.
    const cudaError_t status =
        cudaGraphInstantiateWithFlags(&graph_, captured, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(captured);
    check("cudaGraphInstantiateWithFlags", status);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }

  void launch() override { check("cudaGraphLaunch", cudaGraphLaunch(graph_, stream_.handle())); }

 private:
  /// Ends a capture that has begun.
  struct Captured {
    cudaStream_t stream;

    ~Captured() {
      cudaGraph_t graph = nullptr;
      if (!stream) return;
      if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
      cudaGetLastError();  // the exception being thrown says more
    }
    cudaGraph_t end() {
      cudaGraph_t graph = nullptr;
      check("cudaStreamEndCapture", cudaStreamEndCapture(std::exchange(stream, nullptr), &graph));
      return graph;
    }
  };

  const CudaStream& stream_;
  cudaGraphExec_t graph_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(CudaGpu gpu)
      : gpu_(std::move(gpu)), compute_(StreamPriority::normal), moments_(compute_) {}

  std::string name() const override { return gpu_.name; }
  std::string uuid() const override { return gpu_.uuid; }
  OperationSize operation_size() const override { return OperationSize::large; }
  Memory memory() const override { return Memory::gpu; }

  void* allocate(std::int64_t bytes) override {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error, which is reported below
      std::size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      const auto text = [](auto n) { return format_bytes(static_cast<std::int64_t>(n)); };
      throw OutOfMemory(concat(function_name(*gpu_platform(), "cudaMalloc"), " of ", text(bytes),
                               " on GPU ", gpu_.index, " (", gpu_.name, "): out of memory, ",
                               text(free), " of ", text(total), " are free", kMemoryRemedy));
    }
    check("cudaMalloc", status);
    return memory;
  }
  void release(void* memory, std::int64_t) noexcept override { cudaFree(memory); }

  Stream& compute() override { return compute_; }
  std::unique_ptr<Stream> make_stream(StreamPriority priority) override {
    return std::make_unique<CudaStream>(priority);
  }
  Moment moment(Stream& stream) override {
    return capturing() ? Moment() : moments_.record(static_cast<CudaStream&>(stream));
  }

  void copy(void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0)
      check("cudaMemcpyAsync", cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes),
                                               cudaMemcpyDeviceToDevice, compute_.handle()));
  }
  void fill_zero(void* to, std::int64_t bytes) override {
    if (bytes > 0)
      check("cudaMemsetAsync",
            cudaMemsetAsync(to, 0, static_cast<std::size_t>(bytes), compute_.handle()));
  }
  void copy_to_host(void* host, const void* device, std::int64_t bytes) override {
    check_not_capturing("copy_to_host");
    staging_.to_host(compute_, host, device, bytes);
  }
  void copy_from_host(void* device, const void* host, std::int64_t bytes) override {
    check_not_capturing("copy_from_host");
    staging_.to_device(compute_, device, host, bytes);
  }

  bool holds(const void* memory) const override { return is_on_gpu(memory); }

  bool captures() const override { return true; }
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    has_captured_ = true;
    return CudaGraph::of(compute_, work);
  }
  bool has_captured() const override { return has_captured_; }
  bool capturing() const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check("cudaStreamIsCapturing", cudaStreamIsCapturing(compute_.handle(), &status));
    return status != cudaStreamCaptureStatusNone;
  }

 private:
  void check_not_capturing(const char* operation) const {
    AXONN_CHECK(!capturing(), operation,
                " while work is captured: a graph cannot contain copies between host and device");
  }

  CudaGpu gpu_;
  CudaStream compute_;
  Moments moments_;
  Staging staging_;
  bool has_captured_ = false;
};

}  // namespace

void fail_call(const char* function, cudaError_t status, Where where) {
  std::string_view remedy;
  if (status == cudaErrorMemoryAllocation)
    remedy = function == std::string_view("cudaMallocHost")
                 ? "; free memory of the host, or permit more locked memory (ulimit -l)"
                 : kMemoryRemedy;
  if (status == cudaErrorNoKernelImageForDevice)
    remedy = "; build for this GPU: axonn info names the CMake setting";
  if (status == cudaErrorIllegalAddress || status == cudaErrorLaunchFailure)
    remedy = "; an earlier kernel has failed";
  int gpu = 0;
  const bool known = cudaGetDevice(&gpu) == cudaSuccess;
  fail(where, function_name(*gpu_platform(), function),
       known ? concat(" on GPU ", gpu) : std::string(), ": ", cudaGetErrorName(status), ": ",
       cudaGetErrorString(status), remedy);
}

std::string uuid_text(const char (&bytes)[16]) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += kDigits[static_cast<unsigned char>(byte) >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace cuda

namespace {

/// Sets variables that the runtime and NCCL read when they start, unless the user has set them.
/// Runs before main(): later, another rank's thread may be reading the environment, which moves
/// when it grows.
[[maybe_unused]] const bool environment_is_prepared = [] {
  // Each group of ranks has a stream.
  setenv(gpu_platform()->queues, gpu_platform()->queue_count, 0);
  // A rank's groups are NCCL communicators on one GPU. Otherwise GPUs could start their kernels in
  // different orders, so that they wait for each other.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  return true;
}();

}  // namespace

CudaStatus cuda_status() {
  CudaStatus status{.built_with = cuda::toolkit_version(), .driver = cuda::driver_version()};
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    status.trouble = trouble_of(*gpu_platform(), {.built_with = status.built_with,
                                                  .driver = status.driver,
                                                  .error = cudaGetErrorString(error),
                                                  .too_old = error == cudaErrorInsufficientDriver});
    return status;
  }
  try {
    for (int i = 0; i < count; ++i) status.gpus.push_back(cuda::gpu_of(i));
  } catch (const Error& fault) {
    status.gpus.clear();
    status.trouble = fault.what();
  }
  return status;
}

std::unique_ptr<Device> make_cuda_device(int index) {
  const CudaStatus status = cuda_status();
  if (!status.trouble.empty()) refuse(gpu_platform()->device, ": ", status.trouble);
  if (index < 0 || index >= std::ssize(status.gpus))
    refuse(gpu_platform()->device, ": there is no GPU ", index, "; there are ", status.gpus.size(),
           ", numbered from 0");
  cuda::check("cudaSetDevice", cudaSetDevice(index));
  return std::make_unique<cuda::CudaDevice>(status.gpus[index]);
}

}  // namespace axonn
