#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <omp.h>

#include "axonn/ops/backend.h"

// The products of a GPT-2 124M step (1,024 rows) in each mode and type: gigaflops a second, the
// best and the median of some repetitions. Usage: ops_matmul [THREADS] [REPETITIONS].

namespace {

using namespace axonn;

struct Shape {
  const char* name;
  std::int64_t M, N, K;
};

struct Mode {
  const char* name;
  bool a_transposed, b_transposed, gradient;  // gradient: out is f32 and added to
};

constexpr Shape kShapes[] = {{"qkv", 1024, 2304, 768},
                             {"project", 1024, 768, 768},
                             {"up", 1024, 3072, 768},
                             {"down", 1024, 768, 3072},
                             {"logits", 256, 50304, 768}};

/// Forward (NT), the input's gradient (NN) and the weight's (TN), each with its own extents.
constexpr Mode kModes[] = {
    {"NT", false, true, false}, {"NN", false, false, false}, {"TN", true, false, true}};

/// What a mode makes of a layer with M rows, N outputs and K inputs.
Shape extents(const Shape& s, const Mode& mode) {
  if (mode.gradient) return {s.name, s.N, s.K, s.M};
  if (!mode.b_transposed) return {s.name, s.M, s.K, s.N};
  return s;
}

class Memory {
 public:
  View view(std::int64_t rows, std::int64_t cols, DType dtype) {
    values_.emplace_back(rows * cols, 0.5f);
    float* data = values_.back().data();
    if (dtype == DType::bf16)
      for (std::int64_t i = 0; i < rows * cols; ++i) put(reinterpret_cast<bf16*>(data)[i], 0.5f);
    return {data, dtype, rows, cols, cols};
  }

 private:
  std::vector<std::vector<float>> values_;
};

struct Rate {
  double best, median;  // flops a second
};

Rate measure(Backend& backend, const Shape& s, const Mode& mode, DType type, int repetitions) {
  Memory memory;
  const Matmul product{
      .out = memory.view(s.M, s.N, mode.gradient ? DType::f32 : type),
      .a = mode.a_transposed ? memory.view(s.K, s.M, type) : memory.view(s.M, s.K, type),
      .b = mode.b_transposed ? memory.view(s.N, s.K, type) : memory.view(s.K, s.N, type),
      .a_transposed = mode.a_transposed,
      .b_transposed = mode.b_transposed,
      .accumulate = mode.gradient};
  backend.matmul(product);
  std::vector<double> seconds(repetitions);
  for (double& each : seconds) {
    const auto begin = std::chrono::steady_clock::now();
    backend.matmul(product);
    each = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  std::ranges::sort(seconds);
  const double flops = 2.0 * static_cast<double>(s.M * s.N * s.K);
  return {flops / seconds.front(), flops / seconds[seconds.size() / 2]};
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : omp_get_num_procs();
  const int repetitions = argc > 2 ? std::atoi(argv[2]) : 15;
  const auto backend = make_cpu_backend(threads);
  std::printf("%d threads, gigaflops a second: best, median of %d\n", threads, repetitions);
  for (DType type : {DType::f32, DType::bf16})
    for (const Mode& mode : kModes)
      for (const Shape& shape : kShapes) {
        const Shape s = extents(shape, mode);
        const Rate rate = measure(*backend, s, mode, type, repetitions);
        std::printf("%-5s %s %-8s (%5lld,%5lld,%5lld) %7.0f %7.0f\n", name_of(type).data(),
                    mode.name, s.name, static_cast<long long>(s.M), static_cast<long long>(s.N),
                    static_cast<long long>(s.K), rate.best / 1e9, rate.median / 1e9);
      }
}
