#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/compute/tensor/gpu/gpu_platform.h"
#include "axonn/ranks/comm/adapters.h"
#include "axonn/ranks/comm/network_rules.h"

namespace axonn {

/// How this program was built.
struct BuildInfo {
  std::string_view version;
  std::string_view type;      ///< "Release"
  std::string_view compiler;  ///< "GNU 12.2.0"
  std::string_view flags;
  std::string_view gpu_arch;  ///< architectures of the GPU kernels; "" without GPUs
};

const BuildInfo& build_info();

/// The lines of `axonn info` about GPUs, as pairs of label and text. platform: the one that the
/// build is for; null: none. `trouble` says what is wrong with a GPU; "" if nothing is.
std::vector<std::pair<std::string_view, std::string>> gpu_lines(
    const GpuPlatform* platform, const CudaStatus& status,
    const std::function<std::string(const CudaGpu& gpu)>& trouble);

/// The lines of `axonn info` about network rules: for runs on one host and on several.
std::vector<std::pair<std::string_view, std::string>> network_lines(
    NetworkFacts facts, const std::vector<NetworkAdapter>& adapters);

}  // namespace axonn
