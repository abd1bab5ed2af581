#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// Whether the target is the first of the largest.
bool is_greedy(const Matrix& x, std::int64_t row, std::int32_t target) {
  if (target < 0) return false;
  for (std::int64_t c = 0; c < x.cols; ++c)
    if (x(row, c) > x(row, target) || (x(row, c) == x(row, target) && c < target)) return false;
  return true;
}

struct Pieces {
  std::int64_t count, each;
};

/// Checks a vocabulary V in pieces of `each` columns. The last pieces are partly or wholly padding,
/// which holds numbers larger than any logit.
void check(std::int64_t R, std::int64_t V, Pieces cut, DType type, float z = 0) {
  const std::int64_t pieces = cut.count, each = cut.each;
  SCOPED_TRACE(testing::Message() << '(' << R << ',' << V << ") in " << pieces << " of " << each
                                  << ' ' << name_of(type));
  const auto backend = test_backend();
  Matrix x = random_values("x", R, V, type);
  for (double& value : x.values) value *= 16;
  std::vector<std::int32_t> targets = random_ids("targets", R, V);
  if (R > 2) targets[1] = -1;
  if (R == 7) {
    targets[2] = 0, x(2, 0) = 48, x(2, V - 1) = 64;  // a larger logit in another piece
    targets[3] = 1, x(3, 1) = x(3, V - 1) = 64;      // an equal logit of a higher id
    targets[5] = static_cast<std::int32_t>(V - 1);   // an equal one of a lower id elsewhere
    targets[6] = static_cast<std::int32_t>(V - 1);   // and in the same piece
    x(4, targets[4]) = x(5, V - 1) = x(5, 0) = x(6, V - 1) = x(6, V - 2) = 64;
  }
  const Operand target_view(targets), stats(pieces * R, 4, DType::f32), loss(R, 1, DType::f32),
      lse(R, 1, DType::f32);
  const auto piece_of = [&](std::int64_t p) {
    return VocabularyPiece{p * each, std::clamp<std::int64_t>(V - p * each, 0, each)};
  };
  std::vector<Operand> logits;
  for (std::int64_t p = 0; p < pieces; ++p) {
    Matrix piece(R, each, 1000);
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t c = 0; c < piece_of(p).valid; ++c) piece(r, c) = x(r, p * each + c);
    logits.emplace_back(piece, type, 3);
    backend->run(
        ops::SoftmaxStats{stats.view().row_range(p * R, R), logits[p], target_view, piece_of(p)});
  }
  backend->run(ops::CombineSoftmax{loss, lse, stats.view().col_range(0, 3), target_view});
  const Operand greedy(R, 1, DType::f32);
  backend->run(ops::GreedyTargets{greedy, stats, target_view, each});
  for (std::int64_t r = 0; r < R; ++r)
    EXPECT_EQ(greedy.values()(r, 0), is_greedy(x, r, targets[r]) ? 1 : 0) << r;
  // Sums of V terms at most 1; log makes a relative error absolute, on top of a logit up to 64.
  const double error = (static_cast<double>(V) + 32) * 2 * rounding(DType::f32);
  EXPECT_TRUE(close(loss, cross_entropy(x, targets), {error, 0}));
  Matrix squares = lse.values();
  for (double& value : squares.values) value *= value;
  EXPECT_TRUE(close(squares, squared_log_sums(x, targets), {2 * 70 * error, 0}));

  const Matrix d = cross_entropy_backward(x, targets, z);
  const double share = 1 + 2 * z * 70;  // lse is at most 64 + log V
  for (std::int64_t p = 0; p < pieces; ++p) {
    const DType other = type == DType::f32 ? DType::bf16 : DType::f32;
    const Operand converted(R, each, other, 1);
    for (const Operand* d_logits : {&converted, &std::as_const(logits[p])})  // last: in place
      backend->run(
          ops::CrossEntropyBackward{*d_logits, logits[p], lse, target_view, piece_of(p), 0.25f, z});
    Matrix want(R, each);
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t c = 0; c < piece_of(p).valid; ++c) want(r, c) = d(r, p * each + c) * 0.25;
    EXPECT_TRUE(close(logits[p], want, stored(type, share * error)));
    EXPECT_TRUE(close(converted, want, stored(other, share * error)));
  }
}

}  // namespace

TEST(CrossEntropy, EqualsPlainLoopsWholeAndInPiecesWithPaddingLeftOut) {
  for (DType type : kModelTypes) {
    check(1, 1, {1, 1}, type);
    check(3, 17, {1, 17}, type);
    check(7, 251, {3, 84}, type);
    check(4, 251, {4, 64}, type);
    check(3, 10, {4, 5}, type);  // two pieces are all padding
    check(2, 5003, {2, 2502}, type);
  }
}

TEST(CrossEntropy, WithAZLossEqualsPlainLoopsInPieces) {
  for (DType type : kModelTypes) {
    check(7, 251, {3, 84}, type, 0.25f);
    check(3, 10, {4, 5}, type, 1e-4f);
  }
}

