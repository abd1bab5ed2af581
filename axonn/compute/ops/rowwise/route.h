#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

// s = softmax(l) or sigmoid(l) of the E logits of a row; K = the k experts of the largest s + b, of
// some groups of experts; p = scale · s / (sum of s over K) or scale · s, for K.

/// The sum that scores are divided by is at least this, so that scores of 0 give weights and shares
/// of 0.
constexpr float kLeastSum = 1e-20f;

/// A number that grows with the score x of expert i, and falls with i for equal scores; different
/// for each expert, and not 0. Scores that are NaN count less than all numbers.
AXONN_DEVICE inline std::uint64_t preference(float x, int i) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  // Positive numbers ascend with their bits, and negative ones descend.
  const std::uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<std::uint64_t>(x == x ? ascending : 0) << 32 | ~static_cast<std::uint32_t>(i);
}

/// The chosen experts of a row, with what a router computes of them.
struct RoutedRow {
  std::int32_t* ids;  // (k)
  float* weights;     // (k)
  float* scores;      // (E)
};

/// One team per row. Bound by memory, 2 · R · E · 4 bytes, as long as k is small: each of k rounds
/// finds the largest score below the last one. (The product that makes a row's logits takes many
/// times longer.)
template <typename T>
struct RouteKernel {
  Matrix<std::int32_t> ids;        // (R, k)
  Matrix<float> weights;           // (R, k)
  Matrix<float> scores, log_sums;  // (R, E), (R, 1)
  Matrix<float> score_sums;        // (R, 1) or absent
  Matrix<const float> logits;      // (R, E)
  const T* bias;                   // (E) or null
  int k, E;
  int groups, kept_groups, group_best;  // 64 groups at most
  float scale;
  bool sigmoidal, normalise, chosen;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const RoutedRow to{ids.row(row), weights.row(row), scores.row(row)};
    score(team, row, to.scores);
    if (!chosen) choose(team, to);
    team.once([&] {
      float sum = 0;
      for (int j = 0; j < k; ++j) sum += to.scores[to.ids[j]];
      const float factor = normalise ? scale / greatest(kLeastSum, sum) : scale;
      for (int j = 0; j < k; ++j) to.weights[j] = to.scores[to.ids[j]] * factor;
    });
  }

 private:
  AXONN_DEVICE void score(const auto& team, std::int64_t row, float* s) const {
    const float* x = logits.row(row);
    const float most = team.max(E, x);
    const float sum = team.sum(
        E, [=](auto l) { return exponential(l - most); }, x);
    if (sigmoidal)
      team.map(
          s, E, [](auto l) { return sigmoid(l); }, x);
    else
      team.map(
          s, E, [most, each = 1 / sum](auto l) { return exponential(l - most) * each; }, x);
    float total = 0;
    if (score_sums.data)
      total = team.sum(
          E, [](auto p) { return p; }, s);
    team.once([&] {
      log_sums.row(row)[0] = most + std::log(sum);
      if (score_sums.data) score_sums.row(row)[0] = total;
    });
  }

  AXONN_DEVICE float for_choice(const float* s, int i) const {
    return bias ? s[i] + get(bias[i]) : s[i];
  }

  /// Grows with the sum of the group's two best scores, or with its best one.
  AXONN_DEVICE std::uint64_t group_preference(const float* s, int group) const {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    const int each = E / groups;
    float best = kLowest, second = kLowest;
    for (int i = group * each; i < (group + 1) * each; ++i) {
      const float x = for_choice(s, i);
      second = greatest(second, least(best, x));
      best = greatest(best, x);
    }
    return preference(each > 1 && group_best > 1 ? best + second : best, group);
  }

  /// A bit for each group whose experts can be chosen.
  AXONN_DEVICE std::uint64_t groups_kept(const auto& team, const float* s) const {
    if (kept_groups == groups) return ~std::uint64_t{0};
    std::uint64_t last = ~std::uint64_t{0}, kept = 0;
    for (int j = 0; j < kept_groups; ++j)
      last = team.largest_of(groups, [=, this](int group) {
        const std::uint64_t one = group_preference(s, group);
        return one < last ? one : 0;
      });
    for (int group = 0; group < groups; ++group)
      if (group_preference(s, group) >= last) kept |= std::uint64_t{1} << group;
    return kept;
  }

  AXONN_DEVICE void choose(const auto& team, const RoutedRow& to) const {
    const std::uint64_t kept = groups_kept(team, to.scores);
    const auto preferred = [&](int i) -> std::uint64_t {
      if ((kept >> (i * groups / E) & 1) == 0) return 0;
      return preference(for_choice(to.scores, i), i);
    };
    std::uint64_t least = ~std::uint64_t{0};  // of those chosen up to now
    for (int j = 0; j < k; ++j)
      least = team.largest_of(E, [=](int i) {
        const std::uint64_t one = preferred(i);
        return one < least ? one : 0;
      });
    team.each(E, [&](int i) {
      if (preferred(i) < least) return;
      int rank = 0;
      for (int before = 0; before < i; ++before) rank += preferred(before) >= least ? 1 : 0;
      to.ids[rank] = i;
    });
  }
};

