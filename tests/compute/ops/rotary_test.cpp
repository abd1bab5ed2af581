#include <array>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

TEST(RotaryEmbedding, RotatesHalvesByThePositionInTheSequenceAndBack) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const auto& [sequences, T, h, D] : {std::array<std::int64_t, 4>{1, 1, 1, 2},
                                             {2, 5, 3, 6},
                                             {3, 70, 4, 64},
                                             {1, 3, 2, 34},
                                             {1, 3, 3, 528}}) {
      const std::int64_t R = sequences * T;
      SCOPED_TRACE(testing::Message() << R << " rows of " << h << " heads of " << D);
      std::vector<double> frequencies;
      Matrix table(T, D);
      for (std::int64_t i = 0; i < D / 2; ++i) {
        frequencies.push_back(std::pow(100.0, -2.0 * static_cast<double>(i) / double(D)));
        for (std::int64_t t = 0; t < T; ++t) {
          table(t, i) = std::cos(static_cast<double>(t) * frequencies[i]);
          table(t, D / 2 + i) = std::sin(static_cast<double>(t) * frequencies[i]);
        }
      }
      const Operand inp(random_values("inp", R, h * D, type), type, 3),
          angles(table, DType::f32, 2), out(R, h * D, type, 1), back(R, h * D, type);
      backend->run(ops::RotaryEmbedding{.out = out, .inp = inp, .table = angles});
      backend->run(ops::RotaryEmbedding{.out = back, .inp = inp, .table = angles, .inverse = true});
      // Cosine, sine, two products and a sum: five roundings of numbers up to 1.
      const Tolerance tolerance = stored(type, 5 * rounding(DType::f32));
      EXPECT_TRUE(close(out, reference::rotary(inp.values(), T, frequencies), tolerance));
      EXPECT_TRUE(close(back, reference::rotary(inp.values(), T, frequencies, -1), tolerance));
      backend->run(ops::RotaryEmbedding{.out = inp, .inp = inp, .table = angles});
      EXPECT_TRUE(close(inp, out.values(), {})) << "in place";
    }
}

TEST(RotaryEmbedding, RotatesRowsByExplicitPositionsInAnyOrder) {
  const auto backend = test_backend();
  const std::vector<std::int32_t> positions{4, 0, 0, 6, 2};  // five rows: no whole sequence of 7
  const Matrix table = random_values("table", 7, 10, DType::f32),
               inp = random_values("inp", 5, 30, DType::f32);
  Matrix tables(5, 10);  // the table's row for each row of inp
  for (std::int64_t r = 0; r < 5; ++r)
    for (std::int64_t c = 0; c < 10; ++c) tables(r, c) = table(positions[r], c);
  const Operand all(table, DType::f32), each(tables, DType::f32), x(inp, DType::f32),
      out(5, 30, DType::f32), want(5, 30, DType::f32), where(positions);
  for (bool inverse : {false, true}) {
    backend->run(ops::RotaryEmbedding{
        .out = out, .inp = x, .table = all, .inverse = inverse, .positions = where});
    backend->run(ops::RotaryEmbedding{.out = want, .inp = x, .table = each, .inverse = inverse});
    EXPECT_TRUE(close(out, want.values(), {}));
  }
}

TEST(RotaryEmbedding, RotatesTheFirstColumnsOfAHeadAndCopiesTheOthers) {
  const auto backend = test_backend();
  for (DType type : kModelTypes) {
    const Operand angles(random_values("table", 5, 4, DType::f32), DType::f32),
        inp(random_values("inp", 5, 20, type), type, 3), out(5, 20, type, 1), turned(5, 4, type);
    backend->run(ops::RotaryEmbedding{.out = out, .inp = inp, .table = angles, .head_dim = 10});
    for (std::int64_t head = 0; head < 2; ++head) {
      Matrix first(5, 4), others(5, 6);
      for (std::int64_t r = 0; r < 5; ++r)
        for (std::int64_t c = 0; c < 10; ++c)
          (c < 4 ? first(r, c) : others(r, c - 4)) = inp.values()(r, 10 * head + c);
      const Operand narrow(first, type);
      backend->run(ops::RotaryEmbedding{.out = turned, .inp = narrow, .table = angles});
      const Matrix got = out.values();
      for (std::int64_t r = 0; r < 5; ++r)
        for (std::int64_t c = 0; c < 10; ++c)
          EXPECT_EQ(got(r, 10 * head + c), c < 4 ? turned.values()(r, c) : others(r, c - 4));
    }
    backend->run(ops::RotaryEmbedding{.out = inp, .inp = inp, .table = angles, .head_dim = 10});
    EXPECT_TRUE(close(inp, out.values(), {})) << "in place";
  }
}

TEST(RotaryEmbedding, OfNeighboursIsThatOfHalvesInAnotherOrder) {
  const auto backend = test_backend();
  for (DType type : kModelTypes)
    for (const bool inverse : {false, true}) {
      const Matrix x = random_values("inp", 5, 14, type);
      Matrix halves = x;  // a head of 14 columns, of which 10 rotate
      for (std::int64_t r = 0; r < 5; ++r)
        for (std::int64_t i = 0; i < 5; ++i) {
          halves(r, i) = x(r, 2 * i);
          halves(r, i + 5) = x(r, 2 * i + 1);
        }
      const Operand angles(random_values("table", 5, 10, DType::f32), DType::f32), inp(x, type, 3),
          out(5, 14, type, 1), apart(halves, type), turned(5, 14, type);
      const auto run = [&](const View& to, const View& from, bool neighbours) {
        backend->run(ops::RotaryEmbedding{.out = to,
                                          .inp = from,
                                          .table = angles,
                                          .inverse = inverse,
                                          .head_dim = 14,
                                          .neighbours = neighbours});
      };
      run(turned, apart, false);
      run(out, inp, true);
      const Matrix want = turned.values(), got = out.values();
      for (std::int64_t r = 0; r < 5; ++r)
        for (std::int64_t c = 0; c < 14; ++c)
          EXPECT_NEAR(got(r, c), c < 10 ? want(r, c / 2 + c % 2 * 5) : want(r, c), 1e-6) << c;
      run(inp, inp, true);
      EXPECT_TRUE(close(inp, got, {})) << "in place";
    }
}

TEST(RotaryEmbedding, RefusesPartsOfSequencesAndOfHeads) {
  const Operand a(4, 6, DType::f32), long_table(3, 6, DType::f32), odd(4, 3, DType::f32);
  expect_refusal("inp is (4,6) f32, want whole sequences of 3 positions",
                 ops::RotaryEmbedding{.out = a, .inp = a, .table = long_table});
  expect_refusal("must be even", ops::RotaryEmbedding{.out = a, .inp = a, .table = odd});
}
