#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <omp.h>

#include "axonn/compute/ops/backend.h"

#include "bench/measure.h"

// Compares the rate of causal attention with that of large products. Forward counts
// 2 · B · h · T² · D flops (two products, the causal half; with a window or documents, only what
// their queries see), backward 2.5 times as many (five products). What a kernel computes beyond
// that, above the diagonal or a second time, does not count. The peak is the best rate of a product
// of 1,024³ in the same type, timed in turn with attention.
// Usage: bench_ops_attention [THREADS [TYPE [HEAD_DIM [POSITIONS]]]]: all, or only these.

namespace {

using namespace axonn;
using bench::Memory;

struct Shape {
  std::int64_t sequences, positions, heads, kv_heads, head_dim;
  std::int64_t window = 0;    ///< 0: none
  std::int64_t document = 0;  ///< positions of each document; 0: a sequence is one
};

/// Pairs of a query and a key that it sees, in a head of a sequence; those on the diagonal are half
/// a pair.
double pairs(const Shape& s) {
  std::int64_t seen = 0;
  for (std::int64_t t = 0; t < s.positions; ++t) {
    const std::int64_t keys = (s.document > 0 ? t % s.document : t) + 1;
    seen += s.window > 0 ? std::min(s.window, keys) : keys;
  }
  return static_cast<double>(seen) - 0.5 * static_cast<double>(s.positions);
}

/// (1, rows) i32: where the document of each row begins in its sequence.
View starts(Memory& memory, const Shape& s) {
  const std::int64_t rows = s.sequences * s.positions;
  const View begins = memory.view(1, rows, DType::i32);
  auto* const values = static_cast<std::int32_t*>(begins.data);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t t = row % s.positions;
    values[row] = static_cast<std::int32_t>(t - t % s.document);
  }
  return begins;
}

constexpr std::int64_t kProduct = 1024;

std::string limits(const Shape& s) {
  return (s.window > 0 ? ", window " + std::to_string(s.window) : "") +
         (s.document > 0 ? ", documents of " + std::to_string(s.document) : "");
}

void measure(Backend& backend, DType type, const Shape& s) {
  Memory memory;
  const std::int64_t rows = s.sequences * s.positions, q_cols = s.heads * s.head_dim,
                     k_cols = s.kv_heads * s.head_dim;
  const View qkv = memory.view(rows, q_cols + 2 * k_cols, type),
             d_qkv = memory.view(rows, q_cols + 2 * k_cols, type);
  const auto part = [&](const View& all, int i) {
    return i == 0 ? all.col_range(0, q_cols) : all.col_range(q_cols + (i - 1) * k_cols, k_cols);
  };
  const Attention forward{.q = part(qkv, 0),
                          .k = part(qkv, 1),
                          .v = part(qkv, 2),
                          .out = memory.view(rows, q_cols, type),
                          .stats = memory.view(rows, s.heads, DType::f32),
                          .positions = s.positions,
                          .heads = s.heads,
                          .head_dim = s.head_dim,
                          .group = s.heads / s.kv_heads,
                          .window = s.window,
                          .scale = 0.125f,
                          .starts = s.document > 0 ? starts(memory, s) : View{}};
  const AttentionBackward backward{.forward = forward,
                                   .d_out = memory.view(rows, q_cols, type),
                                   .d_q = part(d_qkv, 0),
                                   .d_k = part(d_qkv, 1),
                                   .d_v = part(d_qkv, 2)};
  const Matmul product{.out = memory.view(kProduct, kProduct, type),
                       .a = memory.view(kProduct, kProduct, type),
                       .b = memory.view(kProduct, kProduct, type)};
  const double flops = 4 * pairs(s) * static_cast<double>(s.sequences * q_cols);
  const auto multiply = [&] { backend.matmul(product); };
  const auto a = bench::best_of(
      5, [&] { backend.attention(forward); }, multiply);
  const auto b = bench::best_of(
      5, [&] { backend.attention_backward(backward); }, multiply);
  const double peak = 2e-9 * kProduct * kProduct * kProduct / std::min(a.second, b.second);
  std::printf(
      "%-4s %5lld x %3lld, %2lld heads over %2lld of %3lld%s: forward %7.0f us %5.0f Gflop/s "
      "%3.0f %%, backward %7.0f us %5.0f Gflop/s %3.0f %% of %4.0f\n",
      name_of(type).data(), static_cast<long long>(s.positions),
      static_cast<long long>(s.sequences), static_cast<long long>(s.heads),
      static_cast<long long>(s.kv_heads), static_cast<long long>(s.head_dim), limits(s).c_str(),
      1e6 * a.first, 1e-9 * flops / a.first, 1e-7 * flops / a.first / peak, 1e6 * b.first,
      2.5e-9 * flops / b.first, 2.5e-7 * flops / b.first / peak, peak);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : omp_get_num_procs();
  const auto asked = [&](int i, std::string_view value) { return argc <= i || argv[i] == value; };
  const auto backend = make_cpu_backend(threads);
  std::printf("%d threads\n", threads);
  for (DType type : {DType::f32, DType::bf16}) {
    if (!asked(2, name_of(type))) continue;
    for (std::int64_t D : {64, 80, 96, 128})
      for (std::int64_t T : {64, 256, 1024, 4096})
        if (asked(3, std::to_string(D)) && asked(4, std::to_string(T)))
          measure(*backend, type, {4096 / T, T, 768 / D, 768 / D, D});
    if (argc > 3) continue;
    measure(*backend, type, {4, 256, 12, 12, 64});   // a layer of GPT-2 124M
    measure(*backend, type, {4, 1024, 16, 8, 128});  // a layer of a Llama-like model, width 2,048
    for (std::int64_t D : {64, 128}) {
      measure(*backend, type, {1, 4096, 768 / D, 768 / D, D, 1024});    // a window
      measure(*backend, type, {1, 4096, 768 / D, 768 / D, D, 0, 512});  // documents
      measure(*backend, type, {1, 4096, 768 / D, 768 / D, D, 0, 100});  // also within blocks
    }
  }
}
