#include <cmath>
#include <functional>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// Sequences of T positions, with a document that begins in the middle of each.
struct DeltaSizes {
  std::int64_t sequences, T, heads, key_heads, K, V;
  std::int64_t first_value = 0;

  std::int64_t rows() const { return sequences * T; }
  std::int64_t group() const { return (heads + first_value + key_heads - 1) / key_heads; }
  std::vector<std::int32_t> starts() const {
    std::vector<std::int32_t> starts(static_cast<std::size_t>(rows()));
    for (std::int64_t r = 0; r < rows(); ++r)
      starts[r] = r % T >= T / 2 ? static_cast<std::int32_t>(T / 2) : 0;
    return starts;
  }
};

/// The inputs of the rule, and its result in double, row by row.
struct PlainDelta {
  DeltaSizes at;
  Matrix q, k, v, decay, beta;

  PlainDelta(const DeltaSizes& sizes, DType type)
      : at(sizes),
        q(random_values("q", at.rows(), at.key_heads * at.K, type)),
        k(random_values("k", at.rows(), at.key_heads * at.K, type)),
        v(random_values("v", at.rows(), at.heads * at.V, type)),
        decay(random_values("decay", at.rows(), at.heads, DType::f32)),
        beta(random_values("beta", at.rows(), at.heads, DType::f32)) {
    for (double& d : decay.values) d = static_cast<float>(-0.5 * std::abs(d));
    for (double& b : beta.values) b = static_cast<float>(0.5 + 0.5 * b);
    for (Matrix* of : {&q, &k})
      for (double& x : of->values) x *= 0.5;  // exact in both types
  }

  Matrix out() const {
    Matrix result = v;
    const auto starts = at.starts();
    for (std::int64_t h = 0; h < at.heads; ++h) {
      const std::int64_t key = (at.first_value + h) / at.group();
      Matrix S(at.K, at.V);
      for (std::int64_t r = 0; r < at.rows(); ++r) {
        if (r % at.T == starts[r])
          for (double& s : S.values) s = 0;
        for (double& s : S.values) s *= std::exp(decay(r, h));
        for (std::int64_t c = 0; c < at.V; ++c) {
          double recalled = 0;
          for (std::int64_t i = 0; i < at.K; ++i) recalled += S(i, c) * k(r, key * at.K + i);
          const double delta = beta(r, h) * (v(r, h * at.V + c) - recalled);
          double sum = 0;
          for (std::int64_t i = 0; i < at.K; ++i) {
            S(i, c) += k(r, key * at.K + i) * delta;
            sum += S(i, c) * q(r, key * at.K + i);
          }
          result(r, h * at.V + c) = sum;
        }
      }
    }
    return result;
  }
};

/// The operands of the operation on these inputs.
struct DeltaOperands {
  Operand out, states, q, k, v, decay, beta, starts;
  ops::DeltaRule rule;

  DeltaOperands(const PlainDelta& of, DType type)
      : out(of.at.rows(), of.v.cols, type, 1),
        states(of.at.sequences * of.at.heads, (of.at.K + 2) * of.at.V, DType::f32),
        q(of.q, type, 3),
        k(of.k, type, 2),
        v(of.v, type, 1),
        decay(of.decay, DType::f32),
        beta(of.beta, DType::f32, 2),
        starts(of.at.starts()),
        rule{.out = out,
             .states = states,
             .q = q,
             .k = k,
             .v = v,
             .decay = decay,
             .beta = beta,
             .seen = {.positions = of.at.T, .starts = starts},
             .heads = of.at.heads,
             .key_heads = of.at.key_heads,
             .group = of.at.group(),
             .first_value = of.at.first_value} {}
};

double dot(const Matrix& a, const Matrix& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) sum += a.values[i] * b.values[i];
  return sum;
}

}  // namespace

