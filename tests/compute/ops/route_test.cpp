#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;
using reference::Router;
using reference::Routing;

namespace {

/// Sums of E terms; the rest is exponentials of differences up to 16, and a few products.
double routing_error(std::int64_t E) {
  return (static_cast<double>(E) + 64) * 2 * rounding(DType::f32);
}

/// The operands of a Route, the matrices with padding.
struct Routed {
  std::int64_t R, E, k;
  Operand logits, ids, weights, scores, log_sums, score_sums, bias;

  Routed(const Matrix& values, const Router& router, DType bias_type = DType::f32)
      : R(values.rows),
        E(values.cols),
        k(router.k),
        logits(values, DType::f32, 3),
        ids(chosen(R, router), DType::i32, 1),
        weights(R, k, DType::f32, 2),
        scores(R, E, DType::f32, 5),
        log_sums(R, 1, DType::f32, 1),
        score_sums(R, 1, DType::f32, 2),
        bias(row(router.bias), bias_type) {}

  ops::Route args(const Router& router) const {
    return {.ids = ids,
            .weights = weights,
            .scores = scores,
            .log_sums = log_sums,
            .score_sums = router.sigmoid ? score_sums.view() : View{},
            .logits = logits,
            .bias = router.bias.empty() ? View{} : bias.view(),
            .sigmoid = router.sigmoid,
            .normalise = router.normalise,
            .scale = static_cast<float>(router.scale),
            .groups = static_cast<int>(router.groups),
            .kept_groups = static_cast<int>(router.kept_groups),
            .group_best = static_cast<int>(router.group_best),
            .chosen = !router.chosen.empty()};
  }

  std::vector<std::int32_t> got_ids() const {
    std::vector<std::int32_t> all;
    for (double id : ids.values().values) all.push_back(static_cast<std::int32_t>(id));
    return all;
  }

