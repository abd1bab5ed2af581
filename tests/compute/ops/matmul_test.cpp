#include <array>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/harness.h"

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

MatmulShape shape_of(const Case& c) {
  return {.M = c.M,
          .N = c.N,
          .K = c.K,
          .a_transposed = c.a_transposed,
          .b_transposed = c.b_transposed,
          .bias = c.bias,
          .accumulate = c.accumulate,
          .type = c.type,
          .out_type = c.out_type};
}

/// With transposes, bias and accumulation by the bits of `flags`.
Case case_of(int flags, std::array<std::int64_t, 3> sizes, DType type, DType out_type,
             std::int64_t gap) {
  const auto is = [flags](int bit) { return (flags & bit) != 0; };
  return {sizes[0], sizes[1], sizes[2], type, out_type, is(1), is(2), is(4), is(8), gap};
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
  const double early = c.bias || c.accumulate ? of_early_rounding(backend, c.out_type, want) : 0;
  for (std::int64_t m = 0; m < c.M; ++m)
    for (std::int64_t n = 0; n < c.N; ++n)
      want(m, n) += (c.bias ? bias(0, n) : 0) + (c.accumulate ? before(m, n) : 0);
  // A bound for any order of a sum of K + 2 terms of magnitude at most 1, each addition rounded.
  const double terms = static_cast<double>(c.K + 2);
  EXPECT_TRUE(
      close(out, want, stored(c.out_type, terms * terms * rounding(DType::f32) + 2 * early)));
}

}  // namespace

