// A step whose loss is NaN: its origin is named, and it is saved and can be repeated.
#include "axonn/run/train/nonfinite.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/data/corpus/batches.h"
#include "axonn/foundation/options/options.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/validate.h"
#include "axonn/run/records/run_state.h"
#include "axonn/run/train/tune.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

namespace {

/// The call of an operation whose result becomes NaN: the n-th of this name in this layer.
struct Poison {
  std::string layer, operation;
  int nth = 0;
  bool once = false;  ///< only the first time; otherwise whenever the count starts again
};

class PoisonedBackend final : public ForwardingBackend {
 public:
  PoisonedBackend(std::unique_ptr<Backend> inner, std::optional<Poison> poison)
      : ForwardingBackend(std::move(inner)), poison_(std::move(poison)) {}

  void mark(std::string_view layer) override { layer_ = layer; }
  void begin_step() { count_ = 0; }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    run();
    if (!poison_ || layer_ != poison_->layer || call.name != poison_->operation) return;
    if (count_++ != poison_->nth) return;
    call.operands.front().as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    if (poison_->once) poison_.reset();
  }

 private:
  std::optional<Poison> poison_;
  std::string layer_;
  int count_ = 0;
};

/// What find_nonfinite() returns if an operation of step 0 fails on one rank.
std::string origin_of(const GridShape& grid, int rank, const Poison& poison) {
  Config config = on_grid(tiny_config("unused"), grid);
  config.training.micro_batch = 2;
  validate(config);
  config = resolved(config);
  std::vector<std::string> found(grid.ranks());
  run_ranks(grid.ranks(), [&](Communicator& world) {
    auto backend = std::make_unique<PoisonedBackend>(
        make_cpu_backend(1), world.rank() == rank ? std::optional(poison) : std::nullopt);
    PoisonedBackend& poisoned = *backend;
    Training training(prepared(config), world, std::move(backend));
    training.model.initialise();
    const StepInput input = training.input(0);
    EXPECT_FALSE(training.step.run(training.model.context(), input).finite);
    poisoned.begin_step();
    found[world.rank()] = find_nonfinite(training, input, training.batches->at(0)->micro_batches);
  });
  EXPECT_EQ(std::ranges::count(found, found.front()), std::ssize(found));
  return found.front();
}

/// A run whose first step makes weights so large that the second's products are infinite.
Config diverging(const std::string& folder) {
  Config config = tiny_config(folder);
  config.optimizer.lr = 1e30;
  config.lr_scheduler.warmup_steps = 0;
  config.training.micro_batch = 2;
  return config;
}

}  // namespace

TEST(Nonfinite, TheOriginIsTheOperationAndTheRankOnGridsOfEveryAxis) {
  // 12 samples, in micro-batches of 2.
  EXPECT_EQ(
      origin_of({}, 0, {.layer = "h.1.attn.c_attn.weight", .operation = "attention", .nth = 1}),
      "in layer h.1.attn.c_attn.weight, operation attention (forward), on rank 0 (x 0, y 0, z 0, "
      "data 0), micro-batch 2 of 6, samples 2 to 3");
  for (const int rank : {0, 1, 2, 3, 5, 7})
    EXPECT_THAT(origin_of({2, 2, 1, 2}, rank,
                          {.layer = "h.0.attn.c_attn.weight", .operation = "attention"}),
                AllOf(HasSubstr("in layer h.0.attn.c_attn.weight, operation attention (forward), "
                                "on rank " +
                                std::to_string(rank) + " ("),
                      HasSubstr(rank < 4 ? "of 3, samples 0 to 1" : "of 3, samples 6 to 7")));
}

TEST(Nonfinite, AnOriginInBackwardIsFoundBeforeSumsSpreadIt) {
  for (const int rank : {1, 2, 3})
    EXPECT_THAT(origin_of({1, 2, 2, 1}, rank,
                          {.layer = "h.1.attn.c_proj.weight", .operation = "attention_backward"}),
                ContainsRegex("in layer h.1.attn.c_proj.weight, operation attention_backward "
                              "\\(backward\\), on rank " +
                              std::to_string(rank) + " .*, micro-batch 1 of 3, samples " +
                              (rank < 2 ? "0 to 1" : "6 to 7")));
}

TEST(Nonfinite, AFaultThatDoesNotComeAgainHasNoOrigin) {
  EXPECT_EQ(
      origin_of({.x = 2}, 1, {.layer = "h.0.mlp.c_fc.weight", .operation = "matmul", .once = true}),
      "");
}

TEST(Nonfinite, WeightsThatWereNanBeforeTheStepAreNamed) {
  const Config config = resolved(on_grid(tiny_config("unused"), {.y = 2, .data = 2}));
  run_ranks(4, [&](Communicator& world) {
    Training training(prepared(config), world, make_cpu_backend(1));
    training.model.initialise();
    ParameterGroup& second = *training.model.model().groups()[2];
    if (world.rank() == 3) second.master().as<float>()[0] = std::numeric_limits<float>::infinity();
    second.publish_values(training.model.context());
    EXPECT_EQ(find_nonfinite(training, training.input(0), training.batches->at(0)->micro_batches),
              "in the weights of h.1.mlp.c_fc.weight, before the step, on rank 3 (x 0, y 1, z 0, "
              "data 1)");
  });
}

