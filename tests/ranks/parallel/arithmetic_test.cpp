// Arithmetic on values: compared with plain loops, with finite differences, and over every grid.
#include <cmath>
#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/attention/attention.h"
#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/pointwise.h"
#include "axonn/ranks/comm/self.h"

#include "tests/ranks/parallel/piece.h"
#include "tests/support/grids.h"
#include "tests/support/reference.h"

using namespace axonn;
using namespace axonn::testing_support;
using reference::Matrix;

namespace {

/// A function of a value, and the same as plain loops.
struct Arithmetic {
  const char* name;
  Var (*f)(const Context& ctx, const Var& x);
  Matrix (*loops)(const Matrix& x);
};

template <typename F>
Matrix by_element(const Matrix& x, F f) {
  Matrix out = x;
  for (double& value : out.values) value = f(value);
  return out;
}

/// x, x / 2 and tanh x side by side, from which all three are taken: tanh(x) + x · x / 2.
Var sliced(const Context& ctx, const Var& x) {
  const Var all = concat_columns(ctx, {x, scale(ctx, x, 0.5f), tanh(ctx, x)});
  const auto run = [&](std::size_t i) { return slice_columns(ctx, all, {24, 24, 24}, i); };
  return add(ctx, run(2), multiply(ctx, run(0), run(1)));
}

const Arithmetic kArithmetic[] = {
    {"relu", relu,
     [](const Matrix& x) { return by_element(x, [](double v) { return v > 0 ? v : 0; }); }},
    {"silu", silu, [](const Matrix& x) { return by_element(x, reference::silu); }},
    {"tanh", tanh,
     [](const Matrix& x) { return by_element(x, [](double v) { return std::tanh(v); }); }},
    {"scale", [](const Context& ctx, const Var& x) { return scale(ctx, x, -1.5f); },
     [](const Matrix& x) { return by_element(x, [](double v) { return -1.5 * v; }); }},
    {"square", [](const Context& ctx, const Var& x) { return multiply(ctx, x, x); },
     [](const Matrix& x) { return by_element(x, [](double v) { return v * v; }); }},
    {"gate", [](const Context& ctx, const Var& x) { return multiply(ctx, x, silu(ctx, x)); },
     [](const Matrix& x) {
       return by_element(x, [](double v) { return v * reference::silu(v); });
     }},
    {"softmax", softmax, reference::softmax},
    {"slices", sliced,
     [](const Matrix& x) {
       return by_element(x, [](double v) { return std::tanh(v) + v * v / 2; });
     }},
};

std::function<Piece(ParameterGroup&)> alone(Var (*f)(const Context&, const Var&)) {
  return [f](ParameterGroup&) -> Piece {
    return [f](const Context& ctx, const PieceInput& in) { return f(ctx, in.x); };
  };
}

Matrix matrix_of(const Gathered& gathered) {
  Matrix out(gathered.rows, gathered.cols);
  out.values.assign(gathered.values.begin(), gathered.values.end());
  return out;
}

/// The largest difference, relative to the largest element of `want` if that is above 1.
double distance(const Gathered& got, const Matrix& want) {
  if (got.rows != want.rows || got.cols != want.cols) return 1e9;
  double most = 1, worst = 0;
  for (double value : want.values) most = std::max(most, std::abs(value));
  for (std::size_t i = 0; i < want.values.size(); ++i) {
    const double apart = std::abs(got.values[i] - want.values[i]);
    if (!(apart <= worst)) worst = apart;  // also if it is NaN
  }
  return worst / most;
}

/// Each function after a product, so that its columns are cut over x, and before another one.
std::function<Piece(ParameterGroup&)> between_products(Var (*f)(const Context&, const Var&)) {
  return [f](ParameterGroup& group) -> Piece {
    const auto up = std::make_shared<Linear>(group, "up", Linear::Options{.in = 24, .out = 24});
    const auto down = std::make_shared<Linear>(
        group, "down",
        Linear::Options{.in = 24, .out = 24, .orientation = Orientation::transposed});
    return [=](const Context& ctx, const PieceInput& in) {
      return (*down)(ctx, f(ctx, (*up)(ctx, in.x)));
    };
  };
}

/// A gated MLP: its two runs of columns taken apart, or by swiglu.
template <bool taken_apart>
Piece gated(ParameterGroup& group) {
  const auto gate_up = std::make_shared<Linear>(
      group, "mlp",
      Linear::Options{
          .in = 24, .out = 96, .segments = {{.rows = 48}, {.rows = 48}}, .parts = {"gate", "up"}});
  const auto down = std::make_shared<Linear>(
      group, "down", Linear::Options{.in = 48, .out = 24, .orientation = Orientation::transposed});
  return [=](const Context& ctx, const PieceInput& in) {
    const Var both = (*gate_up)(ctx, in.x);
    if (!taken_apart) return (*down)(ctx, swiglu(ctx, both));
    const auto run = [&](std::size_t i) { return slice_columns(ctx, both, {48, 48}, i); };
    return (*down)(ctx, multiply(ctx, silu(ctx, run(0)), run(1)));
  };
}

/// A softmax over columns that are cut over x and y.
Piece over_heads(ParameterGroup& group) {
  const Heads heads{24, 24, 2};
  const auto qkv = std::make_shared<Linear>(
      group, "qkv",
      Linear::Options{.in = 24, .out = heads.qkv_width(), .init_std = 0.5, .heads = heads});
  const auto project = std::make_shared<Linear>(
      group, "project",
      Linear::Options{.in = 48, .out = 24, .orientation = Orientation::transposed});
  return [=](const Context& ctx, const PieceInput& in) {
    const Var x = (*qkv)(ctx, in.x);
    const Var weighted = multiply(ctx, x, scale(ctx, softmax(ctx, x), 50));
    return (*project)(ctx, attention(ctx, weighted, heads));
  };
}

/// The longest sum: a weight's gradient over 72 rows, or the softmax of 144 columns, then products
/// over 48 columns.
constexpr std::int64_t kLongestSum = 144 + 48;

void expect_same_on_every_grid(PieceRun run) {
  const PieceResult one = run_piece(run);
  for (const GridShape& grid : many_grids()) {
    run.grid = grid;
    struct Way {
      int chunks;
      bool cut;
    };
    for (const auto& [chunks, cut] : {Way{1, true}, Way{3, true}, Way{1, false}}) {
      if (run.sequences / (grid.z * grid.data) < chunks) continue;
      run.chunks = chunks;
      run.sequence_parallel = cut;
      EXPECT_EQ(difference(one, run_piece(run), kLongestSum), "")
          << "grid " << to_string(grid) << ", chunks " << chunks << (cut ? ", rows cut" : "");
    }
  }
}

/// One rank, and values of 2 rows on it.
struct OneRank {
  std::unique_ptr<Communicator> world = make_self();
  Grid grid{*world, {}};
  std::unique_ptr<Backend> backend = make_cpu_backend(1);
  Arena arena{backend->device()};
  Tape tape;
  Context ctx{*backend, arena, grid};

