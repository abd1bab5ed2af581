#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "axonn/compute/ops/rowwise/heads.h"
#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

// loss = log(sum of exp(logits)) - logits[target], over a vocabulary that is cut into pieces. Each
// piece gives its maximum, its sum and the target's logit; these are combined. Padding is ignored.

/// The maximum of `valid` elements and the sum of exp(x - maximum), in one pass. All members of the
/// team get them.
template <typename T>
AXONN_DEVICE Pair<float> softmax_stats(const auto& team, const T* x, int valid) {
  // Exponentials are relative to `about`, the largest of the first elements, until an element is
  // so much larger that they and their sum could overflow (e^60 · 2^31 does not). As powers of
  // two they take an instruction less; below 2^-150 they are 0. kLowest · log2(e) is finite.
  constexpr float kSafe = 60, kLowest = -std::numeric_limits<float>::max() / 2;
  // A part with such an element is summed again. On GPUs a row is one part: barriers between parts
  // cost more.
  constexpr int kFirst = 512, kPart = AXONN_GPU_CODE ? 1 << 30 : 16384;
  float most = -std::numeric_limits<float>::infinity(), total = 0;
  float about = greatest(team.max(valid < kFirst ? valid : kFirst, x), kLowest);
  const auto summed = [&](int begin) {
    const float start = about * kLog2E;
    return team.sum_and_max(
        valid - begin < kPart ? valid - begin : kPart,
        [=](auto v) { return power_of_two(greatest(-151.0f, v * kLog2E - start)); }, x + begin);
  };
  for (int begin = 0; begin < valid; begin += kPart) {
    auto part = summed(begin);
    if (part.second > about + kSafe) {
      total *= exponential(about - part.second);
      about = part.second;
      part = summed(begin);
    }
    total += part.first;
    most = greatest(part.second, most);
  }
  // Not above 0 but for a piece without a finite logit, where `most` is infinite and total 0.
  return {most, total * exponential(least(about - most, 0.0f))};
}

/// out[row] = maximum, sum of exp(x - maximum), and, if there are targets, the target's logit (0 if
/// it is not here). One team per row, one pass. Bound by memory, R · V · sizeof(T) bytes, or by an
/// exponential per element. With `ties`, the equal logits before that of a target that is the
/// maximum are counted in another pass over that part of the row.
template <typename T>
struct SoftmaxStatsKernel {
  Matrix<float> out;            // (R, 3); (R, 2) without targets, (R, 4) with ties
  Matrix<const T> logits;       // (R, V)
  const std::int32_t* targets;  // (R) or null
  std::int64_t first;
  int valid;
  bool ties;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const T* x = logits.row(row);
    const Pair<float> stats = softmax_stats(team, x, valid);
    const std::int64_t target = targets ? targets[row] - first : -1;
    const bool here = targets && targets[row] >= 0 && target >= 0 && target < valid;
    const int tied = ties && here ? ties_before(team, x, static_cast<int>(target), stats.first) : 0;
    team.once([&] {
      out.row(row)[0] = stats.first;
      out.row(row)[1] = stats.second;
      if (targets) out.row(row)[2] = here ? get(x[target]) : 0;
      if (ties) out.row(row)[3] = static_cast<float>(tied);
    });
  }

 private:
  AXONN_DEVICE int ties_before(const auto& team, const T* x, int target, float most) const {
    const float own = team.first([&] { return get(x[target]); });
    return own < most ? 0
                      : team.count_if(
                            target, [own](float v) { return v == own; }, x);
  }
};

/// The maximum of a row, and the sum of exp(x - maximum), from the stats of its pieces. They are
/// combined in their order, so that all ranks get the same bits.
AXONN_DEVICE inline Pair<float> combined_stats(Matrix<const float> stats, std::int64_t row,
                                               std::int64_t R, std::int64_t pieces) {
  float most = stats.row(row)[0], total = 0;
  for (std::int64_t p = 1; p < pieces; ++p) most = greatest(stats.row(p * R + row)[0], most);
  for (std::int64_t p = 0; p < pieces; ++p) {
    const float* piece = stats.row(p * R + row);
    total += piece[1] * exponential(piece[0] - most);  // a piece of padding alone has sum 0
  }
  return {most, total};
}

/// Computes loss and lse of each row from the stacked stats of its pieces, in their order.
struct CombineSoftmaxKernel {
  Matrix<float> loss, lse;      // (R, 1)
  Matrix<const float> stats;    // (pieces · R, 3)
  const std::int32_t* targets;  // (R)
  std::int64_t R, pieces;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    team.each(tile.count, [&](int i) {
      const std::int64_t row = tile.begin + i;
      const auto [most, total] = combined_stats(stats, row, R, pieces);
      float target = 0;
      for (std::int64_t p = 0; p < pieces; ++p) target += stats.row(p * R + row)[2];
      const float log_sum = most + std::log(total);
      lse.row(row)[0] = targets[row] < 0 ? 0 : log_sum;
      loss.row(row)[0] = targets[row] < 0 ? 0 : log_sum - target;
    });
  }
};