TEST(Nonfinite, TheRunEndsWithTheOriginAndSavesTheStep) {
  test::TemporaryPath folder;
  for (const GridShape grid : {GridShape{}, GridShape{2, 1, 2, 1}}) {
    const Config config = on_grid(diverging(folder / to_string(grid)), grid);
    const std::string failure = failure_of(config), saved = config.output.dir + "/nonfinite-step-2";
    EXPECT_THAT(failure,
                ContainsRegex("step 2: the loss is (nan|inf) and the gradient norm (nan|inf); it "
                              "arose first in layer [^ ]+, operation [a-z_]+ "
                              "\\((forward|backward)\\), on rank [0-3] \\(x "));
    EXPECT_THAT(failure, HasSubstr("axonn replay " + saved + " repeats the step. Lower"));
    const auto batch = nlohmann::json::parse(test::slurp(saved + "/step-1/batch.json"));
    ASSERT_EQ(batch.at("samples").size(), 12u);
    for (int i = 0; i < 12; ++i) {
      EXPECT_EQ(batch["samples"][i].at("sample"), 12 + i);
      EXPECT_EQ(batch["samples"][i].at("ids").size(), 8u);
      EXPECT_THAT(std::string(batch["samples"][i].at("where")), HasSubstr("token "));
    }
  }
}

TEST(Nonfinite, AStepThatCannotBeSavedDoesNotHideTheOrigin) {
  test::TemporaryPath folder;
  const Config config = on_grid(diverging(folder / "out"), {.x = 2, .data = 2});
  std::filesystem::create_directories(config.output.dir);
  test::spill(config.output.dir + "/nonfinite-step-2", "in the way");
  EXPECT_THAT(failure_of(config),
              ContainsRegex("it arose first in layer .* on rank .*The step could not be saved: .*"
                            "nonfinite-step-2"));
}

TEST(Nonfinite, ASavedStepIsRepeatedToTheBitAndOnAnotherGrid) {
  test::TemporaryPath folder;
  Config config = on_grid(tiny_config(folder / "out"), {2, 1, 2, 1});
  config.training.micro_batch = 3;
  config = resolved(config);
  StepResult want;
  run_ranks(4, [&](Communicator& world) {
    Training training(prepared(config), world, make_cpu_backend(1));
    training.model.initialise();
    for (int step = 0; step < 3; ++step) training.run(step);
    const StepInput input = training.input(3);
    save_step(training, input, folder / "saved",
              {{"config.toml", config_toml(config, Origins())}, {"state.json", "{}"}});
    const StepResult result = training.step.run(training.model.context(), input);
    if (world.rank() == 0) want = result;
  });
  const auto again = [&](const Config& with) {
    Replay report;
    run_ranks(with.parallelism.grid().ranks(), [&](Communicator& world) {
      const Replay mine = replay(prepared(with), folder / "saved", world);
      if (world.rank() == 0) report = mine;
    });
    EXPECT_EQ(report.step, 4);
    EXPECT_EQ(report.origin, "");
    return report.result;
  };
  const Config same = config_of_step(folder / "saved");
  EXPECT_EQ(again(same).loss, want.loss);
  EXPECT_EQ(again(same).grad_norm, want.grad_norm);
  Config other = on_grid(same, {1, 2, 1, 3});
  other.training.micro_batch = 0;
  EXPECT_NEAR(again(other).loss / want.loss, 1, 1e-5);  // sums in another order
}

TEST(Nonfinite, ASavedStepIsRepeatedWithTheTunedProductsOfItsRun) {
  test::TemporaryPath folder;
  Config config = tiny_config(folder / "out");
  config.training.tune = true;
  config = resolved(config);
  MatmulChoices choices;
  StepResult want;
  run_ranks(1, [&](Communicator& world) {
    Training training(prepared(config), world, make_cpu_backend(1));
    training.model.initialise();
    choices = tune(training, {});
    Backend& backend = training.model.backend();
    for (TunedMatmul& product : choices.products) {
      product.way = backend.matmul_ways(product.shape).back();
      ASSERT_TRUE(backend.set_matmul_way(product.shape, product.way));
    }
    save_step(training, training.input(0), folder / "saved",
              to_texts({.products = choices}, config_toml(config, Origins())));
    want = training.run(0);
  });
  run_ranks(1, [&](Communicator& world) {
    const Replay report =
        replay(prepared(config_of_step(folder / "saved")), folder / "saved", world);
    EXPECT_EQ(report.result.loss, want.loss);
    EXPECT_EQ(report.tuned_products, std::ssize(choices.products));
    EXPECT_GT(report.tuned_products, 0);
  });
}