  Chunk chunk(std::int64_t cols, bool gradient, AxisSet cut = Axis::y) const {
    return {ctx.zeros(2, cols, DType::f32),
            {{Axis::z, Axis::data}, cut},
            {1, 2},
            gradient ? std::make_shared<Gradient>() : nullptr};
  }
};

}  // namespace

TEST(Arithmetic, EqualsPlainLoopsAndFiniteDifferencesWithColumnsOverY) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    // The values themselves, and the weights of the loss as their gradient.
    const PieceRun itself{.dtype = dtype,
                          .make = alone([](const Context&, const Var& x) { return x; })};
    const PieceResult inputs = run_piece(itself);
    const Matrix x = matrix_of(inputs.at("out")), weights = matrix_of(inputs.at("d_inp"));
    for (const auto& [name, f, loops] : kArithmetic) {
      const Matrix want = loops(x);
      // Row by row, since no function here joins rows.
      Matrix d_want = x;
      for (std::int64_t r = 0; r < x.rows; ++r) {
        Matrix row(1, x.cols);
        for (std::int64_t c = 0; c < x.cols; ++c) row(0, c) = x(r, c);
        const Matrix d = finite_differences(row, [&, loops = loops](const Matrix& moved) {
          const Matrix out = loops(moved);
          double loss = 0;
          for (std::int64_t c = 0; c < x.cols; ++c) loss += weights(r, c) * out(0, c);
          return loss;
        });
        for (std::int64_t c = 0; c < x.cols; ++c) d_want(r, c) = d(0, c);
      }
      for (const GridShape& grid : {GridShape{}, GridShape{1, 4, 1, 1}, GridShape{2, 3, 1, 1}}) {
        SCOPED_TRACE(testing::Message()
                     << name << ' ' << name_of(dtype) << " on " << to_string(grid));
        const PieceResult got = run_piece({.grid = grid, .dtype = dtype, .make = alone(f)});
        // Up to eight values are rounded one after the other, each within half a digit of at most
        // the largest; in f32, sums of 24 columns and exponentials come on top.
        const double tolerance = dtype == DType::f32 ? 64 * 0x1p-24 : 8 * 0x1p-9;
        EXPECT_LE(distance(got.at("out"), want), tolerance);
        EXPECT_LE(distance(got.at("d_inp"), d_want), tolerance);
      }
    }
  }
}

