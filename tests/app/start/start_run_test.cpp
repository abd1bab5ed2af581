#include "axonn/app/start/start_run.h"

#include <array>

#include <gmock/gmock.h>

#include "axonn/foundation/options/options.h"
#include "axonn/plan/planner/machine/link_rates.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/recompute.h"

using namespace axonn;

namespace {

Config asked() {
  Config config;
  config.model = {.layers = 2, .hidden = 48, .heads = 4};
  config.data.synthetic = 20'000;
  config.training = {.steps = 2, .seq_len = 8, .global_batch = 12};
  config.optimizer.lr = 1e-3;
  config.parallelism.set_grid({.x = 2});
  return config;
}

}  // namespace

TEST(StartRun, LetsTheMachinesLinksChooseCollectivesOnEveryRank) {
  Config config = asked();
  config.parallelism.machine = "frontier";
  const double want = link_rates(read_machine("frontier")).across.bytes_per_s;
  ASSERT_NE(want, CollectiveRates().across.bytes_per_s);
  std::array<double, 2> rates = {};
  start_run(prepare_run(config, {}), [&](const PreparedRun&, Communicator& world) {
    rates[world.rank()] = world.policy().rates.value().across.bytes_per_s;
  });
  EXPECT_THAT(rates, testing::Each(want));
}

TEST(StartRun, AppliesTheBudgetOnceForAllRanks) {
  Config config = asked();
  const auto peak_of = [&] { return prepare_run(config, {})->activation_checkpoint.peak_bytes; };
  config.activation_checkpoint.budget = std::int64_t{1} << 40;
  const std::int64_t whole = peak_of();
  ASSERT_GT(whole, 0);
  config.activation_checkpoint.budget = whole - 1;
  std::array<std::int64_t, 2> peaks = {};
  std::array<bool, 2> recomputes = {};
  start_run(prepare_run(config, {}), [&](const PreparedRun& run, Communicator& world) {
    const RecomputedBlocks blocks = recomputed_blocks(run->activation_checkpoint);
    peaks[world.rank()] = run->activation_checkpoint.peak_bytes;
    recomputes[world.rank()] = blocks.first > 0 || blocks.of_others != Recompute();
  });
  EXPECT_THAT(peaks, testing::Each(testing::AllOf(testing::Gt(0), testing::Lt(whole))));
  EXPECT_THAT(recomputes, testing::Each(true));
}
