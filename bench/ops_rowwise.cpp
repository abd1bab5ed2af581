#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <omp.h>

#include "axonn/ops/backend.h"

// What is bound by memory, with the sizes of GPT-2 124M at 1,024 rows: gigabytes a second that the
// arguments' bytes, moved once, make of the best time; and attention, which is bound by arithmetic,
// in gigaflops. "copy" is the bound: a cast from f32 to f32 of 256 MiB.
// Usage: ops_rowwise [THREADS] [REPETITIONS].

namespace {

using namespace axonn;

constexpr std::int64_t kRows = 1024, kWidth = 768, kMlp = 3072, kVocabulary = 50304, kHeads = 12,
                       kPositions = 256;

class Memory {
 public:
  View view(std::int64_t rows, std::int64_t cols, DType dtype) {
    values_.emplace_back(rows * cols * bytes_of(dtype) / 4 + 1, 0.5f);
    float* data = values_.back().data();
    if (dtype == DType::bf16)
      for (std::int64_t i = 0; i < rows * cols; ++i) put(reinterpret_cast<bf16*>(data)[i], 0.5f);
    if (dtype == DType::i32)
      for (std::int64_t i = 0; i < rows * cols; ++i)
        reinterpret_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(i * 7919 % 50257);
    return {data, dtype, rows, cols, cols};
  }

 private:
  std::vector<std::vector<float>> values_;
};

struct Bench {
  int repetitions;

  double seconds(const std::function<void()>& run) const {
    run();
    double best = 1e9;
    for (int i = 0; i < repetitions; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run();
      const std::chrono::duration<double> each = std::chrono::steady_clock::now() - begin;
      best = std::min(best, each.count());
    }
    return best;
  }

