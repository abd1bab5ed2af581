#pragma once

// The extension of hipBLASLt, as far as the project uses it: see hipblaslt.h. Source: "hipBLASLtExt
// API reference" of ROCm 6.

#include <cstddef>
#include <vector>

#include "hipblaslt.h"

namespace hipblaslt_ext {

int getIndexFromAlgo(hipblasLtMatmulAlgo_t& algorithm);
hipblasStatus_t getAlgosFromIndex(hipblasLtHandle_t handle, std::vector<int>& indices,
                                  std::vector<hipblasLtMatmulHeuristicResult_t>& found);
hipblasStatus_t matmulIsAlgoSupported(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t operation,
                                      const void* alpha, hipblasLtMatrixLayout_t a,
                                      hipblasLtMatrixLayout_t b, const void* beta,
                                      hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d,
                                      hipblasLtMatmulAlgo_t& algorithm,
                                      std::size_t& workspace_bytes);

}  // namespace hipblaslt_ext