TEST(DeltaRule, IsThatOfPlainLoops) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes)
    for (const DeltaSizes& sizes :
         {DeltaSizes{1, 1, 1, 1, 1, 1}, DeltaSizes{2, 6, 2, 1, 6, 8},
          DeltaSizes{1, 70, 3, 3, 5, 70}, DeltaSizes{2, 9, 3, 2, 4, 64, 1}}) {
      const PlainDelta plain(sizes, type);
      const DeltaOperands of(plain, type);
      backend->run(of.rule);
      EXPECT_TRUE(close(of.out, plain.out(), stored(type, 1e-5))) << sizes.T << name_of(type);
    }
}

TEST(DeltaRule, GoesOnWhereAnEarlierCallOfASlotEnded) {
  const auto backend = test_backend();
  const DeltaSizes sizes{1, 7, 2, 1, 6, 8};
  PlainDelta plain(sizes, DType::f32);
  const DeltaOperands of(plain, DType::f32);
  ops::DeltaRule whole = of.rule;
  whole.seen.starts = {};
  backend->run(whole);
  const Matrix want = of.out.values();
  const Operand states(3 * 2, (6 + 2) * 8, DType::f32), out(7, 16, DType::f32);
  for (const auto& [first, count] : {std::pair{0, 3}, {3, 1}, {4, 3}}) {
    std::vector<std::int32_t> slots(static_cast<std::size_t>(count), 1), position;
    for (int i = 0; i < count; ++i) position.push_back(first + i);
    const Operand of_slots(slots), of_rows(position);
    ops::DeltaRule part = whole;
    part.states = states;
    part.out = out.view().row_range(first, count);
    for (View* view : {&part.q, &part.k, &part.v, &part.decay, &part.beta})
      *view = view->row_range(first, count);
    part.seen = {.slots = of_slots, .position = of_rows};
    backend->run(part);
  }
  EXPECT_EQ(out.values().values, want.values);
}

TEST(DeltaRule, GradientsAreThoseOfCentralDifferences) {
  const auto backend = test_backend();
  for (const DeltaSizes& sizes : {DeltaSizes{2, 6, 2, 1, 3, 4}, DeltaSizes{1, 5, 3, 2, 2, 3, 1},
                                  DeltaSizes{1, 71, 1, 1, 2, 3}}) {
    const PlainDelta plain(sizes, DType::f32);
    const DeltaOperands of(plain, DType::f32);
    const Matrix d_out = random_values("d_out", sizes.rows(), plain.v.cols, DType::f32);
    const auto like = [](const Matrix& m) { return Operand(m.rows, m.cols, DType::f32, 1); };
    const Operand d_q = like(plain.q), d_k = like(plain.k), d_v = like(plain.v),
                  d_decay = like(plain.decay), d_beta = like(plain.beta), deltas = like(plain.v),
                  memory(sizes.sequences * sizes.key_heads,
                         ops::DeltaRuleBackward::memory_cols(sizes.T, sizes.K, sizes.V),
                         DType::f32),
                  d(d_out, DType::f32);
    backend->run(
        ops::DeltaRuleBackward{of.rule, d, d_q, d_k, d_v, d_decay, d_beta, deltas, memory});
    const auto check = [&](const Operand& got, Matrix PlainDelta::*input, const char* name) {
      const Matrix want = reference::finite_differences(plain.*input, [&](const Matrix& moved) {
        PlainDelta there = plain;
        there.*input = moved;
        return dot(there.out(), d_out);
      });
      EXPECT_TRUE(close(got, want, {3e-5, 1e-4})) << name;
    };
    check(d_q, &PlainDelta::q, "q");
    check(d_k, &PlainDelta::k, "k");
    check(d_v, &PlainDelta::v, "v");
    check(d_decay, &PlainDelta::decay, "decay");
    check(d_beta, &PlainDelta::beta, "beta");
  }
}

