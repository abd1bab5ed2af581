#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/ops/rowwise/softmax.h"
#include "axonn/compute/tensor/address.h"

namespace axonn::rowwise {

/// log(e^a + e^b), within 3e-7 of its size or of 1.
template <typename V>
[[gnu::always_inline]] AXONN_DEVICE inline V log_of_sum(V a, V b) {
  // With r = e^-|a - b|, log(1 + r) is 2 artanh(z) = 2 (z + z³/3 + z⁵/5 + ...), z = r / (2 + r).
  const V most = greatest(a, b), r = exponential(least(a, b) - most);
  const V z = quotient(r, r + 2.0f), w = z * z;
  V p = w * (1.0f / 13) + 1.0f / 11;
  p = p * w + 1.0f / 9;
  p = p * w + 1.0f / 7;
  p = p * w + 1.0f / 5;
  p = p * w + 1.0f / 3;
  p = p * w + 1.0f;
  return most + (z + z) * p;
}

/// One team per row. Bound by memory, 4 · R · V bytes, or by an exponential per element.
struct EntropyTermsKernel {
  Matrix<float> out;            // (R, 1)
  Matrix<const float> logits;   // (R, V)
  Matrix<const float> lse;      // (R, 1)
  const std::int32_t* targets;  // (R)
  int valid;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const float from = lse.row(row)[0];
    const float sum = team.sum(
        targets[row] >= 0 ? valid : 0,
        [=](auto x) {
          const auto log_p = x - from;
          return exponential(log_p) * (0.0f - log_p);
        },
        logits.row(row));
    team.once([&] { out.row(row)[0] = sum; });
  }
};

/// A mixture of two distributions, and its two parts of a divergence: see ops::DivergenceTerms.
struct Mixture {
  float of_student, of_teacher;          // (1 - beta) and beta
  float log_of_student, log_of_teacher;  // their logarithms

  AXONN_DEVICE explicit Mixture(float beta)
      : of_student(1 - beta),
        of_teacher(beta),
        log_of_student(std::log(1 - beta)),
        log_of_teacher(std::log(beta)) {}
  /// log M - log S, from log T - log S: without the size of either, for whose digits it would lack.
  template <typename V>
  [[gnu::always_inline]] AXONN_DEVICE V above_student(V ratio) const {
    return log_of_sum(V(log_of_student), ratio + log_of_teacher);
  }
};

/// The teacher's least logit that counts.
AXONN_DEVICE inline float least_kept(const Matrix<const float>& kept, std::int64_t row) {
  return kept.data ? kept.row(row)[0] : -std::numeric_limits<float>::infinity();
}

/// One team per row. Bound by memory, 8 · R · V bytes, or by two or three exponentials per element.
struct DivergenceTermsKernel {
  Matrix<float> out;                     // (R, 2), or (R, 4) with `kept`
  Matrix<const float> student, teacher;  // (R, V)
  Matrix<const float> s_lse, t_lse;      // (R, 1)
  Matrix<const float> kept;              // (R, 1), or null: all count
  const std::int32_t* targets;           // (R)
  int valid;
  float beta;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const bool counts = targets[row] >= 0;
    const Pair<float> sums = counts ? terms(team, row) : Pair<float>{0, 0};
    const Pair<float> masses = counts && kept.data ? masses_of(team, row) : Pair<float>{0, 0};
    team.once([&] {
      float* to = out.row(row);
      to[0] = sums.first;
      to[1] = sums.second;
      if (kept.data) {
        to[2] = masses.first;
        to[3] = masses.second;
      }
    });
  }

 private:
  /// The sums of both terms of f over the tokens that count.
  AXONN_DEVICE Pair<float> sum(const auto& team, std::int64_t row, auto f) const {
    return team.sum_two(
        valid,
        [f, from = least_kept(kept, row)](auto s, auto t) {
          const auto both = f(s, t);
          return pair(select_less(t, from, 0.0f, both.first),
                      select_less(t, from, 0.0f, both.second));
        },
        student.row(row), teacher.row(row));
  }
  AXONN_DEVICE Pair<float> masses_of(const auto& team, std::int64_t row) const {
    return sum(team, row, [from_s = s_lse.row(row)[0], from_t = t_lse.row(row)[0]](auto s, auto t) {
      return pair(exponential(s - from_s), exponential(t - from_t));
    });
  }
  AXONN_DEVICE Pair<float> terms(const auto& team, std::int64_t row) const {
    const float from_s = s_lse.row(row)[0], from_t = t_lse.row(row)[0];
    if (beta == 0)
      return sum(team, row, [=](auto s, auto t) {
        const auto ls = s - from_s, lt = t - from_t;
        return pair(exponential(lt) * (lt - ls), ls * 0.0f);
      });
    if (beta == 1)
      return sum(team, row, [=](auto s, auto t) {
        const auto ls = s - from_s, lt = t - from_t, term = exponential(ls) * (ls - lt);
        return pair(term, term);
      });
    return sum(team, row, [=, mixture = Mixture(beta)](auto s, auto t) {
      const auto ls = s - from_s, lt = t - from_t, ratio = lt - ls;
      const auto above = mixture.above_student(ratio);
      const auto own = exponential(ls) * above * (0.0f - mixture.of_student);
      return pair(exponential(lt) * (ratio - above) * mixture.of_teacher + own, own);
    });
  }
};

