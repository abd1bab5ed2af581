#include "axonn/use/memorize/membership.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <unordered_map>

#include <zlib.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

namespace {

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The mean of the least 20 % of them, rounded down, but at least of one.
double least_fifth(std::vector<double> values) {
  const auto count = std::max<std::size_t>(values.size() * 20 / 100, 1);
  std::ranges::partial_sort(values, values.begin() + static_cast<std::ptrdiff_t>(count));
  return mean_of(std::span(values).first(count));
}

std::size_t compressed_bytes(std::string_view text) {
  constexpr int kLevel = 6;
  uLongf size = compressBound(text.size());
  std::string out(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(text.data()), text.size(), kLevel);
  AXONN_CHECK(status == Z_OK, "membership_scores: zlib failed with ", status);
  return size;
}

/// Scores with how often each counts, largest first.
struct Weighted {
  std::vector<double> scores;
  std::vector<std::int64_t> counts;

  explicit Weighted(std::span<const double> from)
      : scores(from.begin(), from.end()), counts(from.size(), 1) {
    std::ranges::sort(scores, std::greater());
  }
};

/// Members above the least threshold that at most `allowed` others reach.
std::int64_t found_above(const Weighted& members, const Weighted& others, std::int64_t allowed) {
  double least = -INFINITY;  // scores must be larger
  bool all = true;
  for (std::size_t i = 0; i < others.scores.size() && all; ++i) {
    allowed -= others.counts[i];
    if (allowed >= 0) continue;
    least = others.scores[i];
    all = false;
  }
  std::int64_t found = 0;
  for (std::size_t i = 0; i < members.scores.size(); ++i) {
    if (!all && !(members.scores[i] > least)) break;
    found += members.counts[i];
  }
  return found;
}

std::int64_t allowed_of(double rate, std::size_t others) {
  constexpr double kRounding = 1e-9;
  return static_cast<std::int64_t>(std::floor(rate * static_cast<double>(others) + kRounding));
}

/// Sets how often each score is drawn when as many as there are are drawn with replacement.
void draw(const Random& random, std::uint64_t& index, Weighted& scores) {
  std::ranges::fill(scores.counts, 0);
  for (std::size_t i = 0; i < scores.scores.size(); ++i)
    ++scores.counts[random.below(index++, scores.scores.size())];
}

TruePositives true_positives(Weighted members, Weighted others, double rate, std::uint64_t seed) {
  constexpr int kDraws = 1000;
  const std::int64_t allowed = allowed_of(rate, others.scores.size()),
                     count = std::ssize(members.scores);
  TruePositives result{.false_rate = rate, .found = found_above(members, others, allowed)};
  const auto share = [&](std::int64_t found) {
    return static_cast<double>(found) / static_cast<double>(count);
  };
  result.share = share(result.found);
  const Interval exact = clopper_pearson(result.found, count);
  result.low = exact.low;
  result.high = exact.high;
  const Random random(seed, concat("bootstrap ", rate));
  std::uint64_t index = 0;
  std::vector<double> shares;
  for (int i = 0; i < kDraws; ++i) {
    draw(random, index, members);
    draw(random, index, others);
    shares.push_back(share(found_above(members, others, allowed)));
  }
  std::ranges::sort(shares);
  result.from = shares[kDraws * 25 / 1000];
  result.to = shares[kDraws * 975 / 1000 - 1];
  return result;
}

/// Of each of `ones`, the share of `against` that is smaller, ties half.
std::vector<double> placements(std::span<const double> ones, std::span<const double> against) {
  std::vector<double> sorted(against.begin(), against.end()), shares;
  std::ranges::sort(sorted);
  for (const double one : ones) {
    const auto equal = std::ranges::equal_range(sorted, one);
    const auto less = static_cast<double>(equal.begin() - sorted.begin()),
               ties = static_cast<double>(equal.size());
    shares.push_back((less + ties / 2) / static_cast<double>(sorted.size()));
  }
  return shares;
}

/// The chance that some point (i, j) of a random path to (n, m), by steps along i and along j, has
/// |i m - j n| of at least `least`: that of a sorted sequence of both samples.
double chance_to_reach(std::int64_t least, std::int64_t n, std::int64_t m) {
  std::vector<double> row(m + 1);  // of i: the chance of the paths to (i, j)
  for (std::int64_t i = 0; i <= n; ++i)
    for (std::int64_t j = 0; j <= m; ++j) {
      const auto from_i = static_cast<double>(i), from_j = static_cast<double>(j);
      const double before =
          i + j == 0 ? 0
                     : (from_i * row[j] + (j > 0 ? from_j * row[j - 1] : 0)) / (from_i + from_j);
      row[j] = std::abs(i * m - j * n) >= least ? 1 : before;
    }
  return row[m];
}

/// The same of many, by the distance times the root of n m / (n + m).
double kolmogorov_limit(double scaled) {
  double p = 0, sign = 2;
  for (int k = 1; k <= 100; ++k, sign = -sign) p += sign * std::exp(-2. * k * k * scaled * scaled);
  return scaled < 0.2 ? 1 : std::clamp(p, 0.0, 1.0);  // where the series needs many terms, p is 1
}

/// P(at least k of n) of a chance p each.
double upper_tail(std::int64_t k, std::int64_t n, double p) {
  if (k <= 0 || p >= 1) return 1;
  if (p <= 0) return 0;
  const auto N = static_cast<double>(n);
  double sum = 0;
  for (std::int64_t i = k; i <= n; ++i) {
    const auto x = static_cast<double>(i);
    sum += std::exp(std::lgamma(N + 1) - std::lgamma(x + 1) - std::lgamma(N - x + 1) +
                    x * std::log(p) + (N - x) * std::log1p(-p));
  }
  return sum;
}

/// The p at which an increasing function reaches `wanted`.
double solve(const std::function<double(double p)>& f, double wanted) {
  constexpr int kSteps = 60;  // to the last digits of a double
  double low = 0, high = 1;
  for (int i = 0; i < kSteps; ++i) {
    const double middle = (low + high) / 2;
    (f(middle) < wanted ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

MembershipScores membership_scores(std::span<const TargetRecord> targets, std::string_view text) {
  constexpr double kLeastVariance = 1e-6;
  AXONN_CHECK(!targets.empty(), "membership_scores: the document has no targets");
  std::vector<double> log_p, relative;
  for (const TargetRecord& one : targets) {
    log_p.push_back(one.log_p);
    relative.push_back((one.log_p - one.mean) / std::sqrt(std::max(one.variance, kLeastVariance)));
  }
  const double mean = mean_of(log_p);
  return {.loss = mean,
          .zlib = mean / static_cast<double>(compressed_bytes(text)),
          .min_k = least_fifth(log_p),
          .min_k_pp = least_fifth(relative)};
}

double variance_of(std::span<const double> values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return squares / static_cast<double>(values.size() - 1);
}

Separation separate(std::span<const double> members, std::span<const double> others,
                    std::uint64_t seed) {
  AXONN_CHECK(members.size() >= 2 && others.size() >= 2, "separate: ", members.size(),
              " members and ", others.size(), " others, wanted at least two of each");
  const std::vector<double> of_members = placements(members, others);
  std::vector<double> of_others = placements(others, members);
  const double variance = variance_of(of_members) / static_cast<double>(members.size()) +
                          variance_of(of_others) / static_cast<double>(others.size());
  constexpr double kZ = 1.959963984540054;  // the normal distribution's 97.5 % quantile
  Separation result{.members = std::ssize(members),
                    .others = std::ssize(others),
                    .auc = mean_of(of_members),
                    .auc_error = std::sqrt(variance)};
  result.low = std::max(result.auc - kZ * result.auc_error, 0.0);
  result.high = std::min(result.auc + kZ * result.auc_error, 1.0);
  for (std::size_t i = 0; i < kFalseRates.size(); ++i)
    if (allowed_of(kFalseRates[i], others.size()) >= 1)
      result.true_positives[i] =
          true_positives(Weighted(members), Weighted(others), kFalseRates[i], seed);
  return result;
}

double conformal_p_value(double score, std::span<const double> controls) {
  const auto reach = controls.end() - std::ranges::lower_bound(controls, score);
  return static_cast<double>(1 + reach) / static_cast<double>(1 + std::ssize(controls));
}

SampleDistance sample_distance(std::vector<double> one, std::vector<double> other) {
  AXONN_CHECK(!one.empty() && !other.empty(), "sample_distance: an empty sample");
  std::ranges::sort(one);
  std::ranges::sort(other);
  // Of shares i / n and j / m the difference is |i m - j n| / (n m), in whole numbers.
  const std::int64_t n = std::ssize(one), m = std::ssize(other);
  std::int64_t most = 0;
  for (std::int64_t i = 0, j = 0; i < n && j < m;) {
    const double value = std::min(one[i], other[j]);
    while (i < n && one[i] == value) ++i;
    while (j < m && other[j] == value) ++j;
    most = std::max(most, std::abs(i * m - j * n));
  }
  const double pairs = static_cast<double>(n) * static_cast<double>(m);
  const SampleDistance found{.distance = static_cast<double>(most) / pairs};
  return {.distance = found.distance,
          .p = pairs > 1e8 ? kolmogorov_limit(found.distance *
                                              std::sqrt(pairs / static_cast<double>(n + m)))
                           : chance_to_reach(most, n, m)};
}

Interval clopper_pearson(std::int64_t found, std::int64_t count) {
  constexpr double kHalf = 0.025;
  AXONN_CHECK(count >= 1 && found >= 0 && found <= count, "clopper_pearson: invalid share ", found,
              " of ", count);
  Interval result{0, 1};
  if (found > 0) result.low = solve([&](double p) { return upper_tail(found, count, p); }, kHalf);
  if (found < count)
    result.high = solve([&](double p) { return upper_tail(found + 1, count, p); }, 1 - kHalf);
  return result;
}

std::vector<double> blind_scores(
    std::int64_t members, std::int64_t others,
    const std::function<std::vector<std::int32_t>(std::int64_t n)>& tokens) {
  constexpr std::int64_t kFolds = 10;
  AXONN_CHECK(members >= 2 && others >= 2, "blind_scores: ", members, " members and ", others,
              " others, wanted at least two of each");
  using Counts = std::array<std::int64_t, 2>;  // of members and of others
  const Counts sizes{members, others};
  std::unordered_map<std::int32_t, Counts> all;
  Counts totals{};
  const auto add = [&](std::size_t of, std::int64_t n, int sign) {
    const std::vector<std::int32_t> document = tokens(n);
    for (const std::int32_t token : document) all[token][of] += sign;
    totals[of] += sign * std::ssize(document);
  };
  for (std::int64_t n = 0; n < members + others; ++n) add(n < members ? 0 : 1, n, 1);
  const auto V = static_cast<double>(all.size());
  std::vector<double> scores(members + others);
  for (std::int64_t fold = 0; fold < kFolds; ++fold) {
    const auto each = [&](const auto& f) {  // document of the fold
      for (std::size_t of = 0; of < 2; ++of)
        for (std::int64_t i = fold; i < sizes[of]; i += kFolds) f(of, of * members + i);
    };
    Counts documents = sizes;
    each([&](std::size_t of, std::int64_t n) {
      add(of, n, -1);
      --documents[of];
    });
    const auto log_share = [&](std::int32_t token, std::size_t of) {  // with Laplace's smoothing
      return std::log((static_cast<double>(all[token][of]) + 1) /
                      (static_cast<double>(totals[of]) + V));
    };
    each([&](std::size_t, std::int64_t n) {
      scores[n] =
          std::log(static_cast<double>(documents[0])) - std::log(static_cast<double>(documents[1]));
      for (const std::int32_t token : tokens(n))
        scores[n] += log_share(token, 0) - log_share(token, 1);
    });
    each([&](std::size_t of, std::int64_t n) { add(of, n, 1); });
  }
  return scores;
}

}  // namespace axonn
