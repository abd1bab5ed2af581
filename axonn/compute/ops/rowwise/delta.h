#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

#include "axonn/compute/ops/rowwise/causal_convolution.h"
#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"

// Kernels of delta_operations.h.

namespace axonn::rowwise {

/// out[r][c] = inp[c][r], or added to it. One team per row of out.
template <typename W, bool accumulate>
struct TransposeKernel {
  Matrix<float> out;
  Matrix<const W> inp;
  int C;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    team.each(C, [=, this](int c) {
      float& to = out.row(row)[c];
      to = (accumulate ? to : 0.0f) + get(inp.row(c)[row]);
    });
  }
};

AXONN_DEVICE inline float log_one_plus_exp(float x) {
  return (x > 0 ? x : 0.0f) + std::log1p(std::exp(-std::fabs(x)));
}

/// See ops::DeltaGates. One team per row.
template <typename T, typename W>
struct DeltaGatesKernel {
  Matrix<float> decay, beta;
  Matrix<const T> a, b;
  const W *a_log, *bias;
  int heads;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    team.each(heads, [=, this](int h) {
      decay.row(row)[h] =
          -std::exp(get(a_log[h])) * log_one_plus_exp(get(a.row(row)[h]) + get(bias[h]));
      beta.row(row)[h] = 1 / (1 + std::exp(-get(b.row(row)[h])));
    });
  }
};

template <typename T, typename W>
struct DeltaGatesBackwardKernel {
  Matrix<T> d_a, d_b;
  Matrix<float> of_a_log, of_bias;
  Matrix<const float> d_decay, d_beta, decay, beta;
  Matrix<const T> a;
  const W *a_log, *bias;
  int heads;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    team.each(heads, [=, this](int h) {
      const float d = d_decay.row(row)[h], s = beta.row(row)[h],
                  x = get(a.row(row)[h]) + get(bias[h]),
                  d_x = -d * std::exp(get(a_log[h])) / (1 + std::exp(-x));
      of_a_log.row(row)[h] = d * decay.row(row)[h];
      of_bias.row(row)[h] = d_x;
      put(d_a.row(row)[h], d_x);
      put(d_b.row(row)[h], d_beta.row(row)[h] * s * (1 - s));
    });
  }
};

/// The inputs of ops::DeltaRule, and its steps. Element c of a row of a state, and of rows of V
/// columns, always belongs to the same member of a team.
template <typename T>
struct DeltaInputs {
  Matrix<float> states;
  Matrix<const T> q, k, v;
  Matrix<const float> decay, beta;
  Seen seen;
  std::int64_t R, heads, key_heads, group, first_value;
  int K, V;

  /// One value head of one sequence.
  struct Head {
    std::int64_t value, key;
    float *state, *delta, *out;  // (K, V), (V) and (V)
  };

  /// Calls f(head) for the value heads of a team's row, a key head of a sequence.
  AXONN_DEVICE void for_heads(std::int64_t row, auto f) const {
    const std::int64_t sequence = row_quotient(row, key_heads), key = row_remainder(row, key_heads);
    for (std::int64_t j = 0; j < group; ++j) {
      const std::int64_t value = key * group + j - first_value;
      if (value < 0 || value >= heads) continue;
      float* state = states.data ? states.row(sequence * heads + value) : nullptr;
      f(Head{value, key, state, state + K * V, state + (K + 1) * V}, sequence);
    }
  }
  /// The rows of a sequence, or all rows, of which those of its slot count.
  AXONN_DEVICE std::int64_t first(std::int64_t sequence) const {
    return seen.slots ? 0 : sequence * seen.positions;
  }
  AXONN_DEVICE std::int64_t count() const { return seen.slots ? R : seen.positions; }

  AXONN_DEVICE void clear(const auto& team, const Head& head) const {
    for (int i = 0; i < K; ++i) zero(team, head.state + i * V);
  }
  AXONN_DEVICE void zero(const auto& team, float* row) const {
    team.map(row, V, [] { return 0.0f; });
  }

  AXONN_DEVICE const T* keys(const Head& head, std::int64_t row) const {
    return k.row(row) + head.key * K;
  }
  AXONN_DEVICE const T* queries(const Head& head, std::int64_t row) const {
    return q.row(row) + head.key * K;
  }
  AXONN_DEVICE const T* values(const Head& head, std::int64_t row) const {
    return v.row(row) + head.value * V;
  }