TEST(Arithmetic, IsTheSameOnEveryGridWithColumnsOverYAndOverX) {
  for (const Arithmetic& arithmetic : kArithmetic) {
    SCOPED_TRACE(arithmetic.name);
    expect_same_on_every_grid({.make = alone(arithmetic.f)});
    expect_same_on_every_grid({.make = between_products(arithmetic.f)});
  }
}

TEST(Arithmetic, OfHeadsIsTheSameOnEveryGrid) { expect_same_on_every_grid({.make = over_heads}); }

TEST(Arithmetic, RunsOfALinearAreItsSegmentsOnEveryGrid) {
  const PieceResult want = run_piece({.make = gated<false>});
  for (const GridShape& grid : many_grids())
    EXPECT_EQ(difference(want, run_piece({.grid = grid, .make = gated<true>}), kLongestSum), "")
        << to_string(grid);
}

TEST(Arithmetic, OnlyASoftmaxOfCutColumnsCommunicatesAFewFloatsForEachRow) {
  for (const Arithmetic& arithmetic : kArithmetic) {
    std::int64_t over_x = 0, over_y = 0;
    PieceRun run{.grid = {2, 2, 1, 1}};
    run.make = [&](ParameterGroup&) -> Piece {
      return [&](const Context& ctx, const PieceInput& in) {
        const auto bytes = [&](Axis axis) { return ctx.grid.along(axis).stats().bytes; };
        const std::int64_t x = bytes(Axis::x), y = bytes(Axis::y);
        const Var out = arithmetic.f(ctx, in.x);
        out.make();
        if (ctx.grid.world().rank() == 0) {
          over_x = bytes(Axis::x) - x;
          over_y = bytes(Axis::y) - y;
        }
        return out;
      };
    };
    run_piece(run);
    EXPECT_EQ(over_x, 0) << arithmetic.name;
    // 72 rows are cut over x. Both ranks' maximum and sum, in f32.
    const bool softmax = std::string(arithmetic.name) == "softmax";
    EXPECT_EQ(over_y, softmax ? 36 * 2 * 2 * 4 : 0) << arithmetic.name;
  }
}

TEST(Arithmetic, HasTheSameBitsRecomputedInBackward) {
  for (const Arithmetic& arithmetic : kArithmetic)
    for (const GridShape& grid : {GridShape{1, 1, 1, 1}, GridShape{2, 2, 1, 1}})
      for (DType dtype : {DType::f32, DType::bf16})
        for (int chunks : {1, 3}) {
          PieceRun run{.grid = grid, .dtype = dtype, .chunks = chunks};
          run.make = between_products(arithmetic.f);
          const PieceResult kept = run_piece(run);
          run.make = [make = run.make](ParameterGroup& group) -> Piece {
            const Piece inner = make(group);
            return [inner](const Context& ctx, const PieceInput& in) {
              return checkpoint(ctx, in.x, [inner](const Context& here, const Var& x) {
                return inner(here, {x, {}, {}});
              });
            };
          };
          const PieceResult repeated = run_piece(run);
          ASSERT_EQ(kept.size(), repeated.size());
          for (const auto& [name, matrix] : kept)
            EXPECT_EQ(matrix.values, repeated.at(name).values) << arithmetic.name << ' ' << name;
        }
}

TEST(Arithmetic, HasAGradientOnlyWithATapeAndAnInputThatHasOne) {
  OneRank one;
  const Var plain{one.chunk(24, false)}, wanted{one.chunk(24, true)};
  for (const Arithmetic& arithmetic : kArithmetic) {
    one.ctx.tape = nullptr;
    EXPECT_FALSE(arithmetic.f(one.ctx, wanted).front().gradient) << arithmetic.name;
    one.ctx.tape = &one.tape;
    EXPECT_FALSE(arithmetic.f(one.ctx, plain).front().gradient) << arithmetic.name;
    EXPECT_TRUE(arithmetic.f(one.ctx, wanted).front().gradient) << arithmetic.name;
  }
  EXPECT_TRUE(multiply(one.ctx, plain, wanted).front().gradient);
  EXPECT_TRUE(multiply(one.ctx, wanted, plain).front().gradient);
  EXPECT_TRUE(concat_columns(one.ctx, {plain, wanted}).front().gradient);
}

