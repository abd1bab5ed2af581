#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <omp.h>

#include "axonn/compute/ops/matmul_tuner.h"
#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/quantization.h"
#include "axonn/compute/tensor/tensor.h"
#include "axonn/foundation/base/clock.h"

// The products of a step, by layer, mode and type: Gflop/s in the default way and in the tuned way,
// and their shares of the bound. That is "products", the best rate of a few products without
// transposes, each in its fastest way; or "memory", each operand moved once at the speed of a copy.
//
// Usage: bench_ops_matmul [gpt2|llama] [THREADS] [libraries]
//   gpt2   GPT-2 124M, 1,024 rows    llama  width 2,048, MLP 5,504, 4,096 rows
//   libraries   instead, in f32: the best rate of the ways by oneDNN, by tiles and by BLAS, all run
//               in turn, five times
// bench_ops_matmul codes [THREADS [ROWS]]: products of one row, or of so many, with a matrix of
//   values, and of codes of each kind, that no cache holds: bytes and weights a second, the best of
//   25 in turn

namespace {

using namespace axonn;

/// A linear layer: rows, outputs, inputs.
struct Layer {
  const char* name;
  std::int64_t rows, out, in;
};

constexpr Layer kGpt2[] = {{"qkv", 1024, 2304, 768},
                           {"project", 1024, 768, 768},
                           {"up", 1024, 3072, 768},
                           {"down", 1024, 768, 3072},
                           {"logits", 256, 50304, 768}};
constexpr Layer kLlama[] = {{"qkv", 4096, 4096, 2048},
                            {"project", 4096, 2048, 2048},
                            {"gate, up", 4096, 11008, 2048},
                            {"down", 4096, 2048, 5504},
                            {"logits", 256, 32000, 2048}};

/// Forward (NT), the input's gradient (NN) and the weight's (TN), each with its own extents.
std::vector<MatmulShape> products_of(const Layer& l, DType type) {
  return {
      {.M = l.rows, .N = l.out, .K = l.in, .b_transposed = true, .type = type, .out_type = type},
      {.M = l.rows, .N = l.in, .K = l.out, .type = type, .out_type = type},
      {.M = l.out, .N = l.in, .K = l.rows, .a_transposed = true, .accumulate = true, .type = type}};
}

struct Bound {
  double seconds;
  const char* name;
};

/// The measured peak rates of this machine.
struct Machine {
  double flops, bytes;  // per second

  Bound bound(const MatmulShape& s) const {
    const double moved =
        static_cast<double>((s.M * s.K + s.K * s.N) * bytes_of(s.type) +
                            s.M * s.N * bytes_of(s.out_type) * (s.accumulate ? 2 : 1));
    const double compute = s.flops() / flops, memory = moved / bytes;
    return memory > compute ? Bound{memory, "memory"} : Bound{compute, "products"};
  }
};

double copy_rate(int threads) {
  const std::int64_t bytes = std::int64_t{128} << 20;
  std::vector<char> from(bytes, 1), to(bytes);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const double start = now_seconds();
#pragma omp parallel for num_threads(threads)
    for (std::int64_t part = 0; part < 128; ++part)
      std::memcpy(to.data() + (part << 20), from.data() + (part << 20), 1 << 20);
    best = std::max(best, 2.0 * static_cast<double>(bytes) / (now_seconds() - start));
  }
  return best;
}

/// The best rate of products of favourable shapes.
double easy_rate(Backend& backend, DType type) {
  double best = 0;
  for (const auto& [M, N, K] : {std::array{1024, 768, 768}, std::array{1024, 3072, 768},
                                std::array{1024, 768, 3072}, std::array{2048, 2048, 2048}}) {
    const MatmulShape s{.M = M, .N = N, .K = K, .type = type, .out_type = type};
    best = std::max(best, s.flops() / tune_matmul(backend, s).seconds);
  }
  return best;
}

/// Operands of one product, of values that do not matter.
struct Operands {
  std::vector<float> a, b, out;
  Matmul product;