 private:
  static Matrix chosen(std::int64_t R, const Router& router) {
    Matrix all(R, router.k);
    std::ranges::copy(router.chosen, all.values.begin());
    return all;
  }
  static Matrix row(const std::vector<double>& values) {
    Matrix one(1, std::ssize(values));
    one.values = values;
    return one;
  }
};

Matrix some_logits(std::int64_t R, std::int64_t E) {
  Matrix logits = random_values("logits", R, E, DType::f32);
  for (double& value : logits.values) value *= 4;
  return logits;
}

/// (R, 1): the sum of each row.
Matrix row_sums(const Matrix& values) {
  Matrix sums(values.rows, 1);
  for (std::int64_t r = 0; r < values.rows; ++r)
    for (std::int64_t c = 0; c < values.cols; ++c) sums(r, 0) += values(r, c);
  return sums;
}

/// Whether, of each row, k different experts are chosen, ascending, and no expert that is not has a
/// value larger than one that is by more than `error`.
void expect_largest(const std::vector<std::int32_t>& ids, const Matrix& values, double error) {
  const std::int64_t k = std::ssize(ids) / values.rows;
  for (std::int64_t r = 0; r < values.rows; ++r) {
    const auto first = ids.begin() + r * k, last = first + k;
    ASSERT_TRUE(std::adjacent_find(first, last, std::greater_equal<>()) == last) << "row " << r;
    ASSERT_TRUE(*first >= 0 && last[-1] < values.cols) << "row " << r;
    double least = std::numeric_limits<double>::infinity(), most = -least;
    for (std::int64_t i = 0; i < values.cols; ++i)
      if (std::binary_search(first, last, i))
        least = std::min(least, values(r, i));
      else
        most = std::max(most, values(r, i));
    EXPECT_LE(most, least + error) << "row " << r;
  }
}

/// Checks a Route, and returns the router with the choice it made.
Router check_route(std::int64_t R, std::int64_t E, Router router, DType bias_type) {
  const Matrix logits = some_logits(R, E);
  const Routed on(logits, router, bias_type);
  test_backend()->run(on.args(router));
  const bool recorded = !router.chosen.empty();
  const std::vector<std::int32_t> ids = on.got_ids();
  if (recorded) {
    EXPECT_EQ(ids, router.chosen);
  }
  router.chosen = ids;
  const Routing want = route(logits, router);
  Matrix preferred = want.scores;
  for (std::int64_t i = 0; i < E && !router.bias.empty(); ++i)
    for (std::int64_t r = 0; r < R; ++r) preferred(r, i) += router.bias[i];
  const double error = routing_error(E);
  if (!recorded) expect_largest(ids, preferred, 2 * error);
  EXPECT_TRUE(on.ids.gap_untouched());
  EXPECT_TRUE(close(on.scores, want.scores, {0, error}));
  EXPECT_TRUE(close(on.weights, want.weights, {0, 2 * error}));
  EXPECT_TRUE(close(on.log_sums, want.log_sums, {error, rounding(DType::f32)}));
  if (router.sigmoid) {
    EXPECT_TRUE(close(on.score_sums, row_sums(want.scores), {0, 2 * error}));
  }
  return router;
}

/// Losses on the scores and the log_sums of rows of sequences.
struct RouterLosses {
  std::int64_t first_row = 0, positions = 1;
  bool balance = false, some_left_out = false;
  double z = 0;
};

/// The gradients of the scores s of row r for gradients b of s, or with a sigmoid of s_i / sum of
/// s.
std::vector<double> of_shares(const Matrix& scores, std::int64_t r, const std::vector<double>& b,
                              bool sigmoid) {
  if (!sigmoid) return b;
  double sum = 0;
  for (std::int64_t i = 0; i < scores.cols; ++i) sum += scores(r, i);
  std::vector<double> d(b.size());
  for (std::int64_t i = 0; i < scores.cols; ++i)  // share i is a function of each score j
    for (std::int64_t j = 0; j < scores.cols; ++j)
      d[j] += b[i] * ((i == j ? 1 : 0) - scores(r, i) / sum) / sum;
  return d;
}

void check_route_backward(std::int64_t R, std::int64_t E, const Router& router,
                          const RouterLosses& losses) {
  const Matrix logits = some_logits(R, E);
  const Routed on(logits, router);
  const auto backend = test_backend();
  backend->run(on.args(router));
  const std::int64_t sequences = (losses.first_row + R - 1) / losses.positions + 1;
  const Matrix d_weights = random_values("d_weights", R, router.k, DType::f32),
               balance = random_values("balance", sequences, E, DType::f32);
  const std::vector<std::int32_t> counted = random_ids("counted", R, 2);
  const Operand d(R, E, DType::f32, 7), d_p(d_weights, DType::f32, 3), b(balance, DType::f32, 2),
      counts(counted);
  backend->run(ops::RouteBackward{.d_logits = d,
                                  .d_weights = d_p,
                                  .forward = on.args(router),
                                  .balance = losses.balance ? b.view() : View{},
                                  .counted = losses.some_left_out ? counts.view() : View{},
                                  .first_row = losses.first_row,
                                  .positions = losses.positions,
                                  .z = static_cast<float>(losses.z)});
  Router recorded = router;
  recorded.chosen = on.got_ids();
  const Routing made = route(logits, recorded);
  Routing d_out{{}, d_weights, Matrix(R, E), Matrix(R, 1)};
  for (std::int64_t r = 0; r < R; ++r) {
    if (losses.some_left_out && counted[r] == 0) continue;
    d_out.log_sums(r, 0) = 2 * losses.z * made.log_sums(r, 0);
    if (!losses.balance) continue;
    std::vector<double> of_sequence(E);
    for (std::int64_t i = 0; i < E; ++i)
      of_sequence[i] = balance((losses.first_row + r) / losses.positions, i);
    std::ranges::copy(of_shares(made.scores, r, of_sequence, router.sigmoid), &d_out.scores(r, 0));
  }
  // The scores' gradients are at most about twice scale / their sum; a score is at least 1 / E.
  const double most = 2 * router.scale * (router.normalise ? static_cast<double>(E) : 1) + 2 +
                      2 * losses.z * largest(made.log_sums);
  EXPECT_TRUE(
      close(d, route_backward(d_out, logits, recorded), {most * routing_error(E) / 8, 1e-6}));
}

std::vector<double> biases(std::int64_t E, DType type) {
  return random_values("bias", 1, E, type).values;
}

}  // namespace

TEST(Route, EqualsPlainLoopsForEveryRuleAndSize) {
  for (const bool sigmoid : {false, true})
    for (const bool normalise : {false, true}) {
      SCOPED_TRACE(testing::Message() << sigmoid << normalise);
      const auto router = [&](std::int64_t k, double scale) {
        return Router{.k = k, .sigmoid = sigmoid, .normalise = normalise, .scale = scale};
      };
      check_route(1, 1, router(1, 1), DType::f32);
      check_route(5, 8, router(2, 1), DType::f32);
      check_route(3, 8, router(8, 2.5), DType::f32);
      check_route(70, 128, router(8, 1), DType::f32);
      check_route(9, 65, router(3, 2.5), DType::f32);
      check_route(4, 1024, router(64, 1), DType::f32);
    }
}

TEST(Route, ChoosesByTheBiasButWeighsWithoutIt) {
  for (const DType type : kModelTypes)
    for (const bool sigmoid : {false, true}) {
      Router router{.k = 6, .sigmoid = sigmoid, .normalise = true, .bias = biases(40, type)};
      const Router with = check_route(20, 40, router, type);
      router.bias = {};
      EXPECT_NE(with.chosen, check_route(20, 40, router, type).chosen);
    }
}

