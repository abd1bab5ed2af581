#include <cmath>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

struct SinkCase {
  std::int64_t rows, heads, dim;
};

/// Attention's result without and with sinks, whose scores are those of one more key.
struct WithSinks {
  Matrix out, total;

  WithSinks(const Matrix& plain, const Matrix& stats, const Matrix& sinks)
      : out(plain), total(stats) {
    const std::int64_t dim = plain.cols / stats.cols;
    for (std::int64_t r = 0; r < stats.rows; ++r)
      for (std::int64_t h = 0; h < stats.cols; ++h) {
        const double keys = std::exp(stats(r, h)), all = keys + std::exp(sinks(0, h));
        total(r, h) = std::log(all);
        for (std::int64_t c = 0; c < dim; ++c) out(r, h * dim + c) *= keys / all;
      }
  }
};

}  // namespace

TEST(Sinks, AreFurtherScoresOfTheSoftmaxWithoutValues) {
  const auto backend = test_backend();
  for (const DType type : kModelTypes)
    for (const auto& [rows, heads, dim] :
         {SinkCase{1, 1, 1}, SinkCase{5, 3, 20}, SinkCase{70, 2, 64}}) {
      SCOPED_TRACE(testing::Message() << rows << ',' << heads << ',' << dim << name_of(type));
      const Matrix plain = random_values("out", rows, heads * dim, type),
                   sinks = random_values("sinks", 1, heads, type);
      Matrix stats = random_values("stats", rows, heads, DType::f32);
      for (double& value : stats.values) value *= 5;
      const Operand out(plain, type, 3), total(rows, heads, DType::f32, 1),
          of_keys(stats, DType::f32, 2), numbers(sinks, type);
      backend->run(ops::AddSinks{out, total, of_keys, numbers});
      const WithSinks want(plain, stats, sinks);
      EXPECT_TRUE(close(out, want.out, stored(type, 2e-6)));
      EXPECT_TRUE(close(total, want.total, stored(DType::f32, 1e-5)));
    }
}

TEST(Sinks, GradientsAreThoseOfCentralDifferences) {
  const auto backend = test_backend();
  const std::int64_t rows = 7, heads = 3, dim = 20;
  const Matrix plain = random_values("out", rows, heads * dim, DType::f32),
               stats = random_values("stats", rows, heads, DType::f32),
               sinks = random_values("sinks", 1, heads, DType::f32),
               d_out = random_values("d", rows, heads * dim, DType::f32);
  const WithSinks with(plain, stats, sinks);
  const Operand terms(rows, heads, DType::f32, 1), sums(1, heads, DType::f32);
  backend->run(ops::SinkTerms{terms, Operand(d_out, DType::f32), Operand(with.out, DType::f32, 2),
                              Operand(with.total, DType::f32), Operand(sinks, DType::f32)});
  const Matrix want = reference::finite_differences(sinks, [&](const Matrix& moved) {
    const WithSinks there(plain, stats, moved);
    double loss = 0;
    for (std::size_t i = 0; i < there.out.values.size(); ++i)
      loss += there.out.values[i] * d_out.values[i];
    return loss;
  });
  const Matrix got = terms.values();
  for (std::int64_t h = 0; h < heads; ++h) {
    double sum = 0;
    for (std::int64_t r = 0; r < rows; ++r) sum += got(r, h);
    EXPECT_NEAR(sum, want(0, h), 2e-6) << h;
  }
}

TEST(Sinks, OfAnotherNumberOfHeadsAreRefused) {
  const Operand out(4, 6, DType::f32), of_two(4, 2, DType::f32), four(1, 4, DType::f32);
  expect_refusal("add_sinks: sinks (1,4) f32, out (4,6) f32, want a number for each of out's heads",
                 ops::AddSinks{out, of_two, of_two, four});
}