/// out[row] = 1 if no piece has a larger logit than the target's, nor an equal one of a lower id,
/// else 0, from the same stats with ties.
struct GreedyTargetsKernel {
  Matrix<float> out;            // (R, 1)
  Matrix<const float> stats;    // (pieces · R, 4)
  const std::int32_t* targets;  // (R)
  std::int64_t R, pieces;
  int piece_size;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    team.each(tile.count, [&](int i) {
      const std::int64_t row = tile.begin + i;
      float target = 0;
      for (std::int64_t p = 0; p < pieces; ++p) target += stats.row(p * R + row)[2];
      bool greedy = targets[row] >= 0;
      const int own = greedy ? targets[row] / piece_size : 0;
      for (std::int64_t p = 0; p < pieces; ++p) {
        const float* piece = stats.row(p * R + row);
        greedy = greedy && (p < own ? piece[0] < target : piece[0] <= target) && piece[3] == 0;
      }
      out.row(row)[0] = greedy ? 1.0f : 0.0f;
    });
  }
};

/// The gradient of a row of V logits, of which `valid` count: d[i] = (exp(x[i] - lse) (1 + 2 z lse)
/// - one hot) · scale; in place if the types are the same. A bonus (e, H) adds p (log p + H) e.
template <typename Out, typename T>
struct LogitGradient {
  Out* d;
  const T* x;
  int V, valid;
  float scale, z;
  const float* bonus;  // null: there is none
  float bonus_scale;

  /// target: a valid element, whose logit is `own`, or negative.
  AXONN_DEVICE void operator()(const auto& team, float lse, std::int64_t target, float own) const {
    const float share = 1 + 2 * z * lse, factor = share * scale;
    if (bonus) return with_bonus(team, lse, target, own, factor);
    team.map(
        d, valid, [=](auto v) { return exponential(v - lse) * factor; }, x);
    clear(team, valid);
    if (target >= 0)
      team.once([&] { put(d[target], (exponential(own - lse) * share - 1) * scale); });
  }
  AXONN_DEVICE void with_bonus(const auto& team, float lse, std::int64_t target, float own,
                               float factor) const {
    const float e = bonus[0] * bonus_scale, base = factor + e * bonus[1];
    const auto share = [=](auto v) {
      // Minus infinity times its probability, 0, would be NaN.
      const auto log_p = greatest(-1e4f, v - lse);
      return exponential(log_p) * (log_p * e + base);
    };
    team.map(d, valid, share, x);
    clear(team, valid);
    if (target >= 0) team.once([&] { put(d[target], share(own) - scale); });
  }
  /// Sets the gradient to zero from an element on.
  AXONN_DEVICE void clear(const auto& team, int from) const {
    team.map(d + from, V - from, [] { return 0.0f; });
  }
};

/// The scale of a row with one of these weights, (R) or null.
AXONN_DEVICE inline float row_scale(const float* weights, std::int64_t row, float scale) {
  return weights ? weights[row] * scale : scale;
}

/// A row's bonus, or null.
AXONN_DEVICE inline const float* row_bonus(const Matrix<const float>& bonus, std::int64_t row) {
  return bonus.data ? bonus.row(row) : nullptr;
}

/// The LogitGradient of every row, zero where the target is negative. One team per row. Bound by
/// memory: R · V · (sizeof(T) + sizeof(Out)) bytes.
template <typename Out, typename T>
struct CrossEntropyBackwardKernel {
  Matrix<Out> d_logits;         // (R, V)
  Matrix<const T> logits;       // (R, V)
  Matrix<const float> lse;      // (R, 1)
  const std::int32_t* targets;  // (R)
  const float* weights;         // (R) or null
  Matrix<const float> bonus;    // (R, 2), or null
  std::int64_t first;
  int V, valid;
  float scale, z;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const LogitGradient<Out, T> gradient{d_logits.row(row),
                                         logits.row(row),
                                         V,
                                         valid,
                                         row_scale(weights, row, scale),
                                         z,
                                         row_bonus(bonus, row),
                                         scale};
    const std::int64_t local = targets[row] - first;
    const bool counts = targets[row] >= 0, here = counts && local >= 0 && local < valid;
    const float own = team.first([&] { return here ? get(gradient.x[local]) : 0; });
    if (counts)
      gradient(team, lse.row(row)[0], here ? local : -1, own);
    else
      gradient.clear(team, 0);
  }
};

