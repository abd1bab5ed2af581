#include "axonn/compute/ops/verifying_backend.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// Flips a bit of a result after each product while one is set, or after the next ones.
class FlippingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  struct Flip {
    std::int64_t row, col;
    int bit;
  };
  std::optional<Flip> flip;
  std::optional<int> times;
  double change = 0;  ///< of the value, by the last flip

  void product(const Matmul& args) override {
    ForwardingBackend::product(args);
    if (flip) change = flipped(args.out);
  }
  void products(std::span<const Matmul> all) override {
    ForwardingBackend::products(all);
    if (flip) change = flipped(all.back().out);
  }

 private:
  double flipped(const View& out) {
    if (times && (*times)-- == 0) flip.reset();
    if (!flip) return 0;
    const std::int64_t size = bytes_of(out.dtype), at = flip->row * out.stride + flip->col;
    auto* const byte = static_cast<unsigned char*>(out.data) + at * size + flip->bit / 8;
    const double before = value(out, at);
    *byte ^= static_cast<unsigned char>(1 << flip->bit % 8);
    return value(out, at) - before;
  }
  static double value(const View& out, std::int64_t at) {
    if (out.dtype == DType::f32) return static_cast<const float*>(out.data)[at];
    if (out.dtype == DType::bf16) return get(static_cast<const bf16*>(out.data)[at]);
    return get(static_cast<const f16*>(out.data)[at]);
  }
};

struct Verified {
  Verified() {
    auto flips = std::make_unique<FlippingBackend>(test_backend(1));
    flipping = flips.get();
    backend = std::make_unique<VerifyingBackend>(std::move(flips), 1, "rank 3");
    backend->mark("h.1.mlp.c_fc.weight");
  }
  FlippingBackend* flipping;
  std::unique_ptr<VerifyingBackend> backend;
};

/// What a product has besides its sizes and types.
struct Mode {
  bool a_transposed, b_transposed, bias, accumulate;
};
constexpr std::array kModes{Mode{false, true, false, false},  Mode{false, true, true, false},
                            Mode{false, false, false, false}, Mode{false, false, false, true},
                            Mode{true, false, false, true},   Mode{true, false, false, false}};

/// A product and its operands, whose values are scaled.
struct Product {
  Product(const Mode& mode, const Matrix& a, const Matrix& b, DType type, DType out_type)
      : left(mode.a_transposed ? transpose(a) : a, type, 3),
        right(mode.b_transposed ? transpose(b) : b, type, 1),
        bias(random_values("bias", 1, b.cols, type), type),
        out(random_values("old", a.rows, b.cols, out_type), out_type, 2),
        args{.out = out,
             .a = left,
             .b = right,
             .a_transposed = mode.a_transposed,
             .b_transposed = mode.b_transposed,
             .bias = mode.bias ? bias.view() : View{},
             .accumulate = mode.accumulate} {}
  Operand left, right, bias, out;
  Matmul args;
};

Matrix filled(std::int64_t rows, std::int64_t cols, const auto& value) {
  Matrix m(rows, cols);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) m(r, c) = value(r, c);
  return m;
}

/// The most that rounding may change the sum that the flip is in.
double rounding_of_sum(const Matrix& a, const Matrix& b, const Matrix& out,
                       const FlippingBackend::Flip& flip, DType out_type) {
  double of_a = 0, of_b = 0, sizes = 0;
  const std::int64_t begin = flip.row / 32 * 32, end = std::min(a.rows, begin + 32), col = flip.col;
  for (std::int64_t k = 0; k < a.cols; ++k) of_b += b(k, col) * b(k, col);
  for (std::int64_t r = begin; r < end; ++r) {
    double of_row = 0;
    for (std::int64_t k = 0; k < a.cols; ++k) of_row += a(r, k) * a(r, k);
    of_a += std::sqrt(of_row);
    sizes += std::fabs(out(r, col)) + 2;  // what it is added to, and a bias
  }
  const double K = static_cast<double>(a.cols);
  return (16 * std::sqrt(K) + 5) * 0x1p-24 * (of_a * std::sqrt(of_b) + sizes) +
         2 * rounding(out_type) * sizes;
}

}  // namespace

TEST(VerifyingBackend, TakesNoRoundingForAFault) {
  const Verified verified;
  std::mt19937 random(1);
  const auto below = [&](int bound) { return 1 + static_cast<int>(random() % bound); };
  int computed = 0;
  const auto expect_none = [&](const Mode& mode, const Matrix& a, const Matrix& b, DType type) {
    for (const DType out_type : {type, DType::f32}) {
      const Product product(mode, a, b, type, out_type);
      SCOPED_TRACE(to_string(shape_of(product.args)));
      EXPECT_NO_THROW(verified.backend->matmul(product.args));
      ++computed;
    }
  };
  for (const DType type : kModelTypes)
    for (const Mode& mode : kModes) {
      for (int i = 0; i < 4; ++i) {
        const std::int64_t M = below(100), N = below(200), K = below(i < 3 ? 400 : 2500);
        expect_none(mode, random_values("a", M, K, type), random_values("b", K, N, type), type);
        // Errors of equal values add up: in a row, and over the rows of a sum.
        const double x = std::ldexp(below(1000), -10), y = std::ldexp(below(1000), -10);
        expect_none(mode, filled(M, K, [&](auto, auto) { return x; }),
                    filled(K, N, [&](auto, auto) { return y; }), type);
        // A few large ones among small ones, that is large sums which cancel out.
        expect_none(mode, filled(M, K, [&](auto, auto k) { return k % 2 ? 0.7 : -0.69; }),
                    filled(K, N, [&](auto k, auto n) { return k % 97 ? 0.9 : n % 7 * 20.0; }),
                    type);
        // So small that results are rounded to few bits, or to 0.
        const double tiny = type == DType::f16 ? 3e-4 : 1e-19;
        expect_none(mode, filled(M, K, [&](auto r, auto k) { return tiny * ((r + k) % 5 - 2); }),
                    filled(K, N, [&](auto k, auto n) { return tiny * ((3 * k + n) % 7 - 3); }),
                    type);
      }
      for (const std::int64_t K : {5000, 40000})
        expect_none(mode, filled(33, K, [](auto, auto) { return 0.1; }),
                    filled(K, 9, [](auto, auto) { return 0.3; }), type);
    }
  EXPECT_EQ(computed, 3 * 6 * 2 * (4 * 4 + 2));
}

