// Which way a GPU computes attention in, and the memory of each way, without a GPU.
#include "axonn/compute/ops/gpu/attention/attention_ways.h"

#include <gmock/gmock.h>

#include "axonn/compute/ops/dry_backend.h"
#include "axonn/compute/ops/gpu/matmul/lanes.h"
#include "axonn/compute/tensor/tensor.h"
#include "axonn/foundation/base/check.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

constexpr AttentionRules kHopper{.cudnn = 91900, .capability = 90};
constexpr AttentionRules kNewer{.cudnn = 92500, .capability = 90};
constexpr AttentionRules kAmd{};

/// Operands of attention and its gradients on a device without memory.
struct DryAttention {
  explicit DryAttention(std::optional<AttentionRules> rules)
      : backend(make_dry_backend(nullptr, rules)) {}

  AttentionBackward of(std::int64_t positions, std::int64_t kv_heads, std::int64_t group,
                       std::int64_t width = 128, DType type = DType::bf16) {
    const auto make = [&](std::int64_t cols, DType dtype) {
      return tensors.emplace_back(backend->arena(), positions, cols, dtype).view();
    };
    const std::int64_t heads = kv_heads * group, q = heads * width, k = kv_heads * width;
    return {.forward = {.q = make(q, type),
                        .k = make(k, type),
                        .v = make(k, type),
                        .out = make(q, type),
                        .stats = make(heads, DType::f32),
                        .positions = positions,
                        .heads = heads,
                        .head_dim = width,
                        .group = group},
            .d_out = make(q, type),
            .d_q = make(q, type),
            .d_k = make(k, type),
            .d_v = make(k, type)};
  }

  /// The most memory that an operation takes besides what is there.
  std::int64_t peak(const std::function<void()>& operation) {
    Arena& arena = backend->arena();
    arena.reset_peak();
    const std::int64_t before = arena.stats().live_bytes;
    operation();
    EXPECT_EQ(arena.stats().live_bytes, before);
    return arena.stats().peak_bytes - before;
  }

  std::unique_ptr<Backend> backend;
  std::vector<Tensor> tensors;
};

AttentionRules with(AttentionRules rules, CudaOptions options) {
  rules.options = options;
  return rules;
}