/// Loss, lse and gradient of whole rows, with the bits of the kernels above. The second pass over a
/// row finds it in cache. One team per row. Bound by memory: R · V · (sizeof(T) + sizeof(Out))
/// bytes, or by two exponentials per element.
template <typename Out, typename T>
struct CrossEntropyKernel {
  Matrix<float> loss, lse;      // (R, 1)
  Matrix<Out> d_logits;         // (R, V)
  Matrix<const T> logits;       // (R, V)
  const std::int32_t* targets;  // (R), each below `valid`
  const float* weights;         // (R) or null
  Matrix<const float> bonus;    // (R, 2), or null
  int V, valid;
  float scale, z;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const LogitGradient<Out, T> gradient{d_logits.row(row),
                                         logits.row(row),
                                         V,
                                         valid,
                                         row_scale(weights, row, scale),
                                         z,
                                         row_bonus(bonus, row),
                                         scale};
    const std::int32_t target = targets[row];
    if (target < 0) {
      store(team, row, 0, 0);
      return gradient.clear(team, 0);
    }
    const float own = team.first([&] { return get(gradient.x[target]); });
    const float log_sum = log_of_sum(softmax_stats(team, gradient.x, valid));
    store(team, row, log_sum - own, log_sum);
    gradient(team, log_sum, target, own);
  }

 private:
  AXONN_DEVICE static float log_of_sum(const Pair<float>& stats) {
    return stats.first + std::log(stats.second * exponential(stats.first - stats.first));
  }
  AXONN_DEVICE void store(const auto& team, std::int64_t row, float of_loss, float of_lse) const {
    team.once([&] {
      loss.row(row)[0] = of_loss;
      lse.row(row)[0] = of_lse;
    });
  }
};

// p = exp(x - maximum) / sum of exp(x - maximum) of each row, which is cut into pieces, with the
// same statistics. One team per row. Bound by memory: 2 · R · C · sizeof(T) bytes forward and 5
// backward, beside one exponential per element.

template <typename T>
struct SoftmaxKernel {
  Matrix<T> out;              // (R, C)
  Matrix<const T> inp;        // (R, C)
  Matrix<const float> stats;  // (pieces · R, 2)
  std::int64_t R, pieces;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const Pair<float> stat = combined_stats(stats, row, R, pieces);
    team.map(
        out.row(row), C,
        [most = stat.first, each = 1 / stat.second](auto x) {
          return exponential(x - most) * each;
        },
        inp.row(row));
  }
};

