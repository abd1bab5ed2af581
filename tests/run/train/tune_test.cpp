#include "axonn/run/train/tune.h"

#include <mutex>

#include <gmock/gmock.h>

#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

namespace {

/// A model large enough that its products can be computed in several ways.
Config small_config(const std::string& folder) {
  Config config = tiny_config(folder);
  config.model.hidden = 48;
  config.training.seq_len = 16;
  config.training.tune = true;
  config.training.tune_cache = folder + "/cache.json";
  return config;
}

struct Tuned {
  std::vector<MatmulChoices> choices;  // by rank
  std::vector<std::string> lines;      // reported on rank 0
};

Tuned tune_on_threads(const Config& given, const TuneOptions& options) {
  const Config config = resolved(given);
  Tuned tuned{.choices = std::vector<MatmulChoices>(config.parallelism.grid().ranks()),
              .lines = {}};
  run_ranks(static_cast<int>(tuned.choices.size()), [&](Communicator& world) {
    Training training(prepared(config), world, make_cpu_backend(1));
    training.model.initialise();
    TuneOptions mine = options;
    mine.report = [&](const std::string& line) { tuned.lines.push_back(line); };
    tuned.choices[world.rank()] = tune(training, mine);
  });
  return tuned;
}

/// Writes a cache that chooses way `pick` of the available ones for each of these products.
void write_cache(const std::string& path, const MatmulChoices& products,
                 const std::function<std::string(const std::vector<std::string>&)>& pick) {
  const auto backend = make_cpu_backend(1);
  MatmulChoices choices = products;
  choices.device = backend->matmul_device();
  for (TunedMatmul& product : choices.products)
    product.way = pick(backend->matmul_ways(product.shape));
  MatmulCache(path).keep(choices);
}

std::string first_of(const std::vector<std::string>& ways) { return ways.front(); }
std::string last_of(const std::vector<std::string>& ways) { return ways.back(); }

std::vector<std::string> ways_in(const std::string& json) {
  std::vector<std::string> ways;
  for (const TunedMatmul& product : parse_matmul_choices(json, "products.json").products)
    ways.push_back(to_string(product.shape) + " as " + product.way);
  return ways;
}

}  // namespace

TEST(Tune, FindsEveryProductOfAStepInForwardAndBothGradients) {
  test::TemporaryPath folder;
  const auto products = tune_on_threads(small_config(folder.path()), {}).choices.front().products;
  std::map<std::string, int> calls;
  for (const TunedMatmul& product : products) calls[to_string(product.shape)] = product.calls;
  // 12 sequences of 16 tokens, width 48, MLP 192, vocabulary 256, two layers. The logits of all 192
  // rows are computed at once.
  EXPECT_EQ(calls, (std::map<std::string, int>{{"f32 NT 192x144x48 + bias", 2},
                                               {"f32 NT 192x48x48 + bias", 2},
                                               {"f32 NT 192x192x48 + bias", 2},
                                               {"f32 NT 192x48x192 + bias", 2},
                                               {"f32 NT 192x256x48", 1},
                                               {"f32 NN 192x48x256", 1},
                                               {"f32 TN 256x48x192", 1},
                                               {"f32 NN 192x192x48", 2},
                                               {"f32 TN 48x192x192", 2},
                                               {"f32 NN 192x48x192", 2},
                                               {"f32 TN 192x48x192", 2},
                                               {"f32 NN 192x48x48", 2},
                                               {"f32 TN 48x48x192", 2},
                                               {"f32 NN 192x48x144", 2},
                                               {"f32 TN 144x48x192", 2}}));
}

TEST(Tune, FindsTheProductsThatAddToGradientsIfThereAreSeveralMicroBatches) {
  test::TemporaryPath folder;
  Config config = small_config(folder.path());
  config.training.micro_batch = 4;
  std::map<std::string, int> calls;
  const Tuned tuned = tune_on_threads(config, {});
  for (const TunedMatmul& product : tuned.choices.front().products)
    calls[to_string(product.shape)] = product.calls;
  EXPECT_EQ(calls["f32 TN 256x48x64"], 1);
  EXPECT_EQ(calls["f32 TN 256x48x64 +="], 1);
  EXPECT_EQ(calls["f32 NT 64x256x48"], 2);
}