  /// `work` bytes or flops in giga a second.
  void print(const char* name, DType type, double work, const char* unit,
             const std::function<void()>& run) const {
    const double best = seconds(run);
    std::printf("%-4s %-26s %8.0f us %7.1f %s\n", name_of(type).data(), name, best * 1e6,
                work / best / 1e9, unit);
  }
};

void copy(Backend& backend, const Bench& bench) {
  Memory memory;
  const std::int64_t count = 32 << 20;
  const View from = memory.view(1, count, DType::f32), to = memory.view(1, count, DType::f32);
  bench.print("copy", DType::f32, 8.0 * count, "GB/s", [&] { backend.cast(to, from); });
}

void rows(Backend& backend, const Bench& bench, DType type) {
  Memory memory;
  const double b = static_cast<double>(bytes_of(type)), narrow = b * kRows * kWidth,
               wide = b * kRows * kMlp;
  const View x = memory.view(kRows, kWidth, type), y = memory.view(kRows, kWidth, type),
             dx = memory.view(kRows, kWidth, type), w = memory.view(1, kWidth, type),
             stats = memory.view(kRows, 2, DType::f32), dw = memory.view(1, kWidth, DType::f32),
             db = memory.view(1, kWidth, DType::f32), h = memory.view(kRows, kMlp, type),
             g = memory.view(kRows, kMlp, type), dh = memory.view(kRows, kMlp, type),
             dm = memory.view(1, kMlp, DType::f32), ids = memory.view(1, kRows, DType::i32),
             table = memory.view(kVocabulary, kWidth, type),
             d_table = memory.view(kVocabulary, kWidth, DType::f32),
             positions = memory.view(kPositions, kWidth, type);
  bench.print("row_moments", type, narrow, "GB/s", [&] { backend.row_moments(stats, x); });
  bench.print("layer_norm", type, 2 * narrow, "GB/s",
              [&] { backend.layer_norm(y, x, w, w, stats); });
  bench.print("layer_norm_sums", type, 2 * narrow, "GB/s",
              [&] { backend.layer_norm_sums(stats, y, x, w, stats); });
  const NormBackward backward{.d_inp = dx,
                              .d_out = y,
                              .inp = x,
                              .weight = w,
                              .stats = stats,
                              .sums = stats,
                              .residual = y,
                              .width = kWidth};
  bench.print("layer_norm_backward", type, 4 * narrow, "GB/s",
              [&] { backend.layer_norm_backward(backward); });
  bench.print("layer_norm_weight_backward", type, 3 * narrow, "GB/s",
              [&] { backend.layer_norm_weight_backward(dw, db, y, x, stats); });
  bench.print("gelu", type, 2 * wide, "GB/s", [&] { backend.gelu(g, h); });
  bench.print("gelu_backward", type, 3 * wide, "GB/s", [&] { backend.gelu_backward(dh, g, h); });
  bench.print("add", type, 3 * narrow, "GB/s", [&] { backend.add(dx, x, y); });
  bench.print("column_sum", type, wide, "GB/s", [&] { backend.column_sum(dm, h); });
  bench.print("embedding", type, 3 * narrow, "GB/s",
              [&] { backend.embedding(y, ids, table, 0, positions); });
  bench.print("embedding_backward", type, narrow * (1 + 8 / b), "GB/s",
              [&] { backend.embedding_backward(d_table, x, ids, 0); });
  bench.print("squared_sum", type, b * kVocabulary * kWidth, "GB/s", [&] {
    double total = 0;
    backend.squared_sum({&total, DType::f64, 1, 1, 1}, table);
  });
}

void loss(Backend& backend, const Bench& bench, DType type) {
  Memory memory;
  constexpr std::int64_t kChunk = 256;
  const View logits = memory.view(kChunk, kVocabulary, type),
             targets = memory.view(1, kChunk, DType::i32),
             stats = memory.view(kChunk, 3, DType::f32), lse = memory.view(kChunk, 1, DType::f32);
  const double bytes = static_cast<double>(bytes_of(type)) * kChunk * kVocabulary;
  bench.print("softmax_stats", type, bytes, "GB/s", [&] {
    backend.softmax_stats(stats, logits, targets, {0, 50257});
  });
  bench.print("cross_entropy_backward", type, 2 * bytes, "GB/s", [&] {
    backend.cross_entropy_backward(logits, logits, lse, targets, {0, 50257}, 1e-3f);
  });
}

void optimizer(Backend& backend, const Bench& bench, DType type) {
  Memory memory;
  const std::int64_t n = 16 << 20;
  const View one = memory.view(1, 1, DType::f32);
  AdamW args{.master = memory.view(1, n, DType::f32),
             .first = memory.view(1, n, DType::f32),
             .second = memory.view(1, n, DType::f32),
             .gradient = memory.view(1, n, DType::f32),
             .out = memory.view(1, n, type),
             .scale = one};
  args.lr = 1e-3f;
  args.decayed = n;
  bench.print("adamw", type, static_cast<double>((28 + bytes_of(type)) * n), "GB/s",
              [&] { backend.adamw(args); });
}

void attention(Backend& backend, const Bench& bench, DType type, std::int64_t positions) {
  Memory memory;
  const std::int64_t D = kWidth / kHeads;
  const View qkv = memory.view(kRows, 3 * kWidth, type),
             d_qkv = memory.view(kRows, 3 * kWidth, type), out = memory.view(kRows, kWidth, type),
             stats = memory.view(kRows, kHeads, DType::f32);
  const auto part = [](const View& all, int i) { return all.col_range(i * kWidth, kWidth); };
  const Attention forward{.q = part(qkv, 0),
                          .k = part(qkv, 1),
                          .v = part(qkv, 2),
                          .out = out,
                          .stats = stats,
                          .positions = positions,
                          .heads = kHeads,
                          .head_dim = D,
                          .scale = 0.125f};
  const AttentionBackward backward{.forward = forward,
                                   .d_out = out,
                                   .d_q = part(d_qkv, 0),
                                   .d_k = part(d_qkv, 1),
                                   .d_v = part(d_qkv, 2)};
  const double flops = 2.0 * kRows * static_cast<double>(positions) * kWidth;  // causal half
  std::printf("%lld positions:\n", static_cast<long long>(positions));
  bench.print("attention", type, flops, "Gflop/s", [&] { backend.attention(forward); });
  bench.print("attention_backward", type, 2.5 * flops, "Gflop/s",
              [&] { backend.attention_backward(backward); });
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : omp_get_num_procs();
  const Bench bench{argc > 2 ? std::atoi(argv[2]) : 20};
  const auto backend = make_cpu_backend(threads);
  std::printf("%d threads\n", threads);
  copy(*backend, bench);
  for (DType type : {DType::f32, DType::bf16}) {
    rows(*backend, bench, type);
    loss(*backend, bench, type);
    optimizer(*backend, bench, type);
    for (std::int64_t positions : {256, 1024}) attention(*backend, bench, type, positions);
  }
}
