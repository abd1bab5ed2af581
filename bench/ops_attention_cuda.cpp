#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/foundation/base/check.h"

// Times causal attention in bf16 on GPU 0, by axonn's kernels and by cuDNN, deterministic (with
// scores in pieces of 256 MiB, and larger) and not, of whole sequences, also long ones, and of
// documents in them. A way that does not compute a shape says why.
// Heads of 80 columns have no fused kernel of axonn's: their scores are in pieces, too. Prints rows
// of a table. Forward counts 2 · B · h · T² · D flops (two products, the causal half), backward 2.5
// times as many. Usage: bench_ops_attention_cuda.

namespace {

using namespace axonn;

struct Shape {
  const char* name;
  std::int64_t sequences, positions, heads, kv_heads, head_dim;
};

struct Way {
  const char* name;
  CudaOptions options;
};

/// Operands on the GPU, those in bf16 filled with a pattern of small numbers.
class Memory {
 public:
  explicit Memory(Device& device) : device_(device) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    for (const auto& [data, bytes] : held_) device_.release(data, bytes);
  }

  View values(std::int64_t rows, std::int64_t cols, DType dtype) {
    const View view{take(rows * cols * bytes_of(dtype)), dtype, rows, cols, cols};
    if (dtype != DType::bf16) return view;
    std::vector<bf16> pattern(static_cast<std::size_t>(rows * cols));
    for (std::size_t i = 0; i < pattern.size(); ++i)
      put(pattern[i], static_cast<float>(i * 2654435761u % 1024) / 512 - 1);
    device_.copy_from_host(view.data, pattern.data(), rows * cols * bytes_of(dtype));
    return view;
  }
  /// The starts of documents of a quarter of a sequence each.
  View quarters(std::int64_t rows, std::int64_t positions) {
    std::vector<std::int32_t> starts;
    for (std::int64_t r = 0; r < rows; ++r)
      starts.push_back(static_cast<std::int32_t>(r % positions / (positions / 4) * positions / 4));
    const View view{take(rows * bytes_of(DType::i32)), DType::i32, 1, rows, rows};
    device_.copy_from_host(view.data, starts.data(), rows * bytes_of(DType::i32));
    return view;
  }

 private:
  void* take(std::int64_t bytes) {
    held_.emplace_back(device_.allocate(bytes), bytes);
    return held_.back().first;
  }

  Device& device_;
  std::vector<std::pair<void*, std::int64_t>> held_;
};

/// The mean seconds of a call, the best of several tries of five calls.
double best(Stream& stream, const std::function<void()>& run) {
  constexpr int kCalls = 5, kTries = 4;  // the first try builds plans and warms up the GPU
  double least = std::numeric_limits<double>::infinity();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) run();
    stream.synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    least = std::min(least, took.count() / kCalls);
  }
  return least;
}

void measure(const Way& way, const Shape& s, bool documents) {
  const auto backend = make_cuda_backend(0, way.options);
  Memory memory(backend->device());
  const std::int64_t rows = s.sequences * s.positions, q_cols = s.heads * s.head_dim,
                     k_cols = s.kv_heads * s.head_dim;
  const View qkv = memory.values(rows, q_cols + 2 * k_cols, DType::bf16),
             d_qkv = memory.values(rows, q_cols + 2 * k_cols, DType::bf16);
  const Attention forward{.q = qkv.col_range(0, q_cols),
                          .k = qkv.col_range(q_cols, k_cols),
                          .v = qkv.col_range(q_cols + k_cols, k_cols),
                          .out = memory.values(rows, q_cols, DType::bf16),
                          .stats = memory.values(rows, s.heads, DType::f32),
                          .positions = s.positions,
                          .heads = s.heads,
                          .head_dim = s.head_dim,
                          .group = s.heads / s.kv_heads,
                          .scale = 0.125f,
                          .starts = documents ? memory.quarters(rows, s.positions) : View{}};
  const AttentionBackward backward{.forward = forward,
                                   .d_out = memory.values(rows, q_cols, DType::bf16),
                                   .d_q = d_qkv.col_range(0, q_cols),
                                   .d_k = d_qkv.col_range(q_cols, k_cols),
                                   .d_v = d_qkv.col_range(q_cols + k_cols, k_cols)};
  Stream& stream = backend->device().compute();
  const double a = best(stream, [&] { backend->attention(forward); }),
               b = best(stream, [&] { backend->attention_backward(backward); }),
               length = static_cast<double>(s.positions) / (documents ? 4 : 1),
               tflop = 2e-12 * static_cast<double>(rows * q_cols) * length;
  std::printf("| %s%s | %s | %.0f | %.0f | %.0f | %.0f |\n", s.name,
              documents ? ", four documents" : "", way.name, 1e6 * a, tflop / a, 1e6 * b,
              2.5 * tflop / b);
  std::fflush(stdout);
}

}  // namespace

int main() {
  constexpr std::int64_t kSmall = std::int64_t{256} << 20;
  std::vector<Way> ways = {{"axonn", {.attention = CudaAttention::own}}};
  if (!cuda_attention_library().empty()) {
    const CudaOptions cudnn{.attention = CudaAttention::cudnn};
    ways.push_back({"cuDNN, deterministic", cudnn});
    ways.push_back(
        {"the same, 256 MiB", {.attention = cudnn.attention, .attention_bytes = kSmall}});
    ways.push_back({"cuDNN", {.attention = cudnn.attention, .deterministic = false}});
  }
  const auto measure_all = [&](const Shape& shape, bool documents) {
    for (const Way& way : ways) try {
        measure(way, shape, documents);
      } catch (const UsageError& refusal) {
        std::printf("| %s | %s | %s |\n", shape.name, way.name, refusal.what());
      }
  };
  try {
    for (const Shape& shape : {Shape{"GPT-2 124M, 32 x 1,024", 32, 1024, 12, 12, 64},
                               Shape{"GPT-2 1.5B, 16 x 1,024", 16, 1024, 25, 25, 64},
                               Shape{"Llama 8B, 2 x 4,096", 2, 4096, 32, 8, 128}})
      for (const bool documents : {false, true}) measure_all(shape, documents);
    measure_all({"Llama 8B, 1 x 8,192", 1, 8192, 32, 8, 128}, false);
    measure_all({"Llama 8B, 1 x 32,768", 1, 32768, 32, 8, 128}, false);
    for (const Way& way :
         {ways.front(),
          Way{"axonn, 256 MiB", {.attention = CudaAttention::own, .attention_bytes = kSmall}}})
      measure(way, {"heads of 80, 4 x 4,096", 4, 4096, 32, 32, 80}, false);
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
