#include "tests/support/router_reference.h"

#include <cmath>

namespace axonn::reference {

namespace {

bool counts(const RouterRows& rows, std::int64_t row) {
  return rows.counted.empty() || rows.counted[row];
}

/// Of rows [begin, end) of one layer: how many are counted, f_i and P_i, the mean of the share that
/// expert i has of a row's scores (DeepSeek-V3, equations 18 to 20).
struct Use {
  double rows = 0;
  std::vector<double> f, p;
};

Use use_of(const Routing& routing, const RouterRows& rows, std::int64_t begin, std::int64_t end) {
  const std::int64_t k = routing.weights.cols, E = routing.scores.cols;
  Use use{.f = std::vector<double>(E), .p = std::vector<double>(E)};
  for (std::int64_t r = begin; r < end; ++r) {
    if (!counts(rows, r)) continue;
    ++use.rows;
    for (std::int64_t j = 0; j < k; ++j) use.f[routing.ids[r * k + j]] += 1;
    double sum = 0;
    for (std::int64_t i = 0; i < E; ++i) sum += routing.scores(r, i);
    for (std::int64_t i = 0; i < E; ++i) use.p[i] += routing.scores(r, i) / sum;
  }
  for (std::int64_t i = 0; i < E && use.rows > 0; ++i) {
    use.f[i] /= double(k) * use.rows;
    use.p[i] /= use.rows;
  }
  return use;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double out = 0;
  for (std::size_t i = 0; i < a.size(); ++i) out += a[i] * b[i];
  return out;
}

}  // namespace

double balance_loss(const std::vector<Routing>& routings, BalanceScope scope,
                    const RouterRows& rows) {
  const std::int64_t all = routings.front().scores.rows, E = routings.front().scores.cols,
                     k = routings.front().weights.cols;
  const double layers = double(routings.size());
  const std::int64_t each = scope == BalanceScope::sequence ? rows.positions : all;
  std::vector<double> f(E), p(E);
  double loss = 0;
  for (const Routing& routing : routings) {
    const double counted = use_of(routing, rows, 0, all).rows;
    for (std::int64_t begin = 0; begin < all; begin += each) {
      const Use use = use_of(routing, rows, begin, begin + each);
      loss += use.rows / counted * double(E) * dot(use.f, use.p) / layers;
      for (std::int64_t i = 0; i < E && scope == BalanceScope::hugging_face; ++i) {
        f[i] += use.f[i] / layers;
        p[i] += use.p[i] / layers;
      }
    }
  }
  return scope == BalanceScope::hugging_face ? double(k * E) * dot(f, p) : loss;
}

double z_loss(const std::vector<Routing>& routings, const RouterRows& rows) {
  double total = 0, count = 0;
  for (const Routing& routing : routings)
    for (std::int64_t r = 0; r < routing.log_sums.rows; ++r) {
      if (!counts(rows, r)) continue;
      total += routing.log_sums(r, 0) * routing.log_sums(r, 0);
      ++count;
    }
  return total / count;
}

}  // namespace axonn::reference
