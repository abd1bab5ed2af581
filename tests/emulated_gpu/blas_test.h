#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <cublasLt.h>
#include <gtest/gtest.h>

namespace blas_test {

inline constexpr auto kOk = CUBLAS_STATUS_SUCCESS;
inline constexpr auto kInvalid = CUBLAS_STATUS_INVALID_VALUE;
inline constexpr auto kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED;

inline void ok(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }
inline void ok(cublasStatus_t status) { ASSERT_EQ(status, kOk) << cublasLtGetStatusString(status); }

inline float bf16_to_float(std::uint16_t x) {
  const std::uint32_t bits = std::uint32_t{x} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline std::uint16_t bf16_of(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Elements in a GPU's memory, `shift` bytes after a multiple of 256.
class Memory {
 public:
  Memory(std::size_t count, cudaDataType_t type, std::size_t shift = 0)
      : count_(count), type_(type), shift_(shift) {
    ok(cudaMalloc(&memory_, bytes() + shift));
    ok(cudaMallocHost(&host_, bytes()));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    cudaFree(memory_);
    cudaFreeHost(host_);
  }

  char* data() const { return static_cast<char*>(memory_) + shift_; }
  std::size_t bytes() const { return count_ * (type_ == CUDA_R_32F ? 4 : 2); }
  std::size_t count() const { return count_; }

  void put(const std::vector<float>& values, cudaStream_t stream) {
    for (std::size_t i = 0; i < count_; ++i)
      if (type_ == CUDA_R_16BF)
        static_cast<std::uint16_t*>(host_)[i] = bf16_of(values[i]);
      else
        static_cast<float*>(host_)[i] = values[i];
    ok(cudaMemcpyAsync(data(), host_, bytes(), cudaMemcpyHostToDevice, stream));
    ok(cudaStreamSynchronize(stream));
  }
  std::vector<float> get(cudaStream_t stream) const {
    ok(cudaMemcpyAsync(host_, data(), bytes(), cudaMemcpyDeviceToHost, stream));
    ok(cudaStreamSynchronize(stream));
    std::vector<float> values(count_);
    for (std::size_t i = 0; i < count_; ++i)
      values[i] = type_ == CUDA_R_16BF ? bf16_to_float(static_cast<std::uint16_t*>(host_)[i])
                                       : static_cast<float*>(host_)[i];
    return values;
  }

 private:
  std::size_t count_;
  cudaDataType_t type_;
  std::size_t shift_;
  void* memory_ = nullptr;
  void* host_ = nullptr;
};

struct Sizes {
  std::int64_t m = 24, n = 16, k = 32;
  bool a_transposed = false, b_transposed = false;
  cudaDataType_t type = CUDA_R_32F, out_type = CUDA_R_32F;
  std::int64_t gap = 0;  // elements between columns
  int count = 1;
};

/// A product: its descriptors and its operands, with random values.
class Product {
 public:
  explicit Product(const Sizes& sizes, std::size_t shift = 0, cublasLtHandle_t given = nullptr)
      : s(sizes) {
    ok(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    if (!given) ok(cublasLtCreate(&own_handle_));
    handle = given ? given : own_handle_;
    ok(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, s.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, s.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    a = make(a_layout, s.type, s.a_transposed ? s.k : s.m, s.a_transposed ? s.m : s.k, shift);
    b = make(b_layout, s.type, s.b_transposed ? s.n : s.k, s.b_transposed ? s.k : s.n, shift);
    d = make(d_layout, s.out_type, s.m, s.n, shift);
    workspace = std::make_shared<Memory>(1 << 18, CUDA_R_32F);
    ok(cublasLtMatmulPreferenceCreate(&preference));
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace->bytes()});
    const std::uint32_t alignment = shift == 0 ? 256 : static_cast<std::uint32_t>(shift);
    for (const auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(which, alignment);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() {
    cudaStreamSynchronize(stream);
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto layout : {a_layout, b_layout, d_layout}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation);
    if (own_handle_) cublasLtDestroy(own_handle_);
    cudaStreamDestroy(stream);
  }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t what, const T& value) {
    ok(cublasLtMatmulDescSetAttribute(operation, what, &value, sizeof value));
  }
  template <typename T>
  void prefer(cublasLtMatmulPreferenceAttributes_t what, const T& value) {
    ok(cublasLtMatmulPreferenceSetAttribute(preference, what, &value, sizeof value));
  }
  void set_epilogue(cublasLtEpilogue_t epilogue, const void* bias, const void* aux = nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_step());
  }
  std::int64_t aux_step() const { return (s.m + 7) / 8 * 8; }

  cublasStatus_t ask() {
    found.resize(8);
    int count = 0;
    const auto status =
        cublasLtMatmulAlgoGetHeuristic(handle, operation, a_layout, b_layout, d_layout, d_layout,
                                       preference, 8, found.data(), &count);
    found.resize(static_cast<std::size_t>(count));
    return status;
  }
  cublasStatus_t run(std::size_t algorithm = 0) {
    return cublasLtMatmul(handle, operation, &alpha, a->data(), a_layout, b->data(), b_layout,
                          &beta, d->data(), d_layout, d->data(), d_layout,
                          &found.at(algorithm).algo, workspace->data(), workspace->bytes(), stream);
  }
  std::vector<float> result() const { return d->get(stream); }
  std::int64_t step() const { return s.m + s.gap; }
  std::int64_t at(std::int64_t batch, std::int64_t i, std::int64_t j) const {
    return (batch * s.n + j) * step() + i;
  }

  /// alpha · op(A) · op(B) + beta · old, by plain loops in double.
  std::vector<double> reference(const std::vector<float>& old) const {
    const auto x = a->get(stream), y = b->get(stream);
    std::vector<double> sums(old.begin(), old.end());
    for (std::int64_t batch = 0; batch < s.count; ++batch)
      for (std::int64_t j = 0; j < s.n; ++j)
        for (std::int64_t i = 0; i < s.m; ++i) {
          double sum = 0;
          for (std::int64_t k = 0; k < s.k; ++k) {
            const auto one = s.a_transposed ? (batch * s.m + i) * (s.k + s.gap) + k
                                            : (batch * s.k + k) * (s.m + s.gap) + i;
            const auto other = s.b_transposed ? (batch * s.k + k) * (s.n + s.gap) + j
                                              : (batch * s.n + j) * (s.k + s.gap) + k;
            sum += double{x[one]} * y[other];
          }
          auto& to = sums[at(batch, i, j)];
          to = alpha * sum + (beta == 0 ? 0 : beta * to);
        }
    return sums;
  }
  /// Values are at most 1: the error of the sums, and that of the result's rounding.
  double tolerance() const {
    const double terms = static_cast<double>(s.k) + 4;
    return terms * terms * std::numeric_limits<float>::epsilon() +
           (s.out_type == CUDA_R_16BF ? terms / 256 : 0);
  }
  void expect(const std::vector<double>& want) const {
    const std::vector<float> got = result();
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - want[i]));
    EXPECT_LE(worst, tolerance());
  }

  const Sizes s;
  cudaStream_t stream = nullptr;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a_layout = nullptr, b_layout = nullptr, d_layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  std::unique_ptr<Memory> a, b, d;
  std::shared_ptr<Memory> workspace;
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  float alpha = 1, beta = 0;

 private:
  std::unique_ptr<Memory> make(cublasLtMatrixLayout_t& layout, cudaDataType_t type,
                               std::int64_t rows, std::int64_t cols, std::size_t shift) {
    const std::int64_t step = rows + s.gap, batch_step = step * cols;
    ok(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                  static_cast<std::uint64_t>(cols), step));
    ok(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &s.count,
                                        sizeof s.count));
    ok(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                        &batch_step, sizeof batch_step));
    const auto count = static_cast<std::size_t>(s.count * batch_step);
    auto memory = std::make_unique<Memory>(count, type, shift);
    std::vector<float> values(count);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& value : values) value = bf16_to_float(bf16_of(uniform(random_)));
    memory->put(values, stream);
    return memory;
  }

  std::mt19937 random_{7};
  cublasLtHandle_t own_handle_ = nullptr;
};

}  // namespace blas_test
