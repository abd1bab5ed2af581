#include "axonn/run/train/training.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::Contains;
using testing::HasSubstr;
using testing::Key;
using testing::MatchesRegex;
using testing::ThrowsMessage;

namespace {

void with_training(const Config& given, const std::function<void(Training&)>& body) {
  const PreparedRun run = prepared(given);
  run_ranks(run->parallelism.grid().ranks(), [&](Communicator& world) {
    Training training(run, world, make_cpu_backend(1));
    training.model.initialise();
    body(training);
  });
}

struct Validation {
  double loss = 0;
  std::int64_t windows = 0;
};

Validation validation_of(const Config& config) {
  Validation result;
  with_training(config, [&](Training& training) {
    const Validation mine{training.validate(), training.validation_windows()};
    if (training.model.grid().world().rank() == 0) result = mine;
  });
  return result;
}

std::vector<float> copy_of(const View& view) {
  const float* data = view.as<float>();
  return {data, data + view.count()};
}

/// The message of the Error that f(training) throws, for a training that is not initialised.
std::string refusal_of(const Config& config, const std::function<void(Training&)>& f,
                       const TrainingOptions& options = {}) {
  const auto world = make_self();
  try {
    Training training(prepared(config), *world, make_cpu_backend(1), options);
    f(training);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST(Training, RefusesToTrainEvaluateOrSaveParametersWithoutValues) {
  const Config config = tiny_config("unused");
  const auto wanted = HasSubstr("call LoadedModel::initialise() or load_checkpoint() before");
  EXPECT_THAT(refusal_of(config, [](Training& t) { t.run(0); }), wanted);
  EXPECT_THAT(refusal_of(config, [](Training& t) { t.validate(); }), wanted);
  EXPECT_THAT(refusal_of(config, [](Training& t) { save_checkpoint(t, "unused", 1); }), wanted);
}

TEST(Training, RefusesWhatItsDataDoNotHave) {
  Config config = tiny_config("unused");
  config.data.validation = {};
  EXPECT_THAT(refusal_of(config, [](Training& t) { t.validate(); }),
              HasSubstr("there is no validation data; set data.validation"));
  EXPECT_THAT(refusal_of(config, [](Training& t) { t.validate_averages(); }),
              HasSubstr("there is no validation data"));
  EXPECT_THAT(refusal_of(config, [](Training& t) { t.input(-1); }),
              HasSubstr("there is no step -1"));
  EXPECT_THAT(refusal_of(config, [](Training& t) { t.input(0); }, {.data = false}),
              HasSubstr("there is no data, since TrainingOptions::data is false"));
  EXPECT_THAT(refusal_of(config, [](Training& t) { t.step.run(t.model.context(), {}); }),
              HasSubstr("wants tokens_of, at least one micro-batch and a token"));
}

TEST(Training, ValidationCountsEveryWindowOnceOnEveryGridAndForEveryMicroBatch) {
  Config config = tiny_config("unused");
  config.data.synthetic = 2960;  // its last tenth: 296 tokens, 36 windows of 8 targets, 7 left over
  config.training.global_batch = 7 * 12;
  config.training.micro_batch = 1;
  const Validation one_by_one = validation_of(config);
  EXPECT_EQ(one_by_one.windows, 36);
  for (const int micro : {5, 7, 12, 84})
    for (const GridShape grid : {GridShape{}, GridShape{.z = 7}, GridShape{2, 1, 2, 2}}) {
      Config cut = on_grid(config, grid);
      cut.training.micro_batch = micro;
      cut.training.global_batch = std::int64_t{micro} * grid.z * grid.data;
      // A sum of 288 losses in another order.
      EXPECT_NEAR(validation_of(cut).loss / one_by_one.loss, 1, 1e-6)
          << to_string(grid) << " micro-batch " << micro;
    }
}

TEST(Training, ValidationUsesAtMostEvalBatches) {
  Config config = tiny_config("unused");
  config.training.eval_batches = 2;
  EXPECT_EQ(validation_of(config).windows, 24);
  config.training.eval_batches = 1'000'000;
  EXPECT_EQ(validation_of(config).windows, 249);  // of 2,000 tokens
}

TEST(TrainStep, AStepWithNanChangesNoParameter) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 2, 1, 1}, GridShape{.z = 2, .data = 2}})
    with_training(on_grid(tiny_config("unused"), grid), [&](Training& training) {
      ParameterGroup& second = *training.model.model().groups()[2];
      second.master().as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      second.publish_values(training.model.context());
      std::vector<std::vector<float>> before;
      for (const ParameterGroup* group : training.model.model().groups())
        before.push_back(copy_of(group->master()));

      StepInput input = training.input(0);
      input.lr = 1;
      const StepResult result = training.step.run(training.model.context(), input);
      EXPECT_FALSE(result.finite);
      EXPECT_FALSE(result.applied);
      for (std::size_t i = 0; i < before.size(); ++i)
        for (std::size_t e = 0; e < before[i].size(); ++e) {
          const float now = training.model.model().groups()[i]->master().as<float>()[e];
          EXPECT_TRUE(now == before[i][e] || std::isnan(before[i][e]));
        }
    });
}

TEST(TrainStep, OverZATiedEmbeddingIsGatheredForEachForwardUseAndSummedOnce) {
  for (const int micro_batches : {1, 3}) {
    Config config = on_grid(tiny_config("unused"), {.z = 2});
    config.training.global_batch = 12;
    config.training.micro_batch = 6 / micro_batches;
    with_training(config, [&](Training& training) {
      EXPECT_TRUE(training.model.config().model.tied);
      const auto calls = [&] { return training.model.grid().along(Axis::z).stats().calls; };
      const std::int64_t before = calls();
      training.step.run(training.model.context(), training.input(0));
      const std::int64_t blocks = training.model.config().model.layers;
      // Gathers: twice for the embedding, in both passes for a block, once for the last norm. One
      // sum for each.
      EXPECT_EQ(calls() - before, micro_batches * (2 + 2 * blocks + 1 + blocks + 2));
    });
  }
}

TEST(TrainStep, NoStepAfterTheSecondHasAProductOfANewShape) {
  const Config config = tiny_config("unused");
  with_training(config, [&](Training& training) {
    RecordingBackend first(training.model.backend()), later(training.model.backend());
    for (int step = 0; step < 2; ++step)
      training.step.rehearse(training.model.context_on(first), training.input(step));
    for (int step = 2; step < 5; ++step)
      training.step.rehearse(training.model.context_on(later), training.input(step));
    EXPECT_FALSE(later.counts().empty());
    for (const auto& [shape, calls] : later.counts())
      EXPECT_THAT(first.counts(), Contains(Key(shape))) << to_string(shape);
  });
}

TEST(Training, ATokenAboveTheVocabularyEndsAllRanksAndNamesTheRank) {
  test::TemporaryPath folder;
  std::vector<std::int32_t> tokens(13 * 8 + 1, 97);
  tokens[8 * 7 + 3] = 300;  // in sequence 8 of step 1, which z 1 reads
  write_token_file(folder / "tokens.bin", tokens);
  Config config = on_grid(tiny_config(folder / "out"), {.x = 2, .z = 2});
  config.data = {.tokens = {folder / "tokens.bin"}, .validation = "0", .shuffle = false};
  EXPECT_THAT(failure_of(config), MatchesRegex("rank [23]: token 59 of .*/tokens.bin is 300, but "
                                               "the model's vocabulary has 256 tokens; .*"));
}
