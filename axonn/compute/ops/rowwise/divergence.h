#pragma once

#include <cstdint>

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

/// One team per row. Bound by memory, 8 · R · V bytes, or by two or three exponentials per element.
struct DivergenceTermsKernel {
  Matrix<float> out;                     // (R, 2)
  Matrix<const float> student, teacher;  // (R, V)
  Matrix<const float> s_lse, t_lse;      // (R, 1)
  const std::int32_t* targets;           // (R)
  int valid;
  float beta;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const bool counts = targets[row] >= 0;
    const Pair<float> sums = counts ? terms(team, row) : Pair<float>{0, 0};
    team.once([&] {
      out.row(row)[0] = sums.first;
      out.row(row)[1] = sums.second;
    });
  }

 private:
  AXONN_DEVICE Pair<float> terms(const auto& team, std::int64_t row) const {
    const float from_s = s_lse.row(row)[0], from_t = t_lse.row(row)[0];
    const auto sum = [&](auto f) {
      return team.sum_two(valid, f, student.row(row), teacher.row(row));
    };
    if (beta == 0)
      return sum([=](auto s, auto t) {
        const auto ls = s - from_s, lt = t - from_t;
        return pair(exponential(lt) * (lt - ls), ls * 0.0f);
      });
    if (beta == 1)
      return sum([=](auto s, auto t) {
        const auto ls = s - from_s, lt = t - from_t, term = exponential(ls) * (ls - lt);
        return pair(term, term);
      });
    return sum([=, mixture = Mixture(beta)](auto s, auto t) {
      const auto ls = s - from_s, lt = t - from_t, ratio = lt - ls;
      const auto above = mixture.above_student(ratio);
      const auto own = exponential(ls) * above * (0.0f - mixture.of_student);
      return pair(exponential(lt) * (ratio - above) * mixture.of_teacher + own, own);
    });
  }
};

/// d = scale · (S - T) with beta 0, else scale · S (g - sum of S g), g = log S - log T with beta 1
/// and (1 - beta) (log S - log M) with others. One team per row. Bound likewise.
template <typename Out>
struct DivergenceBackwardKernel {
  Matrix<Out> d_logits;                  // (R, V)
  Matrix<const float> student, teacher;  // (R, V)
  Matrix<const float> s_lse, t_lse;      // (R, 1)
  Matrix<const float> terms;             // (R, 2)
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
    const auto map = [&](auto f) {
      team.map(d_logits.row(row), valid, f, student.row(row), teacher.row(row));
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
  check.f32("out", out, student.rows, 2);
  launch.rows({student.rows, student.cols},
              rowwise::DivergenceTermsKernel{out, student, teacher, student_lse, teacher_lse,
                                             address<const std::int32_t>(targets),
                                             static_cast<int>(valid), beta});
}

void DivergenceBackward::run(auto launch, const Checker& check) const {
  check_divergence(check, *this);
  check.f32("terms", terms, student.rows, 2);
  check.values("d_logits", d_logits, student.rows, student.cols);
  with_type(d_logits.dtype, [&]<typename Out>(Out) {
    launch.rows({student.rows, student.cols}, rowwise::DivergenceBackwardKernel<Out>{
                                                  .d_logits = d_logits,
                                                  .student = student,
                                                  .teacher = teacher,
                                                  .s_lse = student_lse,
                                                  .t_lse = teacher_lse,
                                                  .terms = terms,
                                                  .targets = address<const std::int32_t>(targets),
                                                  .V = width(student),
                                                  .valid = static_cast<int>(valid),
                                                  .beta = beta,
                                                  .scale = scale,
                                              });
  });
}

}  // namespace axonn::ops
