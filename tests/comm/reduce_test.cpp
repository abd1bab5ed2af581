#include "axonn/comm/reduce.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>

using namespace axonn;

namespace {

template <typename T>
T reduced(const std::vector<T>& values, ReduceOp op) {
  std::vector<const void*> inps;
  for (const T& value : values) inps.push_back(&value);
  T out{};
  reduce(std::array<void*, 1>{&out}, inps, 1, dtype_of<T>, op);
  return out;
}

bf16 rounded(float x) {
  bf16 y;
  put(y, x);
  return y;
}

}  // namespace

TEST(Reduce, AddsInTheOrderOfItsInputs) {
  EXPECT_EQ(reduced<float>({1e8f, -1e8f, 1.f}, ReduceOp::sum), 1.f);
  EXPECT_EQ(reduced<float>({1.f, 1e8f, -1e8f}, ReduceOp::sum), 0.f);
}

TEST(Reduce, RoundsBf16OnceAfterASumInF32) {
  // In bf16, 256 + 1 is a tie and rounds to 256 at each step; the f32 sum reaches 264.
  const std::vector<bf16> values = {rounded(256), rounded(1), rounded(1), rounded(1), rounded(1),
                                    rounded(1),   rounded(1), rounded(1), rounded(1)};
  EXPECT_EQ(get(reduced(values, ReduceOp::sum)), 264.f);
}

TEST(Reduce, PropagatesANanInAnyInputThroughSumMaxAndMin) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) {
    EXPECT_TRUE(std::isnan(reduced<float>({nan, 1, 2}, op)));
    EXPECT_TRUE(std::isnan(reduced<float>({1, nan, 2}, op)));
    EXPECT_TRUE(std::isnan(reduced<float>({1, 2, nan}, op)));
    EXPECT_TRUE(std::isnan(get(reduced<bf16>({rounded(1), rounded(nan), rounded(2)}, op))));
  }
}

TEST(Reduce, WrapsSignedIntegersAroundOnOverflow) {
  const std::int32_t top = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(reduced<std::int32_t>({top, 1}, ReduceOp::sum),
            std::numeric_limits<std::int32_t>::min());
}

TEST(Reduce, WritesEveryOutAlsoIfItIsAnInput) {
  std::vector<float> a(5000, 1.f), b(5000, 2.f), c(5000);
  reduce(std::array<void*, 3>{c.data(), a.data(), b.data()},
         std::array<const void*, 2>{a.data(), b.data()}, 5000, DType::f32, ReduceOp::sum);
  for (const auto& out : {a, b, c}) EXPECT_THAT(out, testing::Each(3.f));
}
