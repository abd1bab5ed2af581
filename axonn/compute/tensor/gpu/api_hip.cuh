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
inline constexpr auto cudaErrorNoKernelImageForDevice = hipErrorNoBinaryForGpu;
inline constexpr auto cudaErrorIllegalAddress = hipErrorIllegalAddress;
inline constexpr auto cudaErrorLaunchFailure = hipErrorLaunchFailure;
inline constexpr unsigned cudaEventDefault = hipEventDefault;
inline constexpr unsigned cudaEventDisableTiming = hipEventDisableTiming;
inline constexpr unsigned cudaStreamNonBlocking = hipStreamNonBlocking;
inline constexpr auto cudaMemcpyHostToDevice = hipMemcpyHostToDevice;
inline constexpr auto cudaMemcpyDeviceToHost = hipMemcpyDeviceToHost;
inline constexpr auto cudaMemcpyDeviceToDevice = hipMemcpyDeviceToDevice;

// Lambdas forward to HIP functions that are overloaded.
inline constexpr auto cudaGetErrorName = hipGetErrorName;
inline constexpr auto cudaGetErrorString = hipGetErrorString;
inline constexpr auto cudaGetLastError = hipGetLastError;
inline constexpr auto cudaGetDeviceCount = hipGetDeviceCount;
inline constexpr auto cudaSetDevice = hipSetDevice;
inline constexpr auto cudaMemGetInfo = hipMemGetInfo;

inline constexpr auto cudaMalloc = [](auto... args) { return hipMalloc(args...); };
inline constexpr auto cudaFree = hipFree;
inline constexpr auto cudaMallocHost = [](void** memory, std::size_t bytes) {
  return hipHostMalloc(memory, bytes, hipHostMallocDefault);
};
inline constexpr auto cudaFreeHost = hipHostFree;
inline constexpr auto cudaMemcpy2DAsync = hipMemcpy2DAsync;
inline constexpr auto cudaMemcpyAsync = hipMemcpyAsync;
inline constexpr auto cudaMemsetAsync = hipMemsetAsync;
inline constexpr auto cudaMemset2DAsync = hipMemset2DAsync;

inline constexpr auto cudaEventCreateWithFlags = hipEventCreateWithFlags;
inline constexpr auto cudaEventDestroy = hipEventDestroy;
inline constexpr auto cudaEventRecord = hipEventRecord;
inline constexpr auto cudaEventQuery = hipEventQuery;
inline constexpr auto cudaEventSynchronize = hipEventSynchronize;
inline constexpr auto cudaEventElapsedTime = hipEventElapsedTime;
inline constexpr auto cudaDeviceGetStreamPriorityRange = hipDeviceGetStreamPriorityRange;
inline constexpr auto cudaStreamCreateWithPriority = hipStreamCreateWithPriority;
inline constexpr auto cudaStreamDestroy = hipStreamDestroy;
inline constexpr auto cudaStreamWaitEvent = hipStreamWaitEvent;
inline constexpr auto cudaStreamSynchronize = hipStreamSynchronize;

using cudaGraph_t = hipGraph_t;
using cudaGraphExec_t = hipGraphExec_t;
using cudaStreamCaptureMode = hipStreamCaptureMode;
using cudaStreamCaptureStatus = hipStreamCaptureStatus;
inline constexpr auto cudaStreamCaptureModeRelaxed = hipStreamCaptureModeRelaxed;
inline constexpr auto cudaStreamCaptureModeThreadLocal = hipStreamCaptureModeThreadLocal;
inline constexpr auto cudaStreamCaptureStatusNone = hipStreamCaptureStatusNone;
inline constexpr unsigned cudaGraphInstantiateFlagUseNodePriority = 0;  // not in HIP before 6
inline constexpr auto cudaStreamIsCapturing = hipStreamIsCapturing;
inline constexpr auto cudaThreadExchangeStreamCaptureMode = hipThreadExchangeStreamCaptureMode;
inline constexpr auto cudaStreamBeginCapture = hipStreamBeginCapture;
inline constexpr auto cudaStreamEndCapture = hipStreamEndCapture;
inline constexpr auto cudaGraphInstantiateWithFlags = hipGraphInstantiateWithFlags;
inline constexpr auto cudaGraphLaunch = hipGraphLaunch;
inline constexpr auto cudaGraphExecDestroy = hipGraphExecDestroy;
inline constexpr auto cudaGraphDestroy = hipGraphDestroy;

inline constexpr auto cudaErrorPeerAccessAlreadyEnabled = hipErrorPeerAccessAlreadyEnabled;
inline constexpr auto cudaGetDevice = hipGetDevice;
inline constexpr auto cudaDeviceCanAccessPeer = hipDeviceCanAccessPeer;
inline constexpr auto cudaDeviceEnablePeerAccess = hipDeviceEnablePeerAccess;

inline constexpr auto cudaLaunchKernel = [](auto* kernel, auto... launch) {
  return hipLaunchKernel(reinterpret_cast<const void*>(kernel), launch...);
};
inline constexpr auto cudaFuncAttributeMaxDynamicSharedMemorySize =
    hipFuncAttributeMaxDynamicSharedMemorySize;
inline constexpr auto cudaFuncSetAttribute = [](auto* kernel, auto... attribute) {
  return hipFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute...);
};
inline constexpr auto cudaFuncGetAttributes = [](hipFuncAttributes* attributes, auto* kernel) {
  return hipFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
};
