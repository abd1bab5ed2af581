#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/ops/rowwise/softmax.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

// Figures of the target of each row of whole logits. Tokens are ordered by their logits, of equal
// ones the lower id first.

/// Rows of logits that lie in pieces of the vocabulary, stacked.
struct PiecedLogits {
  Matrix<const float> pieces;  // (pieces · each, C)
  std::int64_t each;           // rows of a piece
  int C;
  std::int64_t V;  // tokens of all pieces; the rest is padding

  AXONN_DEVICE float at(std::int64_t row, std::int32_t token) const {
    return pieces.row(token / C * each + row)[token % C];
  }

  /// Calls f(x, count, first) for the part of a row in each piece; `first` is its first token.
  AXONN_DEVICE void for_each(std::int64_t row, auto f) const {
    for (std::int64_t first = 0, p = 0; first < V; first += C, ++p)
      f(pieces.row(p * each + row), static_cast<int>(V - first < C ? V - first : C), first);
  }

  AXONN_DEVICE float max(const auto& team, std::int64_t row) const {
    float most = -std::numeric_limits<float>::infinity();
    for_each(row, [&](const float* x, int count, std::int64_t) {
      most = greatest(team.max(count, x), most);
    });
    return most;
  }

  /// The sums of both terms of f.
  AXONN_DEVICE Pair<double> sum_two(const auto& team, std::int64_t row, auto f) const {
    Pair<double> sums{0, 0};
    for_each(row, [&](const float* x, int count, std::int64_t) {
      const Pair<float> part = team.sum_two(count, f, x);
      sums.first += part.first;
      sums.second += part.second;
    });
    return sums;
  }

  /// The number of tokens before one whose logit is `own`.
  AXONN_DEVICE std::int64_t before(const auto& team, std::int64_t row, std::int64_t token,
                                   float own) const {
    std::int64_t total = 0;
    for_each(row, [&](const float* x, int count, std::int64_t first) {
      const std::int64_t inside = token - first;
      const int lower = inside < 0 ? 0 : inside < count ? static_cast<int>(inside) : count;
      total += team.count_if(
          lower, [own](float v) { return v >= own; }, x);
      total += team.count_if(
          count - lower, [own](float v) { return v > own; }, x + lower);
    });
    return total;
  }
};

/// out[row] = log p of the target, its rank, and mean and variance of log p under p. Exponentials
/// are of differences from the maximum, which are exact near it. One team per row. Bound by four
/// passes over a row in the cache, two with an exponential per element.
struct TokenRecordKernel {
  Matrix<float> out;  // (R, 4)
  PiecedLogits logits;
  const std::int32_t* targets;  // (R)

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const std::int32_t target = targets[row];
    if (target < 0) return store(team, row, {});
    constexpr float kLowest = -1e4;  // minus infinity times its probability, 0, would be NaN
    const float own = team.first([&] { return logits.at(row, target); }),
                most = logits.max(team, row);
    const auto [total, moment] = logits.sum_two(team, row, [=](auto v) {
      const auto d = greatest(kLowest, v - most), e = exponential(d);
      return pair(e, e * d);
    });
    const double mean = moment / total, log_total = std::log(total);
    const Pair<double> squares =
        logits.sum_two(team, row, [=, about = static_cast<float>(mean)](auto v) {
          const auto d = greatest(kLowest, v - most), e = exponential(d), from = d - about;
          return pair(e * from * from, e * 0.0f);
        });
    const std::int64_t before = logits.before(team, row, target, own);
    store(team, row,
          {.log_p = own - most - log_total,
           .rank = static_cast<double>(before + 1),
           .mean = mean - log_total,
           .variance = squares.first / total});
  }

 private:
  struct Figures {
    double log_p = 0, rank = 0, mean = 0, variance = 0;
  };
  AXONN_DEVICE void store(const auto& team, std::int64_t row, const Figures& of) const {
    team.once([&] {
      float* to = out.row(row);
      to[0] = static_cast<float>(of.log_p);
      to[1] = static_cast<float>(of.rank);
      to[2] = static_cast<float>(of.mean);
      to[3] = static_cast<float>(of.variance);
    });
  }
};

