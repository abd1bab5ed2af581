#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/dry_backend.h"
#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// Products of a layer's experts: alike but for the rows of each expert, which are M, or K in the
/// gradients of weights.
struct Experts {
  std::vector<std::int64_t> rows;
  std::int64_t N, width;  ///< width: K, or M where rows are K
  DType type, out_type;
  bool a_transposed = false, b_transposed = false, bias = false, accumulate = false;
};

std::ostream& operator<<(std::ostream& out, const Experts& e) {
  out << name_of(e.type) << " to " << name_of(e.out_type) << (e.a_transposed ? " T" : " N")
      << (e.b_transposed ? "T" : "N") << (e.bias ? " bias" : "")
      << (e.accumulate ? " accumulate" : "") << " N " << e.N << " width " << e.width << " rows";
  for (const std::int64_t rows : e.rows) out << ' ' << rows;
  return out;
}

/// One of the products, in memory of its own, with values that depend on its sizes alone.
struct ExpertProduct {
  ExpertProduct(const Experts& e, std::int64_t rows)
      : M(e.a_transposed ? e.width : rows),
        K(e.a_transposed ? rows : e.width),
        a(random_values("a", M, K, e.type)),
        b(random_values("b", K, e.N, e.type)),
        bias(random_values("bias", 1, e.N, e.type)),
        before(random_values("out", M, e.N, e.out_type)),
        left(e.a_transposed ? transpose(a) : a, e.type, kGap),
        right(e.b_transposed ? transpose(b) : b, e.type, 2 * kGap),
        added(bias, e.type),
        out(before, e.out_type, 3 * kGap),
        args{.out = out,
             .a = left,
             .b = right,
             .a_transposed = e.a_transposed,
             .b_transposed = e.b_transposed,
             .bias = e.bias ? added.view() : View{},
             .accumulate = e.accumulate} {}

  Matrix want() const {
    Matrix sums = matmul(a, b);
    for (std::int64_t m = 0; m < M; ++m)
      for (std::int64_t n = 0; n < sums.cols; ++n)
        sums(m, n) += (args.bias.data ? bias(0, n) : 0) + (args.accumulate ? before(m, n) : 0);
    return sums;
  }

  static constexpr std::int64_t kGap = 5;
  std::int64_t M, K;
  Matrix a, b, bias, before;
  Operand left, right, added, out;
  Matmul args;
};

std::vector<ExpertProduct> products_of(const Experts& experts) {
  std::vector<ExpertProduct> all;
  all.reserve(experts.rows.size());
  for (const std::int64_t rows : experts.rows) all.emplace_back(experts, rows);
  return all;
}

void multiply(Backend& backend, const std::vector<ExpertProduct>& products) {
  std::vector<Matmul> all;
  for (const ExpertProduct& product : products) all.push_back(product.args);
  backend.matmuls(all);
}

/// Expects the sums of plain loops, and the bits of each product in a call of its own.
void check(Backend& backend, const Experts& experts) {
  SCOPED_TRACE(testing::Message() << experts);
  const std::vector<ExpertProduct> together = products_of(experts), alone = products_of(experts);
  multiply(backend, together);
  for (std::size_t i = 0; i < together.size(); ++i) {
    const ExpertProduct& product = together[i];
    // A bound for any order of a sum of K + 2 terms of magnitude at most 1, each addition rounded.
    const double terms = static_cast<double>(product.K + 2);
    const double early = experts.bias || experts.accumulate
                             ? of_early_rounding(backend, experts.out_type, product.want())
                             : 0;
    EXPECT_TRUE(close(product.out, product.want(),
                      stored(experts.out_type, terms * terms * rounding(DType::f32) + 2 * early)))
        << "product " << i;
    backend.matmuls({&alone[i].args, 1});
    EXPECT_TRUE(product.out.memory() == alone[i].out.memory())
        << "product " << i << " has other bits than alone";
  }
}

/// The three products of an expert's layer: forward, the gradients of its input and its weight.
std::vector<Experts> modes(const std::vector<std::int64_t>& rows, std::int64_t N,
                           std::int64_t width, DType type) {
  const Experts forward{
      .rows = rows, .N = N, .width = width, .type = type, .out_type = type, .b_transposed = true};
  Experts with_bias = forward, d_inp = forward, d_weight = forward, overwritten, sums;
  with_bias.bias = true;
  d_inp.b_transposed = d_weight.b_transposed = false;
  d_weight.a_transposed = d_weight.accumulate = true;
  d_weight.out_type = DType::f32;
  overwritten = d_weight;
  overwritten.accumulate = false;
  overwritten.out_type = type;
  sums = d_inp;
  sums.accumulate = true;
  return {forward, with_bias, d_inp, d_weight, overwritten, sums};
}

}  // namespace

TEST(Matmuls, OfSkewedCountsEqualPlainLoopsAndEachHasTheBitsOfACallOfItsOwn) {
  const auto backend = test_backend(2);
  for (const DType type : kModelTypes) {
    for (const Experts& experts : modes({3, 0, 70, 1, 129, 32, 0, 65}, 75, 51, type))
      check(*backend, experts);
    // Of several panels, with rests.
    for (const Experts& experts : modes({300, 47, 0, 544}, 420, 96, type)) check(*backend, experts);
  }
}

