#pragma once

#include <memory>
#include <string>
#include <utility>

#include "axonn/compute/tensor/gpu/api.cuh"
#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/compute/tensor/gpu/gpu_platform.h"
#include "axonn/foundation/base/check.h"

namespace axonn::cuda {

// Functions that differ between CUDA and HIP, in platform_cuda.cpp and platform_hip.cpp. None of
// them creates a context on a GPU, which would take half a gigabyte of an NVIDIA GPU's memory.

/// Version of the toolkit of this build: "13.0".
std::string toolkit_version();

/// Newest version that the driver supports: "13.0"; "": no driver.
std::string driver_version();

CudaGpu gpu_of(int index);

/// Whether the address is in a GPU's memory. Throws Error if the runtime reports one.
bool is_on_gpu(const void* memory);

/// The UUID as 32 hexadecimal digits.
std::string uuid_text(const char (&bytes)[16]);

/// Throws Error, which names the function by function_name(), the calling thread's GPU and the
/// remedy, if there is one.
[[noreturn]] void fail_call(const char* function, cudaError_t status, Where where);

/// Throws Error unless the call of a runtime function succeeded.
inline void check(const char* function, cudaError_t status, Where where = Where::here()) {
  if (status != cudaSuccess) fail_call(function, status, where);
}

/// Owns a CUDA event. Any thread may wait for it.
class CudaEvent final : public Event {
 public:
  CudaEvent() {
    check("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() override { cudaEventDestroy(event_); }

  bool done() const override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaSuccess) return true;
    if (status != cudaErrorNotReady) check("cudaEventQuery", status);
    cudaGetLastError();  // no error, but the runtime keeps it as this thread's last one
    return false;
  }
  cudaEvent_t handle() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Owns a CUDA stream of the device that is current at construction. It does not synchronise with
/// the default stream.
class CudaStream final : public Stream {
 public:
  explicit CudaStream(StreamPriority priority) {
    constexpr int kNormal = 0;  // the least of NVIDIA GPUs; AMD's have a lower one
    int least = 0, greatest = 0;
    check("cudaDeviceGetStreamPriorityRange", cudaDeviceGetStreamPriorityRange(&least, &greatest));
    check("cudaStreamCreateWithPriority",
          cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                       priority == StreamPriority::high ? greatest : kNormal));
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  ~CudaStream() override { cudaStreamDestroy(stream_); }

  std::unique_ptr<Event> record() override {
    auto event = std::make_unique<CudaEvent>();
    check("cudaEventRecord", cudaEventRecord(event->handle(), stream_));
    return event;
  }
  void wait(const Event& event) override {
    check("cudaStreamWaitEvent",
          cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).handle(), 0));
  }
  void synchronize() override { check("cudaStreamSynchronize", cudaStreamSynchronize(stream_)); }
  cudaStream_t handle() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// The CUDA handle of a stream, which must belong to a device from make_cuda_device().
inline cudaStream_t handle_of(const Stream& stream) {
  return static_cast<const CudaStream&>(stream).handle();
}

}  // namespace axonn::cuda