std::int64_t rounded(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

TEST(AttentionWays, OfLongSequencesNeverTakeMoreThanTheBudget) {
  DryAttention dry(kHopper);
  int computed = 0;
  for (const std::int64_t positions : {32768, 65536, 131072})
    for (const std::int64_t group : {4, 8})
      for (const DType type : {DType::bf16, DType::f32}) {
        const AttentionBackward args = dry.of(positions, 8, group, 128, type);
        for (const AttentionRules& rules :
             {kHopper, kNewer, kAmd, with(kHopper, {.deterministic = false})})
          for (const auto& offers :
               {attention_offers(args.forward, rules), attention_offers(args, rules)})
            for (const AttentionOffer& offer : offers)
              if (offer.why_not.empty()) {
                ++computed;
                EXPECT_LE(offer.bytes, kAttentionBytes)
                    << name_of(offer.way) << ", " << describe(args.forward, false);
              }
        dry.tensors.clear();
      }
  EXPECT_GT(computed, 100);
}

TEST(AttentionWays, OfOrderedGradientsDependOnTheScoresOfOneGroupAndOnTheVersion) {
  DryAttention dry(kHopper);
  const auto way = [&](std::int64_t positions, std::int64_t group, const AttentionRules& rules) {
    return std::string(
        name_of(best_offer(attention_offers(dry.of(positions, 8, group), rules)).way));
  };
  // A group's gradients of scores: 8,192 positions 0.5 GiB, 16,384 2 GiB, with others more: from
  // there in runs of queries, up to 32.
  EXPECT_EQ(way(8192, 4, kHopper), "cudnn");
  EXPECT_EQ(way(16384, 4, kHopper), "cudnn");
  EXPECT_EQ(way(65536, 4, kHopper), "cudnn");
  EXPECT_EQ(way(131072, 4, kHopper), "own");
  EXPECT_EQ(way(16384, 2, kHopper), "cudnn");
  EXPECT_EQ(way(131072, 4, kNewer), "cudnn ordered");
  EXPECT_EQ(way(131072, 8, kNewer), "cudnn ordered");
  EXPECT_EQ(way(131072, 8, with(kHopper, {.deterministic = false})), "cudnn");
  EXPECT_EQ(way(16384, 4, with(kHopper, {.attention_bytes = std::int64_t{4} << 30})), "cudnn");
  EXPECT_EQ(way(1024, 1, kAmd), "own");
  EXPECT_EQ(way(1024, 1, with(kHopper, {.attention = CudaAttention::own})), "own");
  const auto offers = attention_offers(dry.of(131072, 8, 4), kHopper);
  EXPECT_THAT(offers.front().why_not, HasSubstr("one key-value head takes 128.25GiB"));
}

TEST(AttentionWays, OfOrderedGradientsInRunsCoverAllQueriesWithTheKeysThatTheySee) {
  DryAttention dry(kHopper);
  for (const std::int64_t positions : {16384, 32768, 40000, 65536}) {
    const auto offers = attention_offers(dry.of(positions, 8, 4), kHopper);
    const std::vector<AttentionGraphShape>& runs = offers.front().pieces;
    ASSERT_GT(runs.size(), 1) << positions;
    EXPECT_LE(runs.size(), 32);
    std::int64_t next = 0;
    for (const AttentionGraphShape& run : runs) {
      EXPECT_EQ(run.first_position, next);
      EXPECT_EQ(run.sequences, 1);
      EXPECT_EQ(run.kv_heads, 1);
      EXPECT_EQ(run.heads, 4);
      EXPECT_TRUE(run.adds_keys);
      EXPECT_EQ(run.q_rows, positions);
      next += run.queries;
    }
    EXPECT_EQ(next, positions);
    dry.tensors.clear();
  }
}

TEST(AttentionWays, DemandedOfCudnnAreAnErrorWhereItCannot) {
  DryAttention dry(kHopper);
  const auto best = [&](std::int64_t width) {
    return best_offer(attention_offers(dry.of(512, 2, 2, width),
                                       with(kHopper, {.attention = CudaAttention::cudnn})));
  };
  EXPECT_EQ(best(64).way, AttentionWay::cudnn);
  EXPECT_THAT([&] { best(256); },
              testing::ThrowsMessage<UsageError>(HasSubstr("heads of width up to 128")));
}

TEST(AttentionWays, OfF16AndOfGpusWithoutBf16AreProductsInParts) {
  constexpr AttentionRules kTuring{.cudnn = 91900, .capability = 75};
  DryAttention dry(kHopper);
  const auto offers = [&](DType type, const AttentionRules& rules) {
    return attention_offers(dry.of(512, 2, 2, 128, type), rules);
  };
  for (const AttentionRules& rules : {kHopper, kAmd, kTuring}) {
    EXPECT_EQ(best_offer(offers(DType::f16, rules)).way, AttentionWay::parts);
    EXPECT_THAT(offers(DType::f16, rules).at(2).why_not,
                HasSubstr(rules.capability == 75 ? "capability 8.0" : "they need bf16"));
  }
  EXPECT_EQ(best_offer(offers(DType::bf16, kTuring)).way, AttentionWay::parts);
  EXPECT_THAT(offers(DType::bf16, kTuring).front().why_not, HasSubstr("capability 8.0"));
}

TEST(AttentionWays, AreCountedToTheByteByDryRuns) {
  for (const AttentionRules& rules : {kHopper, kAmd, with(kHopper, {.deterministic = false})})
    for (const std::int64_t width : {64, 80})
      for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
        DryAttention dry(rules);
        const AttentionBackward args =
            dry.of(type == DType::bf16 && width == 64 ? 32768 : 2048, 4, 2, width, type);
        const auto taken = [](const AttentionOffer& offer) {
          const bool products = offer.way == AttentionWay::parts;
          return rounded(offer.bytes) + (products ? cuda::kLaneBytes : 0);
        };
        EXPECT_EQ(dry.peak([&] { dry.backend->attention(args.forward); }),
                  taken(best_offer(attention_offers(args.forward, rules))));
        EXPECT_EQ(dry.peak([&] { dry.backend->attention_backward(args); }),
                  taken(best_offer(attention_offers(args, rules))));
      }
}

TEST(AttentionWays, TakeNoMemoryOfADryCpu) {
  DryAttention dry(std::nullopt);
  const AttentionBackward args = dry.of(2048, 4, 2);
  EXPECT_EQ(dry.peak([&] { dry.backend->attention_backward(args); }), 0);
}

TEST(QueryRuns, AreThoseOfTheBlocksOfAllSequencesIfTheyAreFew) {
  const auto runs = [](const std::vector<std::int32_t>& blocks, std::int64_t sequences,
                       std::int64_t first_key = 0) {
    const QueryRuns found = QueryRuns::of(blocks, sequences, first_key);
    return std::vector(found.runs.begin(), found.runs.begin() + found.count);
  };
  using Runs = std::vector<QueryRun>;
  EXPECT_EQ(runs({0, 1, 2}, 1), (Runs{{0, 192}}));
  EXPECT_EQ(runs({1, 6, 1, 6}, 2), (Runs{{64, 64}, {384, 64}}));
  EXPECT_EQ(runs({2, 3, 12, 13}, 1), (Runs{{128, 128}, {768, 128}}));
  EXPECT_EQ(runs({4, 5}, 1, 192), (Runs{{64, 128}}));
  EXPECT_EQ(runs({0, 2, 4}, 1), Runs()) << "three runs";
  EXPECT_EQ(runs({0, 1, 1, 2}, 2), Runs()) << "other blocks in the second sequence";
}
