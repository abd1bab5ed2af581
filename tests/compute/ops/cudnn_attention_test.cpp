// Attention by cuDNN, on a GPU.
#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/attention_case.h"
#include "tests/compute/ops/on_cuda.h"
#include "tests/support/needs_gpu.h"

using namespace axonn;

namespace {

/// Attention by cuDNN alone. The parameter: whether it must be deterministic.
class CudnnAttention : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (cuda_attention_library().empty()) test::skip_without_gpu("built without cuDNN");
  }
  std::unique_ptr<Backend> backend(CudaAttention attention = CudaAttention::cudnn) const {
    return test_cuda_backend({.attention = attention, .deterministic = GetParam()});
  }
};

}  // namespace

TEST_P(CudnnAttention, EqualsPlainLoopsForwardAndBackwardForHeadsGroupsAndLengths) {
  const auto cudnn = backend();
  for (std::int64_t width : {64, 128}) {
    check_attention_case(*cudnn, {1, {64, 1, 1, width, 1, 0, 0.1}, DType::bf16, 8});
    check_attention_case(*cudnn, {2, {150, 4, 2, width, 2, 0, 0.1}, DType::bf16, 16});
    check_attention_case(*cudnn, {3, {17, 3, 3, width, 1, 0, 0.1}, DType::bf16, 8});
    check_attention_case(*cudnn, {1, {300, 3, 1, width, 4, 1, 0.1}, DType::bf16, 8});
    check_attention_case(*cudnn, {1, {520, 2, 1, width, 2, 0, 0.1}, DType::bf16, 8});
  }
}

TEST_P(CudnnAttention, SeesOnlyTheKeysInTheWindowAndInTheDocument) {
  const auto cudnn = backend();
  for (std::int64_t width : {64, 128}) {
    for (std::int64_t window : {1, 65, 1000})
      check_attention_case(*cudnn, {1, {200, 2, 2, width, 1, 0, 0.1, window}, DType::bf16, 8});
    for (std::int64_t window : {0, 70})
      check_attention_case(*cudnn,
                           {2,
                            {300, 4, 2, width, 2, 0, 0.1, window, starts_of(2, 300, {63, 1, 65})},
                            DType::bf16,
                            8});
  }
}

TEST_P(CudnnAttention, SharesTheStatisticsOfSoftmaxWithOtherKernels) {
  const auto cudnn = backend(), own = backend(CudaAttention::own);
  for (const auto& starts : {std::vector<std::int32_t>(), starts_of(2, 300, {63, 1, 65})}) {
    const AttentionCase c{2, {300, 4, 2, 64, 2, 0, 0.1, 0, starts}, DType::bf16, 8};
    check_attention_case(*cudnn, c, own.get());
    check_attention_case(*own, c, cudnn.get());
  }
}

TEST_P(CudnnAttention, GivesTheSameBitsEveryTimeIfDeterministic) {
  if (!GetParam()) GTEST_SKIP() << "only for the deterministic variant";
  const auto cudnn = backend();
  const AttentionCase c{4, {520, 8, 4, 64, 2, 0, 0.1}, DType::bf16, 8};
  const AttentionOutcome first(c, *cudnn);
  for (int i = 0; i < 10; ++i) {
    const AttentionOutcome again(c, *cudnn);
    ASSERT_TRUE(again.out.memory() == first.out.memory());
    ASSERT_TRUE(again.d_qkv.memory() == first.d_qkv.memory());
  }
}

TEST_P(CudnnAttention, LeavesUnsupportedOperandsToOtherKernelsWithOneRemarkForEachPass) {
  const auto automatic = backend(CudaAttention::automatic);
  check_attention_case(*automatic, {1, {200, 2, 2, 64, 1, 0, 0.1}, DType::bf16, 8});
  EXPECT_THAT(automatic->take_remarks(), testing::IsEmpty());
  for (int i = 0; i < 2; ++i)
    check_attention_case(*automatic, {1, {40, 2, 2, 12, 1, 0, 0.3}, DType::bf16, 8});
  EXPECT_THAT(automatic->take_remarks(),
              testing::ElementsAre(
                  testing::HasSubstr("attention of 1 x 40, 2 heads over 2 of 12 in bf16 ("),
                  testing::HasSubstr("1 x 40, 2 heads over 2 of 12 in bf16, gradients (")));
  EXPECT_THAT(
      [&] {
        check_attention_case(*backend(), {1, {40, 2, 2, 12}, DType::bf16, 8});
      },
      testing::ThrowsMessage<UsageError>(
          testing::HasSubstr("cuDNN does not compute 1 x 40, 2 heads over 2 of 12 in bf16: ")));
}

TEST_P(CudnnAttention, ComputesBlocksOfPositionsThatAreApartAsRunsOfQueries) {
  const auto automatic = backend(CudaAttention::automatic);
  check_attention_case(*automatic,
                       {1, {192, 2, 2, 64, 1, 0, 0.1, 0, {}, {0, 2}}, DType::bf16, 8, true});
  EXPECT_THAT(automatic->take_remarks(), testing::IsEmpty());
}

TEST_P(CudnnAttention, ComputesGradientsInRunsOfQueriesWhereMemoryIsShort) {
  if (!GetParam()) GTEST_SKIP() << "only the deterministic variant stores gradients of scores";
  const auto cudnn = test_cuda_backend({.attention = CudaAttention::cudnn,
                                        .deterministic = true,
                                        .attention_bytes = std::int64_t{15} << 20});
  const AttentionCase cases[] = {
      {1, {2100, 4, 2, 64, 2, 0, 0.1}, DType::bf16, 8},
      {2, {2100, 2, 1, 64, 2, 0, 0.1, 0, starts_of(2, 2100, {63, 1500, 65})}, DType::bf16, 8}};
  for (const AttentionCase& c : cases) {
    check_attention_case(*cudnn, c);
    const AttentionOutcome first(c, *cudnn), again(c, *cudnn);
    EXPECT_TRUE(again.d_qkv.memory() == first.d_qkv.memory());
  }
}

INSTANTIATE_TEST_SUITE_P(Deterministic, CudnnAttention, testing::Bool(),
                         [](const auto& deterministic) {
                           return deterministic.param ? "Yes" : "No";
                         });
