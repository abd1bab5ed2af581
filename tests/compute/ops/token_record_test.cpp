// Records of targets against plain loops in double, and against numbers worked out by hand.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Policy {
  float temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 1;
};

/// Tokens of a row from the likeliest, of equal ones the lower id first.
std::vector<std::int32_t> order_of(const Matrix& x, std::int64_t row) {
  std::vector<std::int32_t> order(x.cols);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](std::int32_t id) { return x(row, id); });
  return order;
}

/// By sorting and adding, as the definition says.
double log_q(const Matrix& x, std::int64_t row, std::int32_t target, const Policy& policy) {
  std::vector<std::int32_t> order = order_of(x, row);
  if (policy.temperature == 0) return order[0] == target ? 0 : kNever;
  const auto weight = [&](std::int32_t id) {
    return std::exp((x(row, id) - x(row, order[0])) / policy.temperature);
  };
  const auto mass = [&](std::size_t count) {
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += weight(order[i]);
    return sum;
  };
  if (policy.top_k > 0 && policy.top_k < std::ssize(order)) order.resize(policy.top_k);
  const double all = mass(order.size());
  std::size_t kept = 1;
  double reached = mass(kept);
  while (policy.top_p < 1 && reached < policy.top_p * all) reached += weight(order[kept++]);
  if (policy.top_p < 1) order.resize(kept);
  if (std::ranges::find(order, target) == order.end()) return kNever;
  return std::log(weight(target) / mass(order.size()));
}

/// log p, rank, and mean and variance of log p under p.
Matrix record_of(const Matrix& x, const std::vector<std::int32_t>& targets) {
  Matrix out(x.rows, 4);
  for (std::int64_t r = 0; r < x.rows; ++r) {
    if (targets[r] < 0) continue;
    const std::vector<std::int32_t> order = order_of(x, r);
    const double most = x(r, order[0]);
    double total = 0, mean = 0, squares = 0;
    for (const std::int32_t id : order) total += std::exp(x(r, id) - most);
    const auto log_p = [&](std::int32_t id) { return x(r, id) - most - std::log(total); };
    for (const std::int32_t id : order)
      if (const double p = std::exp(log_p(id)); p > 0) mean += p * log_p(id);
    for (const std::int32_t id : order)
      if (const double p = std::exp(log_p(id)); p > 0)
        squares += p * (log_p(id) - mean) * (log_p(id) - mean);
    out(r, 0) = log_p(targets[r]);
    out(r, 1) = static_cast<double>(std::ranges::find(order, targets[r]) - order.begin()) + 1;
    out(r, 2) = mean;
    out(r, 3) = squares;
  }
  return out;
}

/// The rows as so many pieces of C columns, stacked and with padding that holds large numbers.
Matrix stacked(const Matrix& x, std::int64_t pieces, std::int64_t C) {
  Matrix out(pieces * x.rows, C, 1000);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) out(c / C * x.rows + r, c % C) = x(r, c);
  return out;
}

/// Computed by the operations.
struct Recorder {
  Matrix x;
  std::vector<std::int32_t> ids;
  std::int64_t pieces = 1, C = 0;

  Matrix record() const {
    const auto backend = test_backend();
    const Operand logits(stacked(x, pieces, C), DType::f32, 3), targets(ids),
        out(x.rows, 4, DType::f32, 2);
    backend->run(ops::TokenRecord{out, logits, targets, x.cols, pieces});
    return out.values();
  }
  Matrix log_q(const Policy& policy) const {
    const auto backend = test_backend();
    const Operand logits(stacked(x, pieces, C), DType::f32, 3), targets(ids),
        out(x.rows, 1, DType::f32);
    backend->run(ops::PolicyLogProbability{.out = out,
                                           .logits = logits,
                                           .targets = targets,
                                           .vocab = x.cols,
                                           .pieces = pieces,
                                           .temperature = policy.temperature,
                                           .top_k = policy.top_k,
                                           .top_p = policy.top_p});
    return out.values();
  }
};

const std::vector<Policy> kPolicies{{1, 0, 1},     {0.5f, 0, 1},   {0, 0, 1},     {1, 1, 1},
                                    {1, 2, 1},     {1, 40, 1},     {0.7f, 5, 1},  {1, 0, 0.8},
                                    {1, 0, 0.999}, {2.0f, 0, 0.3}, {1, 40, 0.95}, {0.7f, 3, 0.5},
                                    {1, 0, 0},     {1, 1000000, 1}};

/// The rank and whether a token is kept are exact; sums of V terms have errors of f32.
void expect_close(double got, double want, const char* what, std::int64_t row) {
  if (want == kNever)
    EXPECT_EQ(got, want) << what << " of row " << row;
  else
    EXPECT_NEAR(got, want, 1e-6 * (1 + std::abs(want))) << what << " of row " << row;
}

