#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/tensor/cuda/cuda_device.h"
#include "axonn/tensor/cuda/gpu_platform.h"

namespace axonn {

/// The lines of `axonn info` about GPUs, as pairs of label and text. platform: the one that the
/// build is for; null: none.
std::vector<std::pair<std::string_view, std::string>> gpu_lines(const GpuPlatform* platform,
                                                                const CudaStatus& status);

}  // namespace axonn