TEST(Tune, ChoosesTheSameOnAllRanksOfEveryGrid) {
  test::TemporaryPath folder;
  for (const GridShape& grid : {GridShape{.x = 2, .y = 2}, GridShape{.z = 2, .data = 2}}) {
    const Tuned tuned = tune_on_threads(on_grid(small_config(folder.path()), grid), {});
    EXPECT_GT(tuned.choices.front().products.size(), 5u);
    for (const MatmulChoices& choices : tuned.choices)
      EXPECT_EQ(to_json(choices), to_json(tuned.choices.front()));
  }
}

TEST(Tune, UsesTheCacheAndTimesTheRest) {
  test::TemporaryPath folder;
  const Config config = small_config(folder.path());
  const TuneOptions options{.cache = config.training.tune_cache};
  const MatmulChoices all = tune_on_threads(config, {}).choices.front();
  MatmulChoices some = all;
  some.products.resize(4);
  write_cache(options.cache, some, last_of);
  const Tuned tuned = tune_on_threads(config, options);
  EXPECT_THAT(tuned.lines, Contains("products: 11 timed, 4 known from before"));
  EXPECT_EQ(tuned.choices.front().find(some.products[0].shape)->way,
            make_cpu_backend(1)->matmul_ways(some.products[0].shape).back());
  EXPECT_THAT(tune_on_threads(config, options).lines,
              Contains("products: 0 timed, 15 known from before"));
  const TuneOptions anew{.cache = options.cache, .again = true};
  EXPECT_THAT(tune_on_threads(config, anew).lines,
              Contains("products: 15 timed, 0 known from before"));
}

TEST(Tune, TimesAProductAgainIfItsWayIsUnknown) {
  test::TemporaryPath folder;
  const Config config = small_config(folder.path());
  const MatmulChoices all = tune_on_threads(config, {}).choices.front();
  write_cache(config.training.tune_cache, all, [](const auto&) { return "heuristic 1"; });
  EXPECT_THAT(tune_on_threads(config, {.cache = config.training.tune_cache}).lines,
              ElementsAre(AllOf(HasSubstr("products: 15 stored choices are timed again, because "),
                                EndsWith(" as 'heuristic 1'")),
                          "products: 15 timed, 0 known from before"));
}

TEST(Tune, WarnsOfADamagedCacheAndTrains) {
  test::TemporaryPath folder;
  Config config = small_config(folder.path());
  config.training.steps = 2;
  config.lr_scheduler.warmup_steps = 0;
  test::spill(config.training.tune_cache, "{no JSON");
  train_on_threads(config);
  EXPECT_EQ(metrics_of(config).size(), 2u);
  EXPECT_THAT(test::slurp(config.output.dir + "/logs/rank-0.log"), HasSubstr("ignored"));
}

TEST(Tune, ChangesNoBitIfTheDefaultWaysAreChosen) {
  for (const GridShape& grid : {GridShape{}, GridShape{.x = 2, .z = 2, .data = 2}}) {
    test::TemporaryPath plain_folder, folder;
    Config config = on_grid(small_config(folder.path()), grid), plain = config;
    plain.output.dir = plain_folder.path();
    plain.training.tune = false;
    write_cache(config.training.tune_cache, tune_on_threads(config, {}).choices.front(), first_of);
    train_on_threads(plain);
    train_on_threads(config);
    EXPECT_EQ(column(metrics_of(config), "loss"), column(metrics_of(plain), "loss"));
    EXPECT_EQ(column(metrics_of(config), "grad_norm"), column(metrics_of(plain), "grad_norm"));
  }
}

TEST(Tune, IsStoredWithTheRunAndReusedOnResumeDespiteTheCache) {
  test::TemporaryPath folder, whole_folder;
  Config config = small_config(folder.path()), whole = config;
  whole.output.dir = whole_folder.path();
  const MatmulChoices all = tune_on_threads(config, {}).choices.front();
  write_cache(config.training.tune_cache, all, last_of);
  train_on_threads(whole);
  const std::string kept = test::slurp(whole.output.dir + "/products.json");
  EXPECT_EQ(test::slurp(whole.output.dir + "/checkpoints/step-5/products.json"), kept);

  write_cache(config.training.tune_cache, all, first_of);
  config.checkpoint.resume = whole.output.dir + "/checkpoints/step-5";
  train_on_threads(config);
  EXPECT_EQ(ways_in(test::slurp(config.output.dir + "/products.json")), ways_in(kept));
  const auto losses = column(metrics_of(whole), "loss"),
             resumed = column(metrics_of(config), "loss");
  EXPECT_EQ(resumed, std::vector(losses.begin() + 5, losses.end()));
}
