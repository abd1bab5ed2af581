#pragma once

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

// Matrix products on NVIDIA GPUs. blas_plans.cpp is written in cuBLASLt's names. CMake copies this
// file or, for AMD GPUs, blas_hip.cuh to axonn/compute/ops/gpu/matmul/blas.cuh.
#include <cublasLt.h>

#include "axonn/foundation/base/check.h"

namespace axonn::cuda {

inline constexpr const char* kBlasName = "cuBLASLt";

/// The attribute of a product that says how many multiprocessors it is to use, if there is one.
inline constexpr std::optional kMultiprocessorTarget = CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET;

/// "13.0.2".
inline std::string blas_version() {
  const std::size_t version = cublasLtGetVersion();  // 130002
  return concat(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

/// A product's descriptors, with sums in f32.
struct BlasProblem {
  cublasLtHandle_t library;
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, out;
  cudaDataType_t type, out_type;
  float beta;  // factor of the old out
};

/// A part of an algorithm's configuration: an unsigned number, in most cases the value of an
/// enumeration of cublasLt.h.
struct AlgorithmPart {
  std::string_view name;
  cublasLtMatmulAlgoConfigAttributes_t what;
  std::size_t bytes;
};
inline constexpr AlgorithmPart kAlgorithmParts[] = {
    {"algorithm", CUBLASLT_ALGO_CONFIG_ID, 4},
    {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {"split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {"custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {"inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {"cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2}};

/// The algorithm's configuration: "algorithm 66 tile 20 stages 35 split 1 ...". Empty if the
/// library does not tell it.
inline std::string algorithm_name(const cublasLtMatmulAlgo_t& algorithm) {
  std::string name;
  for (const auto& [part, what, bytes] : kAlgorithmParts) {
    std::uint32_t value = 0;
    std::size_t written = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, what, &value, bytes, &written) !=
        CUBLAS_STATUS_SUCCESS)
      return {};
    name += concat(name.empty() ? "" : " ", part, ' ', value);
  }
  return name;
}

/// The algorithm of this name; nothing if the library does not have it for these types.
inline std::optional<cublasLtMatmulAlgo_t> algorithm_of(const BlasProblem& problem,
                                                        std::string_view name) {
  std::istringstream words{std::string(name)};
  cublasLtMatmulAlgo_t algorithm{};
  for (const auto& [part, what, bytes] : kAlgorithmParts) {
    std::string word;
    std::uint32_t value = 0;
    if (!(words >> word >> value) || word != part) return {};
    const bool begins = what == CUBLASLT_ALGO_CONFIG_ID;
    const cublasStatus_t status =
        begins ? cublasLtMatmulAlgoInit(problem.library, CUBLAS_COMPUTE_32F, CUDA_R_32F,
                                        problem.type, problem.type, problem.out_type,
                                        problem.out_type, static_cast<int>(value), &algorithm)
               : cublasLtMatmulAlgoConfigSetAttribute(&algorithm, what, &value, bytes);
    if (status != CUBLAS_STATUS_SUCCESS) return {};
  }
  if (algorithm_name(algorithm) != name) return {};
  return algorithm;
}

/// Whether the algorithm computes the problem on this GPU, with so many bytes of workspace.
/// Alignments are not checked.
inline bool computes(const BlasProblem& problem, cublasLtMatmulAlgo_t& algorithm,
                     std::size_t workspace) {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(problem.library, problem.operation, problem.a, problem.b,
                                 problem.out, problem.out, &algorithm,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= workspace;
}

}  // namespace axonn::cuda