/// d_inp = out · (d_out - dots).
template <typename T>
struct SoftmaxBackwardKernel {
  Matrix<T> d_inp;             // (R, C)
  Matrix<const T> d_out, out;  // (R, C)
  Matrix<const float> dots;    // (R, 1)
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const float dot = dots.row(row)[0];
    team.map(
        d_inp.row(row), C, [=](auto d, auto p) { return p * (d - dot); }, d_out.row(row),
        out.row(row));
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

inline void check_logits(const Checker& check, const View& logits, const VocabularyPiece& piece) {
  check.values("logits", logits);
  AXONN_CHECK(piece.first >= 0 && piece.valid >= 0 && piece.valid <= logits.cols, check.operation,
              ": ", piece.valid, " columns from ", piece.first, " of logits ", logits);
}

/// Checks stats (pieces · R, columns) and targets (1, R). Returns the pieces; 0 if R is 0.
inline std::int64_t check_pieces(const Checker& check, const View& stats, const View& targets,
                                 std::int64_t columns) {
  check.ids("targets", targets, targets.cols);
  if (targets.cols == 0) return 0;
  // Too few rows for one piece: the message wants those of one.
  const std::int64_t pieces = std::max<std::int64_t>(stats.rows / targets.cols, 1);
  check.f32("stats", stats, pieces * targets.cols, columns);
  return pieces;
}

void SoftmaxStats::run(auto launch, const Checker& check) const {
  check_logits(check, logits, piece);
  if (targets.rows > 0) check.ids("targets", targets, logits.rows);
  const bool ties = targets.rows > 0 && out.cols == 4;
  check.f32("out", out, logits.rows, ties ? 4 : targets.rows > 0 ? 3 : 2);
  with_type(logits.dtype, [&]<typename T>(T) {
    launch.rows({logits.rows, logits.cols},
                rowwise::SoftmaxStatsKernel<T>{.out = out,
                                               .logits = logits,
                                               .targets = address<const std::int32_t>(targets),
                                               .first = piece.first,
                                               .valid = static_cast<int>(piece.valid),
                                               .ties = ties});
  });
}

void CombineSoftmax::run(auto launch, const Checker& check) const {
  check.f32("loss", loss, targets.cols, 1);
  check.f32("lse", lse, targets.cols, 1);
  const std::int64_t pieces = check_pieces(check, stats, targets, 3);
  if (pieces == 0) return;
  launch.tiles(1, loss.rows,
               rowwise::CombineSoftmaxKernel{loss, lse, stats, address<const std::int32_t>(targets),
                                             loss.rows, pieces});
}

void GreedyTargets::run(auto launch, const Checker& check) const {
  check.f32("out", out, targets.cols, 1);
  AXONN_CHECK(piece_size >= 1, check.operation, ": pieces of ", piece_size, " tokens, want 1");
  const std::int64_t pieces = check_pieces(check, stats, targets, 4);
  if (pieces == 0) return;
  launch.tiles(1, out.rows,
               rowwise::GreedyTargetsKernel{out, stats, address<const std::int32_t>(targets),
                                            out.rows, pieces, static_cast<int>(piece_size)});
}

/// Of R rows in consecutive memory, or none.
inline void check_weights(const Checker& check, const View& weights, std::int64_t R) {
  if (weights.rows == 0) return;
  check.f32("weights", weights, R, 1);
  AXONN_CHECK(weights.stride == 1, check.operation, ": weights ", weights, " are not consecutive");
}

inline void check_bonus(const Checker& check, const View& bonus, std::int64_t R) {
  if (bonus.rows > 0) check.f32("bonus", bonus, R, 2);
}

void CrossEntropyBackward::run(auto launch, const Checker& check) const {
  check_logits(check, logits, piece);
  check.ids("targets", targets, logits.rows);
  check.values("d_logits", d_logits, logits.rows, logits.cols);
  check.f32("lse", lse, logits.rows, 1);
  check_weights(check, weights, logits.rows);
  check_bonus(check, bonus, logits.rows);
  with_types(logits.dtype, d_logits.dtype, [&]<typename T, typename Out>(T, Out) {
    launch.rows({logits.rows, logits.cols}, rowwise::CrossEntropyBackwardKernel<Out, T>{
                                                .d_logits = d_logits,
                                                .logits = logits,
                                                .lse = lse,
                                                .targets = address<const std::int32_t>(targets),
                                                .weights = address<const float>(weights),
                                                .bonus = bonus,
                                                .first = piece.first,
                                                .V = width(logits),
                                                .valid = static_cast<int>(piece.valid),
                                                .scale = scale,
                                                .z = z,
                                            });
  });
}

void CrossEntropy::run(auto launch, const Checker& check) const {
  check_logits(check, logits, {0, valid});
  check.ids("targets", targets, logits.rows);
  check.values("d_logits", d_logits, logits.rows, logits.cols);
  check.f32("loss", loss, logits.rows, 1);
  check.f32("lse", lse, logits.rows, 1);
  check_weights(check, weights, logits.rows);
  check_bonus(check, bonus, logits.rows);
  with_types(logits.dtype, d_logits.dtype, [&]<typename T, typename Out>(T, Out) {
    launch.rows({logits.rows, logits.cols}, rowwise::CrossEntropyKernel<Out, T>{
                                                .loss = loss,
                                                .lse = lse,
                                                .d_logits = d_logits,
                                                .logits = logits,
                                                .targets = address<const std::int32_t>(targets),
                                                .weights = address<const float>(weights),
                                                .bonus = bonus,
                                                .V = width(logits),
                                                .valid = static_cast<int>(valid),
                                                .scale = scale,
                                                .z = z,
                                            });
  });
}

void Softmax::run(auto launch, const Checker& check) const {
  check.values("inp", inp);
  check.like("out", out, inp);
  if (inp.rows == 0) return;
  const std::int64_t pieces = stats.rows / inp.rows;
  AXONN_CHECK(pieces >= 1, check.operation, ": stats is ", stats, ", want at least ", inp.rows,
              " rows");
  check.f32("stats", stats, pieces * inp.rows, 2);
  with_type(inp.dtype, [&]<typename T>(T) {
    launch.rows({inp.rows, inp.cols},
                rowwise::SoftmaxKernel<T>{out, inp, stats, inp.rows, pieces, width(inp)});
  });
}

void RowDots::run(auto launch, const Checker& check) const {
  check.values("a", a);
  check.like("b", b, a);
  check.f32("out", out, a.rows, 1);
  with_type(a.dtype, [&]<typename T>(T) {
    launch.heads({a.rows, 1, a.cols}, rowwise::HeadDots<T>{out, a, b, width(a)});
  });
}

void SoftmaxBackward::run(auto launch, const Checker& check) const {
  check.values("out", out);
  check.like("d_inp", d_inp, out);
  check.like("d_out", d_out, out);
  check.f32("dots", dots, out.rows, 1);
  with_type(out.dtype, [&]<typename T>(T) {
    launch.rows({out.rows, out.cols},
                rowwise::SoftmaxBackwardKernel<T>{d_inp, d_out, out, dots, width(out)});
  });
}

}  // namespace axonn::ops
