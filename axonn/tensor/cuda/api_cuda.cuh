#pragma once

// The runtime of NVIDIA's cards, in whose words the sources of all cards are written. A build for
// AMD's has api_hip.cuh in its place; CMake makes axonn/tensor/cuda/api.cuh of one of them.
#include <cuda_runtime_api.h>