TEST(Route, ChoosesExpertsOfTheBestGroups) {
  for (const auto& [E, groups, kept] :
       {std::array<std::int64_t, 3>{40, 8, 3}, {8, 8, 4}, {128, 64, 5}, {6, 2, 1}}) {
    Router router{.k = 3,
                  .sigmoid = true,
                  .normalise = true,
                  .groups = groups,
                  .kept_groups = kept,
                  .bias = biases(E, DType::f32)};
    const Matrix logits = random_values("logits", 30, E, DType::f32);
    const Routed on(logits, router);
    test_backend()->run(on.args(router));
    EXPECT_EQ(on.got_ids(), route(logits, router).ids) << E;
    router.group_best = 1;
    const Routed by_one(logits, router);
    test_backend()->run(by_one.args(router));
    EXPECT_EQ(by_one.got_ids(), route(logits, router).ids) << E << ", by the best one";
  }
  Router few{.k = 3, .groups = 4, .kept_groups = 1};
  const Routed on(Matrix(2, 8), few);
  expect_refusal("1 of 4 groups of 8 experts", on.args(few));
}

TEST(Route, TakesARecordedChoice) {
  Router router{.k = 3, .normalise = true, .scale = 0.5};
  for (int r = 0; r < 10; ++r)
    for (const int id : {r, 12, 15}) router.chosen.push_back(id);
  check_route(10, 16, router, DType::f32);
  router.sigmoid = true;
  check_route(10, 16, router, DType::f32);
}

TEST(Route, BreaksTiesForTheLowerIndexAndChoosesNaNLast) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  Matrix logits(6, 70);
  for (const int i : {9, 33, 69}) logits(1, i) = 2;
  for (const int i : {5, 66}) logits(2, i) = -1;
  for (int i = 0; i < 70; ++i) logits(3, i) = kNaN;
  for (int i = 0; i < 68; ++i) logits(4, i) = i % 2 == 0 ? kNaN : -80;
  logits(5, 64) = -kNaN;
  for (const bool biased : {false, true}) {
    Router router{.k = 4, .sigmoid = true};
    if (biased) router.bias.assign(70, -1.5);
    const Routed on(logits, router);
    test_backend()->run(on.args(router));
    EXPECT_EQ(on.got_ids(), (std::vector<std::int32_t>{0, 1, 2, 3, 0, 9, 33, 69, 0, 1, 2, 3,  //
                                                       0, 1, 2, 3, 1, 3, 68, 69, 0, 1, 2, 3}));
  }
}

TEST(Route, OfOneNaNMakesTheWholeSoftmaxNaNAndStaysWithinTheExperts) {
  Matrix logits = some_logits(2, 20);
  logits(0, 7) = std::numeric_limits<double>::quiet_NaN();
  logits(1, 3) = std::numeric_limits<double>::infinity();
  const Router router{.k = 5, .normalise = true};
  const Routed on(logits, router);
  test_backend()->run(on.args(router));
  EXPECT_EQ(on.got_ids()[0], 0);
  for (int r = 0; r < 2; ++r) {
    EXPECT_TRUE(std::isnan(on.weights.values()(r, 4)));
    EXPECT_GE(on.got_ids()[5 * r + 4], 4);
    EXPECT_LT(on.got_ids()[5 * r + 4], 20);
  }
}

TEST(Route, GivesWeightsAndGradientsOfZeroWhereTheChosenScoresAreZero) {
  // The sigmoid is up to e^-88, 6e-39, and the sum of chosen scores is taken as at least 1e-20.
  constexpr Tolerance kAlmostZero{.absolute = 1e-17};
  const Router router{.k = 2, .sigmoid = true, .normalise = true};
  const Routed on(Matrix(1, 4, -200), router);
  const auto backend = test_backend();
  backend->run(on.args(router));
  EXPECT_TRUE(close(on.weights, Matrix(1, 2), kAlmostZero));
  const Operand d(1, 4, DType::f32), d_weights(Matrix(1, 2, 3), DType::f32);
  backend->run(
      ops::RouteBackward{.d_logits = d, .d_weights = d_weights, .forward = on.args(router)});
  EXPECT_TRUE(close(d, Matrix(1, 4), kAlmostZero));
}

