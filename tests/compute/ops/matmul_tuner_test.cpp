#include "axonn/compute/ops/matmul_tuner.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>

#include "axonn/compute/ops/cpu/matmul/blas.h"
#include "axonn/compute/ops/forwarding_backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// Every mode and type of a product that is large enough to be cut and packed in several ways, with
/// sizes that are not whole panels.
std::vector<MatmulShape> shapes() {
  std::vector<MatmulShape> all;
  for (const auto& [type, out] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
    for (int mode = 0; mode < 4; ++mode)
      for (const bool accumulate : {false, true})
        all.push_back({.M = 330,
                       .N = 420,
                       .K = 67,
                       .a_transposed = (mode & 1) != 0,
                       .b_transposed = (mode & 2) != 0,
                       .bias = !accumulate,
                       .accumulate = accumulate,
                       .type = type,
                       .out_type = out});
  return all;
}

struct Problem {
  explicit Problem(const MatmulShape& s)
      : shape(s),
        a(s.a_transposed ? transpose(left) : left, s.type, 3),
        b(s.b_transposed ? transpose(right) : right, s.type, 5),
        bias(random_values("bias", 1, s.N, s.type), s.type) {}

  Operand run(Backend& backend) const {
    Operand out(before, shape.out_type, 7);
    backend.matmul({.out = out,
                    .a = a,
                    .b = b,
                    .a_transposed = shape.a_transposed,
                    .b_transposed = shape.b_transposed,
                    .bias = shape.bias ? bias.view() : View{},
                    .accumulate = shape.accumulate});
    return out;
  }

  MatmulShape shape;
  Matrix left = random_values("a", shape.M, shape.K, shape.type),
         right = random_values("b", shape.K, shape.N, shape.type),
         before = random_values("out", shape.M, shape.N, shape.out_type);
  Operand a, b, bias;
};

constexpr MatmulShape kShape{.M = 1024, .N = 768, .K = 256};

/// The result of tune_matmul if the calls of a way take the listed seconds one after the other,
/// then always the last; ways that are not listed take 1 second.
TunedMatmul tuned(const std::map<std::string, std::vector<double>>& of) {
  const auto backend = make_cpu_backend(1);
  std::map<std::string, std::size_t> calls;
  return tune_matmul(*backend, kShape, [&](const std::string& way) {
    const auto found = of.find(way);
    if (found == of.end()) return 1.0;
    const std::vector<double>& seconds = found->second;
    return seconds[std::min(calls[way]++, seconds.size() - 1)];
  });
}

/// A backend that claims to fuse every epilogue, or none.
class Fusing final : public ForwardingBackend {
 public:
  explicit Fusing(bool fuses) : ForwardingBackend(make_cpu_backend(1)), fuses_(fuses) {}
  bool fuses(const Matmul&) override { return fuses_; }

 private:
  bool fuses_;
};

std::string way(std::size_t i) { return make_cpu_backend(1)->matmul_ways(kShape).at(i); }

}  // namespace

TEST(MatmulWays, AllGiveTheSameProductInEveryModeAndType) {
  const auto backend = make_cpu_backend(1);
  for (const MatmulShape& shape : shapes()) {
    const Problem problem(shape);
    const Matrix by_default = problem.run(*backend).values();
    const auto ways = backend->matmul_ways(shape);
    ASSERT_GE(ways.size(), 6u);
    for (const std::string& name : ways) {
      SCOPED_TRACE(to_string(shape) + " as " + name);
      ASSERT_TRUE(backend->set_matmul_way(shape, name));
      // Two sums of K + 2 terms of magnitude at most 1, each addition rounded, in two orders; then
      // both are rounded to the result's type, at worst in opposite directions.
      const double terms = static_cast<double>(shape.K + 2);
      const Tolerance tolerance = stored(shape.out_type, 2 * terms * terms * rounding(DType::f32));
      EXPECT_TRUE(
          close(problem.run(*backend), by_default, {tolerance.absolute, 2 * tolerance.relative}));
    }
  }
}

