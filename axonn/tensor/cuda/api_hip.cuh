#pragma once

// Maps the CUDA names that the sources for all GPUs use to HIP. Add a name when a source needs it.
// A build for NVIDIA GPUs has api_cuda.cuh instead.
#include <hip/hip_runtime.h>

using cudaError_t = hipError_t;
using cudaEvent_t = hipEvent_t;
using cudaStream_t = hipStream_t;
using cudaFuncAttributes = hipFuncAttributes;

inline constexpr auto cudaSuccess = hipSuccess;
inline constexpr auto cudaErrorNotReady = hipErrorNotReady;
inline constexpr auto cudaErrorMemoryAllocation = hipErrorOutOfMemory;
inline constexpr auto cudaErrorInsufficientDriver = hipErrorInsufficientDriver;
inline constexpr unsigned cudaEventDisableTiming = hipEventDisableTiming;
inline constexpr unsigned cudaStreamNonBlocking = hipStreamNonBlocking;
inline constexpr auto cudaMemcpyHostToDevice = hipMemcpyHostToDevice;
inline constexpr auto cudaMemcpyDeviceToHost = hipMemcpyDeviceToHost;
inline constexpr auto cudaMemcpyDeviceToDevice = hipMemcpyDeviceToDevice;

// Functions are lambdas that forward their arguments, because some HIP functions are overloaded.
inline constexpr auto cudaGetErrorName = [](auto... args) { return hipGetErrorName(args...); };
inline constexpr auto cudaGetErrorString = [](auto... args) { return hipGetErrorString(args...); };
inline constexpr auto cudaGetLastError = [] { return hipGetLastError(); };
inline constexpr auto cudaGetDeviceCount = [](auto... args) { return hipGetDeviceCount(args...); };
inline constexpr auto cudaSetDevice = [](auto... args) { return hipSetDevice(args...); };
inline constexpr auto cudaMemGetInfo = [](auto... args) { return hipMemGetInfo(args...); };

inline constexpr auto cudaMalloc = [](auto... args) { return hipMalloc(args...); };
inline constexpr auto cudaFree = [](auto... args) { return hipFree(args...); };
inline constexpr auto cudaMallocAsync = [](auto... args) { return hipMallocAsync(args...); };
inline constexpr auto cudaFreeAsync = [](auto... args) { return hipFreeAsync(args...); };
inline constexpr auto cudaMallocHost = [](void** memory, std::size_t bytes) {
  return hipHostMalloc(memory, bytes, hipHostMallocDefault);
};
inline constexpr auto cudaFreeHost = [](auto... args) { return hipHostFree(args...); };
inline constexpr auto cudaMemcpyAsync = [](auto... args) { return hipMemcpyAsync(args...); };
inline constexpr auto cudaMemsetAsync = [](auto... args) { return hipMemsetAsync(args...); };
inline constexpr auto cudaMemset2DAsync = [](auto... args) { return hipMemset2DAsync(args...); };

inline constexpr auto cudaEventCreateWithFlags = [](auto... args) {
  return hipEventCreateWithFlags(args...);
};
inline constexpr auto cudaEventDestroy = [](auto... args) { return hipEventDestroy(args...); };
inline constexpr auto cudaEventRecord = [](auto... args) { return hipEventRecord(args...); };
inline constexpr auto cudaEventQuery = [](auto... args) { return hipEventQuery(args...); };
inline constexpr auto cudaEventSynchronize = [](auto... args) {
  return hipEventSynchronize(args...);
};
inline constexpr auto cudaDeviceGetStreamPriorityRange = [](auto... args) {
  return hipDeviceGetStreamPriorityRange(args...);
};
inline constexpr auto cudaStreamCreateWithPriority = [](auto... args) {
  return hipStreamCreateWithPriority(args...);
};
inline constexpr auto cudaStreamDestroy = [](auto... args) { return hipStreamDestroy(args...); };
inline constexpr auto cudaStreamWaitEvent = [](auto... args) {
  return hipStreamWaitEvent(args...);
};
inline constexpr auto cudaStreamSynchronize = [](auto... args) {
  return hipStreamSynchronize(args...);
};

using cudaGraph_t = hipGraph_t;
using cudaGraphExec_t = hipGraphExec_t;
using cudaStreamCaptureMode = hipStreamCaptureMode;
using cudaStreamCaptureStatus = hipStreamCaptureStatus;
inline constexpr auto cudaStreamCaptureModeRelaxed = hipStreamCaptureModeRelaxed;
inline constexpr auto cudaStreamCaptureModeThreadLocal = hipStreamCaptureModeThreadLocal;
inline constexpr auto cudaStreamCaptureStatusNone = hipStreamCaptureStatusNone;
inline constexpr unsigned cudaGraphInstantiateFlagUseNodePriority = 0;  // not in HIP before 6
inline constexpr auto cudaStreamIsCapturing = [](auto... args) {
  return hipStreamIsCapturing(args...);
};
inline constexpr auto cudaThreadExchangeStreamCaptureMode = [](auto... args) {
  return hipThreadExchangeStreamCaptureMode(args...);
};
inline constexpr auto cudaStreamBeginCapture = [](auto... args) {
  return hipStreamBeginCapture(args...);
};
inline constexpr auto cudaStreamEndCapture = [](auto... args) {
  return hipStreamEndCapture(args...);
};
inline constexpr auto cudaGraphInstantiateWithFlags = [](auto... args) {
  return hipGraphInstantiateWithFlags(args...);
};
inline constexpr auto cudaGraphLaunch = [](auto... args) { return hipGraphLaunch(args...); };
inline constexpr auto cudaGraphExecDestroy = [](auto... args) {
  return hipGraphExecDestroy(args...);
};
inline constexpr auto cudaGraphDestroy = [](auto... args) { return hipGraphDestroy(args...); };

inline constexpr auto cudaErrorPeerAccessAlreadyEnabled = hipErrorPeerAccessAlreadyEnabled;
inline constexpr auto cudaGetDevice = [](auto... args) { return hipGetDevice(args...); };
inline constexpr auto cudaDeviceCanAccessPeer = [](auto... args) {
  return hipDeviceCanAccessPeer(args...);
};
inline constexpr auto cudaDeviceEnablePeerAccess = [](auto... args) {
  return hipDeviceEnablePeerAccess(args...);
};

inline constexpr auto cudaFuncGetAttributes = [](hipFuncAttributes* attributes, auto* kernel) {
  return hipFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
};
