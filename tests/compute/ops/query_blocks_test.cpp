// Attention of some blocks of the positions to the keys of all, as each of several ranks computes
// it that share the sequences: the bits of a call on all rows, and gradients of keys that add up.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/attention_case.h"

using namespace axonn;
using reference::Matrix;

namespace {

using Blocks = std::vector<std::int32_t>;

/// The query_blocks of each part of `sequences` sequences of `blocks` blocks.
using Parts = std::vector<Blocks>;

/// Part i has blocks i and 2 · count - 1 - i of every sequence of 2 · count blocks.
Parts zigzag(std::int64_t sequences, int count) {
  Parts parts(count);
  for (int i = 0; i < count; ++i)
    for (std::int64_t s = 0; s < sequences; ++s) {
      parts[i].push_back(i);
      parts[i].push_back(2 * count - 1 - i);
    }
  return parts;
}

/// Parts of sizes[i] blocks of every sequence, others in each sequence.
Parts scattered(std::int64_t sequences, const std::vector<int>& sizes) {
  Parts parts(sizes.size());
  Blocks all(std::accumulate(sizes.begin(), sizes.end(), 0));
  std::iota(all.begin(), all.end(), 0);
  std::minstd_rand random(5);
  for (std::int64_t s = 0; s < sequences; ++s) {
    for (std::size_t i = all.size() - 1; i > 0; --i) std::swap(all[i], all[random() % (i + 1)]);
    auto next = all.begin();
    for (std::size_t i = 0; i < sizes.size(); ++i, next += sizes[i - 1]) {
      parts[i].insert(parts[i].end(), next, next + sizes[i]);
      std::sort(parts[i].end() - sizes[i], parts[i].end());
    }
  }
  return parts;
}

/// The case of one part of the rows of a case of all.
AttentionCase part_of(const AttentionCase& all, const Blocks& blocks) {
  AttentionCase part = all;
  part.shape.query_blocks = blocks;
  if (all.shape.starts.empty()) return part;
  part.shape.starts.clear();
  for (std::int64_t r = 0; r < part.queries(); ++r)
    part.shape.starts.push_back(all.shape.starts[part.shape.own_key(r, all.keys())]);
  return part;
}

void add(Matrix& sum, const Matrix& part) {
  for (std::size_t i = 0; i < sum.values.size(); ++i) sum.values[i] += part.values[i];
}

bool on_cpu() { return test_backend()->device().name() == "cpu"; }

/// Whether the results of a row do not depend on the other rows of a call, see Attention.
bool has_own_bits(const AttentionCase& c) {
  const bool fused = c.type == DType::bf16 && (c.shape.head_dim == 64 || c.shape.head_dim == 128);
  return fused || on_cpu();
}

/// Compares the parts, each computed by its own backend, with a call on all rows.
void check_parts(AttentionCase all, const Parts& parts, int threads = 1) {
  all.f32_sums = true;
  const AttentionOutcome whole(all, *test_backend());
  Matrix d_k(whole.rows, whole.k_cols), d_v = d_k;
  for (const Blocks& blocks : parts) {
    SCOPED_TRACE(testing::PrintToString(blocks) + ", window " + std::to_string(all.shape.window) +
                 (all.shape.starts.empty() ? "" : ", documents"));
    const AttentionCase c = part_of(all, blocks);
    if (!has_own_bits(c)) check_attention_case(*test_backend(), c);
    const AttentionOutcome part(c, *test_backend(threads));
    const auto same = [&](const Matrix& got, const Matrix& of_all) {
      return close(got, AttentionOutcome::rows_of_queries(c, of_all), {});
    };
    if (has_own_bits(c)) {
      EXPECT_TRUE(same(part.out.values(), whole.out.values()));
      EXPECT_TRUE(same(part.stats.values(), whole.stats.values()));
      EXPECT_TRUE(same(part.d_q(), whole.d_q()));
    }
    EXPECT_TRUE(part.out.gap_untouched() && part.d_kv.gap_untouched());
    add(d_k, part.d_k());
    add(d_v, part.d_v());
  }
  // In f32, but in another order than the whole; instructions without fused sums round more often.
  // A GPU's matrix instructions cut sums off at 2^-22 of their terms, which may cancel; without own
  // bits, a term that is stored in 16 bits may then round the other way.
  const double terms = static_cast<double>(all.shape.head_dim),
               cut = on_cpu() ? 0 : all.shape.scale * terms * 0x1p-22,
               other_way = has_own_bits(all) || !is_half(all.type) ? 0 : rounding(all.type);
  for (const auto& [sum, want] : {std::pair{d_k, whole.d_k()}, {d_v, whole.d_v()}})
    EXPECT_TRUE(close(sum, want, {(2e-6 + other_way) * std::max(1.0, largest(want)) + cut, 0}))
        << name_of(all.type);
}

/// Documents, and starts that differ from row to row, of sequences of this length.
std::vector<std::vector<std::int32_t>> some_starts(std::int64_t sequences, std::int64_t positions) {
  std::vector<std::int32_t> random = random_ids("starts", sequences * positions, positions);
  for (std::int64_t r = 0; r < std::ssize(random); ++r)
    random[r] %= static_cast<std::int32_t>(r % positions + 1);
  return {{}, starts_of(sequences, positions, {63, 1, 65, 100}), random};
}

}  // namespace