TEST(MatmulWays, PackAnOperandAgainForEveryProduct) {
  const auto backend = make_cpu_backend(1);
  const MatmulShape shape{.M = 330, .N = 420, .K = 67, .a_transposed = true};
  const Operand a(random_values("another a", shape.K, shape.M, shape.type), shape.type, 3),
      b(random_values("another b", shape.K, shape.N, shape.type), shape.type, 5);
  ASSERT_FALSE(backend->matmul_ways(shape).empty());
  for (const std::string& name : backend->matmul_ways(shape)) {
    SCOPED_TRACE(name);
    backend->set_matmul_way(shape, name);
    Problem here(shape);
    const Matrix first = here.run(*backend).values();
    for (const auto& [to, from] : {std::pair{&here.a, &a}, {&here.b, &b}}) {
      const View target = to->view(), source = from->view();
      for (std::int64_t r = 0; r < source.rows; ++r)
        std::copy_n(source.row<float>(r), source.cols, target.row<float>(r));
    }
    const Matrix second = here.run(*backend).values();
    EXPECT_FALSE(close(second, first, {0.5, 0})) << "the values at the same addresses have changed";
  }
}

TEST(MatmulWays, AreSetByNameAndUnknownNamesChangeNothing) {
  const auto backend = make_cpu_backend(1);
  for (const std::string& name : backend->matmul_ways(kShape))
    EXPECT_TRUE(backend->set_matmul_way(kShape, name)) << name;
  for (const char* name : {"", "fast", "256", "256x", "0x64", "-32x64", "256x384 pack c",
                           "256x384 pack a pack a", "250x384", "99999999999999999999x32"})
    EXPECT_FALSE(backend->set_matmul_way(kShape, name)) << name;
}

TEST(MatmulWays, AreByBlasTooIfTheBuildHasOneButOnlyOfFloatsOrWhatIsConverted) {
  const auto backend = make_cpu_backend(1);
  const bool present = !cpu::blas::library().empty();
  MatmulShape shape = kShape;
  EXPECT_EQ(backend->set_matmul_way(shape, "256x384 by BLAS"), present);
  EXPECT_FALSE(backend->set_matmul_way(shape, "256x384 pack b by BLAS"));
  shape.type = DType::bf16;
  EXPECT_FALSE(backend->set_matmul_way(shape, "256x384 by BLAS"));
  EXPECT_EQ(backend->set_matmul_way(shape, "256x384 as floats by BLAS"), present);
}

TEST(MatmulWays, AreOneForASmallProduct) {
  EXPECT_THAT(make_cpu_backend(1)->matmul_ways({.M = 8, .N = 8, .K = 8}), testing::SizeIs(1));
}

TEST(MatmulShape, IsParsedFromItsTextAndFromNoOtherText) {
  for (const MatmulShape& shape : shapes())
    EXPECT_EQ(parse_matmul_shape(to_string(shape)), shape) << to_string(shape);
  MatmulShape shape{.M = 1, .N = 2, .K = 3, .b_transposed = true, .bias = true};
  EXPECT_EQ(to_string(shape), "f32 NT 1x2x3 + bias");
  const auto expect_text = [](const MatmulShape& s, const char* text) {
    EXPECT_EQ(to_string(s), text);
    EXPECT_EQ(parse_matmul_shape(text), s);
  };
  shape.gelu = true;
  expect_text(shape, "f32 NT 1x2x3 + bias gelu");
  shape.gelu_input = true;
  expect_text(shape, "f32 NT 1x2x3 + bias gelu kept");
  expect_text({.M = 1, .N = 2, .K = 3, .gelu_derivative = true}, "f32 NN 1x2x3 d_gelu");
  expect_text({.M = 1, .N = 2, .K = 3, .a_transposed = true, .bias_gradient = true},
              "f32 TN 1x2x3 d_bias");
  expect_text({.M = 1, .N = 2, .K = 3, .type = DType::f16, .out_type = DType::f32},
              "f16 NN 1x2x3 to f32");
  for (const char* text :
       {"", "f32", "f32 NT", "f32 NT 1x2", "f8 NT 1x2x3", "f32 NX 1x2x3", "f32 NT 1x2x3 and more",
        "f32 NT 1x2x3 to", "f32 NT 1y2x3", "f32 NT 1x2x3 kept"})
    EXPECT_EQ(parse_matmul_shape(text), std::nullopt) << text;
}

