#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;
using testing::ElementsAre;

namespace {

struct Case {
  std::int64_t M, N, K;
  DType type, out_type;
  std::int64_t gap;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << '(' << c.M << ',' << c.N << ',' << c.K << ") " << name_of(c.type) << " to "
             << name_of(c.out_type) << " gap " << c.gap;
}

/// Odd sizes, which no library fuses; rows of whole vectors, which it may; few rows; no rows; no
/// columns; K = 0; and products that are cut into panels.
std::vector<Case> cases(std::initializer_list<std::pair<DType, DType>> types) {
  std::vector<Case> all;
  for (const auto& [type, out_type] : types)
    for (const auto& [M, N, K] : {std::array<std::int64_t, 3>{1, 1, 1},
                                  {5, 33, 17},
                                  {64, 96, 32},
                                  {65, 24, 130},
                                  {600, 40, 97},
                                  {49, 1704, 24},
                                  {0, 5, 4},
                                  {3, 0, 4},
                                  {3, 8, 0}})
      for (std::int64_t gap : {0, 5, 8}) all.push_back({M, N, K, type, out_type, gap});
  return all;
}

constexpr auto kF32 = DType::f32, kBf16 = DType::bf16;

/// GELU and its derivative change by at most this factor times the change of their argument.
constexpr double kSteepest = 1.13;

/// The error of a sum of K + 2 terms of magnitude at most 1, in any order.
double of_sum(const Case& c) {
  const double terms = static_cast<double>(c.K + 2);
  return terms * terms * rounding(DType::f32);
}

Matrix apply(double (*f)(double), Matrix values) {
  for (double& value : values.values) value = f(value);
  return values;
}

void check_gelu(Backend& backend, const Case& c, bool bias, bool kept) {
  SCOPED_TRACE(testing::Message() << c << (bias ? " bias" : "") << (kept ? " kept" : ""));
  const Matrix a = random_values("a", c.M, c.K, c.type), b = random_values("b", c.K, c.N, c.type),
               added = random_values("bias", 1, c.N, c.type);
  const Operand left(a, c.type, c.gap), right(transpose(b), c.type, 2 * c.gap),
      bias_row(added, c.type), out(c.M, c.N, c.out_type, c.gap),
      inp(c.M, c.N, c.out_type, 2 * c.gap);
  backend.matmul({.out = out,
                  .a = left,
                  .b = right,
                  .b_transposed = true,
                  .bias = bias ? bias_row.view() : View{},
                  .gelu = true,
                  .gelu_input = kept ? inp.view() : View{}});
  Matrix before = matmul(a, b);
  if (bias)
    for (std::int64_t m = 0; m < c.M; ++m)
      for (std::int64_t n = 0; n < c.N; ++n) before(m, n) += added(0, n);
  if (kept) {
    const double early = bias ? of_early_rounding(backend, c.out_type, before) : 0;
    EXPECT_TRUE(close(inp, before, stored(c.out_type, of_sum(c) + early)));
  }
  // GELU's input may have been rounded to out's type.
  const double error = of_sum(c) + stored(c.out_type, 0).relative * largest(before) + 1e-6;
  EXPECT_TRUE(close(out, apply(reference::gelu, before), stored(c.out_type, kSteepest * error)));
}

void check_derivative(Backend& backend, const Case& c) {
  SCOPED_TRACE(testing::Message() << c);
  const Matrix a = random_values("a", c.M, c.K, c.type), b = random_values("b", c.K, c.N, c.type);
  Matrix at = random_values("at", c.M, c.N, c.out_type);
  for (double& value : at.values) value *= 4;  // exact
  const Operand left(a, c.type, c.gap), right(b, c.type, 2 * c.gap),
      out(c.M, c.N, c.out_type, c.gap), inp(at, c.out_type, 2 * c.gap);
  backend.matmul({.out = out, .a = left, .b = right, .gelu_derivative_at = inp});
  Matrix want = matmul(a, b);
  const double largest_product = largest(want), relative = stored(c.out_type, 0).relative;
  for (std::size_t i = 0; i < want.values.size(); ++i)
    want.values[i] *= reference::gelu_slope(at.values[i]);
  const double error = of_sum(c) + (relative + 1e-6) * largest_product;
  EXPECT_TRUE(close(out, want, stored(c.out_type, kSteepest * error)));
}

void check_bias_gradient(Backend& backend, const Case& c, bool accumulate) {
  SCOPED_TRACE(testing::Message() << c << (accumulate ? " accumulate" : ""));
  const Matrix a = random_values("a", c.M, c.K, c.type), b = random_values("b", c.K, c.N, c.type),
               before = random_values("out", c.M, c.N, c.out_type),
               sums_before = random_values("sums", 1, c.M, kF32);
  const Operand left(transpose(a), c.type, c.gap), right(b, c.type, 2 * c.gap),
      out(before, c.out_type, 3 * c.gap), sums(sums_before, kF32);
  backend.matmul({.out = out,
                  .a = left,
                  .b = right,
                  .a_transposed = true,
                  .accumulate = accumulate,
                  .bias_gradient = sums});
  Matrix want = matmul(a, b), want_sums = sums_before;
  const double early = accumulate ? of_early_rounding(backend, c.out_type, want) : 0;
  for (std::int64_t m = 0; m < c.M; ++m) {
    for (std::int64_t n = 0; n < c.N; ++n) want(m, n) += accumulate ? before(m, n) : 0;
    for (std::int64_t k = 0; k < c.K; ++k) want_sums(0, m) += a(m, k);
  }
  EXPECT_TRUE(close(out, want, stored(c.out_type, of_sum(c) + early)));
  EXPECT_TRUE(close(sums, want_sums, stored(kF32, of_sum(c))));
}

/// A backend that claims to fuse, or not, and records its operations.
class Noting final : public ForwardingBackend {
 public:
  explicit Noting(bool fusing) : ForwardingBackend(make_cpu_backend(1)), fusing_(fusing) {}
  bool fuses(const Matmul&) override { return fusing_; }
  std::vector<std::string> take() { return std::exchange(done_, {}); }

