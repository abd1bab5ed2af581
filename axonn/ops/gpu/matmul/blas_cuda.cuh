#pragma once

#include <string>

// Matrix products on NVIDIA GPUs. products.cpp is written in cuBLASLt's names. CMake copies this
// file or, for AMD GPUs, blas_hip.cuh to axonn/ops/gpu/matmul/blas.cuh.
#include <cublasLt.h>

#include "axonn/base/check.h"

namespace axonn::cuda {

inline constexpr const char* kBlasName = "cuBLASLt";

/// Whether an algorithm that the heuristic has found may be tried for other rows. cuBLASLt checks
/// an algorithm before it runs it.
inline constexpr bool kAlgorithmsSuitOtherRows = true;

/// "13.0.2".
inline std::string blas_version() {
  const std::size_t version = cublasLtGetVersion();  // 130002
  return concat(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace axonn::cuda
