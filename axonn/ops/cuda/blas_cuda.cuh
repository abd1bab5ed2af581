#pragma once

#include <string>

// The products of NVIDIA's cards, in whose words products.cpp is written. A build for AMD's has
// blas_hip.cuh in its place; CMake makes axonn/ops/cuda/blas.cuh of one of them.
#include <cublasLt.h>

#include "axonn/base/check.h"

namespace axonn::cuda {

inline constexpr const char* kBlasName = "cuBLASLt";

/// "13.0.2".
inline std::string blas_version() {
  const std::size_t version = cublasLtGetVersion();  // 130002
  return concat(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace axonn::cuda
