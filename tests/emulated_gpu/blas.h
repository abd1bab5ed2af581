#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include <cublasLt.h>

// Shared by blas.cpp, the functions and rules of cuBLASLt, blas_algorithms.cpp, its algorithms, and
// blas_products.cpp, its loops.

struct cublasLtContext {
  int device = 0;
};
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  std::int32_t bias_type = -1;  // that of D
  std::int64_t aux_step = 0;
  std::int32_t multiprocessors = 0;  // that it is to use; 0: all
  void* bias = nullptr;
  void* aux = nullptr;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0, cols = 0, step = 0;
  std::int32_t count = 1;
  std::int64_t batch_step = 0;
  bool operator==(const cublasLtMatrixLayoutOpaque_t&) const = default;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = ~0u;  ///< that are allowed: all
  std::uint32_t a = 256, b = 256, c = 256, d = 256;
};

namespace emulated_gpu {

using Operation = cublasLtMatmulDescOpaque_t;
using Layout = cublasLtMatrixLayoutOpaque_t;
using Preference = cublasLtMatmulPreferenceOpaque_t;

inline std::int64_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

constexpr std::int64_t kVectorBytes = 16;  // by which the faster algorithms load and store
constexpr std::uint64_t kMostAlignment = 256;

/// The largest power of two, up to 256, that divides the address.
inline std::uint64_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | kMostAlignment;
  return bits & (~bits + 1);
}

inline bool is_set(const char* variable, std::string_view value) {
  const char* is = std::getenv(variable);
  return is && is == value;
}
/// All that an algorithm depends on.
struct Problem {
  Operation operation;
  Layout a, b, c, d;

  std::int64_t m() const { return d.rows; }
  std::int64_t n() const { return d.cols; }
  std::int64_t k() const { return operation.a == CUBLAS_OP_N ? a.cols : a.rows; }
  bool has(int epilogue) const { return (operation.epilogue & epilogue) == epilogue; }
  bool gelu() const { return has(CUBLASLT_EPILOGUE_GELU); }
  bool d_gelu() const { return has(CUBLASLT_EPILOGUE_DGELU); }
  bool has_aux() const { return has(CUBLASLT_EPILOGUE_GELU_AUX) || d_gelu(); }
  bool adds_bias() const { return has(CUBLASLT_EPILOGUE_BIAS); }
  bool sums_b() const { return has(CUBLASLT_EPILOGUE_BGRADB); }
  bool has_bias() const { return adds_bias() || sums_b(); }
  bool has_epilogue() const { return gelu() || d_gelu() || sums_b(); }
  /// The auxiliary matrix: documented to have D's type.
  Layout aux() const {
    Layout layout = d;
    layout.step = operation.aux_step;
    return layout;
  }
};

/// The ways to compute a product.
enum class Way : std::uint64_t {
  vectors = 1,     ///< loads vectors: needs their alignment
  split = 2,       ///< so, too, and adds up the halves of K in the workspace
  elements = 3,    ///< slowest, for any operands
  rough_split = 4  ///< as split, but each half is rounded to D's type
};
inline bool is_split(Way way) { return way == Way::split || way == Way::rough_split; }

/// What cublasLtMatmulAlgo_t holds.
struct Algorithm {
  /// The attributes, by the numbers of cublasLtMatmulAlgoConfigAttributes_t.
  std::array<std::uint32_t, 9> configuration = {};
  std::uint32_t unused = 0;
  std::uint64_t problem = 0;  // of the heuristic's answer; 0: any
  /// Bytes that the operands were said to be aligned to: A, B, C, D, the bias and the auxiliary.
  std::array<std::uint16_t, 8> aligned = {};

  /// Nothing if the GPU has no such algorithm.
  std::optional<Way> way() const;
  /// Bytes to which the operand must be aligned.
  std::uint64_t needs(std::size_t operand) const;
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

/// Whether the algorithm computes the product.
cublasStatus_t check_algorithm(const Problem& p, const Algorithm& algorithm);
/// Whether the library computes it.
cublasStatus_t check_problem(const Problem& p);
/// Bytes.
std::uint64_t workspace_of(const Problem& p, Way way);
/// Ends the process unless the handle or descriptor exists.
void check_alive(const char* function, const void* object);

/// One call of cublasLtMatmul(), copied from its arguments.
struct Product {
  Problem p;
  Way way = Way::elements;
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void* d = nullptr;
  float alpha = 1, beta = 0;
  float* workspace = nullptr;

  void multiply_halves() const;
  void add_halves() const;
  void compute() const;

 private:
  void finish(int batch, const float* first, const float* second) const;
  void sum_columns() const;
};

}  // namespace emulated_gpu
