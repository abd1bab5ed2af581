#pragma once

#include <string>

#include "axonn/tensor/cuda_device.h"

namespace axonn::cuda {

// What CUDA and HIP do in different ways: platform_cuda.cpp or platform_hip.cpp, whichever is
// built. None of it starts a context on a card, which takes half a gigabyte of an NVIDIA card.

/// "13.0": what this build is of.
std::string toolkit_version();

/// "13.0": the newest that the driver runs; "": there is no driver.
std::string driver_version();

CudaCard card_of(int index);

/// Whether memory is a card's. Errors: Error for what the runtime says.
bool is_on_card(const void* memory);

/// Thirty-two digits, hexadecimal.
std::string uuid_text(const char (&bytes)[16]);

}  // namespace axonn::cuda
