// Recomputation that a budget chooses.
#include "axonn/plan/planner/recompute_budget.h"

#include <map>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/config/resolve.h"

#include "tests/support/dry_peak.h"
#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

/// Activations take most of its memory.
Config budget_config(const std::string& folder = "unused") {
  Config config = tiny_config(folder);
  config.model.family = ModelFamily::llama;
  config.model.layers = 4;
  config.model.kv_heads = 6;
  config.training.seq_len = 32;
  return config;
}

std::int64_t peak_of(const PreparedRun& run) { return dry_step(run, 0).memory.peak_bytes; }

RecomputedBlocks blocks_of(const PreparedRun& run) {
  return recomputed_blocks(run->activation_checkpoint);
}

}  // namespace

TEST(RecomputeBudget, KeepsPlansThatNoMixOfTwoOthersBeats) {
  const Recompute a{Remade::norms}, b{Remade::up}, c{Remade::qkv}, d{Remade::heads};
  // b saves as much as the mix of a and c, for more; d saves less than a, for more.
  const auto best = best_plans({{{}, 0, 0}, {d, 5, 3}, {b, 20, 6}, {a, 10, 1}, {c, 30, 9}});
  ASSERT_EQ(best.size(), 3);
  EXPECT_EQ(best[1].values, a);
  EXPECT_EQ(best[2].values, c);
}

TEST(RecomputeBudget, TheLeastSecondsOfOtherGridsAreThoseOfTheirShareOfTheValues) {
  Config one = resolved(budget_config());
  one.parallelism.set_grid({});
  one.training.micro_batch = one.training.global_batch;
  const RecomputeLevels levels(prepared(one), machine_of(one), RecomputeSets::nested);
  const RecomputePlan& last = levels.plans().back();
  const std::int64_t all = last.saved_bytes * one.model.layers / 2;  // of two blocks
  const double most = levels.least_seconds(prepared(one), all);
  EXPECT_NEAR(most, last.seconds * 2, 1e-9 * most) << "four blocks";
  EXPECT_EQ(levels.least_seconds(prepared(one), 0), 0);
  EXPECT_EQ(levels.least_seconds(prepared(one), 2 * all), most) << "no more can be saved";
  double before = 0;
  for (int i = 1; i <= 10; ++i) {
    const double seconds = levels.least_seconds(prepared(one), all * i / 10);
    EXPECT_GE(seconds, before);
    before = seconds;
  }
  // Half of the values on each of two ranks, in two micro-batches: half of the time in all.
  Config two = one;
  two.parallelism.set_grid({.x = 2});
  two.training.micro_batch /= 2;
  EXPECT_NEAR(levels.least_seconds(prepared(two), all / 4), most / 2, 1e-9 * most);
}

TEST(RecomputeBudget, LevelsBeginWithNothingEndWithEverythingAndGiveTwoPlansAtMost) {
  const PreparedRun run = prepared(budget_config());
  const RecomputeLevels levels(run, machine_of(run.config()));
  const auto& plans = levels.plans();
  ASSERT_GE(plans.size(), 4);
  for (std::size_t i = 1; i < plans.size(); ++i) {
    EXPECT_GT(plans[i].saved_bytes, plans[i - 1].saved_bytes) << i;
    EXPECT_GE(plans[i].seconds, plans[i - 1].seconds) << i;
  }
  EXPECT_EQ(blocks_of(levels.at(0)).of_others, Recompute());
  EXPECT_EQ(blocks_of(levels.at(levels.last())).of_others, Recompute::all());
  const RecomputedBlocks mixed = blocks_of(levels.at(4 + 3));
  EXPECT_EQ(mixed.first, 3);
  EXPECT_EQ(mixed.of_first, plans[2].values);
  EXPECT_EQ(mixed.of_others, plans[1].values);
}

TEST(RecomputeBudget, NestedSetsAreCloseToTheBestOfAll) {
  Config config = budget_config();
  config.model.qk_norm = QkNormKind::head;
  const PreparedRun run = prepared(config);
  const Machine machine = machine_of(config);
  const RecomputeLevels all(run, machine), nested(run, machine, RecomputeSets::nested);
  const double most = all.more_seconds(all.last());
  for (int part = 1; part <= 8; ++part) {
    const std::int64_t budget =
        peak_of(all.at(0)) - part * (peak_of(all.at(0)) - peak_of(all.at(all.last()))) / 8;
    const auto fits = [&](const PreparedRun& one) { return peak_of(one) <= budget; };
    const std::int64_t best = all.least(fits, all.about(budget)),
                       close = nested.least(fits, nested.about(budget));
    EXPECT_LE(peak_of(nested.at(close)), budget);
    EXPECT_LE(nested.more_seconds(close), all.more_seconds(best) + 0.05 * most) << part;
  }
}

TEST(RecomputeBudget, TheLeastLevelDoesNotDependOnTheGuess) {
  const PreparedRun run = prepared(budget_config());
  const RecomputeLevels levels(run, machine_of(run.config()));
  std::map<std::string, std::int64_t> numbers;
  for (std::int64_t level = 0; level <= levels.last(); ++level)
    numbers[describe_recomputation(levels.at(level).config())] = level;
  for (std::int64_t want = 0; want <= levels.last() + 1; ++want) {
    int calls = 0;
    const auto fits = [&](const PreparedRun& one) {
      ++calls;
      return numbers.at(describe_recomputation(one.config())) >= want;
    };
    const std::int64_t least = std::min(want, levels.last());
    for (const std::int64_t guess : {std::int64_t{0}, least + 5, std::int64_t{1} << 40})
      EXPECT_EQ(levels.least(fits, guess), least) << guess;
    calls = 0;
    EXPECT_EQ(levels.least(fits, least), least);
    EXPECT_LE(calls, 2);
  }
}