  /// S = α S, head.delta = Sᵀ k.
  AXONN_DEVICE void recall(const auto& team, const Head& head, std::int64_t row) const {
    const float alpha = std::exp(decay.row(row)[head.value]);
    const T* const key = keys(head, row);
    const float* const sum = head.delta;
    zero(team, head.delta);
    for (int i = 0; i < K; ++i)
      team.update(
          head.delta, V,
          [alpha, x = get(key[i])](auto& s, auto all) {
            s = alpha * s;
            return all + x * s;
          },
          head.state + i * V, sum);
  }
  /// head.delta = β (v - head.delta).
  AXONN_DEVICE void correct(const auto& team, const Head& head, std::int64_t row) const {
    const float* const recalled = head.delta;
    team.map(
        head.delta, V, [b = beta.row(row)[head.value]](auto x, auto y) { return b * (x - y); },
        values(head, row), recalled);
  }
  /// S = S + k δᵀ, head.out = Sᵀ q.
  AXONN_DEVICE void write(const auto& team, const Head& head, std::int64_t row) const {
    const T *const key = keys(head, row), *const query = queries(head, row);
    const float *const delta = head.delta, *const sum = head.out;
    zero(team, head.out);
    for (int i = 0; i < K; ++i)
      team.update(
          head.out, V,
          [x = get(key[i]), y = get(query[i])](auto& s, auto d, auto all) {
            s = s + x * d;
            return all + y * s;
          },
          head.state + i * V, delta, sum);
  }
};

/// See ops::DeltaRule. One team per sequence and key head.
template <typename T>
struct DeltaRuleKernel {
  DeltaInputs<T> in;
  Matrix<T> out;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    in.for_heads(row, [&](const auto& head, std::int64_t sequence) {
      const std::int64_t first = in.first(sequence), count = in.count();
      for (std::int64_t r = first; r < first + count; ++r) {
        if (in.seen.slots && in.seen.slots[r] != sequence) continue;
        if (in.seen.before(r) == 0) in.clear(team, head);
        in.recall(team, head, r);
        in.correct(team, head, r);
        in.write(team, head, r);
        const float* const result = head.out;
        team.map(
            out.row(r) + head.value * in.V, in.V, [](auto x) { return x; }, result);
      }
    });
  }
};

/// See ops::DeltaRuleBackward. One team per sequence and key head.
template <typename T>
struct DeltaRuleBackwardKernel {
  using Head = typename DeltaInputs<T>::Head;
  static constexpr std::int64_t kRows = ops::DeltaRuleBackward::kRows;

  DeltaInputs<T> in;
  Matrix<float> d_q, d_k, d_decay, d_beta, deltas, memory;
  Matrix<T> d_v;
  Matrix<const T> d_out;

  AXONN_DEVICE void operator()(const auto& team, std::int64_t row) const {
    const std::int64_t runs = (in.count() + kRows - 1) / kRows, state = in.K * in.V;
    float* const begin = memory.row(row);
    in.for_heads(row, [&](Head head, std::int64_t sequence) {
      // The states before runs, those before the rows of a run, S or its gradient, two rows.
      float* const of_rows = begin + runs * state;
      head.state = of_rows + kRows * state;
      head.delta = head.state + state;
      head.out = head.delta + in.V;
      const std::int64_t first = in.first(sequence), end = first + in.count();
      in.clear(team, head);
      for (std::int64_t r = first; r < end; ++r) {
        if ((r - first) % kRows == 0) copy(team, begin + (r - first) / kRows * state, head.state);
        keep_delta(team, head, r);
      }
      in.clear(team, head);
      for (std::int64_t run = runs - 1; run >= 0; --run) {
        const std::int64_t from = first + run * kRows, to = from + kRows < end ? from + kRows : end;
        for (std::int64_t r = from; r < to; ++r) {
          float* const here = of_rows + (r - from) * state;
          decayed(team, head, r, {here, r == from ? begin + run * state : here - state, r > from});
        }
        for (std::int64_t r = to - 1; r >= from; --r)
          back(team, head, r, of_rows + (r - from) * state);
      }
    });
  }

 private:
  static AXONN_DEVICE auto same() {
    return [](auto x) { return x; };
  }
  AXONN_DEVICE void copy(const auto& team, float* to, const float* from) const {
    for (int i = 0; i < in.K; ++i) team.map(to + i * in.V, in.V, same(), from + i * in.V);
  }
  AXONN_DEVICE float* delta(const Head& head, std::int64_t row) const {
    return deltas.row(row) + head.value * in.V;
  }

  /// A forward step, which keeps δ.
  AXONN_DEVICE void keep_delta(const auto& team, const Head& head, std::int64_t row) const {
    if (in.seen.before(row) == 0) in.clear(team, head);
    in.recall(team, head, row);
    in.correct(team, head, row);
    const T* const key = in.keys(head, row);
    const float* const made = head.delta;
    team.map(delta(head, row), in.V, same(), made);
    for (int i = 0; i < in.K; ++i) {
      float* const s = head.state + i * in.V;
      const float* const before = s;
      team.map(
          s, in.V, [x = get(key[i])](auto y, auto d) { return y + x * d; }, before, made);
    }
  }