TEST(DeltaRule, OfHeadsThatAreNotThoseOfItsOperandsIsRefused) {
  const PlainDelta plain({1, 4, 2, 1, 3, 4}, DType::f32);
  const DeltaOperands of(plain, DType::f32);
  ops::DeltaRule wrong = of.rule;
  wrong.key_heads = 2;
  expect_refusal("delta_rule: v (4,8) f32 and k (4,3) f32 are not of 2 value heads", wrong);
}

namespace {

/// Rows of two sequences of 7 positions; the second document of each begins at position 3.
struct ConvolutionCase {
  static constexpr std::int64_t kT = 7, kRows = 14, kCols = 70;

  int taps;
  Matrix inp = random_values("inp", kRows, kCols, DType::f32),
         weight = random_values("weight", taps, kCols, DType::f32);

  static std::vector<std::int32_t> starts() {
    std::vector<std::int32_t> starts;
    for (std::int64_t r = 0; r < kRows; ++r) starts.push_back(r % kT >= 3 ? 3 : 0);
    return starts;
  }
  Matrix out() const {
    Matrix result(kRows, kCols);
    for (std::int64_t r = 0; r < kRows; ++r)
      for (std::int64_t s = 0; s < taps && r % kT - s >= starts()[r]; ++s)
        for (std::int64_t c = 0; c < kCols; ++c)
          result(r, c) += weight(taps - 1 - s, c) * inp(r - s, c);
    return result;
  }
  /// The weights as the operation takes them.
  Matrix padded() const {
    Matrix all(taps + 1, kCols);
    for (std::size_t i = 0; i < weight.values.size(); ++i) all.values[i] = weight.values[i];
    return all;
  }
};

}  // namespace

class CausalConvolution : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Taps, CausalConvolution, testing::Values(2, 4, 5, 11));

TEST_P(CausalConvolution, AndItsGradientsAreThoseOfPlainLoops) {
  const auto backend = test_backend();
  const int taps = GetParam();
  const ConvolutionCase of{taps};
  const Operand inp(of.inp, DType::f32, 2), weight(of.padded(), DType::f32),
      out(of.kRows, of.kCols, DType::f32, 1), starts(of.starts());
  const ops::SeenRows seen{.positions = of.kT, .starts = starts};
  backend->run(ops::CausalConvolution{.out = out, .inp = inp, .weight = weight, .seen = seen});
  EXPECT_TRUE(close(out, of.out(), stored(DType::f32, 1e-6)));

  const Matrix d_out = random_values("d", of.kRows, of.kCols, DType::f32);
  const Operand d(d_out, DType::f32, 1), d_inp(of.kRows, of.kCols, DType::f32),
      d_weight(taps, of.kCols, DType::f32);
  backend->run(ops::CausalConvolution{
      .out = d_inp, .inp = d, .weight = weight, .seen = seen, .adjoint = true});
  backend->run(ops::CausalConvolutionWeights{d_weight, d, inp, seen});
  const auto of_moved = [&](Matrix ConvolutionCase::*what) {
    return reference::finite_differences(of.*what, [&](const Matrix& moved) {
      ConvolutionCase there = of;
      there.*what = moved;
      return dot(there.out(), d_out);
    });
  };
  EXPECT_TRUE(close(d_inp, of_moved(&ConvolutionCase::inp), {1e-5, 1e-5}));
  EXPECT_TRUE(close(d_weight, of_moved(&ConvolutionCase::weight), {1e-5, 1e-5}));
}

