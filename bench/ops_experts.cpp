#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <omp.h>

#include "axonn/compute/ops/backend.h"

#include "bench/measure.h"

// Products of a layer's experts, in one call, and one dense product of the same flops, in turn:
// Gflop/s of both and their ratio. The experts read as many rows, but each has weights of its own.
//
// Usage: bench_ops_experts [THREADS]

namespace {

using namespace axonn;

constexpr std::int64_t kExperts = 8, kWidth = 1024, kFfn = 3584;
constexpr int kRepetitions = 9;

/// A linear layer of an expert: outputs and inputs.
struct ExpertLayer {
  const char* name;
  std::int64_t out, in;
};
constexpr ExpertLayer kLayers[] = {{"gate, up", 2 * kFfn, kWidth}, {"down", kWidth, kFfn}};

/// Forward (NT), the input's gradient (NN) and the weight's (TN).
enum class Pass { forward, d_inp, d_weight };

Matmul product(bench::Memory& memory, const ExpertLayer& layer, Pass pass, std::int64_t rows,
               DType type) {
  const auto of_rows = [&](std::int64_t cols) { return memory.view(rows, cols, type); };
  switch (pass) {
    case Pass::forward:
      return {.out = of_rows(layer.out),
              .a = of_rows(layer.in),
              .b = memory.view(layer.out, layer.in, type),
              .b_transposed = true};
    case Pass::d_inp:
      return {.out = of_rows(layer.in),
              .a = of_rows(layer.out),
              .b = memory.view(layer.out, layer.in, type)};
    default:
      return {.out = memory.view(layer.out, layer.in, DType::f32),
              .a = of_rows(layer.out),
              .b = of_rows(layer.in),
              .a_transposed = true,
              .accumulate = true};
  }
}

/// Rows of an expert: the mean, or counts around it, of the same sum.
std::int64_t rows_of(std::int64_t expert, std::int64_t mean, bool uneven) {
  constexpr double kShares[kExperts] = {1.37, 0.79, 1.06, 0.55, 0.88, 1.21, 0.71};
  const auto share = [&](std::int64_t i) {
    return static_cast<std::int64_t>(kShares[i] * static_cast<double>(mean));
  };
  if (!uneven) return mean;
  if (expert + 1 < kExperts) return share(expert);
  std::int64_t rest = kExperts * mean;
  for (std::int64_t i = 0; i + 1 < kExperts; ++i) rest -= share(i);
  return rest;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : omp_get_num_procs();
  const auto backend = make_cpu_backend(threads);
  bench::Memory memory;
  std::printf("%s\n%lld experts, width %lld, MLP %lld; Gflop/s of the best of %d\n",
              backend->matmul_device().c_str(), static_cast<long long>(kExperts),
              static_cast<long long>(kWidth), static_cast<long long>(kFfn), kRepetitions);
  std::printf("%-5s %-9s %-9s %-15s %9s %9s %7s\n", "type", "layer", "pass", "rows an expert",
              "dense", "experts", "ratio");
  constexpr const char* kPasses[] = {"forward", "d_inp", "d_weight"};
  for (const DType type : {DType::f32, DType::bf16})
    for (const auto& [rows, uneven] :
         {std::pair{256, false}, {256, true}, {32, false}, {32, true}, {8, false}})
      for (const ExpertLayer& layer : kLayers)
        for (const Pass pass : {Pass::forward, Pass::d_inp, Pass::d_weight}) {
          memory.clear();
          std::vector<Matmul> experts;
          for (std::int64_t i = 0; i < kExperts; ++i)
            experts.push_back(product(memory, layer, pass, rows_of(i, rows, uneven), type));
          const Matmul dense = product(memory, layer, pass, kExperts * rows, type);
          const double flops = shape_of(dense).flops();
          const auto [whole, cut] = bench::best_of(
              kRepetitions, [&] { backend->matmul(dense); }, [&] { backend->matmuls(experts); });
          std::printf("%-5s %-9s %-9s %4d %-10s %9.0f %9.0f %5.0f %%\n", name_of(type).data(),
                      layer.name, kPasses[static_cast<int>(pass)], rows, uneven ? "uneven" : "even",
                      flops / whole / 1e9, flops / cut / 1e9, 100 * whole / cut);
          std::fflush(stdout);
        }
}