TEST(CrossEntropy, OfWholeRowsHasTheBitsOfTheSeparateOperations) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (DType of_gradient : kModelTypes)
      for (const auto& [V, valid] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                     {24, 17},
                                     {251, 251},
                                     {5056, 5003},
                                     {40000, 39999}})
        for (float z : {0.0f, 0.25f}) {
          if (!may_mix(type, of_gradient)) continue;
          SCOPED_TRACE(testing::Message() << valid << " of " << V << ' ' << name_of(type) << " to "
                                          << name_of(of_gradient) << ", z " << z);
          constexpr std::int64_t kR = 5;
          Matrix x = random_values("x", kR, V, type);
          for (double& value : x.values) value *= 16;
          for (std::int64_t r = 0; r < kR; ++r)
            for (std::int64_t c = valid; c < V; ++c) x(r, c) = 1000;
          std::vector<std::int32_t> ids = random_ids("ids", kR, valid);
          ids[1] = -1;
          const Operand logits(x, type, 3), targets(ids), stats(kR, 3, DType::f32),
              loss(kR, 1, DType::f32), lse(kR, 1, DType::f32), gradient(kR, V, of_gradient, 1),
              whole_loss(kR, 1, DType::f32), whole_lse(kR, 1, DType::f32),
              whole(kR, V, of_gradient, 1);
          const VocabularyPiece piece{0, valid};
          backend->run(ops::SoftmaxStats{stats, logits, targets, piece});
          backend->run(ops::CombineSoftmax{loss, lse, stats, targets});
          backend->run(ops::CrossEntropyBackward{gradient, logits, lse, targets, piece, 0.25f, z});
          const auto compute = [&](const Operand& to) {
            backend->run(ops::CrossEntropy{.loss = whole_loss,
                                           .lse = whole_lse,
                                           .d_logits = to,
                                           .logits = logits,
                                           .targets = targets,
                                           .valid = valid,
                                           .scale = 0.25f,
                                           .z = z});
            EXPECT_TRUE(whole_loss.memory() == loss.memory());
            EXPECT_TRUE(whole_lse.memory() == lse.memory());
          };
          compute(whole);
          EXPECT_TRUE(whole.memory() == gradient.memory());
          if (type != of_gradient) continue;
          compute(logits);  // in place
          EXPECT_TRUE(close(logits, gradient.values(), {}));
        }
}

TEST(CrossEntropy, WithRowWeightsHasTheGradientsOfThoseScalesAndTheSameLosses) {
  const auto backend = test_backend();
  constexpr std::int64_t kR = 4, kV = 300;
  const std::vector<float> each = {-1.5f, 0, 2.25f, 0.125f};
  Matrix column(kR, 1);
  std::copy(each.begin(), each.end(), column.values.begin());
  const Operand weights(column, DType::f32);
  for (DType type : kModelTypes) {
    const Operand logits(random_values("x", kR, kV, type), type), loss(kR, 1, DType::f32),
        lse(kR, 1, DType::f32), want(kR, kV, type), got(kR, kV, type), whole(kR, kV, type);
    std::vector<std::int32_t> ids = random_ids("ids", kR, kV);
    const Operand targets(ids);
    const auto run = [&](const Operand& to, float scale, const View& of_rows) {
      backend->run(ops::CrossEntropy{.loss = loss,
                                     .lse = lse,
                                     .d_logits = to,
                                     .logits = logits,
                                     .targets = targets,
                                     .valid = kV,
                                     .scale = scale,
                                     .weights = of_rows});
    };
    run(want, 1, {});
    const auto unweighted = loss.memory();
    run(whole, 0.25f, weights);
    EXPECT_TRUE(loss.memory() == unweighted);
    backend->run(
        ops::CrossEntropyBackward{got, logits, lse, targets, {0, kV}, 0.25f, 0, weights.view()});
    EXPECT_TRUE(got.memory() == whole.memory());
    for (std::int64_t r = 0; r < kR; ++r) {
      run(want, 0.25f * each[r], {});  // exact: the scale is a power of two
      for (std::int64_t c = 0; c < kV; ++c)
        EXPECT_EQ(whole.values()(r, c), want.values()(r, c)) << r << ' ' << c;
    }
  }
}

