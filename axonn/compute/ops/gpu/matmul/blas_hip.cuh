#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// hipBLASLt under the cuBLASLt names that blas_plans.cpp uses; only those are defined. A build for
// NVIDIA GPUs uses blas_cuda.cuh instead.
#include <hipblaslt/hipblaslt-ext.hpp>
#include <hipblaslt/hipblaslt.h>

#include "axonn/foundation/base/check.h"

using cublasStatus_t = hipblasStatus_t;
using cudaDataType_t = hipDataType;
using cublasLtEpilogue_t = hipblasLtEpilogue_t;
using cublasLtHandle_t = hipblasLtHandle_t;
using cublasLtMatmulDesc_t = hipblasLtMatmulDesc_t;
using cublasLtMatmulDescAttributes_t = hipblasLtMatmulDescAttributes_t;
using cublasLtMatrixLayout_t = hipblasLtMatrixLayout_t;
using cublasLtMatmulPreference_t = hipblasLtMatmulPreference_t;
using cublasLtMatmulPreferenceAttributes_t = hipblasLtMatmulPreferenceAttributes_t;
using cublasLtMatmulAlgo_t = hipblasLtMatmulAlgo_t;
using cublasLtMatmulHeuristicResult_t = hipblasLtMatmulHeuristicResult_t;

inline constexpr auto CUBLAS_STATUS_SUCCESS = HIPBLAS_STATUS_SUCCESS;
inline constexpr auto CUBLAS_STATUS_INVALID_VALUE = HIPBLAS_STATUS_INVALID_VALUE;
inline constexpr auto CUBLAS_STATUS_NOT_SUPPORTED = HIPBLAS_STATUS_NOT_SUPPORTED;
inline constexpr auto CUBLAS_COMPUTE_32F = HIPBLAS_COMPUTE_32F;
inline constexpr auto CUBLAS_OP_N = HIPBLAS_OP_N;
inline constexpr auto CUBLAS_OP_T = HIPBLAS_OP_T;
inline constexpr auto CUDA_R_32F = HIP_R_32F;
inline constexpr auto CUDA_R_16F = HIP_R_16F;
inline constexpr auto CUDA_R_16BF = HIP_R_16BF;
inline constexpr auto CUBLASLT_MATRIX_LAYOUT_ROWS = HIPBLASLT_MATRIX_LAYOUT_ROWS;
inline constexpr auto CUBLASLT_MATRIX_LAYOUT_COLS = HIPBLASLT_MATRIX_LAYOUT_COLS;
inline constexpr auto CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
inline constexpr auto CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET =
    HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
inline constexpr auto CUBLASLT_MATMUL_DESC_TRANSA = HIPBLASLT_MATMUL_DESC_TRANSA;
inline constexpr auto CUBLASLT_MATMUL_DESC_TRANSB = HIPBLASLT_MATMUL_DESC_TRANSB;
inline constexpr auto CUBLASLT_MATMUL_DESC_EPILOGUE = HIPBLASLT_MATMUL_DESC_EPILOGUE;
inline constexpr auto CUBLASLT_MATMUL_DESC_BIAS_POINTER = HIPBLASLT_MATMUL_DESC_BIAS_POINTER;
inline constexpr auto CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE;
inline constexpr auto CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER =
    HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER;
inline constexpr auto CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD;
inline constexpr auto CUBLASLT_EPILOGUE_DEFAULT = HIPBLASLT_EPILOGUE_DEFAULT;
inline constexpr auto CUBLASLT_EPILOGUE_BIAS = HIPBLASLT_EPILOGUE_BIAS;
inline constexpr auto CUBLASLT_EPILOGUE_GELU_AUX = HIPBLASLT_EPILOGUE_GELU_AUX;
inline constexpr auto CUBLASLT_EPILOGUE_GELU_AUX_BIAS = HIPBLASLT_EPILOGUE_GELU_AUX_BIAS;
inline constexpr auto CUBLASLT_EPILOGUE_GELU = HIPBLASLT_EPILOGUE_GELU;
inline constexpr auto CUBLASLT_EPILOGUE_GELU_BIAS = HIPBLASLT_EPILOGUE_GELU_BIAS;
inline constexpr auto CUBLASLT_EPILOGUE_DGELU = HIPBLASLT_EPILOGUE_DGELU;
inline constexpr auto CUBLASLT_EPILOGUE_BGRADB = HIPBLASLT_EPILOGUE_BGRADB;
inline constexpr auto CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES =
    HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
// hipBLASLt has no preferences for alignment and sums of parts: these are ignored below.
inline constexpr auto CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = HIPBLASLT_MATMUL_PREF_MAX;
inline constexpr std::uint32_t CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2;
inline constexpr auto CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = HIPBLASLT_MATMUL_PREF_MAX;
inline constexpr auto CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = HIPBLASLT_MATMUL_PREF_MAX;
inline constexpr auto CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = HIPBLASLT_MATMUL_PREF_MAX;
inline constexpr auto CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = HIPBLASLT_MATMUL_PREF_MAX;

