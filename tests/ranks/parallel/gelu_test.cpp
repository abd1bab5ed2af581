// GELU between two products, fused into them if there is no sum over ranks in between.
#include <array>
#include <mutex>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/pointwise.h"

#include "tests/ranks/parallel/piece.h"
#include "tests/support/grids.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;

namespace {

/// Computes GELU of up's output, fused or not.
using Between = std::function<Var(const Context&, const Linear& up, const Var& inp)>;

Var by_product(const Context& ctx, const Linear& up, const Var& inp) { return up.gelu(ctx, inp); }

Var apart(const Context& ctx, const Linear& up, const Var& inp) { return gelu(ctx, up(ctx, inp)); }

/// Hides from the next product that its input is GELU of something.
Var hidden(const Context& ctx, const Linear& up, const Var& inp) {
  const Var all = apart(ctx, up, inp);
  Var outs;
  for (Chunk chunk : all) {
    chunk.gelu_of = {};
    outs.push_back(std::move(chunk));
  }
  return outs;
}

std::function<Piece(ParameterGroup&)> fused_mlp(const Between& between) {
  return [between](ParameterGroup& group) -> Piece {
    const auto up = std::make_shared<Linear>(group, "up", Linear::Options{.in = 24, .out = 96});
    const auto down = std::make_shared<Linear>(
        group, "down",
        Linear::Options{.in = 96, .out = 24, .orientation = Orientation::transposed});
    return [=](const Context& ctx, const PieceInput& in) {
      return add(ctx, in.x, (*down)(ctx, between(ctx, *up, in.x)));
    };
  };
}

/// GELU's output is used twice: by a sum and by a product.
Piece used_twice(const Between& between, ParameterGroup& group) {
  const auto up = std::make_shared<Linear>(group, "up", Linear::Options{.in = 24, .out = 48});
  const auto turn = std::make_shared<Linear>(
      group, "turn", Linear::Options{.in = 48, .out = 24, .orientation = Orientation::transposed});
  const auto same = std::make_shared<Linear>(group, "same", Linear::Options{.in = 24, .out = 48});
  const auto down = std::make_shared<Linear>(
      group, "down", Linear::Options{.in = 48, .out = 24, .orientation = Orientation::transposed});
  return [=](const Context& ctx, const PieceInput& in) {
    const Var x = between(ctx, *up, in.x);
    return (*down)(ctx, add(ctx, x, (*same)(ctx, (*turn)(ctx, x))));
  };
}

/// Fuses every epilogue, with the bits of the CPU backend, and counts them over all ranks.
struct Counts {
  int kept = 0, derivative = 0, bias_gradient = 0;
};
class FusingBackend final : public ForwardingBackend {
 public:
  FusingBackend(std::unique_ptr<Backend> inner, Counts& counts, std::mutex& mutex)
      : ForwardingBackend(*inner), inner_(std::move(inner)), counts_(counts), mutex_(mutex) {}

  bool fuses(const Matmul&) override { return true; }
  void product(const Matmul& args) override {
    const MatmulShape shape = shape_of(args);
    {
      const std::lock_guard lock(mutex_);
      counts_.kept += shape.gelu && shape.gelu_input;
      counts_.derivative += shape.gelu_derivative;
      counts_.bias_gradient += shape.bias_gradient;
    }
    inner_->matmul(args);
  }

 private:
  std::unique_ptr<Backend> inner_;
  Counts& counts_;
  std::mutex& mutex_;
};

void expect_same_fused(const PieceResult& want, const PieceResult& got) {
  ASSERT_EQ(want.size(), got.size());
  for (const auto& [name, matrix] : want) EXPECT_EQ(matrix.values, got.at(name).values) << name;
}

std::array<int, 3> counts_on(GridShape grid, bool sequence_parallel) {
  Counts counts;
  std::mutex mutex;
  PieceRun run{.grid = grid, .sequence_parallel = sequence_parallel, .make = fused_mlp(by_product)};
  const PieceResult want = run_piece(run);
  run.make_backend = [&] {
    return std::make_unique<FusingBackend>(make_cpu_backend(1), counts, mutex);
  };
  expect_same_fused(want, run_piece(run));
  return {counts.kept, counts.derivative, counts.bias_gradient};
}

}  // namespace

TEST(GeluBetweenProducts, HasTheBitsOfSeparateOperationsOnEveryGridInChunksAndRowsCutOrNot) {
  for (int ranks : {1, 2, 4})
    for (const GridShape& grid : grids_of(ranks))
      for (DType dtype : {DType::f32, DType::bf16})
        for (int chunks : {1, 3})
          for (bool cut : {true, false}) {
            SCOPED_TRACE("grid " + to_string(grid) + ", chunks " + std::to_string(chunks));
            PieceRun run{.grid = grid, .dtype = dtype, .chunks = chunks, .sequence_parallel = cut};
            run.make = fused_mlp(hidden);
            const PieceResult want = run_piece(run);
            for (const Between& between : {Between(apart), Between(by_product)}) {
              run.make = fused_mlp(between);
              expect_same_fused(want, run_piece(run));
            }
          }
}

TEST(GeluBetweenProducts, SumsTheGradientsOfBothUsesIfItsOutputIsUsedTwice) {
  const auto run_of = [](GridShape grid, Between between) {
    return run_piece({.grid = grid, .make = [between](ParameterGroup& group) {
                        return used_twice(between, group);
                      }});
  };
  for (const GridShape& grid : {GridShape{1, 1, 1, 1}, GridShape{2, 1, 1, 1}, GridShape{2, 2}})
    EXPECT_EQ(difference(run_of(grid, hidden), run_of(grid, by_product), 72 + 48), "")
        << to_string(grid);
}

TEST(GeluBetweenProducts, IsFusedIntoThemWhereNoOtherRankAddsToTheirSums) {
  // Over all ranks: fused GELUs that keep their input, GELU's derivatives, biases' gradients.
  EXPECT_THAT(counts_on({1, 1, 1, 1}, true), ElementsAre(1, 1, 2));
  EXPECT_THAT(counts_on({1, 1, 2, 1}, true), ElementsAre(2, 2, 4));
  // Down sums over x; if rows are not cut, only the first rank computes its bias's gradient.
  EXPECT_THAT(counts_on({2, 1, 1, 1}, true), ElementsAre(2, 2, 2));
  EXPECT_THAT(counts_on({2, 1, 1, 1}, false), ElementsAre(2, 2, 3));
  // Up's output and down's input gradient are summed over y.
  EXPECT_THAT(counts_on({1, 2, 1, 1}, true), ElementsAre(0, 0, 2));
  EXPECT_THAT(counts_on({1, 2, 1, 1}, false), ElementsAre(0, 0, 3));
}
