#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/emulated_gpu/blas.h"
#include "tests/emulated_gpu/platform.h"

namespace emulated_gpu {

namespace {

float to_float(float x) { return x; }
float to_float(_Float16 x) { return static_cast<float>(x); }
float to_float(std::uint16_t bf16) { return std::bit_cast<float>(std::uint32_t{bf16} << 16); }

/// Rounded to nearest, ties to even.
std::uint16_t to_bf16(float x) {
  if (std::isnan(x)) return 0x7fff;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float load(const void* from, cudaDataType_t type, std::int64_t i) {
  if (type == CUDA_R_16F) return to_float(static_cast<const _Float16*>(from)[i]);
  return type == CUDA_R_16BF ? to_float(static_cast<const std::uint16_t*>(from)[i])
                             : static_cast<const float*>(from)[i];
}

void store(void* to, cudaDataType_t type, std::int64_t i, float value) {
  if (type == CUDA_R_16BF)
    static_cast<std::uint16_t*>(to)[i] = to_bf16(value);
  else if (type == CUDA_R_16F)
    static_cast<_Float16*>(to)[i] = static_cast<_Float16>(value);
  else
    static_cast<float*>(to)[i] = value;
}

// Products. Operands are packed to panels of f32, kRows rows of op(A) or kCols columns of op(B), in
// which the values for each k lie beside each other.

constexpr int kRows = 16, kCols = 6, kLanes = 16;
using Lanes [[gnu::vector_size(kLanes * sizeof(float))]] = float;

/// op(A) or op(B)ᵀ of one product of a batch: element (i, k) at i · across + k · along.
struct Operand {
  const void* data;
  cudaDataType_t type;
  std::int64_t count, across, along;
};

template <typename T>
void pack(float* to, const Operand& x, std::int64_t K, int width, bool backwards) {
  for (std::int64_t begin = 0; begin < x.count; begin += width) {
    const auto rows = std::min<std::int64_t>(width, x.count - begin);
    for (std::int64_t k = 0; k < K; ++k, to += width) {
      const T* at =
          static_cast<const T*>(x.data) + begin * x.across + (backwards ? K - 1 - k : k) * x.along;
      for (std::int64_t r = 0; r < width; ++r) to[r] = r < rows ? to_float(at[r * x.across]) : 0;
    }
  }
}

void pack(std::vector<float>& to, const Operand& x, std::int64_t K, int width, bool backwards) {
  to.resize(static_cast<std::size_t>((x.count + width - 1) / width * width * K));
  if (x.type == CUDA_R_16BF)
    pack<std::uint16_t>(to.data(), x, K, width, backwards);
  else if (x.type == CUDA_R_16F)
    pack<_Float16>(to.data(), x, K, width, backwards);
  else
    pack<float>(to.data(), x, K, width, backwards);
}

/// kRows · kCols sums over `count` values of k, column-major.
void multiply_panels(float* sums, const float* a, const float* b, std::int64_t count) {
  constexpr int kParts = kRows / kLanes;
  Lanes sum[kCols][kParts] = {};
  for (std::int64_t k = 0; k < count; ++k, a += kRows, b += kCols) {
    Lanes values[kParts];
    std::memcpy(values, a, sizeof values);
#pragma GCC unroll kCols
    for (int col = 0; col < kCols; ++col)
      for (int part = 0; part < kParts; ++part) sum[col][part] += values[part] * b[col];
  }
  std::memcpy(sums, sum, sizeof sum);
}

/// Panels of both operands of one product of a batch.
struct Panels {
  std::vector<float> a, b;
  std::int64_t m = 0, n = 0, k = 0;

  void pack_both(const Problem& p, const void* a_data, const void* b_data, bool backwards) {
    m = p.m(), n = p.n(), k = p.k();
    const bool a_plain = p.operation.a == CUBLAS_OP_N, b_plain = p.operation.b == CUBLAS_OP_N;
    pack(a, {a_data, p.a.type, m, a_plain ? 1 : p.a.step, a_plain ? p.a.step : 1}, k, kRows,
         backwards);
    pack(b, {b_data, p.b.type, n, b_plain ? p.b.step : 1, b_plain ? 1 : p.b.step}, k, kCols,
         backwards);
  }
  /// sums (m, n), column-major and dense: over k from `begin` to before `end`.
  void multiply(float* sums, std::int64_t begin, std::int64_t end) const {
    // As many rows as stay in a core's cache with all k, while columns pass by.
    const std::int64_t group = std::max<std::int64_t>(1, 32768 / (kRows * k)) * kRows;
    for (std::int64_t from = 0; from < m; from += group)
      for (std::int64_t j = 0; j < n; j += kCols)
        for (std::int64_t i = from; i < std::min(m, from + group); i += kRows)
          multiply_tile(sums, i, j, begin, end);
  }

 private:
  void multiply_tile(float* sums, std::int64_t i, std::int64_t j, std::int64_t begin,
                     std::int64_t end) const {
    float tile[kRows * kCols];
    multiply_panels(tile, a.data() + i * k + begin * kRows, b.data() + j * k + begin * kCols,
                    end - begin);
    const auto rows = static_cast<std::size_t>(std::min<std::int64_t>(kRows, m - i));
    for (std::int64_t col = 0; col < std::min<std::int64_t>(kCols, n - j); ++col)
      std::memcpy(sums + (j + col) * m + i, tile + col * kRows, rows * sizeof(float));
  }
};

/// Work is done under the lock, so one set of buffers is enough.
struct Buffers {
  Panels panels;
  std::vector<float> first, second;  // the halves of K
};
Buffers& buffers() {
  static Buffers all;
  return all;
}

const void* batch_of(const void* data, const Layout& x, int i) {
  return static_cast<const char*>(data) + i * x.batch_step * bytes_of(x.type);
}

/// Reports the access to whole matrices, but not to what lies between their columns.
template <typename Pointer>
void report(void (*access)(Pointer, std::size_t, const char*), Pointer data, const Layout& x,
            const char* what) {
  const auto bytes = static_cast<std::size_t>(x.rows * bytes_of(x.type));
  for (int i = 0; i < x.count; ++i) {
    auto* at = static_cast<char*>(const_cast<void*>(batch_of(data, x, i)));
    if (x.step == x.rows) {
      access(at, bytes * static_cast<std::size_t>(x.cols), what);
      continue;
    }
    for (std::int64_t col = 0; col < x.cols; ++col)
      access(at + col * x.step * bytes_of(x.type), bytes, what);
  }
}

/// GELU in its tanh form, which is what the library computes.
float gelu_of(float x) {
  return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}
float gelu_slope_of(float x) {
  const float t = std::tanh(0.7978845608f * (x + 0.044715f * x * x * x));
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 0.134145f * x * x);
}

}  // namespace

/// D from the sums of both halves of K.
void Product::finish(int batch, const float* first, const float* second) const {
  const Operation& o = p.operation;
  const std::int64_t m = p.m();
  const void* from = batch_of(c, p.c, batch);
  void* to = const_cast<void*>(batch_of(d, p.d, batch));
  for (std::int64_t j = 0; j < p.n(); ++j)
    for (std::int64_t i = 0; i < m; ++i) {
      float x = first[j * m + i];
      if (second) x += second[j * m + i];
      x *= alpha;
      if (beta != 0) x += beta * load(from, p.c.type, j * p.c.step + i);
      if (p.adds_bias()) x += load(o.bias, p.d.type, i);
      if (p.has(CUBLASLT_EPILOGUE_GELU_AUX)) store(o.aux, p.d.type, j * o.aux_step + i, x);
      if (p.gelu()) x = gelu_of(x);
      if (p.d_gelu()) x *= gelu_slope_of(load(o.aux, p.d.type, j * o.aux_step + i));
      store(to, p.d.type, j * p.d.step + i, x);
    }
}

/// Documented: BGRADB's vector has an element for each of D's columns, the sum over K of B.
void Product::sum_columns() const {
  const bool plain = p.operation.b == CUBLAS_OP_N;
  for (std::int64_t j = 0; j < p.n(); ++j) {
    float sum = 0;
    for (std::int64_t k = 0; k < p.k(); ++k)
      sum += load(b, p.b.type, plain ? j * p.b.step + k : k * p.b.step + j);
    store(p.operation.bias, p.d.type, j, sum);
  }
}

namespace {

void report_inputs(const Product& product) {
  report(reads, product.a, product.p.a, "cublasLtMatmul's A");
  report(reads, product.b, product.p.b, "cublasLtMatmul's B");
}

void report_outputs(const Product& product) {
  const Problem& p = product.p;
  if (product.beta != 0) report(reads, product.c, p.c, "cublasLtMatmul's C");
  const auto bias_bytes =
      static_cast<std::size_t>((p.sums_b() ? p.n() : p.m()) * bytes_of(p.d.type));
  if (p.adds_bias()) reads(p.operation.bias, bias_bytes, "cublasLtMatmul's bias");
  if (p.sums_b()) writes(p.operation.bias, bias_bytes, "cublasLtMatmul's bias gradient");
  if (p.d_gelu())
    report(reads, static_cast<const void*>(p.operation.aux), p.aux(),
           "cublasLtMatmul's GELU input");
  else if (p.has_aux())
    report(writes, p.operation.aux, p.aux(), "cublasLtMatmul's GELU input");
  report(writes, product.d, p.d, "cublasLtMatmul's D");
}

}  // namespace

/// The first kernel of a split.
void Product::multiply_halves() const {
  report_inputs(*this);
  const auto size = static_cast<std::size_t>(p.m() * p.n());
  writes(workspace, 2 * size * sizeof(float), "cublasLtMatmul's workspace");
  const Unseen loops;
  Panels& panels = buffers().panels;
  panels.pack_both(p, a, b, false);
  panels.multiply(workspace, 0, p.k() / 2);
  panels.multiply(workspace + size, p.k() / 2, p.k());
  if (way == Way::rough_split)
    for (std::size_t i = 0; i < 2 * size; ++i) {
      float rounded = 0;
      store(&rounded, p.d.type, 0, workspace[i]);
      workspace[i] = load(&rounded, p.d.type, 0);
    }
}

/// Its second.
void Product::add_halves() const {
  const auto size = static_cast<std::size_t>(p.m() * p.n());
  reads(workspace, 2 * size * sizeof(float), "cublasLtMatmul's workspace");
  if (p.sums_b()) report(reads, b, p.b, "cublasLtMatmul's B");
  report_outputs(*this);
  const Unseen loops;
  finish(0, workspace, workspace + size);
  if (p.sums_b()) sum_columns();
}

/// All of the other algorithms.
void Product::compute() const {
  report_inputs(*this);
  report_outputs(*this);
  const Unseen loops;
  auto& [panels, first, second] = buffers();
  const auto size = static_cast<std::size_t>(p.m() * p.n());
  first.resize(std::max(size, first.size()));
  second.resize(std::max(size, second.size()));
  const bool own_order = is_set("AXONN_EMULATED_SUM_ORDERS", "1");
  const bool at_once = own_order && way == Way::vectors;
  for (int i = 0; i < p.d.count; ++i) {
    panels.pack_both(p, batch_of(a, p.a, i), batch_of(b, p.b, i),
                     own_order && way == Way::elements);
    panels.multiply(first.data(), 0, at_once ? p.k() : p.k() / 2);
    if (!at_once) panels.multiply(second.data(), p.k() / 2, p.k());
    finish(i, first.data(), at_once ? nullptr : second.data());
  }
  if (p.sums_b()) sum_columns();
}

}  // namespace emulated_gpu
