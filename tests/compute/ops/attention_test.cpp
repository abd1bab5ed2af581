#include <cmath>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/attention_case.h"

using namespace axonn;
using reference::Matrix;
using testing::AllOf;
using testing::Each;

TEST(Attention, EqualsPlainLoopsForwardAndBackwardForAnyHeadsGroupsAndLengths) {
  const auto backend = test_backend();
  for (DType type : kModelTypes) {
    check_attention_case(*backend, {1, {1, 1, 1, 1}, type});
    check_attention_case(*backend, {2, {3, 2, 2, 5, 1, 0, 0.5}, type});
    check_attention_case(*backend, {3, {17, 3, 3, 16, 1, 0, 0.25}, type});
    check_attention_case(*backend, {2, {64, 2, 2, 64, 1, 0, 0.125}, type});
    check_attention_case(*backend, {1, {65, 4, 2, 24, 2, 0, 0.2}, type});
    check_attention_case(*backend, {2, {130, 6, 2, 40, 3, 0, 0.15}, type});
    check_attention_case(*backend, {1, {200, 1, 1, 80, 1, 0, 0.1}, type});
  }
}

TEST(Attention, EqualsPlainLoopsForAlignedRowsAndTheHeadWidthsOfModels) {
  const auto backend = test_backend();
  for (std::int64_t width : {64, 128}) {
    check_attention_case(*backend, {1, {64, 1, 1, width, 1, 0, 0.1}, DType::bf16, 8});
    check_attention_case(*backend, {2, {150, 4, 2, width, 2, 0, 0.1}, DType::bf16, 16});
    check_attention_case(*backend, {3, {17, 3, 3, width, 1, 0, 0.1}, DType::bf16, 8});
    check_attention_case(*backend, {1, {70, 3, 3, width, 4, 2, 0.1}, DType::bf16, 8});
    check_attention_case(*backend, {1, {520, 2, 1, width, 2, 0, 0.1}, DType::bf16, 8});
    const std::vector<std::int64_t> some{31, 100},
        all{1, 31, 64, 65, 100, 1000, std::int64_t{1} << 31, (std::int64_t{1} << 32) + 3};
    for (std::int64_t window : width == 64 ? all : some)
      check_attention_case(*backend, {1, {200, 2, 2, width, 1, 0, 0.1, window}, DType::bf16, 8});
    check_attention_case(
        *backend,
        {2, {200, 2, 2, width, 1, 0, 0.1, 0, starts_of(2, 200, {63, 1, 65})}, DType::bf16, 8});
  }
}

TEST(Attention, EqualsPlainLoopsWithACapOfScores) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const double cap : {0.5, 30.0})
      for (const std::int64_t window : {0, 70}) {
        reference::AttentionShape shape{150, 4, 2, 64, 2, 0, 0.5, window};
        shape.cap = cap;
        check_attention_case(*backend, {2, shape, type, 8});
      }
}

TEST(Attention, EqualsPlainLoopsForANegativeScale) {
  check_attention_case(*test_backend(), {1, {70, 2, 1, 64, 2, 0, -0.1}, DType::bf16, 8});
}

TEST(Attention, SeesOnlyTheKeysInTheWindowForWindowsAroundABlockAndBeyondTheSequence) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (std::int64_t window : {1, 2, 63, 64, 65, 66, 100, 128, 129, 199, 200, 1000})
      check_attention_case(*backend, {1, {200, 4, 2, 8, 2, 0, 0.3, window}, type});
  for (std::int64_t window : {1, 5, 17, 40}) {
    check_attention_case(*backend, {3, {17, 2, 1, 16, 2, 0, 0.3, window}, DType::f32});
    check_attention_case(*backend, {2, {33, 3, 2, 8, 4, 3, 0.3, window}, DType::f32});
  }
}

TEST(Attention, WithAWindowOfTheWholeSequenceHasTheBitsOfNoWindow) {
  const auto backend = test_backend();
  const AttentionOutcome none({2, {130, 4, 2, 24, 2, 0, 0.3}, DType::f32}, *backend),
      whole({2, {130, 4, 2, 24, 2, 0, 0.3, 130}, DType::f32}, *backend);
  EXPECT_TRUE(none.out.memory() == whole.out.memory());
  EXPECT_TRUE(none.d_qkv.memory() == whole.d_qkv.memory());
}