/// The rows of a pass, as rows of sequences of `positions` rows each.
struct SequenceRows {
  const std::int32_t* counted;  // (R), or null: all are
  std::int64_t first_row, positions;

  AXONN_DEVICE std::int64_t sequence(std::int64_t row) const {
    return row_quotient(first_row + row, positions);
  }
  AXONN_DEVICE bool counts(std::int64_t row) const { return !counted || counted[row] != 0; }
};

/// d_logits = s · (d_s - sum of s · d_s), or s · (1 - s) · d_s, + 2 · z · log_sum ·
/// softmax(logits). `balance` b is added to d_s; with score_sums S, (b - sum of s · b / S) / S is.
/// One team per row. Bound by memory: R · E · 4 bytes for each of the (R, E) arguments.
struct RouteBackwardKernel {
  Matrix<float> d_logits;          // (R, E)
  Matrix<const float> d_weights;   // (R, k)
  Matrix<const std::int32_t> ids;  // (R, k)
  Matrix<const float> weights;     // (R, k)
  Matrix<const float> scores, log_sums, logits;
  Matrix<const float> score_sums;  // (R, 1) or absent
  Matrix<const float> balance;     // (S, E) or absent
  SequenceRows rows;
  int k, E;
  float scale, z;
  bool sigmoidal, normalise;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const bool counts = rows.counts(row);
    const float *s = scores.row(row), *more = nullptr;
    if (counts && balance.data) more = balance.row(rows.sequence(row));
    const Slope slope{*this, row};
    float dot = slope.dot(), mean = 0, each = 1;  // a score's gradient gets (more - mean) · each
    if (more) {
      const float sum = team.sum(
          E, [](auto a, auto b) { return a * b; }, s, more);
      if (score_sums.data) {
        each = 1 / greatest(kLeastSum, score_sums.row(row)[0]);
        mean = sum * each;
      } else {
        dot += sum;
      }
    }
    const float log_sum = log_sums.row(row)[0], pull = counts ? 2 * z * log_sum : 0.0f;
    const auto all = [&](auto... d) {
      if (sigmoidal)
        team.map(
            d_logits.row(row), E,
            [=](auto p, auto l, auto... d_s) {
              return p * (1.0f - p) * (0.0f + ... + ((d_s - mean) * each)) +
                     pull * exponential(l - log_sum);
            },
            s, logits.row(row), d...);
      else
        team.map(
            d_logits.row(row), E,
            [about = pull - dot, mean, each](auto p, auto... d_s) {
              return p * (about + ... + ((d_s - mean) * each));
            },
            s, d...);
    };
    more ? all(more) : all();
    team.once([&] {
      for (int j = 0; j < k; ++j) {
        const int i = ids.row(row)[j];
        const float p = s[i], d_s = slope(j) + (more ? (more[i] - mean) * each : 0.0f);
        d_logits.row(row)[i] =
            sigmoidal ? p * (1 - p) * d_s + pull * exponential(logits.row(row)[i] - log_sum)
                      : p * (d_s + (pull - dot));
      }
    });
  }

 private:
  /// The gradients that a row's weights give to the chosen scores.
  class Slope {
   public:
    AXONN_DEVICE Slope(const RouteBackwardKernel& args, std::int64_t row)
        : k_(args.k),
          d_(args.d_weights.row(row)),
          ids_(args.ids.row(row)),
          scores_(args.scores.row(row)),
          factor_(args.scale) {
      if (!args.normalise) return;
      float sum = 0;
      for (int j = 0; j < k_; ++j) {
        sum += scores_[ids_[j]];
        mean_ += args.weights.row(row)[j] * d_[j];
      }
      factor_ = args.scale / greatest(kLeastSum, sum);
      mean_ /= args.scale;
    }
    AXONN_DEVICE float operator()(int j) const { return (d_[j] - mean_) * factor_; }
    /// The sum of all, each times its score.
    AXONN_DEVICE float dot() const {
      float sum = 0;
      for (int j = 0; j < k_; ++j) sum += scores_[ids_[j]] * (*this)(j);
      return sum;
    }

   private:
    int k_;
    const float* d_;
    const std::int32_t* ids_;
    const float* scores_;
    float factor_, mean_ = 0;  // mean_: the sum of p · d_p / scale
  };
};