/// The number of a float in the order of all of them; of zeros of both signs the same.
AXONN_DEVICE inline std::int64_t ordinal_of(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto size = static_cast<std::int64_t>(bits & 0x7fffffffu);
  return bits >> 31 ? -size : size;
}
AXONN_DEVICE inline float float_at(std::int64_t ordinal) {
  const auto bits = static_cast<std::uint32_t>(ordinal < 0 ? -ordinal : ordinal);
  return std::bit_cast<float>(ordinal < 0 ? bits | 0x80000000u : bits);
}

/// out[row] = the k-th largest logit, found by bisection. One team per row. Bound by at most 33
/// passes over a row in the cache.
struct KthLargestLogitKernel {
  Matrix<float> out;  // (R, 1)
  PiecedLogits logits;
  const std::int32_t* targets;  // (R)
  std::int64_t k;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const float found = targets[row] < 0 ? 0 : of_row(team, row);
    team.once([&] { out.row(row)[0] = found; });
  }

 private:
  AXONN_DEVICE float of_row(const auto& team, std::int64_t row) const {
    // At least k logits are as large as the low end, if there are so many, and fewer as the high.
    std::int64_t low = ordinal_of(-std::numeric_limits<float>::max()),
                 high = ordinal_of(logits.max(team, row)) + 1;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      const std::int64_t count = at_least(team, row, float_at(middle));
      (count >= k ? low : high) = middle;
    }
    return float_at(low);
  }
  AXONN_DEVICE std::int64_t at_least(const auto& team, std::int64_t row, float from) const {
    std::int64_t total = 0;
    logits.for_each(row, [&](const float* x, int count, std::int64_t) {
      total += team.count_if(
          count, [from](float v) { return v >= from; }, x);
    });
    return total;
  }
};

