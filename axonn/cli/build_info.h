#pragma once

#include <string_view>

namespace axonn {

/// How this program was built.
struct BuildInfo {
  std::string_view version;
  std::string_view type;      ///< "Release"
  std::string_view compiler;  ///< "GNU 12.2.0"
  std::string_view flags;
  std::string_view march;     ///< -march of the CPU kernels
  std::string_view gpu_arch;  ///< architectures of the GPU kernels; "" without GPUs
};

const BuildInfo& build_info();

}  // namespace axonn