TEST_P(CausalConvolution, OfASlotReadsTheInputsOfEarlierCalls) {
  const auto backend = test_backend();
  const int taps = GetParam();
  const ConvolutionCase of{taps};
  const Operand inp(of.inp, DType::f32), weight(of.padded(), DType::f32),
      out(of.kT, of.kCols, DType::f32), want(of.kT, of.kCols, DType::f32),
      kept(2 * (taps - 1), of.kCols, DType::f32);
  backend->run(ops::CausalConvolution{.out = want,
                                      .inp = inp.view().row_range(0, of.kT),
                                      .weight = weight,
                                      .seen = {.positions = of.kT}});
  for (const auto& [first, count] : {std::pair{0, 2}, {2, 4}, {6, 1}}) {
    const std::vector<std::int32_t> slots(static_cast<std::size_t>(count), 1);
    std::vector<std::int32_t> position, last = slots;
    for (int i = 0; i < count; ++i) {
      position.push_back(first + i);
      if (i + taps - 1 < count) last[i] = -1;
    }
    const Operand of_slots(slots), of_rows(position), of_last(last);
    const View rows = inp.view().row_range(first, count);
    backend->run(ops::CausalConvolution{.out = out.view().row_range(first, count),
                                        .inp = rows,
                                        .weight = weight,
                                        .seen = {.slots = of_slots, .position = of_rows},
                                        .kept = kept});
    backend->run(ops::KeepHeads{
        .kept = kept, .inp = rows, .slots = of_last, .positions = of_rows, .entries = taps - 1});
  }
  EXPECT_EQ(out.values().values, want.values().values);
}

TEST(DeltaGates, AndTheirGradientsAreThoseOfTheirFormulas) {
  const auto backend = test_backend();
  const std::int64_t rows = 3, heads = 5;
  const Matrix a = random_values("a", rows, heads, DType::f32),
               b = random_values("b", rows, heads, DType::f32),
               a_log = random_values("log", 1, heads, DType::f32),
               bias = random_values("bias", 1, heads, DType::f32),
               d_decay = random_values("dd", rows, heads, DType::f32),
               d_beta = random_values("db", rows, heads, DType::f32);
  Matrix decay(rows, heads), beta(rows, heads), d_a(rows, heads), d_b(rows, heads),
      of_log(rows, heads);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t h = 0; h < heads; ++h) {
      const double x = a(r, h) + bias(0, h), A = std::exp(a_log(0, h)),
                   s = 1 / (1 + std::exp(-b(r, h)));
      decay(r, h) = -A * std::log1p(std::exp(x));
      beta(r, h) = s;
      d_a(r, h) = -d_decay(r, h) * A / (1 + std::exp(-x));
      d_b(r, h) = d_beta(r, h) * s * (1 - s);
      of_log(r, h) = d_decay(r, h) * decay(r, h);
    }
  const auto out = [&] { return Operand(rows, heads, DType::f32, 1); };
  const Operand got_decay = out(), got_beta = out(), got_a = out(), got_b = out(), got_log = out(),
                got_bias = out(), in_a(a, DType::f32), in_b(b, DType::f32),
                in_log(a_log, DType::f32), in_bias(bias, DType::f32), in_decay(d_decay, DType::f32),
                in_beta(d_beta, DType::f32);
  const ops::DeltaGates gates{got_decay, got_beta, in_a, in_b, in_log, in_bias};
  backend->run(gates);
  backend->run(ops::DeltaGatesBackward{gates, in_decay, in_beta, got_a, got_b, got_log, got_bias});
  for (const auto& [got, want] : {std::pair{&got_decay, &decay},
                                  {&got_beta, &beta},
                                  {&got_a, &d_a},
                                  {&got_b, &d_b},
                                  {&got_log, &of_log},
                                  {&got_bias, &d_a}})
    EXPECT_TRUE(close(*got, *want, stored(DType::f32, 1e-6)));
}

TEST(Transpose, CopiesOrAdds) {
  const auto backend = test_backend();
  const Matrix inp = random_values("inp", 5, 3, DType::bf16);
  Matrix want(3, 5);
  for (std::int64_t r = 0; r < 5; ++r)
    for (std::int64_t c = 0; c < 3; ++c) want(c, r) = inp(r, c);
  const Operand out(3, 5, DType::f32, 1), in(inp, DType::bf16, 2);
  backend->run(ops::Transpose{out, in});
  EXPECT_EQ(out.values().values, want.values);
  backend->run(ops::Transpose{out, in, true});
  for (double& value : want.values) value *= 2;
  EXPECT_EQ(out.values().values, want.values);
}
