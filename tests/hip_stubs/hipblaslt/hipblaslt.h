#pragma once

// The names of hipBLASLt that the project uses, for target hip_compile_check: Debian has no
// hipBLASLt. Source: "hipBLASLt datatypes reference" and "hipBLASLt API reference" of ROCm 6.

#include <cstddef>
#include <cstdint>

#include <hip/hip_runtime_api.h>
#include <hip/library_types.h>

inline constexpr int HIPBLASLT_VERSION_MAJOR = 0, HIPBLASLT_VERSION_MINOR = 10,
                     HIPBLASLT_VERSION_PATCH = 0;

typedef enum {
  HIPBLAS_STATUS_SUCCESS,
  HIPBLAS_STATUS_NOT_INITIALIZED,
  HIPBLAS_STATUS_ALLOC_FAILED,
  HIPBLAS_STATUS_INVALID_VALUE,
  HIPBLAS_STATUS_EXECUTION_FAILED,
  HIPBLAS_STATUS_NOT_SUPPORTED,
  HIPBLAS_STATUS_ARCH_MISMATCH,
} hipblasStatus_t;
typedef enum { HIPBLAS_OP_N, HIPBLAS_OP_T } hipblasOperation_t;
typedef enum { HIPBLAS_COMPUTE_32F } hipblasComputeType_t;

typedef enum {
  HIPBLASLT_EPILOGUE_DEFAULT,
  HIPBLASLT_EPILOGUE_BIAS,
  HIPBLASLT_EPILOGUE_GELU,
  HIPBLASLT_EPILOGUE_GELU_BIAS,
  HIPBLASLT_EPILOGUE_GELU_AUX,
  HIPBLASLT_EPILOGUE_GELU_AUX_BIAS,
  HIPBLASLT_EPILOGUE_DGELU,
  HIPBLASLT_EPILOGUE_BGRADB,
} hipblasLtEpilogue_t;
typedef enum {
  HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
  HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
  HIPBLASLT_MATRIX_LAYOUT_ROWS,
  HIPBLASLT_MATRIX_LAYOUT_COLS,
} hipblasLtMatrixLayoutAttribute_t;
typedef enum {
  HIPBLASLT_MATMUL_DESC_TRANSA,
  HIPBLASLT_MATMUL_DESC_TRANSB,
  HIPBLASLT_MATMUL_DESC_EPILOGUE,
  HIPBLASLT_MATMUL_DESC_BIAS_POINTER,
  HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
  HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
  HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
} hipblasLtMatmulDescAttributes_t;
typedef enum {
  HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
  HIPBLASLT_MATMUL_PREF_MAX,
} hipblasLtMatmulPreferenceAttributes_t;

typedef void* hipblasLtHandle_t;
typedef struct hipblasLtMatmulDescOpaque* hipblasLtMatmulDesc_t;
typedef struct hipblasLtMatrixLayoutOpaque* hipblasLtMatrixLayout_t;
typedef struct hipblasLtMatmulPreferenceOpaque* hipblasLtMatmulPreference_t;
struct hipblasLtMatmulAlgo_t {
  std::uint8_t data[16] = {0};
  std::size_t max_workspace_bytes = 0;
};
struct hipblasLtMatmulHeuristicResult_t {
  hipblasLtMatmulAlgo_t algo;
  std::size_t workspaceSize = 0;
  hipblasStatus_t state = HIPBLAS_STATUS_SUCCESS;
  float wavesCount = 1;
  int reserved[4];
};

extern "C" {

hipblasStatus_t hipblasLtCreate(hipblasLtHandle_t* handle);
hipblasStatus_t hipblasLtDestroy(const hipblasLtHandle_t handle);

hipblasStatus_t hipblasLtMatmulDescCreate(hipblasLtMatmulDesc_t* operation,
                                          hipblasComputeType_t compute, hipDataType scale);
hipblasStatus_t hipblasLtMatmulDescDestroy(const hipblasLtMatmulDesc_t operation);
hipblasStatus_t hipblasLtMatmulDescSetAttribute(hipblasLtMatmulDesc_t operation,
                                                hipblasLtMatmulDescAttributes_t what,
                                                const void* value, std::size_t bytes);

hipblasStatus_t hipblasLtMatrixLayoutCreate(hipblasLtMatrixLayout_t* layout, hipDataType type,
                                            std::uint64_t rows, std::uint64_t cols,
                                            std::int64_t step);
hipblasStatus_t hipblasLtMatrixLayoutDestroy(const hipblasLtMatrixLayout_t layout);
hipblasStatus_t hipblasLtMatrixLayoutSetAttribute(hipblasLtMatrixLayout_t layout,
                                                  hipblasLtMatrixLayoutAttribute_t what,
                                                  const void* value, std::size_t bytes);

hipblasStatus_t hipblasLtMatmulPreferenceCreate(hipblasLtMatmulPreference_t* preference);
hipblasStatus_t hipblasLtMatmulPreferenceDestroy(const hipblasLtMatmulPreference_t preference);
hipblasStatus_t hipblasLtMatmulPreferenceSetAttribute(hipblasLtMatmulPreference_t preference,
                                                      hipblasLtMatmulPreferenceAttributes_t what,
                                                      const void* value, std::size_t bytes);

hipblasStatus_t hipblasLtMatmulAlgoGetHeuristic(
    hipblasLtHandle_t handle, hipblasLtMatmulDesc_t operation, hipblasLtMatrixLayout_t a,
    hipblasLtMatrixLayout_t b, hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d,
    hipblasLtMatmulPreference_t preference, int most, hipblasLtMatmulHeuristicResult_t found[],
    int* count);
hipblasStatus_t hipblasLtMatmul(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t operation,
                                const void* alpha, const void* a, hipblasLtMatrixLayout_t a_layout,
                                const void* b, hipblasLtMatrixLayout_t b_layout, const void* beta,
                                const void* c, hipblasLtMatrixLayout_t c_layout, void* d,
                                hipblasLtMatrixLayout_t d_layout, const hipblasLtMatmulAlgo_t* algo,
                                void* workspace, std::size_t workspace_bytes, hipStream_t stream);
}
