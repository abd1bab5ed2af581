// Adafactor on grids: factors of whole models whose matrices are cut, padded, shared and
// replicated, and checkpoints of them. rules_test.cpp has the values of other libraries.
#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/optim/optimizer_state.h"

#include "tests/support/runs.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

Config adafactor_config(const std::string& folder) {
  Config config = tiny_config(folder);
  config.optimizer.kind = OptimizerKind::adafactor;
  config.training.verify_every = 5;  // replicated values have the same bits
  return config;
}

/// A model with key-value heads that ranks of x = 3 share, and a vocabulary that ends in padding.
Config shared_heads(const std::string& folder) {
  Config config = adafactor_config(folder);
  config.model.family = ModelFamily::llama;
  config.model.kv_heads = 4;
  config.model.vocab = 257;
  config.model.tied = false;
  return config;
}

Config with_experts(const std::string& folder) {
  Config config = adafactor_config(folder);
  config.model.family = ModelFamily::llama;
  config.model.tied = false;
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 24;
  return config;
}

Config with_adapters(const std::string& folder) {
  Config config = adafactor_config(folder);
  config.model.lora.rank = 2;
  return config;
}

std::string end_of(const Config& config) { return config.output.dir + "/checkpoints/step-10"; }

/// The largest difference of two sets of values, relative to the largest value of its parameter.
double largest_difference(const std::map<std::string, std::vector<float>>& got,
                          const std::map<std::string, std::vector<float>>& want) {
  EXPECT_EQ(got.size(), want.size());
  double most = 0;
  for (const auto& [name, values] : want) {
    const std::vector<float>& other = got.at(name);
    EXPECT_EQ(other.size(), values.size()) << name;
    const double size = std::ranges::max(values);
    EXPECT_GT(size, 0) << name;
    for (std::size_t i = 0; i < values.size(); ++i)
      most = std::max(most, std::abs(double{other[i]} - double{values[i]}) / size);
  }
  return most;
}

/// Expects runs on these grids, with and without overlap, to have the losses and the factors of one
/// rank.
void expect_same_factors(const Config& one, const std::vector<GridShape>& shapes) {
  train_on_threads(one);
  const auto losses = column(metrics_of(one), "loss");
  EXPECT_LT(losses.back(), losses.front());
  for (const GridShape& shape : sanitized() ? std::vector{shapes.front()} : shapes) {
    Config grid = on_grid(one, shape);
    grid.output.dir += "-" + to_string(shape);
    train_on_threads(grid);
    EXPECT_LT(testing_support::largest_difference(losses, column(metrics_of(grid), "loss")), 1e-5)
        << to_string(shape);
    for (const char* kind : kFactorKinds)
      EXPECT_LT(largest_difference(weights_of(end_of(grid), kind), weights_of(end_of(one), kind)),
                1e-3)
          << kind << ' ' << to_string(shape);
    Config blocking = without_overlap(grid);
    blocking.output.dir += "-blocking";
    train_on_threads(blocking);
    for (const char* kind : {kWeightsKind, kFactorKinds[0], kFactorKinds[1]})
      EXPECT_EQ(weights_of(end_of(blocking), kind), weights_of(end_of(grid), kind)) << kind;
  }
}

}  // namespace

TEST(Adafactor, FactorsOfSharedAndPaddedMatricesAreThoseOfOneRank) {
  test::TemporaryPath folder;
  expect_same_factors(shared_heads(folder / "run"), {{3, 1, 1, 2}, {2, 2, 2, 1}, {1, 3, 1, 1}});
}

TEST(Adafactor, FactorsOfExpertsAreThoseOfOneRank) {
  test::TemporaryPath folder;
  expect_same_factors(with_experts(folder / "run"),
                      {{.x = 2, .z = 2, .experts = 2}, {.y = 2, .data = 2}});
}

TEST(Adafactor, FactorsOfAdaptersAreThoseOfOneRank) {
  test::TemporaryPath folder;
  expect_same_factors(with_adapters(folder / "run"), {{2, 2, 1, 1}, {1, 1, 2, 2}});
}

TEST(Adafactor, ContinuesOnAnotherGridWithTheFactorsOfItsCheckpoint) {
  test::TemporaryPath folder;
  const Config first = on_grid(shared_heads(folder / "first"), {3, 1, 2, 1});
  train_on_threads(first);
  const auto losses = column(metrics_of(first), "loss");
  Config second = on_grid(first, {2, 1, 1, 3});
  second.output.dir = folder / "second";
  second.checkpoint.resume = first.output.dir + "/checkpoints/step-5";
  train_on_threads(second);
  EXPECT_LT(testing_support::largest_difference({losses.begin() + 5, losses.end()},
                                                column(metrics_of(second), "loss")),
            1e-5);
  for (const char* kind : kFactorKinds)
    EXPECT_LT(largest_difference(weights_of(end_of(second), kind), weights_of(end_of(first), kind)),
              1e-3)
        << kind;
}

TEST(Adafactor, CheckpointsHoldItsFactorsOnceAndOtherRulesRefuseThem) {
  test::TemporaryPath folder;
  const Config config = on_grid(shared_heads(folder / "run"), {3, 1, 2, 1});
  train_on_threads(config);
  const CheckpointReader reader(end_of(config));
  EXPECT_THAT(reader.index().kinds,
              testing::ElementsAre("master", "exp_avg_sq_row", "exp_avg_sq_col"));
  std::int64_t want = 0, got = 0;
  for (const auto& [name, rows, cols] : reader.index().parameters)
    want += rows + (cols > 1 ? cols : 0);
  for (const StoredFile& file : reader.index().files)
    for (const StoredBlock& block : file.blocks)
      for (const StoredSlice& slice : block.slices)
        if (!block.offsets.contains(kWeightsKind)) got += slice.part.count();
  EXPECT_EQ(got, want);

  Config other = config;
  other.optimizer.kind = OptimizerKind::sgd;
  other.output.dir = folder / "other";
  other.checkpoint.resume = end_of(config);
  EXPECT_THAT(failure_of(other),
              testing::HasSubstr("has the state exp_avg_sq_row of its parameters, which this "
                                 "run's optimizer does not keep"));
}

TEST(FactorLayout, PutsRowsAndColumnsOfAMatrixAndOneNumberForEachElementOfAVector) {
  const auto world = make_self();
  const Grid one(*world, {});
  ParameterGroup group("group", one);
  group.add({.name = "matrix", .layout = {8, 4}, .decays = true});
  group.add({.name = "vector", .layout = {.rows = 8}});
  const FactorLayout layout(group);
  EXPECT_EQ(layout.count(), 8 + 4 + 8);
  EXPECT_EQ(layout.piece(), 96);
  EXPECT_EQ(layout.factored()[0].rows_begin, 0);
  EXPECT_EQ(layout.factored()[0].cols_begin, 32);
  EXPECT_EQ(layout.factored()[1].rows_begin, 64);
  EXPECT_TRUE(layout.factored()[1].is_vector());
  ASSERT_EQ(layout.slices(1).size(), 1);
  EXPECT_EQ(layout.slices(1).front().slice,
            (Slice{.rows = 1, .cols = 4, .begin = 0, .end = 4, .offset = 32, .owned = true}));
  EXPECT_EQ(layout.slices(0).size(), 2);
}