TEST(MatmulTuner, TakesTheFastestWayAndReportsItsGain) {
  const TunedMatmul t = tuned({{way(2), {0.9}}, {way(5), {0.8}}});
  EXPECT_EQ(t.way, way(5));
  EXPECT_EQ(t.default_way, way(0));
  EXPECT_DOUBLE_EQ(t.gain(), 1.25);
}

TEST(MatmulTuner, KeepsTheDefaultIfNothingIsClearlyFaster) {
  EXPECT_EQ(tuned({{way(2), {0.98}}}).way, way(0));
  EXPECT_EQ(tuned({{way(2), {0.5, 0.5, 1.1}}}).way, way(0)) << "fast only at first";
  EXPECT_EQ(tuned({{way(2), {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1.1}}}).way, way(0))
      << "fast in the first match only";
}

TEST(MatmulTuner, TakesOneOfTheBackendsWaysForARealProduct) {
  const auto backend = make_cpu_backend(1);
  const MatmulShape shape{.M = 160, .N = 224, .K = 64, .b_transposed = true, .bias = true};
  const TunedMatmul t = tune_matmul(*backend, shape);
  EXPECT_THAT(backend->matmul_ways(shape), testing::Contains(t.way));
  EXPECT_GT(t.seconds, 0);
  EXPECT_GE(t.gain(), 0.9) << "a slower way never replaces the default";
}

TEST(MatmulTuner, TimesAProductWithItsEpilogueFusedOrNot) {
  const MatmulShape gelu{.M = 64, .N = 32, .K = 8, .bias = true, .gelu = true, .gelu_input = true},
      derivative{.M = 64, .N = 32, .K = 8, .gelu_derivative = true},
      weight{.M = 64,
             .N = 32,
             .K = 8,
             .a_transposed = true,
             .accumulate = true,
             .bias_gradient = true};
  for (const bool fuses : {true, false}) {
    Fusing inner(fuses);
    RecordingBackend backend(inner);
    std::vector<MatmulShape> want;
    for (MatmulShape shape : {gelu, derivative, weight}) {
      EXPECT_GT(tune_matmul(backend, shape).seconds, 0) << to_string(shape);
      if (!fuses)
        shape.gelu = shape.gelu_input = shape.gelu_derivative = shape.bias_gradient = false;
      want.push_back(shape);
    }
    std::vector<MatmulShape> recorded;
    for (const auto& [shape, calls] : backend.counts()) recorded.push_back(shape);
    EXPECT_EQ(recorded, want) << fuses;
  }
}

TEST(RecordingBackend, CountsProductsByShapeInTheOrderOfFirstCalls) {
  const auto inner = make_cpu_backend(1);
  RecordingBackend backend(*inner);
  const Operand a(2, 3, DType::f32), b(3, 4, DType::f32), c(4, 3, DType::f32);
  Operand out(2, 4, DType::f32);
  backend.matmul({.out = out, .a = a, .b = b});
  backend.matmul({.out = out, .a = a, .b = c, .b_transposed = true});
  backend.matmul({.out = out, .a = a, .b = b});
  const MatmulShape nn{.M = 2, .N = 4, .K = 3}, nt{.M = 2, .N = 4, .K = 3, .b_transposed = true};
  EXPECT_THAT(backend.counts(), testing::ElementsAre(std::pair(nn, 2), std::pair(nt, 1)));
}
