// muP: a layer's outputs change alike whatever the width. Without muP they do not.
#include "axonn/plan/measure/coordinate_check.h"

#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/train/training.h"

#include "tests/support/runs.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

namespace {

const std::vector<std::int64_t> kWidths = {48, 96, 192};

Config config_of(std::int64_t mup_base) {
  Config config = tiny_config("unused");
  config.model.mup_base = mup_base;
  config.optimizer.lr = 3e-3;
  config.training.threads = 1;
  return config;
}

double largest_slope(const std::vector<LayerChange>& layers) {
  double largest = 0;
  for (const LayerChange& layer : layers) largest = std::max(largest, std::abs(layer.slope));
  return largest;
}

}  // namespace

TEST(CoordinateCheck, PassesWithMupAndFindsThatALayerDependsOnTheWidthWithout) {
  EXPECT_LE(largest_slope(coordinate_check(config_of(48), kWidths, 5)), kMostSlope);
  EXPECT_GT(largest_slope(coordinate_check(config_of(0), kWidths, 5)), 2 * kMostSlope);
}

TEST(CoordinateCheck, PassesWithWiderHeadsInsteadOfMore) {
  Config config = config_of(48);
  config.model.mup_base_head_dim = 48 / config.model.heads;
  EXPECT_LE(largest_slope(coordinate_check(config, kWidths, 5)), kMostSlope);
}

TEST(CoordinateCheck, RefusesWidthsThatDoNotSuitTheHeads) {
  EXPECT_THAT(
      [] {
        coordinate_check(config_of(48), {48, 49}, 1);
      },
      ThrowsMessage<UsageError>(HasSubstr("a width of 49")));
}

TEST(CoordinateCheck, TakesOneRankWhateverTheGridAndLeavesOutTheProductsOfExperts) {
  Config config = config_of(48);
  config.model.family = ModelFamily::llama;
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 48;
  config.parallelism.z = config.parallelism.experts = 2;
  std::vector<std::string> layers;
  for (const LayerChange& layer : coordinate_check(config, {48}, 3)) layers.push_back(layer.layer);
  EXPECT_THAT(layers, Contains(HasSubstr("mlp.gate.weight")));
  EXPECT_THAT(layers, Not(Contains(HasSubstr(".experts."))));
}

TEST(CoordinateCheck, TableHasALineForEachLayerWithItsSlope) {
  const std::string table =
      coordinate_table({{"h.0", {0.25, 0.25}, 0}, {"h.1", {0.25, 0.5}, 1}}, {64, 128});
  EXPECT_THAT(table, AllOf(HasSubstr("64       128"), HasSubstr("h.0"),
                           HasSubstr("1.00  depends on the width")));
}

TEST(Mup, StepsAreThoseOfTheAuthorsAdamWWithAnEpsThatFallsAsTheGradientsDo) {
  // mup's MuAdamW: the products of blocks have the rate lr / m and the decay m · weight_decay. All
  // gradients fall as 1 / m, so eps does for all parameters. In Adam's first step the moments give
  // gradient / (|gradient| + eps).
  constexpr double kFactor = 2, kRate = 1e-2, kEps = 1e-3, kDecay = 0.3;
  Config config = config_of(0);
  config.model.mup_base = config.model.hidden / 2;
  config.optimizer.weight_decay = kDecay;
  config.optimizer.eps = kEps;
  const auto world = make_self();
  Training training(prepared(config), *world);
  training.model.initialise();
  const Context ctx = training.model.context();
  StepInput input = training.input(0);
  input.lr = kRate;
  input.max_norm = 0;
  std::vector<std::vector<float>> before, gradients;
  input.accept = [&](double, double) {
    for (const ParameterGroup* group : training.optimizer.groups()) {
      const auto copy = [&](const View& view) {
        return std::vector<float>(view.as<float>(), view.as<float>() + view.cols);
      };
      before.push_back(copy(group->master()));
      gradients.push_back(copy(group->gradient()));
    }
    return true;
  };
  training.step.run(ctx, input);
  for (std::size_t g = 0; g < before.size(); ++g) {
    const ParameterGroup& group = *training.optimizer.groups()[g];
    const bool block = group.name().starts_with("h.");
    const std::int64_t decayed = group.decayed();
    for (std::int64_t i = 0; i < group.piece_size(); ++i) {
      const double scaled = block && i < decayed ? kFactor : 1, gradient = gradients[g][i],
                   weight = before[g][i], rate = kRate / scaled,
                   decay = i < decayed ? kDecay * scaled : 0,
                   step =
                       rate * (gradient / (std::abs(gradient) + kEps / kFactor) + decay * weight),
                   moved = weight - group.master().as<float>()[i];
      // The weight is rounded, and so are the moments' corrections.
      ASSERT_NEAR(moved, step, 1e-5 * std::abs(step) + 6e-8 * (std::abs(weight) + 1e-3))
          << group.name() << " element " << i;
    }
  }
}
