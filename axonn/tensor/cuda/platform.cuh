#pragma once

#include <string>

#include "axonn/tensor/cuda/cuda_device.h"

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

}  // namespace axonn::cuda
