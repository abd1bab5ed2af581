// Checks the numbers in docs/algorithm.md: Linear must compute them on the grid 2,2,2.
#include <array>

#include <gmock/gmock.h>

#include "axonn/network/nn/linear.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/ranks/parallel/block.h"
#include "axonn/ranks/parallel/scheduling.h"

using namespace axonn;

namespace {

using Matrix = std::array<std::array<float, 4>, 4>;

constexpr Matrix kInp{{{1, 2, 0, 1}, {0, 1, 1, 3}, {2, 0, 1, 1}, {1, 1, 2, 0}}};
constexpr Matrix kWeight{{{1, 0, 2, 1}, {0, 1, 1, 0}, {2, 1, 0, 1}, {1, 1, 1, 2}}};
constexpr Matrix kOut{{{2, 2, 5, 5}, {5, 2, 4, 8}, {5, 1, 5, 5}, {5, 3, 3, 4}}};
constexpr Matrix kDOut{{{1, 0, 2, 1}, {0, 1, 1, 0}, {1, 1, 0, 2}, {2, 0, 1, 1}}};
constexpr Matrix kDInp{{{6, 3, 3, 5}, {2, 2, 1, 1}, {3, 3, 5, 5}, {5, 2, 5, 5}}};
constexpr Matrix kDWeight{{{5, 4, 5, 2}, {2, 1, 2, 4}, {3, 6, 3, 5}, {6, 3, 4, 3}}};

/// The quarter of a matrix at (row_part, col_part), as a tensor (2, 2).
Tensor block_of(const Context& ctx, const Matrix& m, int row_part, int col_part) {
  Tensor block = ctx.empty(2, 2, DType::f32);
  for (int r = 0; r < 2; ++r)
    for (int c = 0; c < 2; ++c)
      block.view().row<float>(r)[c] = m[2 * row_part + r][2 * col_part + c];
  return block;
}

std::vector<float> values(const Tensor& tensor) {
  const float* first = tensor.view().as<float>();
  return {first, first + tensor.count()};
}

void set_weight(const Context& ctx, ParameterGroup& group) {
  for (const auto& [spec, slice] : group.piece_slices())
    for (std::int64_t i = 0; i < slice.count(); ++i) {
      const std::int64_t e = slice.begin + i;
      group.master().as<float>()[slice.offset + i] =
          kWeight[slice.row + e / slice.cols][slice.col + e % slice.cols];
    }
  group.publish_values(ctx);
}

}  // namespace

TEST(WorkedExample, MatchesWhatLinearComputesOnEveryRank) {
  run_ranks(8, [](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, {2, 2, 2, 1});
    const int x = grid.coord(Axis::x), y = grid.coord(Axis::y), z = grid.coord(Axis::z);
    Tape tape;
    Context ctx(*backend, arena, grid);
    ctx.own_scheduling().run.sequence_parallel = false;
    ParameterGroup group("example", grid);
    const Linear linear(group, "example", {.in = 4, .out = 4, .bias = false});
    group.allocate(ctx);
    set_weight(ctx, group);
    group.begin_step(ctx);

    ctx.tape = &tape;
    const auto d_inp = std::make_shared<Gradient>();
    const Var inp{{.value = block_of(ctx, kInp, z, y),
                   .placement = {{Axis::z, Axis::data}, Axis::y},
                   .rows = {.sequences = 1, .positions = 2},
                   .gradient = d_inp}};
    GatheredWeights weights(ctx, group);
    const Var out = linear(weights.context(), inp);
    weights.release();
    EXPECT_EQ(values(out[0].value), values(block_of(ctx, kOut, z, x)));

    out[0].gradient->add(ctx, block_of(ctx, kDOut, z, x));
    tape.backward();
    group.finish_reduce(ctx);
    EXPECT_EQ(values(d_inp->take()), values(block_of(ctx, kDInp, z, y)));
    for (const auto& [spec, slice] : group.piece_slices())
      for (std::int64_t i = 0; i < slice.count(); ++i) {
        const std::int64_t e = slice.begin + i;
        EXPECT_EQ(group.gradient().as<float>()[slice.offset + i],
                  kDWeight[slice.row + e / slice.cols][slice.col + e % slice.cols]);
      }
  });
}
