// The loss of each target, on grids; family_reference_test.cpp compares it with plain loops.
#include <cmath>
#include <span>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/random.h"

#include "tests/support/grids.h"
#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

struct Batch {
  std::int64_t sequences, positions;
};

/// Every fifth target has no loss. Token t of sequence s depends only on (s, t).
Tokens tokens_of(const Context& ctx, const Batch& batch, std::int64_t first, std::int64_t each) {
  const Random random(7, "tokens");
  std::vector<std::int32_t> ids, targets;
  for (std::int64_t i = first * batch.positions; i < (first + each) * batch.positions; ++i) {
    ids.push_back(static_cast<std::int32_t>(random.below(i, 251)));
    targets.push_back(i % 5 == 0 ? -1 : static_cast<std::int32_t>(random.below(i + 1, 251)));
  }
  return make_tokens(ctx, ids, targets, {each, batch.positions, first * batch.positions});
}

/// The losses (R, 2) of all targets in order; checks that ranks with the same targets agree.
std::vector<float> losses_of(TinyRun run, const Batch& batch) {
  std::vector<float> all(batch.sequences * batch.positions * 2);
  run.steps = 0;
  run.after = [&](const Context& ctx, Model& model) {
    const GridShape& shape = ctx.grid.shape();
    const std::int64_t each = batch.sequences / (shape.z * shape.data);
    const std::int64_t place = ctx.grid.coord(Axis::data) * shape.z + ctx.grid.coord(Axis::z);
    const Tensor mine = model.target_losses(ctx, tokens_of(ctx, batch, place * each, each));
    ASSERT_EQ(mine.rows(), each * batch.positions);
    // Read at once: a collective first could hide that some of them are still on their way.
    const auto* const first = mine.view().as<float>();
    const std::vector<float> values(first, first + mine.count());
    std::vector<float> of_all(values.size() * ctx.grid.world().size());
    ctx.grid.world().all_gather(buffer(std::span(of_all)), buffer(std::span(values))).wait();
    for (int rank = 0; rank < ctx.grid.world().size(); ++rank) {
      const auto begin = of_all.begin() + rank * std::ssize(values);
      const int at = rank / (shape.x * shape.y);
      if (rank % (shape.x * shape.y) == 0 && ctx.grid.world().rank() == 0)
        std::copy_n(begin, values.size(), all.begin() + at * std::ssize(values));
      if (at == place) {
        EXPECT_TRUE(std::equal(begin, begin + std::ssize(values), values.begin()));
      }
    }
  };
  run_tiny(run);
  return all;
}

void expect_same_on_grids(TinyRun run, const Batch& batch, const std::vector<GridShape>& grids) {
  run.grid = {};
  const std::vector<float> want = losses_of(run, batch);
  int counted = 0;
  for (std::size_t i = 0; i < want.size(); i += 2) counted += want[i] > 1;
  EXPECT_EQ(counted, batch.sequences * batch.positions * 4 / 5);  // the others have no loss
  for (const GridShape& shape : grids) {
    SCOPED_TRACE("grid " + to_string(shape));
    run.grid = shape;
    const std::vector<float> got = losses_of(run, batch);
    for (std::size_t i = 0; i < want.size(); i += 2) {
      EXPECT_NEAR(got[i], want[i], 2e-6 * (1 + want[i])) << "target " << i / 2;
      EXPECT_EQ(got[i + 1], want[i + 1]) << "target " << i / 2;
    }
  }
}

}  // namespace

TEST(TargetLosses, AreThoseOfOneRankOnEveryGridOfUpToEightRanks) {
  // 384 rows on one rank are two blocks of logits; three ranks of y cannot cut the first evenly.
  for (bool cut : {true, false})
    expect_same_on_grids({.sequence_parallel = cut, .make_model = tiny_gpt(4, true)},
                         {.sequences = 48, .positions = 8}, every_grid());
}

TEST(TargetLosses, AreThoseOfOneRankInChunksAndWhereRowsCannotBeCut) {
  expect_same_on_grids({.chunks = 2, .make_model = model_of(tiny_llama())},
                       {.sequences = 24, .positions = 8}, {{2, 2, 1, 1}, {1, 2, 2, 1}});
  expect_same_on_grids({.make_model = model_of(tiny_llama())}, {.sequences = 5, .positions = 7},
                       {{2, 2, 1, 1}, {1, 2, 1, 1}});
}
