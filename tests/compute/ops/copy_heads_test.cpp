#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

constexpr std::int64_t kRows = 9, kHeads = 5, kWidth = 19, kNear = 23, kFar = 40;

}  // namespace

TEST(CopyHeads, MovesColumnsOfHeadsAndLeavesOthers) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes) {
    const Matrix from = random_values("from", kRows, kHeads * kNear, type);
    Matrix want = random_values("to", kRows, kHeads * kFar, type);
    const Operand inp(from, type, 3), out(want, type, 1);
    backend->run(ops::CopyHeads{out, inp, kHeads, kWidth, kFar, kNear});
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t h = 0; h < kHeads; ++h)
        for (std::int64_t c = 0; c < kWidth; ++c) want(r, h * kFar + c) = from(r, h * kNear + c);
    EXPECT_TRUE(close(out, want, {}));
  }
}

TEST(CopyHeads, GivesAllHeadsTheSameOrAddsThemUp) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes) {
    const Matrix one = random_values("one", kRows, kWidth, type);
    Matrix copies(kRows, (kHeads - 1) * kFar + kWidth), sum(kRows, kWidth);
    const Operand shared(copies.rows, copies.cols, type), added(kRows, kWidth, type, 2),
        all(random_values("all", kRows, kHeads * kNear, type), type);
    backend->run(ops::CopyHeads{shared, Operand(one, type), kHeads, kWidth, kFar, 0});
    backend->run(ops::CopyHeads{added, all, kHeads, kWidth, 0, kNear});
    const Matrix got = shared.values(), terms = all.values();
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t h = 0; h < kHeads; ++h)
        for (std::int64_t c = 0; c < kWidth; ++c) {
          EXPECT_EQ(got(r, h * kFar + c), one(r, c));
          sum(r, c) += terms(r, h * kNear + c);
        }
    EXPECT_TRUE(close(added, sum, stored(type, 1e-6)));
  }
}

TEST(CopyHeads, ThatOverlapOrLieOutsideAreRefused) {
  const Operand out(4, 6, DType::f32), inp(4, 6, DType::f32);
  expect_refusal("copy_heads: 3 heads of 2 columns, 1 and 2 apart, do not lie in inp",
                 ops::CopyHeads{out, inp, 3, 2, 2, 1});
  expect_refusal("copy_heads: 3 heads of 2 columns, 2 and 3 apart, do not lie in inp",
                 ops::CopyHeads{out, inp, 3, 2, 3, 2});
}