TEST(Arithmetic, AFactorOrARunWithoutGradientIsLeftOut) {
  OneRank one;
  one.ctx.tape = &one.tape;
  const Var plain{one.chunk(3, false)}, wanted{one.chunk(3, true)};
  plain.front().value.view().as<float>()[4] = 7;
  const Var product = multiply(one.ctx, plain, wanted);
  const Var both = concat_columns(one.ctx, {plain, product});
  Tensor d = one.ctx.zeros(2, 6, DType::f32);
  d.view().row<float>(1)[4] = 2;
  both.front().gradient->add(one.ctx, d);
  one.tape.backward();
  const Tensor d_wanted = wanted.front().gradient->take();
  EXPECT_EQ(d_wanted.cols(), 3);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(d_wanted.view().as<float>()[i], i == 4 ? 14 : 0);
}

TEST(Arithmetic, GradientsOfRunsAreAddedToThatOfTheWholeValueWhichOthersMayHold) {
  OneRank one;
  one.ctx.tape = &one.tape;
  const Var x{one.chunk(4, true)};
  const Var low = slice_columns(one.ctx, x, {2, 2}, 0), high = slice_columns(one.ctx, x, {2, 2}, 1),
            again = slice_columns(one.ctx, x, {2, 2}, 1);
  const Tensor held = one.ctx.zeros(2, 4, DType::f32);
  held.view().as<float>()[3] = 100;
  x.front().gradient->add(one.ctx, held);
  float value = 1;
  for (const Var& part : {low, high, again}) {
    const Tensor d = one.ctx.zeros(2, 2, DType::f32);
    d.view().row<float>(0)[1] = value;
    part.front().gradient->add(one.ctx, d);
    value *= 2;
  }
  one.tape.backward();
  const Tensor d = x.front().gradient->take();
  EXPECT_EQ(d.view().as<float>()[1], 1);
  EXPECT_EQ(d.view().as<float>()[3], 106);
  EXPECT_EQ(held.view().as<float>()[3], 100) << "another value's gradient";
  EXPECT_EQ(held.view().as<float>()[1], 0);
}

TEST(Arithmetic, RefusesValuesThatDoNotFit) {
  OneRank one;
  const Var x{one.chunk(4, false)}, wide{one.chunk(6, false)}, over_x{one.chunk(4, false, Axis::x)},
      two{one.chunk(4, false), one.chunk(4, false)};
  const auto refuses = [](const char* words, const auto& make) {
    EXPECT_THAT([&] { make().make(); }, testing::ThrowsMessage<Error>(testing::HasSubstr(words)));
  };
  refuses("multiply: (2,4) f32 and (2,6) f32 differ in shape or in placement",
          [&] { return multiply(one.ctx, x, wide); });
  refuses("multiply: (2,4) f32 and (2,4) f32 differ in shape or in placement",
          [&] { return multiply(one.ctx, x, over_x); });
  refuses("multiply: 1 and 2 chunks", [&] { return multiply(one.ctx, x, two); });
  refuses("concat_columns: no values", [&] { return concat_columns(one.ctx, {}); });
  refuses("concat_columns: 1 and 2 chunks", [&] { return concat_columns(one.ctx, {x, two}); });
  refuses("concat_columns: (2,4) f32 and (2,4) f32 differ in rows or in placement", [&] {
    return concat_columns(one.ctx, {x, over_x});
  });
  refuses("slice_columns: run 2 of 2, counted from 0", [&] {
    return slice_columns(one.ctx, x, {2, 2}, 2);
  });
  refuses("slice_columns: runs of 5 columns together, wanted the 4 of the value", [&] {
    return slice_columns(one.ctx, x, {3, 2}, 0);
  });
  refuses("slice_columns: a run of 0 columns cannot be cut over 1 ranks", [&] {
    return slice_columns(one.ctx, x, {4, 0}, 0);
  });
}

TEST(Arithmetic, RefusesRunsThatTheAxisDoesNotDivide) {
  PieceRun run{.grid = {1, 2, 1, 1}};
  run.make = alone([](const Context& ctx, const Var& x) {
    const Var part = slice_columns(ctx, x, {9, 15}, 0);
    part.make();
    return part;
  });
  EXPECT_THAT([&] { run_piece(run); }, testing::ThrowsMessage<Error>(testing::HasSubstr(
                                           "a run of 9 columns cannot be cut over 2 ranks")));
}