/// The summand of the tail of each row, see ops::DivergenceTail.
struct DivergenceTailKernel {
  Matrix<float> terms;          // (R, 4)
  const std::int32_t* targets;  // (R)
  float beta;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    team.each(tile.count, [&](int i) {
      const std::int64_t row = tile.begin + i;
      if (targets[row] >= 0) add(terms.row(row));
    });
  }

 private:
  AXONN_DEVICE void add(float* of) const {
    const float s = greatest(1 - of[2], 1e-7f), t = greatest(1 - of[3], 1e-7f),
                ratio = std::log(t) - std::log(s);
    if (beta == 0) {
      of[0] += t * ratio;
      of[2] = 1 - t / s;
      return;
    }
    const float above = beta == 1 ? ratio : Mixture(beta).above_student(ratio),
                derivative = beta == 1 ? -ratio : -(1 - beta) * above;
    of[0] += s * derivative + (beta == 1 ? 0 : beta * t * (ratio - above));
    of[1] += s * derivative;
    of[2] = derivative;
  }
};

/// d = scale · (S - T) with beta 0, else scale · S (g - sum of S g), g = log S - log T with beta 1
/// and (1 - beta) (log S - log M) with others; of tokens that are not kept, scale · S (g of the
/// tail - the same sum). One team per row. Bound likewise.
template <typename Out>
struct DivergenceBackwardKernel {
  Matrix<Out> d_logits;                  // (R, V)
  Matrix<const float> student, teacher;  // (R, V)
  Matrix<const float> s_lse, t_lse;      // (R, 1)
  Matrix<const float> terms;             // (R, 2), or (R, 4) with `kept`
  Matrix<const float> kept;              // (R, 1), or null: all count
  const std::int32_t* targets;           // (R)
  int V, valid;
  float beta, scale;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const bool counts = targets[row] >= 0;
    if (counts) gradient(team, row);
    const int from = counts ? valid : 0;
    team.map(d_logits.row(row) + from, V - from, [] { return 0.0f; });
  }

 private:
  AXONN_DEVICE void gradient(const auto& team, std::int64_t row) const {
    const float from_s = s_lse.row(row)[0], from_t = t_lse.row(row)[0], by = scale;
    const float mean = terms.row(row)[1];
    const float tail = kept.data ? terms.row(row)[2] - mean : 0, from = least_kept(kept, row);
    const auto map = [&](auto f) {
      team.map(
          d_logits.row(row), valid,
          [=](auto s, auto t) {
            return select_less(t, from, exponential(s - from_s) * (tail * by), f(s, t));
          },
          student.row(row), teacher.row(row));
    };
    if (beta == 0)
      return map(
          [=](auto s, auto t) { return (exponential(s - from_s) - exponential(t - from_t)) * by; });
    if (beta == 1)
      return map([=](auto s, auto t) {
        const auto ls = s - from_s;
        return exponential(ls) * (ls - (t - from_t) - mean) * by;
      });
    map([=, mixture = Mixture(beta)](auto s, auto t) {
      const auto ls = s - from_s;
      const auto above = mixture.above_student((t - from_t) - ls);
      return exponential(ls) * (above * (0.0f - mixture.of_student) - mean) * by;
    });
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Of DivergenceTerms and of its gradient.
inline void check_divergence(const Checker& check, const auto& args) {
  const std::int64_t R = args.student.rows;
  check_logits(check, args.student, {0, args.valid});
  check.f32("student", args.student, R, args.student.cols);
  check.like("teacher", args.teacher, args.student);
  check.f32("student_lse", args.student_lse, R, 1);
  check.f32("teacher_lse", args.teacher_lse, R, 1);
  check.ids("targets", args.targets, R);
  if (args.kept.rows > 0) check.f32("kept", args.kept, R, 1);
  AXONN_CHECK(args.beta >= 0 && args.beta <= 1, check.operation, ": beta ", args.beta,
              ", want 0 to 1");
}

void EntropyTerms::run(auto launch, const Checker& check) const {
  check_logits(check, logits, {0, valid});
  check.f32("logits", logits, logits.rows, logits.cols);
  check.f32("out", out, logits.rows, 1);
  check.f32("lse", lse, logits.rows, 1);
  check.ids("targets", targets, logits.rows);
  launch.rows({logits.rows, logits.cols},
              rowwise::EntropyTermsKernel{out, logits, lse, address<const std::int32_t>(targets),
                                          static_cast<int>(valid)});
}

void DivergenceTerms::run(auto launch, const Checker& check) const {
  check_divergence(check, *this);
  check.f32("out", out, student.rows, kept.rows > 0 ? 4 : 2);
  launch.rows({student.rows, student.cols},
              rowwise::DivergenceTermsKernel{out, student, teacher, student_lse, teacher_lse, kept,
                                             address<const std::int32_t>(targets),
                                             static_cast<int>(valid), beta});
}

void DivergenceTail::run(auto launch, const Checker& check) const {
  check.ids("targets", targets, terms.rows);
  check.f32("terms", terms, terms.rows, 4);
  launch.tiles(1, terms.rows,
               rowwise::DivergenceTailKernel{terms, address<const std::int32_t>(targets), beta});
}

void DivergenceBackward::run(auto launch, const Checker& check) const {
  check_divergence(check, *this);
  check.f32("terms", terms, student.rows, kept.rows > 0 ? 4 : 2);
  check.values("d_logits", d_logits, student.rows, student.cols);
  with_type(d_logits.dtype, [&]<typename Out>(Out) {
    launch.rows({student.rows, student.cols}, rowwise::DivergenceBackwardKernel<Out>{
                                                  .d_logits = d_logits,
                                                  .student = student,
                                                  .teacher = teacher,
                                                  .s_lse = student_lse,
                                                  .t_lse = teacher_lse,
                                                  .terms = terms,
                                                  .kept = kept,
                                                  .targets = address<const std::int32_t>(targets),
                                                  .V = width(student),
                                                  .valid = static_cast<int>(valid),
                                                  .beta = beta,
                                                  .scale = scale,
                                              });
  });
}

}  // namespace axonn::ops
