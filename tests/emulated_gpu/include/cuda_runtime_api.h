#pragma once

// The part of CUDA's runtime that the project calls, for emulated GPUs (platform.h). Names and
// meanings are CUDA's; values are not.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <utility>

#include "tests/emulated_gpu/executor.h"

#define CUDART_VERSION 13000

#define __host__
#define __device__
#define __global__
#define __launch_bounds__(...)

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInvalidConfiguration,
  cudaErrorInsufficientDriver,
  cudaErrorNoDevice,
  cudaErrorInvalidDevice,
  cudaErrorInvalidResourceHandle,
  cudaErrorNotReady,
  cudaErrorPeerAccessAlreadyEnabled,
  cudaErrorPeerAccessUnsupported,
  cudaErrorNoKernelImageForDevice,
  cudaErrorIllegalAddress,
  cudaErrorLaunchFailure,
  cudaErrorStreamCaptureUnsupported,
  cudaErrorStreamCaptureInvalidated,
  cudaErrorStreamCaptureMerge,
  cudaErrorStreamCaptureUnmatched,
  cudaErrorStreamCaptureUnjoined,
  cudaErrorStreamCaptureIsolation,
  cudaErrorStreamCaptureWrongThread,
  cudaErrorCapturedEvent,
  cudaErrorUnknown,
};
const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();

// Devices.
struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  int major, minor, multiProcessorCount;
  std::size_t totalGlobalMem;
};
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);

// Memory.
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice };
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
using cudaStream_t = struct CUstream_st*;
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, std::size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream);

// Streams and events.
using cudaEvent_t = struct CUevent_st*;
inline constexpr unsigned cudaEventDefault = 0, cudaEventDisableTiming = 2,
                          cudaStreamNonBlocking = 1;
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

// Graphs.
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
inline constexpr unsigned cudaGraphInstantiateFlagUseNodePriority = 8;
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* graph, cudaGraph_t of, unsigned flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);

// Kernels.
struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct cudaFuncAttributes {
  int numRegs;
};
template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*)(Parameters...)) {
  *attributes = {};
  return cudaSuccess;
}

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

namespace emulated_gpu {

struct KernelName {
  const void* kernel;
  const char* name;
};
/// Checks the launch's limits and enqueues run_kernel() (platform.h).
cudaError_t launch(const KernelName& of, dim3 blocks, dim3 threads, std::function<void()> thread,
                   std::size_t shared_bytes, cudaStream_t stream);
cudaError_t permit_shared(const void* kernel, cudaFuncAttribute attribute, int bytes);

/// A kernel's thread: its place in the block and the grid. Constant while the thread lives.
struct Place {
  uint3 thread, block;
  dim3 threads, blocks;
};
/// That of the fiber that runs.
[[gnu::pure]] const Place& place();

}  // namespace emulated_gpu

#define threadIdx (::emulated_gpu::place().thread)
#define blockIdx (::emulated_gpu::place().block)
#define blockDim (::emulated_gpu::place().threads)
#define gridDim (::emulated_gpu::place().blocks)

/// args: pointers to values of the kernel's parameter types, copied before it returns.
template <typename... Parameters>
cudaError_t cudaLaunchKernel(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, void** args,
                             std::size_t shared_bytes, cudaStream_t stream) {
  const auto thread = [&]<std::size_t... i>(std::index_sequence<i...>) {
    return [kernel, values = std::tuple<Parameters...>(*static_cast<Parameters*>(args[i])...)] {
      std::apply(kernel, values);
    };
  }
  (std::index_sequence_for<Parameters...>());
  return emulated_gpu::launch({reinterpret_cast<const void*>(kernel), __PRETTY_FUNCTION__}, blocks,
                              threads, thread, shared_bytes, stream);
}

template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
  return emulated_gpu::permit_shared(reinterpret_cast<const void*>(kernel), attribute, value);
}