TEST(RecomputeBudget, TheLeastLevelWithinABudgetIsThatOfTryingAllInAFewDrySteps) {
  const PreparedRun run = prepared(budget_config());
  const RecomputeLevels levels(run, machine_of(run.config()));
  std::vector<std::int64_t> peaks;
  for (std::int64_t level = 0; level <= levels.last(); ++level)
    peaks.push_back(peak_of(levels.at(level)));
  for (const std::int64_t budget : peaks) {
    const auto fits = [&](std::int64_t peak) { return peak <= budget; };
    const auto first = std::ranges::find_if(peaks, fits) - peaks.begin();
    if (!std::ranges::all_of(peaks.begin() + first, peaks.end(), fits)) continue;
    for (const std::int64_t guess : {std::int64_t{0}, levels.about(budget), levels.last()}) {
      int calls = 0;
      const auto peak = [&](const PreparedRun& one) {
        ++calls;
        return peak_of(one);
      };
      EXPECT_EQ(levels.least_within(budget, peak, guess), first) << budget << ' ' << guess;
      if (guess == levels.about(budget)) {
        EXPECT_LE(calls, 5);
      }
    }
  }
}

TEST(RecomputeBudget, EveryPlanHasThePeakOfTheRealStep) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    Config config = budget_config();
    config.model.qk_norm = QkNormKind::head;
    config = on_grid(config, grid);
    const RecomputeLevels levels(prepared(config), machine_of(config));
    for (std::int64_t level = 0; level <= levels.last(); level += 2)
      expect_dry_peak(levels.at(level));
  }
}

TEST(RecomputeBudget, IsKeptToTheByteByTheLeastLevel) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{.z = 2}}) {
    Config config = resolved(on_grid(budget_config(), grid));
    if (grid.x == 1) config.parallelism.keep_weights = KeepWeights::step;
    const RecomputeLevels levels(prepared(config), machine_of(config));
    std::int64_t least = peak_of(prepared(config));
    for (std::int64_t level = 0; level <= levels.last(); ++level) {
      const std::int64_t peak = peak_of(levels.at(level));
      if (level > 0 && peak >= least) continue;  // a lower level takes as little
      config.activation_checkpoint.budget = peak;
      const PreparedRun got = within_budget(prepared(config));
      EXPECT_LE(peak_of(got), peak) << level;
      EXPECT_EQ(got->activation_checkpoint.peak_bytes, peak_of(got)) << level;
      if (peak_of(got) == peak && level > 0) {
        EXPECT_THAT(describe_recomputation(got.config()), HasSubstr("budget"));
      }
      least = peak;
    }
    config.activation_checkpoint.budget = least;
    EXPECT_EQ(peak_of(within_budget(prepared(config))), least);
    config.activation_checkpoint.budget = least - 1;
    EXPECT_THAT([&] { within_budget(prepared(config)); },
                testing::ThrowsMessage<UsageError>(testing::AllOf(
                    HasSubstr(concat("[activation_checkpoint] budget = ", least - 1)),
                    HasSubstr(concat("set budget to at least ", least)),
                    HasSubstr("training.micro_batch"))));
  }
}

TEST(RecomputeBudget, HalfWayCostsLessThanHalfOfFullRecomputation) {
  Config config = budget_config();
  config.model.layers = 16;
  config = resolved(config);
  const Machine machine = machine_of(config);
  Config full = config;
  full.activation_checkpoint.mode = RecomputeMode::full;
  const auto seconds = [&](const PreparedRun& one) { return predict(one, machine).time.step_s; };
  const double none = seconds(prepared(config));
  config.activation_checkpoint.budget = (peak_of(prepared(config)) + peak_of(prepared(full))) / 2;
  const double half = seconds(within_budget(prepared(config)));
  EXPECT_GT(half, none);
  EXPECT_LT(half - none, 0.5 * (seconds(prepared(full)) - none));
}

TEST(RecomputeBudget, AllRanksTakeRankZerosChoice) {
  const PreparedRun run = prepared(budget_config());
  const RecomputeLevels levels(run, machine_of(run.config()));
  run_ranks(2, [&](Communicator& world) {
    const PreparedRun got = with_recomputation_of_rank_0(levels.at(5 + world.rank()), world);
    EXPECT_EQ(blocks_of(got).first, blocks_of(levels.at(5)).first);
    EXPECT_EQ(blocks_of(got).of_first, blocks_of(levels.at(5)).of_first);
    EXPECT_EQ(blocks_of(got).of_others, blocks_of(levels.at(5)).of_others);
  });
}

TEST(RecomputeBudget, ResumesToTheBitWithTheStoredPlan) {
  test::TemporaryPath folder;
  Config config = resolved(budget_config(folder / "straight"));
  const RecomputeLevels levels(prepared(config), machine_of(config));
  const Config straight = levels.at(levels.last() / 2).config();
  train_on_threads(straight);
  for (Config resumed : {straight, config}) {  // the plan need not stay
    resumed.output.dir = folder / describe_recomputation(resumed);
    resumed.checkpoint.resume = config.output.dir + "/checkpoints/step-5";
    train_on_threads(resumed);
    EXPECT_EQ(weights_of(resumed.output.dir + "/checkpoints/step-10"),
              weights_of(straight.output.dir + "/checkpoints/step-10"));
  }
}
