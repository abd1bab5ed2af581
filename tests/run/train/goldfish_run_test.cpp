// Training with the goldfish loss, the mean over the targets that it keeps; the same on every grid.
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/data/corpus/batches.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/plan/measure/compare.h"
#include "axonn/plan/measure/dry_run.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/training.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::Each;
using testing::HasSubstr;

namespace {

Config goldfish_config(const std::string& folder, GoldfishMask mask = GoldfishMask::hash) {
  Config config = tiny_config(folder);
  config.training.goldfish = {.k = 2, .h = 5, .mask = mask};
  return config;
}

}  // namespace

TEST(GoldfishTraining, HasTheLossesOfOneRankOnEveryGridAndForEveryMicroBatch) {
  test::TemporaryPath folder;
  for (const auto mask :
       {GoldfishMask::hash, GoldfishMask::position, GoldfishMask::seeded, GoldfishMask::apertus}) {
    const Config config = goldfish_config(folder / "run", mask);
    const std::vector<double> one = first_losses(config);
    EXPECT_NE(one, first_losses(tiny_config(folder / "run"))) << "goldfish changes no loss";
    for (const GridShape grid :
         {GridShape{.z = 2}, GridShape{.data = 3}, GridShape{2, 1, 2, 1}, GridShape{2, 2, 1, 2}})
      EXPECT_LE(largest_difference(first_losses(on_grid(config, grid)), one), 1e-5)
          << to_string(grid);
    Config cut = config;
    cut.training.micro_batch = 3;
    EXPECT_LE(largest_difference(first_losses(cut), one), 1e-5)
        << "micro-batches keep different numbers of targets";
  }
}

TEST(GoldfishTraining, CountsKeptTargetsOverAllRanks) {
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 3}}) {
    const Config config = on_grid(goldfish_config(folder / "run"), grid);
    run_ranks(grid.ranks(), [&](Communicator& world) {
      Training training(prepared(config), world, make_cpu_backend(1));
      for (int step = 0; step < 2; ++step) {
        // Count the kept targets of the masked sequences directly.
        const SequenceMask mask = make_goldfish(config.training.goldfish, config.training.seed,
                                                *training.corpora.front());
        std::int64_t kept = 0;
        Sequence one;
        for (std::int64_t n = step * 12; n < (step + 1) * 12; ++n) {
          training.batches->sources().front().sequences->read(n, one);
          mask(n, one);
          kept += std::ranges::count_if(one.targets, [](std::int32_t t) { return t >= 0; });
        }
        const StepInput input = training.input(step);
        EXPECT_EQ(input.tokens, kept);
        EXPECT_EQ(input.all_targets, 12 * config.training.seq_len);
      }
    });
  }
}

TEST(GoldfishTraining, ReportsTheFractionOfKeptTargetsAndValidatesOnAll) {
  test::TemporaryPath folder;
  Config config = goldfish_config(folder / "run");
  config.optimizer.lr = 1e-9;  // so that both runs end with the same parameters
  config.training.eval_every = 10;
  train_on_threads(config);
  const std::vector<double> kept = column(metrics_of(config), "goldfish_kept");
  ASSERT_EQ(kept.size(), 10u);
  // About half of the targets, but the first h of each sequence are all kept.
  const double rows = 12.0 * static_cast<double>(config.training.seq_len),
               expected = 0.5 + 0.5 * 4 / static_cast<double>(config.training.seq_len);
  for (const double share : kept) EXPECT_NEAR(share, expected, 5 * std::sqrt(0.25 / rows));
  Config plain = tiny_config(folder / "plain");
  plain.optimizer.lr = 1e-9;
  plain.training.eval_every = 10;
  train_on_threads(plain);
  EXPECT_NEAR(metrics_of(config).back().at("val_loss").get<double>() /
                  metrics_of(plain).back().at("val_loss").get<double>(),
              1, 1e-6);
  EXPECT_FALSE(metrics_of(plain).back().contains("goldfish_kept"));
}

TEST(GoldfishTraining, ADryRunShowsWhatTheLossLeavesOut) {
  test::TemporaryPath folder;
  Config config = goldfish_config(folder / "run");
  config.training.seq_len = 40;
  EXPECT_THAT(dry_run(prepared(config), 0).target, HasSubstr("..."));
  EXPECT_THAT(dry_run(prepared(tiny_config(folder / "plain")), 0).target,
              testing::Not(HasSubstr("...")));
}
