#pragma once

// The CUDA runtime, whose names the sources for all GPUs use. A build for AMD GPUs has api_hip.cuh
// instead; CMake generates axonn/compute/tensor/gpu/api.cuh, which includes one of the two.
#include <cuda_runtime_api.h>