TEST(VerifyingBackend, FindsTenThousandFlipsThatAreLargerThanRounding) {
  const Verified verified;
  std::mt19937 random(2);
  constexpr std::int64_t M = 45, N = 140, K = 96;
  std::int64_t flips = 0, large = 0, found = 0;
  for (const DType type : kModelTypes)
    for (const Mode& mode : kModes)
      for (const DType out_type : {type, DType::f32}) {
        const Matrix a = random_values("a", M, K, type), b = random_values("b", K, N, type);
        const Product right(mode, a, b, type, out_type);
        verified.backend->matmul(right.args);
        const Matrix out = right.out.values();
        for (int i = 0; i < 280; ++i, ++flips) {
          const FlippingBackend::Flip flip{static_cast<std::int64_t>(random() % M),
                                           static_cast<std::int64_t>(random() % N),
                                           static_cast<int>(random() % (8 * bytes_of(out_type)))};
          const Product product(mode, a, b, type, out_type);
          verified.flipping->flip = flip;
          std::string message;
          try {
            verified.backend->matmul(product.args);
          } catch (const Error& error) {
            message = error.what();
          }
          verified.flipping->flip.reset();
          found += !message.empty();
          const double change = std::fabs(verified.flipping->change);
          // The value's size is in the bound, too, and rounding may hide as much as the bound.
          const double bound = 2 * rounding_of_sum(a, b, out, flip, out_type);
          if (!std::isfinite(change) || change * (1 - 4 * rounding(out_type)) < bound) continue;
          ++large;
          ASSERT_THAT(message,
                      AllOf(HasSubstr("silent corruption: rank 3: the product"),
                            HasSubstr(" of h.1.mlp.c_fc.weight: rows "),
                            HasSubstr(flip.row < 32 ? "rows 0 to 31 of" : "rows 32 to 44 of"),
                            HasSubstr(concat(" of column ", flip.col, " have the sum"))))
              << to_string(shape_of(product.args)) << ", bit " << flip.bit << " by " << change;
        }
      }
  EXPECT_GT(flips, 10000);
  EXPECT_GT(large, flips / 3);  // the others are in the last bits, which rounding changes, too
  EXPECT_GE(found, large);
}

TEST(VerifyingBackend, ComputesAProductAgainInWhichABitHasFlipped) {
  const Verified verified;
  const Matrix a = random_values("a", 45, 96, DType::f32),
               b = random_values("b", 96, 50, DType::f32);
  for (const Mode& mode : kModes) {
    const Product right(mode, a, b, DType::f32, DType::f32),
        flipped(mode, a, b, DType::f32, DType::f32);
    verified.backend->matmul(right.args);
    verified.flipping->flip = {.row = 40, .col = 9, .bit = 28};
    verified.flipping->times = 1;
    verified.backend->matmul(flipped.args);
    EXPECT_EQ(flipped.out.memory(), right.out.memory());
    EXPECT_THAT(verified.backend->take_remarks(),
                testing::ElementsAre(AllOf(HasSubstr("silent corruption: rank 3: the product f32"),
                                           HasSubstr("rows 32 to 44 of column 9 have the sum"),
                                           HasSubstr("; it is computed again."))));
  }
}

TEST(VerifyingBackend, NamesTheFlippedOneOfProductsOfExperts) {
  const Verified verified;
  const Mode mode{.a_transposed = true, .accumulate = true};
  std::vector<Product> products;
  products.reserve(3);
  std::vector<Matmul> all;
  for (const std::int64_t rows : {40, 0, 7}) {
    products.emplace_back(mode, random_values("a", 33, rows, DType::bf16),
                          random_values("b", rows, 50, DType::bf16), DType::bf16, DType::f32);
    all.push_back(products.back().args);
  }
  verified.backend->matmuls(all);
  verified.flipping->flip = {.row = 32, .col = 9, .bit = 30};
  EXPECT_THAT([&] { verified.backend->matmuls(all); },
              ThrowsMessage<Error>(AllOf(HasSubstr("bf16 TN 33x50x7 to f32 +="),
                                         HasSubstr("rows 32 to 32 of column 9"))));
}

TEST(VerifyingBackend, LeavesSumsThatAreNotFiniteToTheSearchForThem) {
  const Verified verified;
  const Matrix large = filled(4, 8, [](auto, auto) { return 300.0; });
  const Product product({.b_transposed = true}, large, transpose(large), DType::f16, DType::f16);
  EXPECT_NO_THROW(verified.backend->matmul(product.args));  // 8 · 300² is infinite in f16
  EXPECT_TRUE(std::isinf(product.out.values()(0, 0)));
}