/// out[row] = log of the probability with which a sampling policy draws the target. A token's
/// weight is e^((its logit - the maximum) / temperature). The logit at which the policy cuts the
/// order of tokens is found by bisection, so that no row is sorted. One team per row. Bound by at
/// most 33 passes for each cut over a row in the cache, with an exponential per element; by three
/// if the target is not among the k or nothing is cut.
struct PolicyLogProbabilityKernel {
  Matrix<float> out;  // (R, 1)
  PiecedLogits logits;
  const std::int32_t* targets;  // (R)
  float temperature;
  std::int64_t top_k;
  double top_p;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const double log_q = targets[row] < 0 ? 0 : of_row(team, row, targets[row]);
    team.once([&] { out.row(row)[0] = static_cast<float>(log_q); });
  }

 private:
  /// The tokens with a larger logit than the one at an ordinal.
  struct Above {
    std::int64_t ordinal;
    double count, weight;
  };

  /// A policy's cut of the order of tokens: it keeps those above `low`, or if these are more than
  /// one more than those above `high`, those above `high` and some of the next logit.
  struct Cut {
    Above low, high;
  };

  AXONN_DEVICE float weight(float logit, float most) const {
    return exponential((logit - most) / temperature);
  }

  AXONN_DEVICE Above above(const auto& team, std::int64_t row, std::int64_t ordinal,
                           float most) const {
    const auto [count, sum] =
        logits.sum_two(team, row, [=, x = float_at(ordinal), by = temperature](auto v) {
          return pair(select_less(x, v, v * 0.0f + 1.0f, v * 0.0f),
                      select_less(x, v, exponential((v - most) / by), v * 0.0f));
        });
    return {ordinal, count, sum};
  }

  /// Moves the ends together until one token or one logit lies between them. reaches(above) holds
  /// for the low end and not for the high one.
  AXONN_DEVICE Cut bisect(const auto& team, std::int64_t row, float most, Cut cut,
                          auto reaches) const {
    while (cut.high.ordinal - cut.low.ordinal > 1 && cut.low.count - cut.high.count > 1) {
      const std::int64_t middle = cut.low.ordinal + (cut.high.ordinal - cut.low.ordinal) / 2;
      const Above at = above(team, row, middle, most);
      (reaches(at) ? cut.low : cut.high) = at;
    }
    return cut;
  }

  AXONN_DEVICE double of_row(const auto& team, std::int64_t row, std::int32_t target) const {
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    const float own = team.first([&] { return logits.at(row, target); }),
                most = logits.max(team, row);
    const auto before = static_cast<double>(logits.before(team, row, target, own));
    const bool finite = own - own == 0;
    if (!finite) return own - most;  // NaN, or no probability
    if (temperature == 0) return before == 0 ? 0 : kNever;
    const auto k = static_cast<double>(top_k);
    if (top_k > 0 && before >= k) return kNever;
    const Above higher = above(team, row, ordinal_of(own), most);
    Above least = above(team, row, ordinal_of(-std::numeric_limits<float>::max()) - 1, most);
    double kept = least.weight;
    if (top_k > 0 && least.count > k) {
      const Cut cut =
          bisect(team, row, most, {least, higher}, [k](const Above& at) { return at.count >= k; });
      least = cut.low;
      kept = least.count - cut.high.count > 1
                 ? cut.high.weight + (k - cut.high.count) * weight(float_at(cut.high.ordinal), most)
                 : least.weight;
    }
    const double own_weight = weight(own, most), ties = before - higher.count;
    if (top_p < 1) {
      const double wanted = top_p * kept;
      if (before > 0 && higher.weight + ties * own_weight >= wanted) return kNever;
      const Cut cut = bisect(team, row, most, {least, higher},
                             [wanted](const Above& at) { return at.weight >= wanted; });
      double nucleus = cut.low.weight;
      if (cut.low.count - cut.high.count > 1) {
        const double each = weight(float_at(cut.high.ordinal), most),
                     tied = std::ceil((wanted - cut.high.weight) / each);
        nucleus = cut.high.weight + (tied > 1 ? tied : 1) * each;
      }
      kept = nucleus < kept ? nucleus : kept;
    }
    return (static_cast<double>(own) - most) / temperature - std::log(kept);
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Checks logits (pieces · R', C), R' >= R, and targets (1, R) of out, and returns the rows.
inline rowwise::PiecedLogits pieced_logits(const Checker& check, const auto& args) {
  const std::int64_t R = args.out.rows, pieces = args.pieces;
  check.ids("targets", args.targets, R);
  check.f32("logits", args.logits, args.logits.rows, args.logits.cols);
  AXONN_CHECK(pieces >= 1 && args.logits.rows % pieces == 0 && args.logits.rows / pieces >= R &&
                  args.vocab <= pieces * args.logits.cols,
              check.operation, ": logits is ", args.logits, ", want ", args.vocab, " tokens in ",
              pieces, " pieces of at least ", R, " rows");
  return {args.logits, args.logits.rows / pieces, width(args.logits), args.vocab};
}

void TokenRecord::run(auto launch, const Checker& check) const {
  check.f32("out", out, targets.cols, 4);
  const rowwise::PiecedLogits rows = pieced_logits(check, *this);
  launch.rows({out.rows, vocab},
              rowwise::TokenRecordKernel{out, rows, address<const std::int32_t>(targets)});
}

void KthLargestLogit::run(auto launch, const Checker& check) const {
  check.f32("out", out, targets.cols, 1);
  const rowwise::PiecedLogits rows = pieced_logits(check, *this);
  AXONN_CHECK(k >= 1, check.operation, ": k ", k, ", want at least 1");
  launch.rows({out.rows, vocab},
              rowwise::KthLargestLogitKernel{out, rows, address<const std::int32_t>(targets), k});
}

void PolicyLogProbability::run(auto launch, const Checker& check) const {
  check.f32("out", out, targets.cols, 1);
  const rowwise::PiecedLogits rows = pieced_logits(check, *this);
  AXONN_CHECK(temperature >= 0 && top_k >= 0 && top_p >= 0 && top_p <= 1, check.operation,
              ": temperature ", temperature, ", top_k ", top_k, ", top_p ", top_p,
              ", want temperature and top_k of at least 0, and top_p from 0 to 1");
  launch.rows({out.rows, vocab},
              rowwise::PolicyLogProbabilityKernel{.out = out,
                                                  .logits = rows,
                                                  .targets = address<const std::int32_t>(targets),
                                                  .temperature = temperature,
                                                  .top_k = top_k,
                                                  .top_p = top_p});
}

}  // namespace axonn::ops