TEST(QueryBlocks, OfAllPartsHaveTheBitsOfAllRowsAndKeyGradientsThatAddUp) {
  for (const DType type : kModelTypes)
    for (const std::int64_t window : {0, 100})
      for (const auto& starts : some_starts(2, 256)) {
        AttentionCase all{2, {256, 3, 2, 8, 2, 1, 0.3, window, starts}, type, 8};
        check_parts(all, zigzag(2, 2));
        check_parts(all, scattered(2, {1, 2, 1}));
      }
}

TEST(QueryBlocks, HaveTheSameBitsOnSeveralThreadsWhicheverTasksTheyShare) {
  struct {
    int threads;
    std::int64_t sequences, window;  // one sequence: few heads, which several threads share
    int starts;
  } const runs[] = {{1, 1, 0, 2}, {2, 1, 130, 1}, {3, 1, 0, 1}, {2, 3, 0, 1}, {3, 3, 130, 0}};
  for (const DType type : kModelTypes)
    for (const auto& [threads, sequences, window, starts] : runs) {
      if (threads > 1 && !on_cpu()) continue;
      AttentionCase all{sequences,
                        {320, 4, 2, 24, 2, 0, 0.2, window, some_starts(sequences, 320)[starts]},
                        type,
                        8};
      check_parts(all, scattered(sequences, {2, 1, 2}), threads);
    }
}

TEST(QueryBlocks, HaveTheSameBitsForAlignedRowsAndTheHeadWidthsOfModels) {
  for (const std::int64_t width : {64, 128})
    for (const std::int64_t window : {0, 100})
      for (const auto& starts : some_starts(1, 256)) {
        if (width == 128 && (window > 0) == starts.empty()) continue;
        AttentionCase all{1, {256, 3, 2, width, 2, 1, 0.1, window, starts}, DType::bf16, 8};
        check_parts(all, zigzag(1, 2));
        check_parts(all, scattered(1, {1, 3}));
      }
}

TEST(QueryBlocks, HaveTheSameBitsIfNeighboursInACallLieFarApart) {
  for (const std::int64_t width : {64, 128})
    for (const auto& starts : {std::vector<std::int32_t>(), starts_of(1, 640, {70, 500})})
      check_parts({1, {640, 1, 1, width, 1, 0, 0.1, 100, starts}, DType::bf16, 8},
                  {{0, 7, 9}, {1, 2, 3, 4, 5, 6, 8}});
}

TEST(QueryBlocks, EqualPlainLoops) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes)
    for (const std::int64_t window : {0, 70})
      for (const auto& starts : some_starts(2, 192))
        for (const bool f32_sums : {false, true}) {
          AttentionCase all{2, {192, 3, 2, 8, 2, 1, 0.3, window, starts}, type, 0, f32_sums};
          check_attention_case(*backend, part_of(all, {0, 2, 1, 2}));
          check_attention_case(*backend, part_of(all, {1, 0}));
        }
  check_attention_case(*backend,
                       {1, {192, 2, 1, 64, 2, 0, 0.1, 0, {}, {1, 2}}, DType::bf16, 8, true});
}

TEST(QueryBlocks, OfEarlyOrLatePositionsOrOfDocumentsOfOneTokenAreFinite) {
  std::vector<std::int32_t> own(256);  // every row sees its own key alone
  std::iota(own.begin(), own.end(), 0);
  for (const DType type : kModelTypes)
    for (const std::int64_t width : {8, 64})
      check_parts({1, {256, 2, 1, width, 2, 0, 30, 0, own}, type, 8}, {{0}, {3}, {1, 2}});
}