TEST(Matmul, EqualsPlainLoopsInEveryModeTypeAndEpilogueWithStridesAndOddSizes) {
  const auto backend = test_backend();
  // 600 rows and 1700 columns are cut into panels.
  const std::int64_t sizes[][3] = {
      {1, 1, 1},    {3, 17, 1},    {1, 64, 33},    {17, 3, 64}, {33, 1, 5},
      {64, 48, 96}, {600, 20, 97}, {40, 1700, 33}, {5, 71, 97}, {48, 9, 130},
      {49, 9, 130}, {23, 6, 2113}};  // few rows, and sums in several parts
  for (const auto& [M, N, K] : sizes)
    for (const auto& [type, out_type] :
         {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
      for (int flags = 0; flags < 16; ++flags)
        for (std::int64_t gap : {0, 5})
          check(*backend, case_of(flags, {M, N, K}, type, out_type, gap));
}

TEST(Matmul, OfBf16ConvertedToFloatsEqualsPlainLoopsInEveryModeTypeAndEpilogue) {
  const auto backend = test_backend(2);
  if (backend->name() != "cpu") GTEST_SKIP() << "a way of the CPU";
  // Two panels of rows, two of columns and three steps of K.
  const std::int64_t M = 130, N = 66, K = 2100;
  for (DType out_type : {DType::bf16, DType::f32})
    for (int flags = 0; flags < 16; ++flags) {
      const Case c = case_of(flags, {M, N, K}, DType::bf16, out_type, 5);
      ASSERT_TRUE(backend->set_matmul_way(shape_of(c), "128x64 as floats")) << c;
      check(*backend, c);
    }
}

TEST(Matmul, ByTilesEqualsPlainLoopsInEveryModeTypeAndEpilogue) {
  const auto backend = test_backend(2);
  if (backend->name() != "cpu") GTEST_SKIP() << "a way of the CPU";
  // Three blocks of rows, strips that are not whole, three steps of K; then two parts of b.
  for (const auto& [M, N, K] : {std::array<std::int64_t, 3>{389, 83, 515}, {3, 700, 6200}})
    for (const auto& [type, out_type] :
         {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
      for (int flags = 0; flags < 16; ++flags) {
        if (K > 1000 && flags != 12) continue;  // the many values would take half a minute
        const Case c = case_of(flags, {M, N, K}, type, out_type, 5);
        ASSERT_TRUE(backend->set_matmul_way(shape_of(c), "tiles")) << c;
        check(*backend, c);
      }
}

TEST(Matmul, OfBf16CanBeConvertedToFloatsOnEveryProcessorAndOneOfF32Cannot) {
  const auto backend = make_cpu_backend(1);
  MatmulShape shape{.M = 512, .N = 512, .K = 512, .type = DType::bf16, .out_type = DType::bf16};
  EXPECT_THAT(backend->matmul_ways(shape), testing::Contains("512x512 as floats"));
  EXPECT_FALSE(backend->set_matmul_way(shape, "256x192 pack b as floats"));
  shape.type = shape.out_type = DType::f32;
  EXPECT_THAT(backend->matmul_ways(shape),
              testing::Not(testing::Contains(testing::HasSubstr("floats"))));
  EXPECT_FALSE(backend->set_matmul_way(shape, "256x192 as floats"));
}

TEST(Matmul, OfFewRowsGivesARowBitsThatDoNotDependOnTheOtherRows) {
  const auto backend = test_backend();
  if (backend->name() != "cpu") GTEST_SKIP() << "promised on the CPU only";
  const std::int64_t N = 75;
  for (const std::int64_t K : {203, 2400})
    for (DType type : kModelTypes) {
      const Operand a(random_values("a", 7, K, type), type),
          b(random_values("b", N, K, type), type), all(Matrix(7, N), DType::f32),
          some(Matrix(7, N), DType::f32);
      const auto multiply = [&](const Operand& out, std::int64_t first, std::int64_t rows) {
        backend->matmul({.out = out.view().row_range(0, rows),
                         .a = a.view().row_range(first, rows),
                         .b = b,
                         .b_transposed = true});
      };
      const auto expect_same = [&](std::int64_t row, std::int64_t other) {
        const Matrix got = all.values(), want = some.values();
        for (std::int64_t n = 0; n < N; ++n)
          EXPECT_EQ(got(row, n), want(other, n)) << row << ',' << n;
      };
      multiply(all, 0, 7);
      for (std::int64_t first = 0; first <= 4; ++first) {
        multiply(some, first, 3);
        for (std::int64_t row = 0; row < 3; ++row) expect_same(first + row, row);
      }
      for (std::int64_t first = 0; first <= 5; ++first) {
        multiply(all, first, 2);
        multiply(some, first + 1, 1);
        expect_same(1, 0);
      }
    }
}

TEST(Matmul, OfFewRowsStreamsTheMatrixUnlessAnotherWayIsSet) {
  const auto backend = make_cpu_backend(1);
  const MatmulShape few{.M = 2, .N = 2048, .K = 1024, .b_transposed = true};
  EXPECT_EQ(backend->matmul_ways(few).front(), "streamed");
  EXPECT_GT(backend->matmul_ways(few).size(), 1u);
  for (const std::string& way : backend->matmul_ways(few))
    EXPECT_TRUE(backend->set_matmul_way(few, way)) << way;
  MatmulShape many = few;
  many.M = 512;
  EXPECT_NE(backend->matmul_ways(many).front(), "streamed");
  EXPECT_FALSE(backend->set_matmul_way(many, "streamed"));
}

TEST(Matmul, OfEmptyOperandsIsTheBiasPlusTheOldResultIfItAccumulates) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (bool bias : {false, true})
      for (bool accumulate : {false, true}) {
        check(*backend, {3, 5, 0, type, type, false, false, bias, accumulate, 0});
        check(*backend, {0, 5, 4, type, type, false, true, bias, accumulate, 0});
        check(*backend, {3, 0, 4, type, type, true, false, bias, accumulate, 0});
      }
}

TEST(Matmul, RefusesShapesAndTypesThatDoNotFitAndShowsThem) {
  const auto backend = test_backend();
  const Operand out(2, 3, DType::f32), a(2, 4, DType::f32), b(5, 3, DType::f32),
      half(4, 3, DType::bf16);
  EXPECT_THAT(
      [&] { backend->matmul({.out = out, .a = a, .b = b}); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("matmul: b is (5,3) f32, want (4,3)")));
  EXPECT_THAT(
      [&] { backend->matmul({.out = out, .a = a, .b = half}); },
      testing::ThrowsMessage<Error>(testing::HasSubstr("matmul: b is (4,3) bf16, want f32")));
}
