#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/ops/backend.h"

#include "tests/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

struct Case {
  std::int64_t M, N, K;
  DType type, out_type;
  bool a_transposed, b_transposed, bias, accumulate;
  std::int64_t gap;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << '(' << c.M << ',' << c.N << ',' << c.K << ") " << name_of(c.type) << " to "
             << name_of(c.out_type) << (c.a_transposed ? " T" : " N")
             << (c.b_transposed ? "T" : "N") << (c.bias ? " bias" : "")
             << (c.accumulate ? " accumulate" : "") << " gap " << c.gap;
}

void check(Backend& backend, const Case& c) {
  SCOPED_TRACE(testing::Message() << c);
  const Matrix a = random_values("a", c.M, c.K, c.type), b = random_values("b", c.K, c.N, c.type),
               bias = random_values("bias", 1, c.N, c.type),
               before = random_values("out", c.M, c.N, c.out_type);
  const Operand left(c.a_transposed ? transpose(a) : a, c.type, c.gap),
      right(c.b_transposed ? transpose(b) : b, c.type, 2 * c.gap), added(bias, c.type),
      out(before, c.out_type, 3 * c.gap);
  backend.matmul({.out = out,
                  .a = left,
                  .b = right,
                  .a_transposed = c.a_transposed,
                  .b_transposed = c.b_transposed,
                  .bias = c.bias ? added.view() : View{},
                  .accumulate = c.accumulate});
  Matrix want = matmul(a, b);
  for (std::int64_t m = 0; m < c.M; ++m)
    for (std::int64_t n = 0; n < c.N; ++n)
      want(m, n) += (c.bias ? bias(0, n) : 0) + (c.accumulate ? before(m, n) : 0);
  // A sum of K + 2 terms of magnitude at most 1, each addition rounded: in any order at most this.
  const double terms = static_cast<double>(c.K + 2);
  EXPECT_TRUE(close(out, want, stored(c.out_type, terms * terms * rounding(DType::f32))));
}

}  // namespace

TEST(Matmul, EqualsPlainLoopsInEveryModeTypeAndEpilogueWithStridesAndOddSizes) {
  const auto backend = make_cpu_backend(1);
  // The last two are cut into panels of rows and of columns.
  const std::int64_t sizes[][3] = {{1, 1, 1},  {3, 17, 1},   {1, 64, 33},   {17, 3, 64},
                                   {33, 1, 5}, {64, 48, 96}, {600, 20, 97}, {40, 1700, 33}};
  for (const auto& [M, N, K] : sizes)
    for (const auto& [type, out_type] :
         {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
      for (int flags = 0; flags < 16; ++flags)
        for (std::int64_t gap : {0, 5})
          check(*backend, {M, N, K, type, out_type, (flags & 1) != 0, (flags & 2) != 0,
                           (flags & 4) != 0, (flags & 8) != 0, gap});
}

TEST(Matmul, OfNothingIsTheBiasOrLeavesWhatIsAccumulated) {
  const auto backend = make_cpu_backend(1);
  for (DType type : {DType::f32, DType::bf16})
    for (bool bias : {false, true})
      for (bool accumulate : {false, true}) {
        check(*backend, {3, 5, 0, type, type, false, false, bias, accumulate, 0});
        check(*backend, {0, 5, 4, type, type, false, true, bias, accumulate, 0});
        check(*backend, {3, 0, 4, type, type, true, false, bias, accumulate, 0});
      }
}

TEST(Matmul, RefusesShapesAndTypesThatDoNotFitAndShowsThem) {
  const auto backend = make_cpu_backend(1);
  const Operand out(2, 3, DType::f32), a(2, 4, DType::f32), b(5, 3, DType::f32),
      half(4, 3, DType::bf16);
  EXPECT_THAT(
      [&] { backend->matmul({.out = out, .a = a, .b = b}); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("matmul: b is (5,3) f32, want (4,3)")));
  EXPECT_THAT(
      [&] { backend->matmul({.out = out, .a = a, .b = half}); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("matmul: b is (4,3) bf16, want f32")));
}
