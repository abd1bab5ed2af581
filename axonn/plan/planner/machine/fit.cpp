#include "axonn/plan/planner/machine/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// seconds = α · first + β · second.
struct Term {
  double first = 0, second = 0;
  double seconds = 0;
};

struct Factors {
  double first = 0, second = 0;

  double seconds(double a, double b) const { return first * a + second * b; }
};

double squared_error(std::span<const Term> terms, Factors f) {
  double sum = 0;
  for (const Term& t : terms) {
    const double error = f.seconds(t.first, t.second) / t.seconds - 1;
    sum += error * error;
  }
  return sum;
}

/// The non-negative α and β with the least sum of squared relative errors: solves the normal
/// equations of two unknowns, or, if one of them would be negative, that of the other alone.
Factors least_squares(std::span<const Term> terms) {
  double uu = 0, uv = 0, vv = 0, u = 0, v = 0;
  for (const Term& t : terms) {
    const double a = t.first / t.seconds, b = t.second / t.seconds;
    uu += a * a;
    uv += a * b;
    vv += b * b;
    u += a;
    v += b;
  }
  const double determinant = uu * vv - uv * uv;
  if (determinant > 1e-12 * uu * vv) {  // else the two cannot be told apart
    const Factors both{(vv * u - uv * v) / determinant, (uu * v - uv * u) / determinant};
    if (both.first >= 0 && both.second >= 0) return both;
  }
  const Factors first{uu > 0 ? u / uu : 0, 0}, second{0, vv > 0 ? v / vv : 0};
  return squared_error(terms, first) < squared_error(terms, second) ? first : second;
}

}  // namespace

ProductRate fit_product_rate(std::span<const TimedProduct> products) {
  AXONN_CHECK(!products.empty(), "fit_product_rate: no products");
  std::array<double, 3> half{};  // of m, n and k
  Factors factors;
  std::vector<Term> terms(products.size());
  // 2 (m + m½) (n + n½) (k + k½) / rate is linear in 1 / rate and m½ / rate if the other two are
  // fixed, so they are fitted in turn. They hardly depend on one another, so this converges fast.
  constexpr int kRounds = 100;
  for (int turn = 0; turn < 3 * kRounds; ++turn) {
    const int mine = turn % 3;
    for (std::size_t i = 0; i < products.size(); ++i) {
      const TimedProduct& p = products[i];
      AXONN_CHECK(p.seconds > 0, "fit_product_rate: a product of ", p.m, ',', p.n, ',', p.k,
                  " took ", p.seconds, " s");
      const std::array sizes{static_cast<double>(p.m), static_cast<double>(p.n),
                             static_cast<double>(p.k)};
      double others = 2;
      for (int j = 0; j < 3; ++j)
        if (j != mine) others *= sizes[j] + half[j];
      terms[i] = {others * sizes[mine], others, p.seconds};
    }
    factors = least_squares(terms);
    // If noise hides that larger products take longer, fits the rate alone.
    if (factors.first <= 0) {
      for (Term& term : terms) term.second = 0;
      factors = least_squares(terms);
    }
    half[mine] = factors.second / factors.first;
  }
  return {
      .flops_per_s = 1 / factors.first, .half_m = half[0], .half_n = half[1], .half_k = half[2]};
}

double fit_rows_rate(std::span<const TimedRows> times, double launch_s) {
  AXONN_CHECK(!times.empty(), "fit_rows_rate: no times");
  double bytes = 0, seconds = 0;
  for (const TimedRows& t : times) {
    AXONN_CHECK(t.seconds > 0, "fit_rows_rate: ", t.bytes, " bytes took ", t.seconds, " s");
    bytes += t.bytes;
    // Launches vary, too; at least half of the measured time counts as work.
    seconds += std::max(t.seconds - launch_s, t.seconds / 2);
  }
  return bytes / seconds;
}

GroupRate fit_group_rate(std::span<const TimedCollective> times) {
  AXONN_CHECK(!times.empty(), "fit_group_rate: no times");
  const auto ways_of = [](const TimedCollective& timed) {
    return algorithms_of(timed.operation, timed.size, timed.bytes);
  };
  std::vector<Term> terms;  // of the algorithm that each takes; first assumes rings
  for (const TimedCollective& timed : times) {
    AXONN_CHECK(timed.seconds > 0, "fit_group_rate: an ", timed.operation, " of ", timed.bytes,
                " bytes took ", timed.seconds, " s");
    const CollectiveAlgorithm ring = ways_of(timed).front();
    terms.push_back({ring.hops, ring.bytes, timed.seconds});
  }
  Factors factors = least_squares(terms);
  constexpr int kRounds = 10;
  for (int round = 1; round < kRounds; ++round) {
    for (std::size_t i = 0; i < times.size(); ++i) {
      const auto way = std::ranges::min(ways_of(times[i]), {}, [&](const CollectiveAlgorithm& one) {
        return factors.seconds(one.hops, one.bytes);
      });
      terms[i] = {way.hops, way.bytes, times[i].seconds};
    }
    factors = least_squares(terms);
  }
  if (factors.second == 0) {  // noise hides the cost of bytes: takes the largest message's rate
    const auto largest = std::ranges::max_element(times, {}, &TimedCollective::bytes);
    factors.second = largest->seconds / ways_of(*largest).front().bytes;
  }
  return {
      .size = times.front().size, .latency_s = factors.first, .bytes_per_s = 1 / factors.second};
}

}  // namespace axonn