inline constexpr auto cublasLtCreate = hipblasLtCreate;
inline constexpr auto cublasLtDestroy = hipblasLtDestroy;
inline constexpr auto cublasLtMatmulDescCreate = hipblasLtMatmulDescCreate;
inline constexpr auto cublasLtMatmulDescDestroy = hipblasLtMatmulDescDestroy;
inline constexpr auto cublasLtMatmulDescSetAttribute = hipblasLtMatmulDescSetAttribute;
inline constexpr auto cublasLtMatrixLayoutCreate = hipblasLtMatrixLayoutCreate;
inline constexpr auto cublasLtMatrixLayoutDestroy = hipblasLtMatrixLayoutDestroy;
inline constexpr auto cublasLtMatrixLayoutSetAttribute = hipblasLtMatrixLayoutSetAttribute;
inline constexpr auto cublasLtMatmulPreferenceCreate = hipblasLtMatmulPreferenceCreate;
inline constexpr auto cublasLtMatmulPreferenceDestroy = hipblasLtMatmulPreferenceDestroy;
inline constexpr auto cublasLtMatmulAlgoGetHeuristic = hipblasLtMatmulAlgoGetHeuristic;
inline constexpr auto cublasLtMatmul = hipblasLtMatmul;

inline hipblasStatus_t cublasLtMatmulPreferenceSetAttribute(
    hipblasLtMatmulPreference_t preference, hipblasLtMatmulPreferenceAttributes_t what,
    const void* value, std::size_t bytes) {
  if (what == HIPBLASLT_MATMUL_PREF_MAX) return HIPBLAS_STATUS_SUCCESS;
  return hipblasLtMatmulPreferenceSetAttribute(preference, what, value, bytes);
}

/// hipBLASLt has no texts for its errors.
inline const char* cublasLtGetStatusString(hipblasStatus_t status) {
  switch (status) {
    case HIPBLAS_STATUS_SUCCESS:
      return "success";
    case HIPBLAS_STATUS_NOT_INITIALIZED:
      return "not initialised";
    case HIPBLAS_STATUS_ALLOC_FAILED:
      return "out of memory";
    case HIPBLAS_STATUS_INVALID_VALUE:
      return "invalid value";
    case HIPBLAS_STATUS_EXECUTION_FAILED:
      return "execution failed";
    case HIPBLAS_STATUS_NOT_SUPPORTED:
      return "not supported";
    case HIPBLAS_STATUS_ARCH_MISMATCH:
      return "not for this GPU";
    default:
      return "failed";
  }
}

namespace axonn::cuda {

inline constexpr const char* kBlasName = "hipBLASLt";

inline constexpr std::optional<hipblasLtMatmulDescAttributes_t> kMultiprocessorTarget = {};

/// "0.10.0": the version of the header, because the library tells its own only if there is a GPU.
inline std::string blas_version() {
  return concat(HIPBLASLT_VERSION_MAJOR, '.', HIPBLASLT_VERSION_MINOR, '.',
                HIPBLASLT_VERSION_PATCH);
}

// As in blas_cuda.cuh. hipBLASLt's algorithms are the kernels that it was built with, which it
// numbers: "solution 12345". It does not check an algorithm when it runs it.

struct BlasProblem {
  hipblasLtHandle_t library;
  hipblasLtMatmulDesc_t operation;
  hipblasLtMatrixLayout_t a, b, out;
  hipDataType type, out_type;
  float beta;
};

inline constexpr std::string_view kSolution = "solution ";

inline std::string algorithm_name(hipblasLtMatmulAlgo_t algorithm) {
  return concat(kSolution, hipblaslt_ext::getIndexFromAlgo(algorithm));
}

inline std::optional<hipblasLtMatmulAlgo_t> algorithm_of(const BlasProblem& problem,
                                                         std::string_view name) {
  if (!name.starts_with(kSolution)) return {};
  int index = 0;
  std::from_chars(name.data() + kSolution.size(), name.data() + name.size(), index);
  std::vector<int> wanted{index};
  std::vector<hipblasLtMatmulHeuristicResult_t> found;
  if (hipblaslt_ext::getAlgosFromIndex(problem.library, wanted, found) != HIPBLAS_STATUS_SUCCESS ||
      found.empty() || algorithm_name(found.front().algo) != name)
    return {};
  return found.front().algo;
}

inline bool computes(const BlasProblem& problem, hipblasLtMatmulAlgo_t& algorithm,
                     std::size_t workspace) {
  const float alpha = 1;
  std::size_t needed = 0;
  return hipblaslt_ext::matmulIsAlgoSupported(problem.library, problem.operation, &alpha, problem.a,
                                              problem.b, &problem.beta, problem.out, problem.out,
                                              algorithm, needed) == HIPBLAS_STATUS_SUCCESS &&
         needed <= workspace;
}

}  // namespace axonn::cuda
