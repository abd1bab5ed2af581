#include <gmock/gmock.h>

#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/norm.h"
#include "axonn/network/nn/pointwise.h"

#include "tests/ranks/parallel/piece.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// A norm and an MLP with a residual connection; the two may be recomputed in backward.
std::function<Piece(ParameterGroup&)> block(bool recomputed) {
  return [recomputed](ParameterGroup& group) -> Piece {
    const auto norm = std::make_shared<Norm>(group, "norm", Norm::Options{.width = 24});
    const auto up = std::make_shared<Linear>(group, "up", Linear::Options{.in = 24, .out = 96});
    const auto down = std::make_shared<Linear>(
        group, "down",
        Linear::Options{.in = 96, .out = 24, .orientation = Orientation::transposed});
    const Forward f = [=](const Context& ctx, const Var& x) {
      return (*down)(ctx, up->gelu(ctx, (*norm)(ctx, x)));
    };
    return [=](const Context& ctx, const PieceInput& in) {
      return add(ctx, in.x, recomputed ? checkpoint(ctx, in.x, f) : f(ctx, in.x));
    };
  };
}

void expect_same_bits(const PieceResult& want, const PieceResult& got) {
  ASSERT_EQ(want.size(), got.size());
  for (const auto& [name, matrix] : want) EXPECT_EQ(matrix.values, got.at(name).values) << name;
}

}  // namespace

TEST(Checkpoint, ChangesNoBitOfResultsAndGradients) {
  for (const GridShape& grid : {GridShape{1, 1, 1, 1}, GridShape{2, 2, 1, 1}, GridShape{2, 1, 2, 1},
                                GridShape{1, 2, 1, 2}}) {
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (int chunks : {1, 3}) {
        SCOPED_TRACE("grid " + to_string(grid) + ", chunks " + std::to_string(chunks));
        PieceRun run{.grid = grid, .dtype = dtype, .chunks = chunks, .make = block(false)};
        const PieceResult kept = run_piece(run);
        run.make = block(true);
        expect_same_bits(kept, run_piece(run));
      }
    }
  }
}

TEST(Checkpoint, OneInsideAnotherIsForTrainingInEachOfItsRuns) {
  int runs = 0;
  PieceRun run;
  run.make = [&](ParameterGroup& group) -> Piece {
    const Piece inner = block(false)(group);
    return [&runs, inner](const Context& ctx, const PieceInput& in) {
      const Forward counted = [&runs, inner](const Context& here, const Var& x) {
        EXPECT_TRUE(here.training());
        ++runs;
        return inner(here, {x, {}, {}});
      };
      return checkpoint(ctx, in.x, [counted](const Context& outer, const Var& x) {
        return checkpoint(outer, x, counted);
      });
    };
  };
  run_piece(run);
  EXPECT_EQ(runs, 3) << "forward, again without a tape, and again with one";
}

TEST(Checkpoint, KeepsNoMoreThanItsInputUntilBackward) {
  std::int64_t live[2] = {};
  for (bool recomputed : {false, true}) {
    PieceRun run;
    run.make = [&](ParameterGroup& group) -> Piece {
      return [&live, recomputed, inner = block(recomputed)(group)](const Context& ctx,
                                                                   const PieceInput& in) {
        const std::int64_t before = ctx.arena().stats().live_bytes;
        Var out = inner(ctx, in);
        EXPECT_GT(out.front().value.rows(), 0);  // the access computes the lazy chunk
        live[recomputed] = ctx.arena().stats().live_bytes - before;
        return out;
      };
    };
    run_piece(run);
  }
  // f32, 72 rows of 24 columns: the result, a sum with the residual, and two moments per row.
  EXPECT_EQ(live[1], 72 * (24 + 2) * 4);
  // The norm, the products and GELU keep 24 + 96 + 96 columns more, and statistics.
  EXPECT_GE(live[0], live[1] + 72 * (24 + 96 + 96) * 4);
}