  explicit Operands(const MatmulShape& s)
      : a(s.M * s.K, 0.5f), b(s.K * s.N, 0.25f), out(s.M * s.N) {
    const auto view = [](std::vector<float>& of, bool transposed, std::int64_t rows,
                         std::int64_t cols) {
      if (transposed) std::swap(rows, cols);
      return View{of.data(), DType::f32, rows, cols, cols};
    };
    product = {.out = view(out, false, s.M, s.N),
               .a = view(a, s.a_transposed, s.M, s.K),
               .b = view(b, s.b_transposed, s.K, s.N),
               .a_transposed = s.a_transposed,
               .b_transposed = s.b_transposed,
               .accumulate = s.accumulate};
  }
};

constexpr std::array kLibraries{"oneDNN", "tiles", "BLAS"};

/// The best rate of each library, in flops a second; 0 if it has no way.
std::array<double, kLibraries.size()> rates_of(Backend& backend, const MatmulShape& s) {
  std::array<double, kLibraries.size()> best{};
  const Operands operands(s);
  for (int round = 0; round < 5; ++round)
    for (const std::string& way : backend.matmul_ways(s)) {
      const std::size_t library = way == "tiles" ? 1 : way.find("BLAS") != way.npos ? 2 : 0;
      backend.set_matmul_way(s, way);
      if (round == 0) backend.matmul(operands.product);  // makes what the way keeps
      const double start = now_seconds();
      backend.matmul(operands.product);
      best[library] = std::max(best[library], s.flops() / (now_seconds() - start));
    }
  return best;
}

void compare_libraries(Backend& backend, const auto& layers) {
  std::printf("%-9s %-4s %-16s", "layer", "mode", "M x N x K");
  for (const char* library : kLibraries) std::printf(" %8s", library);
  std::printf("   Gflop/s in f32\n");
  for (const Layer& layer : layers)
    for (const MatmulShape& s : products_of(layer, DType::f32)) {
      std::printf("%-9s %-4s %5ldx%5ldx%5ld", layer.name, mode_of(s).c_str(),
                  static_cast<long>(s.M), static_cast<long>(s.N), static_cast<long>(s.K));
      for (const double rate : rates_of(backend, s)) std::printf(" %8.0f", rate / 1e9);
      std::printf("\n");
      std::fflush(stdout);
    }
}

/// Records of a matrix (out, in), whose rows repeat after some.
std::vector<std::byte> records_of(const QuantizedForm& form, std::int64_t out, std::int64_t in) {
  constexpr std::int64_t kSame = 64;
  std::vector<float> values(kSame * in);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 29 % 111) / 111 - 0.5f;
  std::vector<std::byte> some(form.bytes(kSame * in)), all(form.bytes(out * in));
  quantize_records(form, values, some);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = some[i % some.size()];
  return all;
}