 protected:
  void around(const OperationCall& call, const std::function<void()>&) override {
    done_.emplace_back(call.name);
    if (call.kind != OperationKind::product) return;
    for (const View& view : call.operands) done_.back() += view.data ? '+' : '-';
  }

 private:
  bool fusing_;
  std::vector<std::string> done_;
};

}  // namespace

TEST(MatmulEpilogue, GeluAndItsInputEqualPlainLoopsInEveryType) {
  const auto backend = test_backend();
  for (const Case& c : cases({{kF32, kF32}, {kBf16, kBf16}, {kBf16, kF32}}))
    for (int flags = 0; flags < 4; ++flags)
      check_gelu(*backend, c, (flags & 1) != 0, (flags & 2) != 0);
}

TEST(MatmulEpilogue, GelusDerivativeEqualsPlainLoopsInEveryType) {
  const auto backend = test_backend();
  for (const Case& c : cases({{kF32, kF32}, {kBf16, kBf16}, {kBf16, kF32}}))
    check_derivative(*backend, c);
}

TEST(MatmulEpilogue, ABiasGradientIsAddedToItsSumInEveryType) {
  const auto backend = test_backend();
  for (const Case& c : cases({{kF32, kF32}, {kBf16, kBf16}, {kBf16, kF32}}))
    for (bool accumulate : {false, true}) check_bias_gradient(*backend, c, accumulate);
}

TEST(MatmulEpilogue, IsFusedIfTheDeviceFusesItAndElseSeparateOperationsFollow) {
  const Operand out(8, 8, kF32), a(8, 8, kF32), b(8, 8, kF32), row(1, 8, kF32), kept(8, 8, kF32);
  const Matmul gelu{.out = out, .a = a, .b = b, .bias = row, .gelu = true, .gelu_input = kept},
      unkept{.out = out, .a = a, .b = b, .gelu = true},
      derivative{.out = out, .a = a, .b = b, .gelu_derivative_at = kept},
      weight{.out = out, .a = a, .b = b, .a_transposed = true, .bias_gradient = row};
  Noting fusing(true), plain(false);
  for (Noting* backend : {&fusing, &plain})
    for (const Matmul& product : {gelu, unkept, derivative, weight}) backend->matmul(product);
  // Operands are out, a, b, bias, gelu_input, gelu_derivative_at, bias_gradient.
  EXPECT_THAT(fusing.take(),
              ElementsAre("matmul+++++--", "matmul+++----", "matmul+++--+-", "matmul+++---+"));
  EXPECT_THAT(plain.take(),
              ElementsAre("matmul++++---", "gelu", "matmul+++----", "gelu", "matmul+++----",
                          "gelu_backward", "matmul+++----", "column_sum"));
}

TEST(MatmulEpilogue, RefusesConflictingArgumentsAndOperandsThatDoNotFit) {
  const auto backend = test_backend();
  const Operand out(4, 3, kF32), a(4, 4, kF32), b(4, 3, kF32), row(1, 3, kF32), half(4, 3, kBf16);
  const auto refuses = [&](const Matmul& args, const char* words) {
    EXPECT_THAT([&] { backend->matmul(args); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(words)));
  };
  refuses({.out = out, .a = a, .b = b, .accumulate = true, .gelu = true}, "exclude each other");
  refuses({.out = out, .a = a, .b = b, .gelu = true, .gelu_derivative_at = b},
          "exclude each other");
  refuses({.out = out, .a = a, .b = b, .bias = row, .gelu_derivative_at = b}, "exclude each other");
  refuses({.out = out, .a = a, .b = b, .gelu_input = b}, "matmul: gelu_input without gelu");
  refuses({.out = out, .a = a, .b = b, .gelu = true, .gelu_input = half},
          "matmul: gelu_input is (4,3) bf16, want f32");
  refuses({.out = out, .a = a, .b = b, .gelu_derivative_at = row},
          "matmul: gelu_derivative_at is (1,3) f32, want (4,3)");
  refuses({.out = out, .a = a, .b = b, .bias_gradient = row}, "a is not transposed");
  refuses({.out = out, .a = a, .b = b, .a_transposed = true, .bias_gradient = row},
          "matmul: bias_gradient is (1,3) f32, want (1,4)");
}
