#include <array>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

constexpr auto kTypes = kModelTypes;
constexpr double kEps = 1e-3;

/// Compares RMSNorm with rows cut into `pieces`, as ranks along y hold them, with plain loops.
void check_rms_norm(Backend& backend, std::int64_t R, std::int64_t C, DType type,
                    std::int64_t pieces) {
  SCOPED_TRACE(testing::Message() << '(' << R << ',' << C << ") " << name_of(type) << " in "
                                  << pieces << " pieces");
  const Operand inp(random_values("inp", R, C, type), type, 3),
      weight(random_values("weight", 1, C, type), type),
      d_out(random_values("d_out", R, C, type), type, 1), out(R, C, type, 2), d_inp(R, C, type, 4),
      d_weight(Matrix(1, C, 0.5), DType::f32), moments(pieces * R, 2, DType::f32),
      stats(R, 2, DType::f32);
  const std::int64_t each = C / pieces;
  const auto part = [&](const Operand& all, std::int64_t p) {
    return all.view().col_range(p * each, each);
  };
  for (std::int64_t p = 0; p < pieces; ++p) {
    const View here = moments.view().row_range(p * R, R);
    backend.run(ops::RowMoments{here, part(inp, p)});
    backend.run(ops::MomentsAboutZero{here, here, each});
  }
  backend.run(ops::CombineMoments{stats, moments, each, static_cast<float>(kEps)});
  Matrix total(R, 2);
  for (std::int64_t p = 0; p < pieces; ++p) {
    const Operand sums(R, 2, DType::f32);
    backend.run(ops::LayerNorm{part(out, p), part(inp, p), part(weight, p), {}, stats});
    backend.run(ops::RmsNormSums{sums, part(d_out, p), part(inp, p), part(weight, p), stats});
    backend.run(
        ops::LayerNormWeightBackward{part(d_weight, p), {}, part(d_out, p), part(inp, p), stats});
    for (std::int64_t r = 0; r < R; ++r)
      for (std::int64_t c = 0; c < 2; ++c) total(r, c) += sums.values()(r, c);
  }
  const Operand sums(total, DType::f32);
  for (std::int64_t p = 0; p < pieces; ++p)
    backend.run(ops::LayerNormBackward{.d_inp = part(d_inp, p),
                                       .d_out = part(d_out, p),
                                       .inp = part(inp, p),
                                       .weight = part(weight, p),
                                       .stats = stats,
                                       .sums = sums,
                                       .width = C});

  const Matrix x = inp.values(), w = weight.values();
  auto d = rms_norm_backward(d_out.values(), x, w, kEps);
  for (double& value : d.d_weight.values) value += 0.5;
  // As for LayerNorm: C roundings of the sum, magnified by rstd if a row's elements are small.
  double rstd = 0;
  for (std::int64_t r = 0; r < R; ++r) rstd = std::max(rstd, stats.values()(r, 1));
  const double error = 4.0 * static_cast<double>(C + 4) * rounding(DType::f32) * (1 + rstd);
  EXPECT_TRUE(close(out, rms_norm(x, w, kEps), stored(type, error)));
  EXPECT_TRUE(close(d_inp, d.d_inp, stored(type, error * (1 + rstd) * (1 + rstd))));
  const double rows = static_cast<double>(R + 4);
  EXPECT_TRUE(close(d_weight, d.d_weight, {rows * error * (1 + rstd), rounding(DType::f32)}));
}

/// (R, h·D) as (R·h, D), and back.
Matrix heads_as_rows(const Matrix& m, std::int64_t D) {
  Matrix out(m.rows * m.cols / D, D);
  out.values = m.values;
  return out;
}
Matrix rows_as_heads(const Matrix& m, std::int64_t cols) {
  Matrix out(m.rows * m.cols / cols, cols);
  out.values = m.values;
  return out;
}

}  // namespace

TEST(RmsNorm, EqualsPlainLoopsForwardAndBackwardWholeAndInPieces) {
  const auto backend = test_backend();
  for (DType type : kTypes) {
    check_rms_norm(*backend, 1, 3, type, 1);
    check_rms_norm(*backend, 3, 17, type, 1);
    check_rms_norm(*backend, 5, 51, type, 3);
    check_rms_norm(*backend, 130, 768, type, 1);
    check_rms_norm(*backend, 129, 768, type, 6);
  }
}

TEST(HeadNorm, IsRmsNormOfEveryHeadWithOneWeightForAll) {
  const auto backend = test_backend();
  for (DType type : kTypes)
    for (const auto& [R, h, D] : {std::array<std::int64_t, 3>{1, 1, 2},
                                  {3, 5, 17},
                                  {129, 2, 64},
                                  {300, 6, 128},
                                  {5, 3, 320},
                                  {0, 2, 4}}) {
      SCOPED_TRACE(testing::Message() << R << " rows of " << h << " heads of " << D);
      const Operand inp(random_values("inp", R, h * D, type), type, 3),
          weight(random_values("weight", 1, D, type), type),
          d_out(random_values("d_out", R, h * D, type), type, 1), out(R, h * D, type, 2),
          d_inp(R, h * D, type, 4), d_weight(Matrix(1, D, 0.5), DType::f32), rstd(R, h, DType::f32);
      const ops::HeadNorm forward{
          .out = out, .inp = inp, .weight = weight, .rstd = rstd, .eps = static_cast<float>(kEps)};
      backend->run(forward);
      backend->run(ops::HeadNormBackward{
          .forward = forward, .d_out = d_out, .d_inp = d_inp, .d_weight = d_weight});

      const Matrix x = heads_as_rows(inp.values(), D);
      auto d = rms_norm_backward(heads_as_rows(d_out.values(), D), x, weight.values(), kEps);
      for (double& value : d.d_weight.values) value += 0.5;
      const double scale = 1 + largest(rstd.values());
      const double error = 4.0 * static_cast<double>(D + 4) * rounding(DType::f32) * scale;
      EXPECT_TRUE(close(out, rows_as_heads(rms_norm(x, weight.values(), kEps), h * D),
                        stored(type, error)));
      EXPECT_TRUE(close(d_inp, rows_as_heads(d.d_inp, h * D), stored(type, error * scale * scale)));
      const auto terms = static_cast<double>(R * h + 4);
      EXPECT_TRUE(close(d_weight, d.d_weight, {terms * error * scale, rounding(DType::f32)}));
    }
}

TEST(HeadNorm, RefusesColumnsThatAreNotWholeHeads) {
  const Operand a(4, 6, DType::f32), weight(1, 4, DType::f32);
  expect_refusal("want whole heads of width 4",
                 ops::HeadNorm{.out = a, .inp = a, .weight = weight, .rstd = a});
}