// Sums for each sequence, the same bits on any number of threads: the rows of a sequence are cut
// into blocks, a team sums one of them in their order, and a second launch adds the blocks' sums in
// their order. Sums are double. Bound by memory: R · E · 4 bytes.

/// Blocks of the rows of a pass that are in the same sequence.
struct SequenceBlocks {
  /// Rows of a block: enough that partial sums are few, and so few that a thousand rows are work
  /// for many teams.
  static constexpr std::int64_t kRows = 64;

  SequenceRows rows;
  std::int64_t R, each;  ///< blocks of a sequence

  SequenceBlocks(const SequenceRows& in, std::int64_t count)
      : rows(in), R(count), each((std::min(in.positions, count) + kRows - 1) / kRows) {}

  std::int64_t sequences() const {
    return R == 0 ? 0 : rows.sequence(R - 1) - rows.sequence(0) + 1;
  }
  /// The rows [begin, end) of a block.
  AXONN_DEVICE void range(std::int64_t block, std::int64_t& begin, std::int64_t& end) const {
    const std::int64_t sequence = rows.sequence(0) + row_quotient(block, each),
                       first = sequence * rows.positions - rows.first_row,
                       last = first + rows.positions;
    begin = (first > 0 ? first : 0) + row_remainder(block, each) * kRows;
    end = begin + kRows;
    if (end > last) end = last;
    if (end > R) end = R;
  }
};

struct RouteCountsPartials {
  Matrix<double> partial;          // (blocks, 2 E + 2)
  Matrix<const std::int32_t> ids;  // (R, k)
  Matrix<const float> scores;      // (R, E)
  Matrix<const float> log_sums;    // (R, 1)
  Matrix<const float> score_sums;  // (R, 1) or absent
  SequenceBlocks blocks;
  int k, E;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t block) const {
    std::int64_t begin, end;
    blocks.range(block, begin, end);
    double* to = partial.row(block);
    team.share([&](int member, auto members) {
      for (int e = member; e < E; e += members) to[e] = to[E + e] = 0;
      for (std::int64_t r = begin; r < end; ++r)
        for (int j = 0; j < k && blocks.rows.counts(r); ++j)
          if (const int id = ids.row(r)[j]; id % members == member) to[id] += 1;
    });
    team.sums_in_double(to + E, E, begin, end, [&](std::int64_t r) {
      const double sum = score_sums.data ? greatest(kLeastSum, score_sums.row(r)[0]) : 1.0;
      return ScaledRow<float>{blocks.rows.counts(r) ? scores.row(r) : nullptr, 1 / sum};
    });
    team.once([&] {
      double squares = 0, count = 0;
      for (std::int64_t r = begin; r < end; ++r)
        if (blocks.rows.counts(r)) {
          const double log_sum = log_sums.row(r)[0];
          squares += log_sum * log_sum;
          count += 1;
        }
      to[2 * E] = squares;
      to[2 * E + 1] = count;
    });
  }
};

