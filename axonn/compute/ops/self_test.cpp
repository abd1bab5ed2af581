#include "axonn/compute/ops/self_test.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

namespace {

constexpr std::int64_t kRows = 70, kCols = 96, kDepth = 200;

/// Operands of both operations, and their results, as floats.
class TestedOperations {
 public:
  explicit TestedOperations(Backend& backend) : backend_(backend), arena_(backend.device()) {}

  std::vector<float> product(DType type) {
    const Tensor a = random("a", kRows, kDepth, type), b = random("b", kCols, kDepth, type),
                 out(arena_, kRows, kCols, DType::f32);
    backend_.matmul({.out = out.view(), .a = a.view(), .b = b.view(), .b_transposed = true});
    return values(out);
  }

  std::vector<float> norm() {
    const Tensor inp = random("inp", kRows, kCols, DType::f32),
                 weight = random("weight", 1, kCols, DType::f32),
                 bias = random("bias", 1, kCols, DType::f32), out(arena_, kRows, kCols, DType::f32),
                 moments(arena_, kRows, 2, DType::f32), stats(arena_, kRows, 2, DType::f32);
    backend_.run(ops::RowMoments{.out = moments.view(), .inp = inp.view()});
    backend_.run(ops::CombineMoments{
        .out = stats.view(), .moments = moments.view(), .count = kCols, .eps = 1e-5f});
    backend_.run(ops::LayerNorm{.out = out.view(),
                                .inp = inp.view(),
                                .weight = weight.view(),
                                .bias = bias.view(),
                                .stats = stats.view()});
    return values(out);
  }

 private:
  /// Values in [-1, 1), the same on every device up to rounding to type.
  Tensor random(const char* name, std::int64_t rows, std::int64_t cols, DType type) {
    const Random numbers(1, name);
    std::vector<float> host(rows * cols);
    for (std::size_t i = 0; i < host.size(); ++i)
      host[i] = static_cast<float>(2 * numbers.uniform(i) - 1);
    const Tensor whole(arena_, rows, cols, DType::f32);
    backend_.device().copy_from_host(whole.view().data, host.data(), whole.bytes());
    if (type == DType::f32) return whole;
    Tensor rounded(arena_, rows, cols, type);
    backend_.run(ops::Cast{.out = rounded.view(), .inp = whole.view()});
    return rounded;
  }

  std::vector<float> values(const Tensor& of) {
    std::vector<float> host(of.count());
    backend_.device().copy_to_host(host.data(), of.view().data, of.bytes());
    return host;
  }

  Backend& backend_;
  Arena arena_;
};

/// Says which element differs by more than the order of sums can explain; "" if none does.
std::string difference(const char* operation, const std::vector<float>& got,
                       const std::vector<float>& want) {
  // kDepth terms of at most 1 each, and a rounding error of 2^-24 for each of as many sums.
  constexpr double kMost = kDepth * 6e-8 * kDepth / 4;
  for (std::size_t i = 0; i < want.size(); ++i)
    if (!(std::abs(double{got[i]} - want[i]) <= kMost))
      return concat("self-test: element ", i, " of ", operation, " is ", got[i], ", on the CPU ",
                    want[i]);
  return {};
}

}  // namespace

std::string self_test(Backend& backend) {
  const auto cpu = make_cpu_backend(1);
  TestedOperations tested(backend), reference(*cpu);
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const std::string product = concat("a product in ", name_of(type));
    std::string found = difference(product.c_str(), tested.product(type), reference.product(type));
    if (!found.empty()) return found;
  }
  return difference("a norm", tested.norm(), reference.norm());
}

}  // namespace axonn