/// The derivative of w (lse - target) - e H is w (p - one hot) + e p (log p + H).
TEST(CrossEntropy, WithABonusTakesTheEntropysGradientFromThatOfWeightedRows) {
  const auto backend = test_backend();
  constexpr std::int64_t kR = 4, kV = 300;
  Matrix weight(kR, 1), bonus(kR, 2);
  for (std::int64_t r = 0; r < kR; ++r) {
    weight(r, 0) = static_cast<double>(r) - 1.5;
    bonus(r, 0) = r == 2 ? 0 : 0.75 - static_cast<double>(r);
  }
  for (DType type : kModelTypes) {
    const Matrix x = random_values("x", kR, kV, type);
    const std::vector<std::int32_t> ids = {7, -1, 299, 0};
    Matrix want(kR, kV);
    for (std::int64_t r = 0; r < kR; ++r) {
      double total = 0, entropy = 0;
      for (std::int64_t c = 0; c < kV; ++c) total += std::exp(x(r, c));
      const auto log_p = [&](std::int64_t c) { return x(r, c) - std::log(total); };
      for (std::int64_t c = 0; c < kV; ++c) entropy -= std::exp(log_p(c)) * log_p(c);
      bonus(r, 1) = static_cast<float>(entropy);
      for (std::int64_t c = 0; c < kV && ids[r] >= 0; ++c)
        want(r, c) = 0.25 * (weight(r, 0) * (std::exp(log_p(c)) - (c == ids[r] ? 1 : 0)) +
                             bonus(r, 0) * std::exp(log_p(c)) * (log_p(c) + bonus(r, 1)));
    }
    const Operand logits(x, type, 3), targets(ids), weights(weight, DType::f32),
        bonuses(bonus, DType::f32), loss(kR, 1, DType::f32), lse(kR, 1, DType::f32),
        whole(kR, kV, type, 2), in_pieces(kR, kV, type, 2);
    backend->run(ops::CrossEntropy{.loss = loss,
                                   .lse = lse,
                                   .d_logits = whole,
                                   .logits = logits,
                                   .targets = targets,
                                   .valid = kV,
                                   .scale = 0.25f,
                                   .weights = weights,
                                   .bonus = bonuses});
    EXPECT_TRUE(close(whole, want, stored(type, 2e-7)));
    backend->run(ops::CrossEntropyBackward{.d_logits = in_pieces,
                                           .logits = logits,
                                           .lse = lse,
                                           .targets = targets,
                                           .piece = {0, kV},
                                           .scale = 0.25f,
                                           .weights = weights,
                                           .bonus = bonuses});
    EXPECT_TRUE(in_pieces.memory() == whole.memory());
  }
}

TEST(CrossEntropy, TakesLongRowsWithALateMaximumOrWithMinusInfinities) {
  constexpr std::int64_t kV = 40000;
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  for (DType type : kModelTypes) {
    SCOPED_TRACE(name_of(type));
    const auto backend = test_backend();
    Matrix x = random_values("x", 6, kV, type);
    x(0, 700) = 200;                      // in the first summed part of the row
    x(1, 20000) = 90, x(1, 39999) = 250;  // in later parts
    x(2, 3) = 500;                        // all other terms vanish
    for (std::int64_t c = 0; c < 600; ++c) x(3, c) = kNone;
    for (std::int64_t c = 600; c < kV; ++c) x(4, c) = kNone;
    for (std::int64_t c = 0; c < kV; ++c) x(5, c) = kNone;
    const std::vector<std::int32_t> ids{9, 39999, 3, 700, 5, 5};
    const Operand logits(x, type), targets(ids), stats(6, 3, DType::f32);
    backend->run(ops::SoftmaxStats{stats, logits, targets, {0, kV}});
    const Matrix got = stats.values();
    for (std::int64_t r = 0; r < 5; ++r) {
      double most = kNone, sum = 0;
      for (std::int64_t c = 0; c < kV; ++c) most = std::max(most, x(r, c));
      for (std::int64_t c = 0; c < kV; ++c) sum += std::exp(x(r, c) - most);
      EXPECT_EQ(got(r, 0), most) << r;
      EXPECT_NEAR(got(r, 1), sum, 2e-5 * sum) << r;
      EXPECT_EQ(got(r, 2), x(r, ids[r])) << r;
    }
    EXPECT_EQ(got(5, 0), kNone);
    EXPECT_EQ(got(5, 1), 0) << "it must not contribute if another piece has logits";
  }
}

TEST(CrossEntropy, GivesANaNLossForANaNLogit) {
  const auto backend = test_backend();
  Matrix x = random_values("x", 1, 40, DType::f32);
  x(0, 25) = std::numeric_limits<double>::quiet_NaN();
  const Operand logits(x, DType::f32), targets(std::vector<std::int32_t>{3}),
      stats(1, 3, DType::f32), loss(1, 1, DType::f32), lse(1, 1, DType::f32);
  backend->run(ops::SoftmaxStats{stats, logits, targets, {0, 40}});
  backend->run(ops::CombineSoftmax{loss, lse, stats, targets});
  EXPECT_TRUE(std::isnan(loss.values()(0, 0)));
}

TEST(CrossEntropy, RefusesMoreValidColumnsThanThereAre) {
  const Operand logits(2, 8, DType::f32), targets(std::vector<std::int32_t>(2)),
      stats(2, 3, DType::f32);
  expect_refusal("9 columns from 0 of logits (2,8)",
                 ops::SoftmaxStats{stats, logits, targets, {0, 9}});
}
