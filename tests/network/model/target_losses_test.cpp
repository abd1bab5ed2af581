// The loss of each target, on grids; family_reference_test.cpp compares it with plain loops.
#include <cmath>
#include <memory>
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

/// Losses of targets with their entropies.
constexpr std::int64_t kColumns = 3;

/// The losses (R, kColumns) of all targets in order, or their records, if given; checks that ranks
/// with the same targets agree.
std::vector<float> losses_of(TinyRun run, const Batch& batch,
                             const std::shared_ptr<TokenRecords>& records = nullptr) {
  const std::int64_t columns = records ? records->columns() : kColumns;
  std::vector<float> all(batch.sequences * batch.positions * columns);
  run.steps = 0;
  run.after = [&](const Context& ctx, Model& model) {
    const GridShape& shape = ctx.grid.shape();
    const std::int64_t each = batch.sequences / (shape.z * shape.data);
    const std::int64_t place = ctx.grid.coord(Axis::data) * shape.z + ctx.grid.coord(Axis::z);
    Context pass = ctx;
    if (records)
      pass.attach(records);
    else
      pass.attach(std::make_shared<TargetEntropies>());
    const Tensor mine = model.target_losses(pass, tokens_of(ctx, batch, place * each, each));
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
  for (std::size_t i = 0; i < want.size(); i += kColumns) counted += want[i] > 1;
  EXPECT_EQ(counted, batch.sequences * batch.positions * 4 / 5);  // the others have no loss
  for (const GridShape& shape : grids) {
    SCOPED_TRACE("grid " + to_string(shape));
    run.grid = shape;
    const std::vector<float> got = losses_of(run, batch);
    for (std::size_t i = 0; i < want.size(); i += kColumns) {
      EXPECT_NEAR(got[i], want[i], 2e-6 * (1 + want[i])) << "target " << i / kColumns;
      EXPECT_EQ(got[i + 1], want[i + 1]) << "target " << i / kColumns;
      EXPECT_NEAR(got[i + 2], want[i + 2], 4e-6 * (1 + want[i + 2])) << "target " << i / kColumns;
    }
  }
}

const auto kRecords = std::make_shared<TokenRecords>(
    TokenRecords{{{}, {.top_k = 40}, {.temperature = 0.7, .top_p = 0.9}, {.temperature = 0}}});

/// Records on grids against one rank, and those of one rank against the losses.
void expect_same_records(TinyRun run, const Batch& batch, const std::vector<GridShape>& grids) {
  run.grid = {};
  const std::vector<float> want = losses_of(run, batch, kRecords), losses = losses_of(run, batch);
  const std::int64_t columns = kRecords->columns();
  std::int64_t never = 0, drawn = 0;
  for (std::int64_t i = 0; i < std::ssize(losses) / kColumns; ++i) {
    const float *record = &want[i * columns], *loss = &losses[i * kColumns];
    EXPECT_NEAR(-record[0], loss[0], 2e-6 * (1 + loss[0])) << "target " << i;
    EXPECT_EQ(record[1] == 1, loss[1] == 1) << "target " << i;
    EXPECT_NEAR(-record[2], loss[2], 4e-6 * (1 + loss[2])) << "target " << i;
    EXPECT_NEAR(record[4], record[0], 1e-6 * (1 - record[0])) << "target " << i;  // all tokens
    for (std::int64_t c = 5; c < columns; ++c) (std::isinf(record[c]) ? never : drawn) += 1;
  }
  EXPECT_GT(never, 0);
  EXPECT_GT(drawn, 0);
  for (const GridShape& shape : grids) {
    SCOPED_TRACE("grid " + to_string(shape));
    run.grid = shape;
    const std::vector<float> got = losses_of(run, batch, kRecords);
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (i % columns == 1 || std::isinf(want[i]))
        EXPECT_EQ(got[i], want[i]) << "target " << i / columns << ", column " << i % columns;
      else
        EXPECT_NEAR(got[i], want[i], 4e-6 * (1 + std::abs(want[i])))
            << "target " << i / columns << ", column " << i % columns;
    }
  }
}

}  // namespace

TEST(TokenRecords, AreThoseOfOneRankOnManyGrids) {
  for (bool cut : {true, false})
    expect_same_records({.sequence_parallel = cut, .make_model = tiny_gpt(4, true)},
                        {.sequences = 48, .positions = 8}, many_grids());
}

TEST(TokenRecords, AreThoseOfOneRankInChunksAndWhereRowsCannotBeCut) {
  expect_same_records({.chunks = 2, .make_model = model_of(tiny_llama())},
                      {.sequences = 24, .positions = 8}, {{2, 2, 1, 1}, {1, 2, 2, 1}});
  expect_same_records({.make_model = model_of(tiny_llama())}, {.sequences = 5, .positions = 7},
                      {{2, 2, 1, 1}, {1, 2, 1, 1}, {4, 1, 1, 1}});
}

TEST(TargetLosses, AreThoseOfOneRankOnManyGrids) {
  // 384 rows on one rank are two blocks of logits; three ranks of y cannot cut the first evenly.
  for (bool cut : {true, false})
    expect_same_on_grids({.sequence_parallel = cut, .make_model = tiny_gpt(4, true)},
                         {.sequences = 48, .positions = 8}, many_grids());
}

TEST(TargetLosses, AreThoseOfOneRankInChunksAndWhereRowsCannotBeCut) {
  expect_same_on_grids({.chunks = 2, .make_model = model_of(tiny_llama())},
                       {.sequences = 24, .positions = 8}, {{2, 2, 1, 1}, {1, 2, 2, 1}});
  expect_same_on_grids({.make_model = model_of(tiny_llama())}, {.sequences = 5, .positions = 7},
                       {{2, 2, 1, 1}, {1, 2, 1, 1}});
}