  /// `to` = α S of a row, where `from` is S, or, if `learns`, α S of the row before.
  struct Decay {
    float* to;
    const float* from;
    bool learns;
  };
  AXONN_DEVICE void decayed(const auto& team, const Head& head, std::int64_t row,
                            const Decay& decay) const {
    float* const to = decay.to;
    const float* const from = decay.from;
    const bool learns = decay.learns;
    const bool begins = in.seen.before(row) == 0;
    const float alpha = begins ? 0.0f : std::exp(in.decay.row(row)[head.value]);
    const std::int64_t last = learns ? row - 1 : row;
    const T* const key = in.keys(head, last);
    const float* const d = delta(head, last);
    for (int i = 0; i < in.K; ++i) {
      const float x = learns ? get(key[i]) : 0.0f;
      if (begins)
        in.zero(team, to + i * in.V);
      else
        team.map(
            to + i * in.V, in.V, [alpha, x](auto s, auto y) { return alpha * (s + x * y); },
            from + i * in.V, d);
    }
  }

  /// From the gradient of S after this row, of later rows, in head.state, to that before it.
  /// `before`: α S.
  AXONN_DEVICE void back(const auto& team, const Head& head, std::int64_t row,
                         const float* before) const {
    const T *const key = in.keys(head, row), *const query = in.queries(head, row),
                   *const slope = d_out.row(row) + head.value * in.V;
    const float *const sum = head.delta, *const d = delta(head, row);
    in.zero(team, head.delta);
    for (int i = 0; i < in.K; ++i)
      team.update(
          head.delta, in.V,
          [x = get(key[i]), y = get(query[i])](auto& s, auto g, auto all) {
            s = s + y * g;
            return all + x * s;
          },
          head.state + i * in.V, slope, sum);
    const float b = in.beta.row(row)[head.value],
                of_delta = team.sum(
                    in.V, [](auto x, auto y) { return x * y; }, d, sum),
                alpha = in.seen.before(row) == 0 ? 0.0f : std::exp(in.decay.row(row)[head.value]);
    team.map(
        d_v.row(row) + head.value * in.V, in.V, [b](auto x) { return b * x; }, sum);
    float of_decay = 0;
    for (int i = 0; i < in.K; ++i) {
      float* const s = head.state + i * in.V;
      const float *const d_after = s, *const from = before + i * in.V;
      const float x = get(key[i]);
      const auto terms = team.sum_two(
          in.V,
          [b, x](auto ds, auto y, auto prior, auto dy, auto g) {
            return pair(ds * y - b * (prior * dy), (prior + x * y) * g);
          },
          d_after, d, from, sum, slope);
      team.once([&] {
        d_k.row(row)[head.key * in.K + i] += terms.first;
        d_q.row(row)[head.key * in.K + i] += terms.second;
      });
      of_decay += team.map_sum_asking(
          std::tuple<>(), s, in.V,
          [alpha, bx = b * x](auto ds, auto dy, auto prior) {
            const auto rest = ds - bx * dy;
            return pair(alpha * rest, prior * rest);
          },
          d_after, sum, from);
    }
    team.once([&] {
      d_decay.row(row)[head.value] = of_decay;
      d_beta.row(row)[head.value] = b > 0 ? of_delta / b : 0.0f;
    });
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

void Transpose::run(auto launch, const Checker& check) const {
  check.f32("out", out, out.rows, out.cols);
  check.values("inp", inp, out.cols, out.rows);
  with_type(inp.dtype, [&]<typename W>(W) {
    if (accumulate)
      launch.rows({out.rows, out.cols, width(out)},
                  rowwise::TransposeKernel<W, true>{out, inp, width(out)});
    else
      launch.rows({out.rows, out.cols, width(out)},
                  rowwise::TransposeKernel<W, false>{out, inp, width(out)});
  });
}

void DeltaGates::run(auto launch, const Checker& check) const {
  check.values("a", a);
  check.like("b", b, a);
  check.f32("decay", decay, a.rows, a.cols);
  check.f32("beta", beta, a.rows, a.cols);
  check.values("a_log", a_log, 1, a.cols);
  check.like("bias", bias, a_log);
  with_types(a.dtype, a_log.dtype, [&]<typename T, typename W>(T, W) {
    launch.rows({a.rows, a.cols, width(a)},
                rowwise::DeltaGatesKernel<T, W>{decay, beta, a, b, address<const W>(a_log),
                                                address<const W>(bias), width(a)});
  });
}

void DeltaGatesBackward::run(auto launch, const Checker& check) const {
  const View &decay = forward.decay, &beta = forward.beta, &a = forward.a, &a_log = forward.a_log,
             &bias = forward.bias;
  check.values("a", a);
  check.like("d_a", d_a, a);
  check.like("d_b", d_b, a);
  for (const auto& [name, view] : {std::pair{"decay", decay},
                                   {"beta", beta},
                                   {"d_decay", d_decay},
                                   {"d_beta", d_beta},
                                   {"of_a_log", of_a_log},
                                   {"of_bias", of_bias}})
    check.f32(name, view, a.rows, a.cols);
  check.values("a_log", a_log, 1, a.cols);
  check.like("bias", bias, a_log);
  with_types(a.dtype, a_log.dtype, [&]<typename T, typename W>(T, W) {
    launch.rows({a.rows, a.cols, width(a)},
                rowwise::DeltaGatesBackwardKernel<T, W>{
                    d_a, d_b, of_a_log, of_bias, d_decay, d_beta, decay, beta, a,
                    address<const W>(a_log), address<const W>(bias), width(a)});
  });
}

/// Checks the inputs of DeltaRule; returns the sequences, or slots, that its states are for.
inline std::int64_t check_delta(const Checker& check, const DeltaRule& rule) {
  const std::int64_t R = rule.v.rows, h = rule.heads, g = rule.key_heads;
  AXONN_CHECK(h > 0 && g > 0 && rule.group > 0 && rule.v.cols % h == 0 && rule.k.cols % g == 0 &&
                  rule.first_value >= 0 && (rule.first_value + h - 1) / rule.group < g,
              check.operation, ": v ", rule.v, " and k ", rule.k, " are not of ", h,
              " value heads in groups of ", rule.group, " from ", rule.first_value, " on and ", g,
              " key heads");
  check.values("v", rule.v);
  check.typed("k", rule.k, rule.v.dtype, R, rule.k.cols);
  check.like("q", rule.q, rule.k);
  check.f32("decay", rule.decay, R, h);
  check.f32("beta", rule.beta, R, h);
  check_seen(check, rule.seen, R);
  const std::int64_t K = rule.k.cols / g, V = rule.v.cols / h,
                     sequences =
                         rule.seen.slots.data ? rule.states.rows / h : R / rule.seen.positions;
  if (rule.states.data) check.f32("states", rule.states, sequences * h, (K + 2) * V);
  return sequences;
}

template <typename T>
rowwise::DeltaInputs<T> delta_inputs(const DeltaRule& rule) {
  return {.states = rule.states,
          .q = rule.q,
          .k = rule.k,
          .v = rule.v,
          .decay = rule.decay,
          .beta = rule.beta,
          .seen = rowwise::Seen(rule.seen),
          .R = rule.v.rows,
          .heads = rule.heads,
          .key_heads = rule.key_heads,
          .group = rule.group,
          .first_value = rule.first_value,
          .K = static_cast<int>(rule.k.cols / rule.key_heads),
          .V = static_cast<int>(rule.v.cols / rule.heads)};
}

/// The teams of a delta rule, each with a key head of a sequence.
inline rowwise::RowWork delta_work(const DeltaRule& rule, std::int64_t sequences) {
  return {sequences * rule.key_heads, rule.v.rows * rule.v.cols,
          static_cast<int>(rule.v.cols / rule.heads)};
}

void DeltaRule::run(auto launch, const Checker& check) const {
  const std::int64_t sequences = check_delta(check, *this);
  AXONN_CHECK(states.data, check.operation, ": states are missing");
  check.like("out", out, v);
  with_type(v.dtype, [&]<typename T>(T) {
    launch.rows(delta_work(*this, sequences),
                rowwise::DeltaRuleKernel<T>{delta_inputs<T>(*this), out});
  });
}

void DeltaRuleBackward::run(auto launch, const Checker& check) const {
  const std::int64_t sequences = check_delta(check, forward);
  AXONN_CHECK(!forward.seen.slots.data, check.operation, ": wanted no slots");
  check.like("d_out", d_out, forward.v);
  check.like("d_v", d_v, forward.v);
  for (const auto& [name, view] : {std::pair{"d_q", d_q}, {"d_k", d_k}})
    check.f32(name, view, forward.k.rows, forward.k.cols);
  for (const auto& [name, view] : {std::pair{"d_decay", d_decay}, {"d_beta", d_beta}})
    check.f32(name, view, forward.v.rows, forward.heads);
  check.f32("deltas", deltas, forward.v.rows, forward.v.cols);
  check.f32("memory", memory, sequences * forward.key_heads,
            memory_cols(forward.seen.positions, forward.k.cols / forward.key_heads,
                        forward.v.cols / forward.heads));
  with_type(forward.v.dtype, [&]<typename T>(T) {
    launch.rows(delta_work(forward, sequences),
                rowwise::DeltaRuleBackwardKernel<T>{delta_inputs<T>(forward), d_q, d_k, d_decay,
                                                    d_beta, deltas, memory, d_v, d_out});
  });
}

}  // namespace axonn::ops
