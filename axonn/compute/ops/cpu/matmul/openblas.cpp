#include <algorithm>
#include <sstream>

#include <cblas.h>

#include "axonn/compute/ops/cpu/matmul/blas.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::cpu::blas {

namespace {

/// Makes the library use one thread, once.
void use_one_thread() {
  [[maybe_unused]] static const bool done = (openblas_set_num_threads(1), true);
}

CBLAS_TRANSPOSE mode_of(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

blasint stride_of(const View& view) {
  return static_cast<blasint>(std::max({view.stride, view.cols, std::int64_t{1}}));
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

std::string library() {
  std::istringstream words(openblas_get_config());  // "OpenBLAS 0.3.21 DYNAMIC_ARCH ... Zen ..."
  std::string name, version;
  words >> name >> version;
  return name + ' ' + version + " for " + openblas_get_corename();
}

void multiply(const Matmul& product) {
  use_one_thread();
  const bool begun = product.bias.data != nullptr;
  if (begun) begin_with_bias(product);
  const std::int64_t K = product.a_transposed ? product.a.rows : product.a.cols;
  cblas_sgemm(CblasRowMajor, mode_of(product.a_transposed), mode_of(product.b_transposed),
              static_cast<blasint>(product.out.rows), static_cast<blasint>(product.out.cols),
              static_cast<blasint>(K), 1.0f, address<const float>(product.a), stride_of(product.a),
              address<const float>(product.b), stride_of(product.b),
              begun || product.accumulate ? 1.0f : 0.0f, address<float>(product.out),
              stride_of(product.out));
}

}  // namespace axonn::cpu::blas