/// With `integers`, products of codes of ggml are those of integers.
void compare_codes(Backend& backend, std::int64_t rows, std::int64_t inputs, bool integers) {
  if (integers && !backend.set_integer_products(true)) {
    std::puts("this processor has no products of integers");
    return;
  }
  const std::int64_t outputs = (std::int64_t{1} << 27) / inputs;
  constexpr int kRounds = 25;
  const auto device = make_cpu_device();
  Arena arena(*device);
  const auto memory = [&](std::int64_t count) { return Tensor(arena, 1, count, DType::f32); };
  const Tensor of_a = memory(rows * inputs), of_out = memory(rows * outputs),
               of_values = memory(outputs * inputs);
  device->fill_zero(of_a.view().data, of_a.bytes());
  device->fill_zero(of_values.view().data, of_values.bytes());
  std::map<std::pair<DType, Quantization>, double> best;
  std::map<Quantization, std::vector<std::byte>> records;
  constexpr std::array kKinds{Quantization::none, Quantization::q8_0, Quantization::q6_k,
                              Quantization::q5_k, Quantization::q5_0, Quantization::q4_k,
                              Quantization::q4_0, Quantization::q3_k, Quantization::nf4};
  const auto form_of = [](Quantization kind) {
    return QuantizedForm{kind, QuantizedForm::most_unit(kind)};
  };
  const auto bytes_with = [&](Quantization kind, DType type) {
    return kind == Quantization::none ? outputs * inputs * bytes_of(type)
                                      : std::ssize(records[kind]);
  };
  for (const Quantization kind : kKinds)
    if (kind != Quantization::none) records[kind] = records_of(form_of(kind), outputs, inputs);
  for (int round = 0; round < kRounds; ++round)
    for (const Quantization kind : kKinds)
      for (const DType type : {DType::f32, DType::bf16}) {
        const View to{of_out.view().data, type, rows, outputs, outputs},
            from{of_a.view().data, type, rows, inputs, inputs};
        std::vector<std::byte>& bytes = records[kind];
        const double start = now_seconds();
        if (kind == Quantization::none)
          backend.matmul({.out = to,
                          .a = from,
                          .b = {of_values.view().data, type, outputs, inputs, inputs},
                          .b_transposed = true});
        else
          backend.quantized_product(
              {.out = to,
               .a = from,
               .records = {bytes.data(), DType::u8, 1, std::ssize(bytes), std::ssize(bytes)},
               .form = form_of(kind)});
        double& seconds = best.try_emplace({type, kind}, 1e9).first->second;
        seconds = std::min(seconds, now_seconds() - start);
      }
  for (const auto& [of, seconds] : best) {
    const double weights = static_cast<double>(outputs * inputs) / seconds;
    std::printf("%-5s %-5s %6.1f GB/s %6.1f G weights/s %7.0f Gflop/s\n", name_of(of.first).data(),
                name_of(of.second).data(),
                static_cast<double>(bytes_with(of.second, of.first)) / seconds / 1e9, weights / 1e9,
                2 * static_cast<double>(rows) * weights / 1e9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool llama = argc > 1 && std::string(argv[1]) == "llama";
  const int threads = argc > 2 ? std::atoi(argv[2]) : omp_get_num_procs();
  const auto backend = make_cpu_backend(threads);
  if (argc > 1 && std::string(argv[1]) == "codes") {
    compare_codes(*backend, argc > 3 ? std::atoi(argv[3]) : 1, argc > 4 ? std::atoi(argv[4]) : 4096,
                  argc > 5);
    return 0;
  }
  if (argc > 3 && std::string(argv[3]) == "libraries") {
    if (llama)
      compare_libraries(*backend, kLlama);
    else
      compare_libraries(*backend, kGpt2);
    return 0;
  }
  const double copied = copy_rate(threads);
  std::printf("%s\nGflop/s, and percent of the bound\n", backend->matmul_device().c_str());
  for (DType type : {DType::f32, DType::bf16}) {
    const Machine machine{easy_rate(*backend, type), copied};
    std::printf(
        "\n%s: products %.0f Gflop/s, copies %.1f GB/s\n%-9s %-4s %-16s %16s %16s  %-9s %s\n",
        name_of(type).data(), machine.flops / 1e9, copied / 1e9, "layer", "mode", "M x N x K",
        "default", "tuned", "bound", "way");
    for (const Layer& layer : llama ? kLlama : kGpt2)
      for (const MatmulShape& s : products_of(layer, type)) {
        const TunedMatmul t = tune_matmul(*backend, s);
        const Bound bound = machine.bound(s);
        const std::string extents =
            std::to_string(s.M) + 'x' + std::to_string(s.N) + 'x' + std::to_string(s.K);
        std::printf("%-9s %-4s %-16s %8.0f %5.0f %% %8.0f %5.0f %%  %-9s %s\n", layer.name,
                    mode_of(s).c_str(), extents.c_str(), s.flops() / t.default_seconds / 1e9,
                    100 * bound.seconds / t.default_seconds, s.flops() / t.seconds / 1e9,
                    100 * bound.seconds / t.seconds, bound.name, t.way.c_str());
        std::fflush(stdout);
      }
  }
}
