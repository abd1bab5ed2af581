// Routers that choose for themselves on a grid. Rounding differs there, so a choice may be another
// one than on one rank, but only between experts whose scores are almost equal.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/foundation/base/random.h"

#include "tests/support/family_reference.h"
#include "tests/support/one_rank_model.h"
#include "tests/support/sanitized.h"
#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

constexpr std::int64_t kChosen = 2;

/// Gives the experts of a router almost the same weights, so that their logits are large numbers,
/// rounded as such, whose differences are small.
void make_alike(const Context& ctx, Model& model) {
  for (ParameterGroup* group : model.groups()) {
    for (const auto& [spec, slice] : group->piece_slices()) {
      if (!spec->name.ends_with("mlp.gate.weight")) continue;
      const Random same(7, spec->name);
      for (std::int64_t i = 0; i < slice.count(); ++i) {
        float& weight = group->master().as<float>()[slice.offset + i];
        const std::int64_t column = slice.col + (slice.begin + i) % slice.cols;
        weight = static_cast<float>(1e-3 * weight + 0.2 * same.normal(column));
      }
    }
    group->publish_values(ctx);
  }
}

/// A step in which scores of a row's experts differ by about 2e-5. Its learning rate of 0 leaves
/// the weights as they are.
TinyRun undecided() {
  return {.sequences = sanitized() ? 48 : 288,
          .steps = 1,
          .lr = 0,
          .make_model = model_of(tiny_mixtral()),
          .before = make_alike};
}

/// The choices of both layers for all rows.
std::vector<reference::Routing> choices_of(const RoutingRecord& record, const TinyRun& run) {
  std::vector<reference::Routing> layers(2);
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    for (std::int64_t row = 0; row < run.sequences * run.positions; ++row) {
      std::vector<std::int32_t> ids(kChosen);
      record.get(static_cast<std::int64_t>(layer), row, kChosen, ids);
      layers[layer].ids.insert(layers[layer].ids.end(), ids.begin(), ids.end());
    }
  return layers;
}

struct FreeRun {
  TinyTrace trace;
  std::vector<reference::Routing> choices;
};

/// The run with routers that choose for themselves.
FreeRun run_freely(TinyRun run) {
  RoutingRecord record;
  run.record = &record;
  TinyTrace trace = run_tiny(run);
  return {std::move(trace), choices_of(record, run)};
}

/// The greatest amount by which a chosen expert's score is below the k-th best of its row,
/// according to a pass in double that repeats the choices.
double largest_gap(const FreeRun& of, const TinyRun& run, const reference::Weights& weights) {
  const ModelConfig model = resolved(tiny_mixtral(), run.vocab, run.positions);
  double largest = 0;
  for (const reference::Routing& layer :
       llama_pass(model, weights, first_ids(run), run.positions, of.choices).routings)
    for (std::int64_t row = 0; row < layer.scores.rows; ++row) {
      std::vector<double> best;
      double lowest = 1;
      for (std::int64_t i = 0; i < layer.scores.cols; ++i) best.push_back(layer.scores(row, i));
      for (std::int64_t j = 0; j < kChosen; ++j)
        lowest = std::min(lowest, best[layer.ids[row * kChosen + j]]);
      std::ranges::sort(best, std::greater());
      largest = std::max(largest, best[kChosen - 1] - lowest);
    }
  return largest;
}

/// The number of rows, over all layers, for which two runs chose differently.
std::int64_t flips(const FreeRun& a, const FreeRun& b) {
  std::int64_t count = 0;
  for (std::size_t layer = 0; layer < a.choices.size(); ++layer)
    for (std::size_t at = 0; at < a.choices[layer].ids.size(); at += kChosen)
      count += !std::equal(a.choices[layer].ids.begin() + at,
                           a.choices[layer].ids.begin() + at + kChosen,
                           b.choices[layer].ids.begin() + at);
  return count;
}

/// Of one rank, which also gives the weights.
std::pair<FreeRun, reference::Weights> on_one_rank(TinyRun run) {
  reference::Weights weights;
  run.after = [&](const Context&, Model& model) { weights = weights_of(model.groups()); };
  FreeRun one = run_freely(run);
  return {std::move(one), std::move(weights)};
}

TEST(ExpertChoices, DifferOnlyWhereScoresAreAlmostEqual) {
  TinyRun run = undecided();
  const auto [one, weights] = on_one_rank(run);
  EXPECT_LT(largest_gap(one, run, weights), 1e-5);
  for (GridShape shape : {GridShape{2, 2, 2, 1}, GridShape{1, 3, 2, 1}, GridShape{3, 2, 1, 1}}) {
    shape.experts = shape.z;
    run.grid = shape;
    const FreeRun got = run_freely(run);
    EXPECT_LT(largest_gap(got, run, weights), 1e-5) << to_string(shape);
    EXPECT_TRUE(sanitized() || flips(one, got) > 0) << "the scores test nothing";
    const auto rows = static_cast<double>(run.sequences * run.positions);
    EXPECT_LE(std::abs(got.trace.losses[0] / one.trace.losses[0] - 1),
              2e-6 + static_cast<double>(flips(one, got)) / rows)
        << to_string(shape);
  }
}

/// Gives every row experts 0 and 1.
class IgnoresScores : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void run(const RowwiseOperation& operation) override {
    const auto* route = std::get_if<ops::Route>(&operation);
    if (!route) return ForwardingBackend::run(operation);
    ops::Route given = *route;
    given.chosen = true;
    for (std::int64_t i = 0; i < given.ids.count(); ++i)
      given.ids.as<std::int32_t>()[i] = static_cast<std::int32_t>(i % kChosen);
    ForwardingBackend::run(given);
  }
};

TEST(ExpertChoices, OfOtherExpertsAreFound) {
  TinyRun run = undecided();
  run.make_backend = [] { return std::make_unique<IgnoresScores>(make_cpu_backend(1)); };
  const auto [one, weights] = on_one_rank(run);
  EXPECT_GT(largest_gap(one, run, weights), 1e-5);
}

}  // namespace