TEST(QueryBlocks, OfAllPositionsHaveTheBitsOfNone) {
  for (const DType type : kModelTypes)
    check_parts({2, {128, 2, 2, 8, 1, 0, 0.3}, type}, {{0, 1, 0, 1}});
}

TEST(QueryBlocks, LeaveNoGradientToKeysThatNoQuerySees) {
  const AttentionCase all{1, {256, 2, 1, 8, 2, 0, 0.3}, DType::f32, 0, true};
  const Matrix d_k = AttentionOutcome(part_of(all, {0, 2}), *test_backend()).d_k();
  for (std::int64_t r = 0; r < 256; ++r)
    for (std::int64_t c = 0; c < 8; ++c) EXPECT_EQ(d_k(r, c) == 0, r >= 192);
}

TEST(QueryBlocks, ThatDoNotFitAreRefused) {
  const auto backend = test_backend();
  const auto refusal = [&](std::int64_t T, std::int64_t rows, std::int64_t blocks) {
    const Operand q(rows, 8, DType::f32), k(2 * T, 8, DType::f32), stats(rows, 1, DType::f32),
        copy_rows{std::vector<std::int32_t>(blocks)};
    std::string message;
    try {
      backend->attention({.q = q,
                          .k = k,
                          .v = k,
                          .out = q,
                          .stats = stats,
                          .positions = T,
                          .heads = 1,
                          .head_dim = 8,
                          .query_blocks = blocks > 0 ? copy_rows.view() : View{}});
    } catch (const Error& error) {
      message = error.what();
    }
    return message;
  };
  using testing::HasSubstr;
  EXPECT_EQ(refusal(128, 128, 2), "");
  EXPECT_THAT(refusal(128, 128, 3), HasSubstr("attention: query_blocks is (1,3) i32, want (1,2)"));
  EXPECT_THAT(refusal(128, 128, 0), HasSubstr("attention: q is (128,8) f32, want (256,8)"));
  for (const auto& [T, rows] : {std::pair{100, 128}, {128, 64}, {128, 384}})
    EXPECT_THAT(refusal(T, rows, 2), HasSubstr("rows at query_blocks, and k 2 sequences of"));
}

TEST(QueryBlocks, NeedKeyGradientsOfTheTypeOfQueriesOrF32BothOfTheSame) {
  const Operand q(64, 8, DType::bf16), f32(64, 8, DType::f32), ids{std::vector<std::int32_t>(8)},
      stats(64, 1, DType::f32);
  const Attention forward{
      .q = q, .k = q, .v = q, .out = q, .stats = stats, .positions = 64, .heads = 1, .head_dim = 8};
  const auto run = [&](const View& d_k, const View& d_v) {
    test_backend()->attention_backward(
        {.forward = forward, .d_out = q, .d_q = q, .d_k = d_k, .d_v = d_v});
  };
  const auto refusal = [](const char* words) {
    return testing::ThrowsMessage<Error>(testing::HasSubstr(words));
  };
  EXPECT_THAT([&] { run(ids, ids); }, refusal("d_k is (1,8) i32, want bf16 or f32"));
  EXPECT_THAT([&] { run(f32, q); }, refusal("d_v is (64,8) bf16, want f32"));
}

TEST(QueryBlocks, HaveThePairsOfTheCausalHalfWithinTheWindow) {
  const auto pairs = [](const Blocks& blocks, std::int64_t window) {
    double sum = 0;  // a query sees half of its own key
    for (const std::int32_t block : blocks)
      for (std::int64_t t = 64 * block; t < 64 * (block + 1); ++t) {
        const double seen = static_cast<double>(t) + 0.5;
        sum += window > 0 ? std::min(seen, static_cast<double>(window)) : seen;
      }
    return static_cast<std::int64_t>(sum);
  };
  for (const Blocks& blocks : {Blocks{0, 1, 2, 3}, {0, 3}, {1, 2}, {3}, {0, 1, 3, 2}})
    for (const std::int64_t window : {0, 1, 64, 100, 1000})
      EXPECT_EQ(attention_pairs(blocks, window), pairs(blocks, window));
  EXPECT_EQ(attention_pairs(Blocks{0, 1, 2, 3}), 256 * 256 / 2);
}
