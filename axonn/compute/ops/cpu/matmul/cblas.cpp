#include <algorithm>

#include "axonn/compute/ops/cpu/matmul/blas.h"
#include "axonn/compute/tensor/address.h"

/// Of any library with the C interface of BLAS, whose header has a name of its own in each. Source:
/// netlib.org/blas, cblas.h.
extern "C" void cblas_sgemm(int order, int a_mode, int b_mode, int M, int N, int K, float alpha,
                            const float* a, int a_row, const float* b, int b_row, float beta,
                            float* out, int out_row);

namespace axonn::cpu::blas {

namespace {

constexpr int kRowMajor = 101, kNotTransposed = 111, kTransposed = 112;

int mode_of(bool transposed) { return transposed ? kTransposed : kNotTransposed; }

int stride_of(const View& view) {
  return static_cast<int>(std::max({view.stride, view.cols, std::int64_t{1}}));
}

/// out = the bias, plus the old out if the product accumulates.
void begin_with_bias(const Matmul& product) {
  const float* const bias = address<const float>(product.bias);
  for (std::int64_t r = 0; r < product.out.rows; ++r) {
    float* const out = address<float>(product.out, r);
    for (std::int64_t c = 0; c < product.out.cols; ++c)
      out[c] = product.accumulate ? out[c] + bias[c] : bias[c];
  }
}

}  // namespace

void multiply(const Matmul& product) {
  use_one_thread();
  const bool begun = product.bias.data != nullptr;
  if (begun) begin_with_bias(product);
  const std::int64_t K = product.a_transposed ? product.a.rows : product.a.cols;
  cblas_sgemm(kRowMajor, mode_of(product.a_transposed), mode_of(product.b_transposed),
              static_cast<int>(product.out.rows), static_cast<int>(product.out.cols),
              static_cast<int>(K), 1.0f, address<const float>(product.a), stride_of(product.a),
              address<const float>(product.b), stride_of(product.b),
              begun || product.accumulate ? 1.0f : 0.0f, address<float>(product.out),
              stride_of(product.out));
}

}  // namespace axonn::cpu::blas
