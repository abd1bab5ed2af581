#include "axonn/run/train/loss_term.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/network/nn/loss.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/training.h"

#include "tests/support/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;

namespace {

/// Notes the calls, and sums two numbers over ranks: one from a micro-batch, one from the host.
class NotingTerm final : public LossTerm {
 public:
  NotingTerm(const char* name, double mine) : name_(name), mine_(mine) {}

  std::int64_t count() const override { return 2; }
  void begin_step(const StepInput&) override { calls.push_back("begin_step"); }
  void begin_pass(Context& ctx, const Rows&, const View& sums) override {
    calls.push_back("begin_pass");
    EXPECT_EQ(ctx.find<OutputZLoss>(), nullptr) << "of an earlier pass";
    ctx.attach(std::make_shared<OutputZLoss>());
    ctx.find<OutputZLoss>()->total = sums.col_range(0, 1);
  }
  void finish_pass(const Context& ctx) override {
    calls.push_back("finish_pass");
    EXPECT_NE(ctx.find<OutputZLoss>(), nullptr);
  }
  void finish_sums(const Context& ctx, const View& sums) override {
    calls.push_back("finish_sums");
    ctx.device().copy_from_host(sums.col_range(1, 1).data, &mine_, sizeof mine_);
  }
  std::vector<Metric> metrics(std::span<const double> sums, const StepInput&) const override {
    return {{.name = name_, .value = sums[1]}};
  }
  void before_update(const Context&, std::span<ParameterGroup* const> groups,
                     std::span<const double> sums) override {
    calls.push_back("before_update");
    EXPECT_FALSE(groups.empty());
    EXPECT_GT(sums[0], 0) << "the sum of squares of the loss's log-sums";
  }

  std::vector<std::string> calls;

 private:
  const char* name_;
  double mine_;
};

/// Sums a number in host memory.
class HostTerm final : public LossTerm {
 public:
  std::int64_t count() const override { return 1; }
  void begin_pass(Context&, const Rows&, const View&) override {}
  void finish_sums(const Context& ctx, const View& sums) override {
    const double seven = 7;
    ctx.device().copy_from_host(sums.data, &seven, sizeof seven);
  }
  std::vector<Metric> metrics(std::span<const double> sums, const StepInput&) const override {
    return {{.name = "host", .value = sums[0]}};
  }
};

}  // namespace

TEST(LossTerm, IsCalledInOrderAndItsSumsOverAllRanksAreMetrics) {
  Config config = on_grid(tiny_config("unused"), {2, 1, 2, 1});
  config.training.micro_batch = 3;  // two micro-batches of 12 sequences on two places
  const PreparedRun run = prepared(config);
  run_ranks(4, [&](Communicator& world) {
    Training training(run, world, make_cpu_backend(1));
    training.model.initialise();
    const Context ctx = training.model.context();
    LossTerms terms;
    terms.push_back(std::make_unique<NotingTerm>("ranks", 1));
    TrainStep step(training.model.model(), training.optimizer, std::move(terms));
    NotingTerm& term = *step.term<NotingTerm>();

    const StepInput input = training.input(0);
    const StepResult result = step.run(ctx, input);
    EXPECT_EQ(result.metric("ranks"), 4);
    EXPECT_TRUE(std::isnan(result.metric("none")));
    EXPECT_THAT(term.calls, ElementsAre("begin_step", "begin_pass", "finish_pass", "begin_pass",
                                        "finish_pass", "finish_sums", "before_update"));

    term.calls.clear();
    StepInput skipped = training.input(1);
    skipped.accept = [](double, double) { return false; };
    EXPECT_EQ(step.run(ctx, skipped).metric("ranks"), 4);
    EXPECT_THAT(term.calls, testing::Not(testing::Contains("before_update")));
    EXPECT_EQ(ctx.find<OutputZLoss>(), nullptr);
  });
}

TEST(LossTerm, SeveralHaveTheirOwnSums) {
  const PreparedRun run = prepared(tiny_config("unused"));
  run_ranks(1, [&](Communicator& world) {
    Training training(run, world, make_cpu_backend(1));
    training.model.initialise();
    LossTerms terms = make_loss_terms(training.model.model(), {.z_loss = 0.5});
    ASSERT_EQ(terms.size(), 1U);
    EXPECT_TRUE(make_loss_terms(training.model.model(), {}).empty());
    terms.insert(terms.begin(), std::make_unique<HostTerm>());
    TrainStep step(training.model.model(), training.optimizer, std::move(terms));
    const StepResult result = step.run(training.model.context(), training.input(0));
    ASSERT_EQ(result.metrics.size(), 2U);
    EXPECT_EQ(result.metrics[0].name, "host");
    EXPECT_EQ(result.metrics[0].value, 7);
    EXPECT_EQ(result.metrics[1].name, "output_z_loss");
    // The logits of 256 tokens are small at first, so their log-sum is close to that of zeros.
    EXPECT_NEAR(result.metrics[1].value, std::pow(std::log(256), 2), 0.5);
  });
}

/// Metrics are sums over ranks; the first step's do not depend on the weight, its gradient does.
TEST(LossTerm, OfFurtherTokensIsReportedBesideTheLoss) {
  std::vector<StepResult> results;
  for (const double weight : {0.3, 0.6}) {
    Config config = tiny_config("unused");
    config.model.family = ModelFamily::llama;
    config.model.mtp_layers = 2;
    config.training.mtp_weight = weight;
    config.parallelism.x = config.parallelism.data = results.empty() ? 1 : 2;
    const PreparedRun run = prepared(config);
    std::vector<StepResult> steps(run->parallelism.grid().ranks());
    run_ranks(run->parallelism.grid().ranks(), [&](Communicator& world) {
      Training training(run, world, make_cpu_backend(1));
      training.model.initialise();
      steps[world.rank()] = training.step.run(training.model.context(), training.input(0));
    });
    for (const StepResult& each : steps)
      EXPECT_EQ(each.metric("mtp_loss"), steps[0].metric("mtp_loss"));
    results.push_back(steps[0]);
  }
  // Of 256 tokens, over all rows but the last one or two of each sequence.
  const double length = tiny_config("unused").training.seq_len;
  EXPECT_NEAR(results[0].metric("mtp_loss"), (1 - 1.5 / length) * std::log(256), 0.05);
  EXPECT_NEAR(results[0].metric("mtp_loss"), results[1].metric("mtp_loss"), 1e-5);
  EXPECT_NEAR(results[0].loss, results[1].loss, 1e-5);
  EXPECT_GT(results[1].grad_norm, 1.01 * results[0].grad_norm);
}