/// Adds the sums of the blocks of each sequence to its row of out.
struct AddRouteCounts {
  Matrix<double> out;            // (sequences, 2 E + 2), of the first sequence of the pass on
  Matrix<const double> partial;  // (blocks, 2 E + 2)
  std::int64_t each;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    team.sums_in_double(out.at(tile), tile.count, tile.row * each, (tile.row + 1) * each,
                        [&](std::int64_t block) {
                          return ScaledRow<double>{partial.row(block) + tile.begin, 1};
                        });
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Checks the operands of a Route but for its bias. Returns E.
inline int check_route(const Checker& check, const Route& route) {
  const std::int64_t R = route.logits.rows, E = route.logits.cols, k = route.ids.cols;
  check.f32("logits", route.logits, R, E);
  AXONN_CHECK(k > 0 && k <= E, check.operation, ": ids is ", route.ids, ", want 1 to ", E,
              " experts of each row");
  check.typed("ids", route.ids, DType::i32, R, k);
  check.f32("weights", route.weights, R, k);
  check.f32("scores", route.scores, R, E);
  check.f32("log_sums", route.log_sums, R, 1);
  AXONN_CHECK(route.groups > 0 && route.groups <= 64 && E % route.groups == 0 &&
                  route.kept_groups > 0 && route.kept_groups <= route.groups &&
                  route.kept_groups * (E / route.groups) >= k,
              check.operation, ": ", route.kept_groups, " of ", route.groups, " groups of ", E,
              " experts, want up to 64 equal groups, with ", k, " experts in those that are kept");
  AXONN_CHECK(route.group_best == 1 || route.group_best == 2, check.operation, ": the best ",
              route.group_best, " of a group, want 1 or 2");
  if (route.score_sums.data) check.f32("score_sums", route.score_sums, R, 1);
  return static_cast<int>(E);
}

/// Checks the sequences of R rows, of which `known` has a row each; there may be more.
inline rowwise::SequenceRows check_sequences(const Checker& check, const auto& args,
                                             const View& known, std::int64_t R) {
  AXONN_CHECK(args.first_row >= 0 && args.positions > 0, check.operation, ": rows from ",
              args.first_row, " of sequences of ", args.positions,
              " positions, want 0 or more, and at least 1");
  const std::int64_t sequences = R == 0 ? 0 : (args.first_row + R - 1) / args.positions + 1;
  AXONN_CHECK(!known.data || known.rows >= sequences, check.operation, ": ", known, " for ", R,
              " rows from ", args.first_row, " of sequences of ", args.positions,
              " positions, want at least ", sequences, " rows");
  if (args.counted.data) check.ids("counted", args.counted, R);
  return {address<const std::int32_t>(args.counted), args.first_row, args.positions};
}

void Route::run(auto launch, const Checker& check) const {
  const int E = check_route(check, *this);
  if (bias.data) check.values("bias", bias, 1, E);
  with_type(bias.dtype, [&]<typename T>(T) {
    launch.rows({logits.rows, E}, rowwise::RouteKernel<T>{.ids = ids,
                                                          .weights = weights,
                                                          .scores = scores,
                                                          .log_sums = log_sums,
                                                          .score_sums = score_sums,
                                                          .logits = logits,
                                                          .bias = address<const T>(bias),
                                                          .k = width(ids),
                                                          .E = E,
                                                          .groups = groups,
                                                          .kept_groups = kept_groups,
                                                          .group_best = group_best,
                                                          .scale = scale,
                                                          .sigmoidal = sigmoid,
                                                          .normalise = normalise,
                                                          .chosen = chosen});
  });
}

void RouteBackward::run(auto launch, const Checker& check) const {
  const int E = check_route(check, forward);
  const std::int64_t R = forward.logits.rows;
  check.f32("d_logits", d_logits, R, E);
  check.f32("d_weights", d_weights, R, forward.ids.cols);
  if (balance.data) check.f32("balance", balance, balance.rows, E);
  launch.rows({R, E}, rowwise::RouteBackwardKernel{
                          .d_logits = d_logits,
                          .d_weights = d_weights,
                          .ids = forward.ids,
                          .weights = forward.weights,
                          .scores = forward.scores,
                          .log_sums = forward.log_sums,
                          .logits = forward.logits,
                          .score_sums = forward.score_sums,
                          .balance = balance,
                          .rows = check_sequences(check, *this, balance, R),
                          .k = width(forward.ids),
                          .E = E,
                          .scale = forward.scale,
                          .z = z,
                          .sigmoidal = forward.sigmoid,
                          .normalise = forward.normalise,
                      });
}

void RouteCounts::run(auto launch, const Checker& check) const {
  const std::int64_t R = scores.rows;
  const int E = width(scores), sums = 2 * E + 2;
  check.f32("scores", scores, R, E);
  check.typed("ids", ids, DType::i32, R, ids.cols);
  check.f32("log_sums", log_sums, R, 1);
  if (score_sums.data) check.f32("score_sums", score_sums, R, 1);
  check.typed("out", out, DType::f64, out.rows, sums);
  const rowwise::SequenceBlocks blocks(check_sequences(check, *this, out, R), R);
  const std::int64_t sequences = blocks.sequences(), all = sequences * blocks.each;
  if (all == 0) return;
  const Matrix<double> partial{launch.scratch.template take<double>(all * sums), sums};
  launch.rows({all, blocks.kRows * E, std::int64_t{E} * 8},
              rowwise::RouteCountsPartials{partial, ids, scores, log_sums, score_sums, blocks,
                                           width(ids), E});
  launch.tiles(
      sequences, sums,
      rowwise::AddRouteCounts{
          out.row_range(first_row / positions, sequences), {partial.data, sums}, blocks.each});
}

}  // namespace axonn::ops