TEST(Matmuls, OfOneExpertWithAllRowsEqualPlainLoops) {
  const auto backend = test_backend(2);
  for (const DType type : kModelTypes)
    for (const Experts& experts : modes({0, 0, 200, 0}, 64, 96, type)) check(*backend, experts);
}

TEST(Matmuls, WithoutRowsChangeNothingButGradientsOfWeightsThatAreNotAccumulated) {
  const auto backend = test_backend(2);
  for (const DType type : kModelTypes)
    for (const Experts& experts : modes({0, 0, 0}, 20, 12, type)) check(*backend, experts);
  backend->matmuls({});
}

TEST(Matmuls, OfDifferentRowsOfTheSameMemoryEqualPlainLoops) {
  const auto backend = test_backend();
  constexpr std::int64_t M = 64, N = 96, K = 70, kFew = 3;
  for (const DType type : kModelTypes) {
    const Matrix a = random_values("a", M, K, type), b = random_values("b", K, N, type);
    const Operand left(transpose(a), type), right(b, type), few(M, N, DType::f32),
        all(M, N, DType::f32);
    const auto of_rows = [&](const Operand& out, std::int64_t rows) {
      return Matmul{.out = out,
                    .a = left.view().row_range(0, rows),
                    .b = right.view().row_range(0, rows),
                    .a_transposed = true};
    };
    backend->matmuls(std::vector{of_rows(few, kFew), of_rows(all, K)});
    EXPECT_TRUE(close(all, matmul(a, b), stored(DType::f32, K * K * rounding(DType::f32))));
  }
}

TEST(Matmuls, OfWhichSomeAccumulateEqualPlainLoops) {
  const auto backend = test_backend(2);
  for (const DType type : kModelTypes) {
    const Experts gradients = modes({30, 7, 0, 0, 129}, 75, 51, type)[3];
    const std::vector<ExpertProduct> products = products_of(gradients);
    std::vector<Matmul> all;
    std::vector<Matrix> want;
    for (const ExpertProduct& product : products) {
      const bool adds = all.size() % 2 == 1;
      all.push_back(product.args);
      all.back().accumulate = adds;
      want.push_back(matmul(product.a, product.b));
      if (adds)
        for (std::int64_t m = 0; m < product.M; ++m)
          for (std::int64_t n = 0; n < gradients.N; ++n) want.back()(m, n) += product.before(m, n);
    }
    backend->matmuls(all);
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_TRUE(
          close(products[i].out, want[i], stored(DType::f32, 131 * 131 * rounding(DType::f32))))
          << name_of(type) << " product " << i;
  }
}

TEST(Matmuls, RefuseProductsThatDifferByMoreThanTheirRows) {
  const auto backend = test_backend();
  const Experts few{.rows = {2, 3}, .N = 5, .width = 7, .type = DType::f32, .out_type = DType::f32};
  Experts wide = few;
  wide.N = 6;
  const ExpertProduct one(few, 2), other(wide, 3);
  const std::vector<Matmul> all{one.args, other.args};
  EXPECT_THAT([&] { backend->matmuls(all); },
              ThrowsMessage<Error>(HasSubstr("matmuls: product 1 is f32 NN 3x6x7 and product 0 f32 "
                                             "NN 2x5x7, want them alike but for M")));
}

TEST(Matmuls, AreOneOperationWithTheResultsOfAllForWhatForwardsThem) {
  struct Noting final : ForwardingBackend {
    Noting() : ForwardingBackend(test_backend()) {}
    void around(const OperationCall& call, const std::function<void()>& run) override {
      ++operations;
      const auto first = call.operands.first(call.results);
      results.assign(first.begin(), first.end());
      run();
    }
    int operations = 0;
    std::vector<View> results;
  } noting;
  const Experts experts{
      .rows = {2, 0, 3}, .N = 5, .width = 7, .type = DType::f32, .out_type = DType::f32};
  const std::vector<ExpertProduct> products = products_of(experts);
  multiply(noting, products);
  EXPECT_EQ(noting.operations, 1);
  ASSERT_EQ(noting.results.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(noting.results[i].data, products[i].args.out.data);
    EXPECT_TRUE(close(products[i].out, products[i].want(), {.absolute = 1e-5}));
  }
}

TEST(Matmuls, AreRecordedByADryDeviceAsCountsOfShapesWithTheFlopsOfAll) {
  static int memory = 0;
  const auto view = [](std::int64_t rows, std::int64_t cols) {
    return View{&memory, DType::bf16, rows, cols, cols};
  };
  std::vector<Matmul> all;
  for (const std::int64_t rows : {10, 10, 10, 0, 4})
    all.push_back({.out = view(rows, 20), .a = view(rows, 30), .b = view(30, 20)});
  Recording recording;
  make_dry_backend(&recording)->matmuls(all);
  ASSERT_EQ(recording.events.size(), 2u);
  const auto& three = std::get<Recording::Compute>(recording.events[0]);
  EXPECT_EQ(three.count, 3);
  EXPECT_EQ(three.flops, 3 * 2 * 10 * 20 * 30);
  EXPECT_EQ(three.bytes(), 3 * 2 * (10 * 20 + 10 * 30 + 20 * 30));
  const auto& one = std::get<Recording::Compute>(recording.events[1]);
  EXPECT_EQ(one.count, 1);
  EXPECT_EQ(one.flops, 2 * 4 * 20 * 30);
}