TEST(Attention, ReadsTheRightKeyValueHeadIfARankBeginsInsideAGroup) {
  const auto backend = test_backend();
  for (std::int64_t first = 0; first < 4; ++first) {
    check_attention_case(*backend, {2, {33, 3, 2, 8, 4, first, 0.3}, DType::f32});
    check_attention_case(*backend, {1, {70, 1, 1, 8, 4, first, 0.3}, DType::f32});
  }
}

TEST(Attention, GradientsOfAKeyValueHeadThatNoQueryUsesAreZero) {
  const auto backend = test_backend();
  check_attention_case(*backend, {1, {20, 2, 3, 8, 2, 0, 0.3}, DType::f32});
}

TEST(Attention, SeesOnlyTheKeysInTheDocument) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const std::vector<std::int32_t>& lengths :
         {std::vector<std::int32_t>{1, 1, 1}, {63, 1, 65}, {64, 64}, {5, 150}, {199}, {130}})
      for (std::int64_t window : {0, 7, 100}) {
        SCOPED_TRACE(testing::Message() << lengths.size() + 1 << " documents, the first of "
                                        << lengths.front() << ", window " << window);
        check_attention_case(
            *backend, {2, {200, 4, 2, 8, 2, 0, 0.3, window, starts_of(2, 200, lengths)}, type});
      }
  // Enough threads that they share the work of one key-value head.
  check_attention_case(
      *test_backend(2),
      {1, {330, 2, 1, 8, 2, 0, 0.3, 0, starts_of(1, 330, {70, 128, 3})}, DType::f32});
}

TEST(Attention, EqualsPlainLoopsForRandomStarts) {
  const auto backend = test_backend();
  std::vector<std::int32_t> starts = random_ids("starts", 2 * 150, 150);
  for (std::int32_t r = 0; r < 300; ++r) starts[r] %= r % 150 + 1;
  for (DType type : kModelTypes)
    check_attention_case(*backend, {2, {150, 2, 2, 8, 1, 0, 0.3, 0, starts}, type});
}

TEST(Attention, WithStartsOfZeroHasTheBitsOfNoStarts) {
  const auto backend = test_backend();
  const AttentionOutcome none({2, {130, 4, 2, 24, 2, 0, 0.3}, DType::f32}, *backend),
      zeros({2, {130, 4, 2, 24, 2, 0, 0.3, 0, starts_of(2, 130, {})}, DType::f32}, *backend);
  EXPECT_TRUE(none.out.memory() == zeros.out.memory());
  EXPECT_TRUE(none.d_qkv.memory() == zeros.d_qkv.memory());
}

TEST(Attention, SurvivesScoresBeyondTheRangeOfExp) {
  const auto backend = test_backend();
  const AttentionCase c{1, {40, 1, 1, 4, 1, 0, 300}, DType::f32};
  const AttentionOutcome run(c, *backend);
  EXPECT_THAT(run.out.values().values, Each(AllOf(testing::Ge(-1.0001), testing::Le(1.0001))));
  EXPECT_THAT(run.d_qkv.values().values,
              Each(testing::Truly([](double v) { return std::isfinite(v); })));
}

TEST(Attention, WeighsEqualScoresEquallyHoweverLargeAndFarApart) {
  const std::int64_t T = 512, D = 64;
  reference::Matrix values(T, D, 1);
  for (std::int64_t r = T / 2; r < T; ++r)
    for (std::int64_t c = 0; c < D; ++c) values(r, c) = -1;
  const Operand keys(reference::Matrix(T, D, 3), DType::bf16), v(values, DType::bf16),
      out(T, D, DType::bf16), stats(T, 1, DType::f32);
  test_backend()->attention({.q = keys,
                             .k = keys,
                             .v = v,
                             .out = out,
                             .stats = stats,
                             .positions = T,
                             .heads = 1,
                             .head_dim = D,
                             .scale = 10});
  for (std::int64_t c = 0; c < D; ++c)  // T roundings to f32 of a mean of 1 and -1
    EXPECT_NEAR(out.values()(T - 1, c), 0, T * std::ldexp(1, -24));
}

TEST(Attention, RefusesKeysTooNarrowForTheHeads) {
  const auto backend = test_backend();
  const Operand q(8, 16, DType::f32), k(8, 4, DType::f32), stats(8, 4, DType::f32);
  EXPECT_THAT(
      [&] {
        backend->attention({.q = q,
                            .k = k,
                            .v = k,
                            .out = q,
                            .stats = stats,
                            .positions = 8,
                            .heads = 4,
                            .head_dim = 4,
                            .group = 2});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("k is (8,4) f32, too narrow for 4 heads")));
}