void check(const Recorder& made) {
  const Matrix record = made.record(), want = record_of(made.x, made.ids);
  for (std::int64_t r = 0; r < want.rows; ++r)
    for (std::int64_t c = 0; c < 4; ++c) expect_close(record(r, c), want(r, c), "figure", r);
  for (const Policy& policy : kPolicies) {
    SCOPED_TRACE(testing::Message() << "temperature " << policy.temperature << ", top_k "
                                    << policy.top_k << ", top_p " << policy.top_p);
    const Matrix got = made.log_q(policy);
    for (std::int64_t r = 0; r < want.rows; ++r)
      expect_close(got(r, 0), made.ids[r] < 0 ? 0 : log_q(made.x, r, made.ids[r], policy), "log q",
                   r);
  }
}

}  // namespace

TEST(TokenRecord, EqualsPlainLoopsWholeAndInPiecesForTargetsOfEveryRank) {
  for (const auto& [V, pieces, C] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 1},
                                     {17, 1, 17},
                                     {251, 3, 84},
                                     {10, 6, 2},  // the last piece is all padding
                                     {5003, 2, 2502}}) {
    SCOPED_TRACE(testing::Message() << V << " tokens in " << pieces << " pieces");
    constexpr std::int64_t kR = 12;
    Recorder made{random_values("x", kR, V, DType::f32), {}, pieces, C};
    for (double& value : made.x.values) value *= 6;
    made.ids = random_ids("targets", kR, V);
    for (std::int64_t r = 2; r < kR; ++r)  // ranks 1, 2, 3, 5, 9, ...
      made.ids[r] = order_of(made.x, r)[std::min(V - 1, (std::int64_t{1} << (r - 2)) / 2)];
    made.ids[1] = -1;
    check(made);
  }
}

TEST(TokenRecord, OrdersEqualLogitsByTheirIds) {
  Recorder made{Matrix(6, 30), {0, 7, 29, 1, 2, 3}, 2, 15};
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 30; ++c) made.x(r, c) = r == 2 ? -0.0 : 1.5;  // all equal
  for (std::int64_t r = 3; r < 6; ++r)
    for (std::int64_t c = 0; c < 30; ++c) made.x(r, c) = c % 3 == 0 ? 2 : -1;  // ten, and twenty
  made.x(2, 3) = 0;                                                            // equal to -0
  check(made);
  EXPECT_EQ(made.record()(1, 1), 8);
  EXPECT_EQ(made.record()(2, 1), 30);
}

TEST(TokenRecord, KeepsItsDigitsWithLargeLogitsAndWithMinusInfinities) {
  Recorder made{random_values("x", 3, 400, DType::f32), {6, 6, 7}, 1, 400};
  for (std::int64_t c = 0; c < 400; ++c) {
    made.x(0, c) += 300;
    made.x(1, c) = c % 2 == 0 ? made.x(1, c) : -1e30f;
    made.x(2, c) = c == 7 ? 200 : made.x(2, c);
  }
  for (double& value : made.x.values) value = static_cast<float>(value);
  const Matrix got = made.record(), want = record_of(made.x, made.ids);
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 3; ++c) expect_close(got(r, c), want(r, c), "figure", r);
  made.x(0, 6) = kNever;
  EXPECT_EQ(made.record()(0, 0), kNever);
  EXPECT_EQ(made.record()(0, 1), 400);
  EXPECT_EQ(made.log_q({1, 0, 0.9})(0, 0), kNever);
}

TEST(TokenRecord, HasTheNumbersThatAreWorkedOutByHand) {
  Recorder made{Matrix(3, 5), {1, 2, 0}, 1, 5};
  made.x.values = {2, 1, .5, -1, -2, 0, 3, 2.5, 1, -1, 1.5, 1.4, .2, .1, 0};
  for (double& value : made.x.values) value = static_cast<float>(value);
  const Matrix record = made.record();
  const double lse[] = {2.506283, 3.593310, 2.473463}, mean[] = {1.442353, 2.559904, 1.075117},
               deviation[] = {0.812444, 0.773727, 0.607563}, rank[] = {2, 2, 1};
  for (std::int64_t r = 0; r < 3; ++r) {
    EXPECT_NEAR(record(r, 0), made.x(r, made.ids[r]) - lse[r], 1e-6);
    EXPECT_EQ(record(r, 1), rank[r]);
    EXPECT_NEAR(record(r, 2), mean[r] - lse[r], 1.5e-6);
    EXPECT_NEAR(std::sqrt(record(r, 3)), deviation[r], 1e-6);
  }
  const auto expect_policy = [&](const Policy& policy, const std::vector<double>& q) {
    const Matrix got = made.log_q(policy);
    for (std::int64_t r = 0; r < 3; ++r) EXPECT_NEAR(std::exp(got(r, 0)), q[r], 1e-6);
  };
  expect_policy({}, {.221733, .335106, .377772});
  expect_policy({0.5f, 0, 1}, {.113925, .264850, .499101});
  expect_policy({1, 2, 1}, {.268941, .377541, .524979});
  expect_policy({0.5f, 2, 1}, {.119203, .268941, .549834});
  expect_policy({1, 0, 0.8}, {.268941, .377541, .459270});
  expect_policy({1, 1, 1}, {0, 0, 1});
}

TEST(TokenRecord, IsNaNForANaNLogit) {
  Recorder made{random_values("x", 1, 40, DType::f32), {3}, 1, 40};
  made.x(0, 25) = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(made.record()(0, 0)));
}
