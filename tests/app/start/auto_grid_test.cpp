#include "axonn/app/start/auto_grid.h"

#include <filesystem>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/planner/machine/link_rates.h"
#include "axonn/plan/planner/search.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/train/trainer.h"

using namespace axonn;
using testing::Contains;
using testing::HasSubstr;

namespace {

Config planned_config(const std::string& folder) {
  Config config;
  config.model = {.layers = 2, .hidden = 64, .heads = 8, .vocab = 256};
  config.data.synthetic = 20'000;
  config.training = {.steps = 2, .seq_len = 16, .global_batch = 8};
  config.training.threads = 1;
  config.optimizer.lr = 1e-3;
  config.parallelism.machine = "perlmutter";
  config.training.dtype = DType::bf16;
  config.output.dir = folder;
  return config;
}

struct Chosen {
  std::int64_t noted = 0;       // Communicator::noted_progress()
  std::vector<Config> configs;  // of each rank
  std::vector<std::string> lines;
  std::vector<CollectivePolicy> policies;  // of each rank's world
};

Chosen choose(Config config, int ranks) {
  config.parallelism.named_grid = "auto";
  validate(config);
  Chosen chosen{.configs = std::vector<Config>(ranks),
                .policies = std::vector<CollectivePolicy>(ranks)};
  run_ranks(ranks, [&](Communicator& world) {
    const auto tell = [&](const std::string& line) { chosen.lines.push_back(line); };
    chosen.configs[world.rank()] = with_chosen_grid(prepared(config), world, tell).config();
    chosen.policies[world.rank()] = world.policy();
    if (world.rank() == 0) chosen.noted = world.noted_progress();
  });
  return chosen;
}

std::string folder_of(const char* name) {
  const std::string folder = testing::TempDir() + "/auto_grid_" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

}  // namespace

TEST(AutoGrid, AllRanksGetTheSearchsBestPlan) {
  const Config config = planned_config(folder_of("first"));
  const Chosen chosen = choose(config, 8);
  const Plan best =
      search(prepared(config), read_machine("perlmutter"), {.devices = 8}).plans.front();
  for (const Config& one : chosen.configs) {
    EXPECT_EQ(one.parallelism.grid(), best.grid);
    EXPECT_EQ(one.training.micro_batch, best.micro_batch);
    EXPECT_EQ(one.parallelism.keep_weights, best.keep_weights.value_or(KeepWeights::none));
    EXPECT_EQ(one.parallelism.named_grid, "");
  }
  EXPECT_THAT(chosen.lines, Contains(HasSubstr(to_string(best.grid))));
  EXPECT_GT(chosen.noted, 10) << "the ranks that wait for the search may give up";
}

TEST(AutoGrid, CutsABatchThatNoGridDivides) {
  Config config = planned_config(folder_of("uneven"));
  config.training.global_batch = 5;
  const Config chosen = choose(config, 4).configs.front();
  const std::int64_t share = batch_share(5, batch_coordinates(chosen.parallelism.grid()));
  EXPECT_EQ(share % chosen.training.micro_batch, 0) << "more padding than the grid needs";
  run_ranks(4, [&](Communicator& world) { train(prepared(chosen), world, {}); });
  config.checkpoint.resume = "auto";
  EXPECT_THAT(choose(config, 4).lines, testing::ElementsAre(HasSubstr("resumes")));
}

TEST(AutoGrid, WithoutAMachineFileTheRanksProbeTheirOwn) {
  Config config = planned_config(folder_of("probe"));
  config.parallelism.machine = "";
  const Chosen chosen = choose(config, 2);
  EXPECT_EQ(chosen.configs.front().parallelism.grid().ranks(), 2);
  EXPECT_EQ(chosen.configs[0].parallelism, chosen.configs[1].parallelism);
}

TEST(AutoGrid, AResumedRunKeepsItsGridUnlessTheNumberOfRanksChanges) {
  Config config = planned_config(folder_of("resume"));
  const GridShape odd{1, 1, 2, 2};
  Config before = config;
  before.parallelism.set_grid(odd);
  before.training.micro_batch = 1;
  before.parallelism.keep_weights = KeepWeights::step;
  before.activation_checkpoint.mode = RecomputeMode::full;
  run_ranks(4, [&](Communicator& world) { train(prepared(before), world, {}); });

  config.checkpoint.resume = "auto";
  const Chosen same = choose(config, 4);
  EXPECT_EQ(same.configs.front().parallelism.grid(), odd);
  EXPECT_EQ(same.configs.front().training.micro_batch, 1);
  EXPECT_EQ(same.configs.front().activation_checkpoint.mode, RecomputeMode::full);
  for (const Config& one : same.configs) EXPECT_EQ(one.parallelism.keep_weights, KeepWeights::step);
  EXPECT_THAT(same.lines, testing::ElementsAre(HasSubstr("resumes")));
  const CollectiveRates rates = link_rates(read_machine("perlmutter"));
  for (const CollectivePolicy& policy : same.policies) {
    ASSERT_TRUE(policy.rates) << "the links of the machine are lost";
    EXPECT_EQ(policy.rates->across.bytes_per_s, rates.across.bytes_per_s);
  }
  EXPECT_EQ(choose(config, 2).configs.front().parallelism.grid().ranks(), 2);
}

TEST(AutoGrid, RefusesToReplaceARunBeforeItPlans) {
  Config config = planned_config(folder_of("finished"));
  Config before = config;
  before.parallelism.set_grid({});
  run_ranks(1, [&](Communicator& world) { train(prepared(before), world, {}); });
  config.parallelism.machine = "no such machine";
  EXPECT_THAT([&] { choose(config, 2); },
              testing::ThrowsMessage<UsageError>(HasSubstr("holds a run")));
}

TEST(AutoGrid, RefusesAModelThatFitsOnNoGrid) {
  Config config = planned_config(folder_of("large"));
  config.model = {.layers = 64, .hidden = 32768, .heads = 64, .vocab = 256};
  try {
    choose(config, 2);
    FAIL() << "no error for a model that fits on no grid";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no grid of 2 ranks fits"));
  }
}