TEST(RouteBackward, EqualsPlainLoopsWithAndWithoutTheLossesOfARouter) {
  for (const bool sigmoid : {false, true})
    for (const bool normalise : {false, true})
      for (const RouterLosses& losses :
           {RouterLosses{}, RouterLosses{.z = 0.25}, RouterLosses{.positions = 7, .balance = true},
            RouterLosses{.first_row = 9,
            .positions = 4,
            .balance = true,
            .some_left_out = true,
            .z = 0.5}}) {
        SCOPED_TRACE(testing::Message() << sigmoid << normalise << losses.z << losses.balance);
        Router router{.k = 3, .sigmoid = sigmoid, .normalise = normalise, .scale = 2.5};
        check_route_backward(1, 8, router, losses);
        check_route_backward(33, 70, router, losses);
        router.k = 8;
        check_route_backward(13, 128, router, losses);
        check_route_backward(2, 8, router, losses);  // all are chosen
        router.k = 64;
        check_route_backward(3, 1024, router, losses);
      }
}

TEST(RouteCounts, AddUpCountsAndSharesOfTheCountedRowsOfEachSequence) {
  for (const std::int64_t R : {1, 200, 331})
    for (const std::int64_t positions : {1, 3, 70, 1000})
      for (const std::int64_t first_row : {0, 50})
        for (const bool all : {false, true}) {
          const bool sigmoid = positions != 3;
          SCOPED_TRACE(testing::Message() << R << ' ' << positions << ' ' << first_row << all);
          const std::int64_t E = 10, k = 3, S = (first_row + R - 1) / positions + 2;
          const Router router{.k = k, .sigmoid = sigmoid};
          const Matrix logits = some_logits(R, E);
          const Routing made = route(logits, router);
          const std::vector<std::int32_t> counted = random_ids("counted", R, 2);
          Matrix ids(R, k), want = random_values("before", S, 2 * E + 2, DType::f64);
          std::ranges::copy(made.ids, ids.values.begin());
          const Operand out(want, DType::f64, 3), i(ids, DType::i32, 1),
              scores(made.scores, DType::f32, 2), log_sums(made.log_sums, DType::f32),
              sums(row_sums(made.scores), DType::f32, 1), counts(counted);
          test_backend()->run(ops::RouteCounts{.out = out,
                                               .ids = i,
                                               .scores = scores,
                                               .log_sums = log_sums,
                                               .score_sums = sigmoid ? sums.view() : View{},
                                               .counted = all ? View{} : counts.view(),
                                               .first_row = first_row,
                                               .positions = positions});
          const Matrix s = scores.values(), lse = log_sums.values(), total = sums.values();
          for (std::int64_t r = 0; r < R; ++r) {
            if (!all && counted[r] == 0) continue;
            const std::int64_t to = (first_row + r) / positions;
            for (std::int64_t j = 0; j < k; ++j) want(to, made.ids[r * k + j]) += 1;
            for (std::int64_t e = 0; e < E; ++e)
              want(to, E + e) += sigmoid ? s(r, e) / total(r, 0) : s(r, e);
            want(to, 2 * E) += lse(r, 0) * lse(r, 0);
            want(to, 2 * E + 1) += 1;
          }
          EXPECT_TRUE(close(out, want, {1e-12, 1e-13}));  // sums in double, in another order
        }
}

TEST(Route, AndWhatFollowsItTakeNoRows) {
  const auto backend = test_backend();
  const Router router{.k = 2};
  const Routed on(Matrix(0, 4), router);
  const Operand none(0, 4, DType::f32), d_weights(0, 2, DType::f32), out(1, 10, DType::f64);
  backend->run(on.args(router));
  backend->run(
      ops::RouteBackward{.d_logits = none, .d_weights = d_weights, .forward = on.args(router)});
  backend->run(
      ops::RouteCounts{.out = out, .ids = on.ids, .scores = on.scores, .log_sums = on.log_sums});
  EXPECT_TRUE(close(out, Matrix(1, 10), {}));
}

TEST(Route, RefusesMoreExpertsThanThereAreAndTooFewSequences) {
  const Routed on(Matrix(5, 4), {.k = 2});
  const Operand wide(5, 5, DType::i32), weights(5, 5, DType::f32), d(5, 4, DType::f32),
      few(2, 4, DType::f32), sums(2, 10, DType::f64);
  ops::Route args = on.args({.k = 2});
  const ops::RouteBackward back{
      .d_logits = d, .d_weights = on.weights, .forward = args, .balance = few, .positions = 2};
  expect_refusal("route_backward: (2,4) f32 for 5 rows from 0 of sequences of 2", back);
  ops::RouteCounts counts{.out = sums,
                          .ids = on.ids,
                          .scores = on.scores,
                          .log_sums = on.log_sums,
                          .first_row = 5,
                          .positions = 5};
  test_backend()->run(counts);
  counts.first_row = 6;
  expect_refusal("route_counts: (2,10) f64 for 5 rows from 6 of sequences of 5", counts);
  counts.positions = 0;
  expect_refusal("sequences of 0 positions", counts);
  args.ids = wide;
  args.weights = weights;
  expect_refusal("route: ids is (5,5) i32, want 1 to 4 experts of each row", args);
}
