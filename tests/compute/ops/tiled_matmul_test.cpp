// Products by tiles, which are the CPU's alone.
#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// An odd K: where pairs of bf16 are multiplied, the last one is filled up.
void expect_bits_of_operands_alone(DType type) {
  const std::int64_t M = 700, N = 390, K = 601;
  const Matrix a = random_values("a", M, K, type), b = random_values("b", K, N, type);
  const Operand plain_a(a, type), plain_b(b, type);
  const auto multiply = [&](int threads, bool a_transposed, bool b_transposed, std::int64_t row,
                            std::int64_t rows, std::int64_t col, std::int64_t cols) {
    const auto backend = make_cpu_backend(threads);
    const Operand turned_a(transpose(a), type, 3), turned_b(transpose(b), type, 7);
    const Operand out(Matrix(rows, cols), DType::f32);
    const Matmul product{.out = out,
                         .a = a_transposed ? turned_a.view().col_range(row, rows)
                                           : plain_a.view().row_range(row, rows),
                         .b = b_transposed ? turned_b.view().row_range(col, cols)
                                           : plain_b.view().col_range(col, cols),
                         .a_transposed = a_transposed,
                         .b_transposed = b_transposed};
    EXPECT_TRUE(backend->set_matmul_way(shape_of(product), "tiles"));
    backend->matmul(product);
    return out.values();
  };
  const Matrix want = multiply(1, false, false, 0, M, 0, N);
  const auto expect_same = [&](const Matrix& got, std::int64_t row, std::int64_t col) {
    for (std::int64_t m = 0; m < got.rows; ++m)
      for (std::int64_t n = 0; n < got.cols; ++n)
        ASSERT_EQ(got(m, n), want(row + m, col + n)) << row + m << ',' << col + n;
  };
  for (int modes = 0; modes < 4; ++modes)
    for (const int threads : {1, 3})
      expect_same(multiply(threads, (modes & 1) != 0, (modes & 2) != 0, 0, M, 0, N), 0, 0);
  expect_same(multiply(2, false, true, 13, 655, 0, N), 13, 0);
  expect_same(multiply(2, true, false, 0, M, 7, 365), 0, 7);
}

}  // namespace

TEST(Matmul, ByTilesHasBitsThatDependOnNothingButTheOperands) {
  for (const DType type : {DType::f32, DType::bf16}) expect_bits_of_operands_alone(type);
}
