#include "axonn/plan/measure/coordinate_check.h"

#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/train/training.h"
#include "axonn/run/train/watching_backend.h"

namespace axonn {

namespace {

/// The results of products, in the order of the pass, with their layers.
using Outputs = std::vector<std::pair<std::string, std::vector<float>>>;

PreparedRun at_width(Config config, std::int64_t width) {
  ModelConfig& m = config.model;
  const std::int64_t was = m.hidden;
  if (m.mup_base_head_dim > 0) {
    if (width % m.heads != 0)
      refuse("--widths: ", m.heads, " heads do not divide a width of ", width);
    m.head_dim = width / m.heads;
  } else {
    if (m.heads * width % was != 0 || m.kv_heads * width % was != 0)
      refuse("--widths: a width of ", width, " does not scale the ", m.heads, " heads and ",
             m.kv_heads, " key-value heads of a width of ", was);
    m.heads = m.heads * width / was;
    m.kv_heads = m.kv_heads * width / was;
  }
  m.ffn = m.ffn * width / was;
  m.expert_ffn = m.expert_ffn * width / was;
  m.hidden = width;
  m.name.clear();
  return prepared(std::move(config));
}

/// The results of the products of a forward pass, but for those of experts.
Outputs outputs_of(Training& training, const Tokens& tokens) {
  Outputs outputs;
  WatchingBackend watching(
      training.model.backend(), [&](const WatchingBackend::Operation& operation) {
        const bool of_experts = operation.layer.find(".experts.") != std::string_view::npos;
        if (operation.name != Matmul::kName || of_experts) return;
        std::vector<float>& values = outputs.emplace_back(operation.layer, 0).second;
        training.model.backend().on_host(
            {.name = "outputs", .inputs = {operation.result}, .compute = [&](Views, Views all) {
               for (std::int64_t row = 0; row < all[0].rows; ++row)
                 for (std::int64_t col = 0; col < all[0].cols; ++col)
                   values.push_back(float_at(all[0].data, all[0].dtype, row * all[0].stride + col));
             }});
      });
  training.model.model().target_losses(training.model.context_on(watching), tokens);
  return outputs;
}

/// The root mean square by which each layer's outputs change in `steps` steps.
std::vector<std::pair<std::string, double>> changes_of(const PreparedRun& run, int steps) {
  const auto world = make_self();
  Training training(run, *world);
  training.model.initialise();
  const Tokens tokens = training.input(0).tokens_of(0);
  const Outputs before = outputs_of(training, tokens);
  for (int step = 0; step < steps; ++step) {
    StepInput input = training.input(step);
    input.lr = run->optimizer.lr;
    training.step.run(training.model.context(), input);
  }
  training.model.settle();
  const Outputs after = outputs_of(training, tokens);
  AXONN_CHECK(before.size() == after.size(), "two passes differ in their products");
  std::vector<std::pair<std::string, double>> changes;
  std::vector<double> counts;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto& [layer, old] = before[i];
    if (changes.empty() || changes.back().first != layer) {
      changes.emplace_back(layer, 0);
      counts.push_back(0);
    }
    for (std::size_t k = 0; k < old.size(); ++k)
      changes.back().second += std::pow(double{after[i].second[k]} - old[k], 2);
    counts.back() += static_cast<double>(old.size());
  }
  for (std::size_t i = 0; i < changes.size(); ++i)
    changes[i].second = std::sqrt(changes[i].second / counts[i]);
  return changes;
}

/// The slope of the line with the least squared distance to (log widths, log values).
double slope_of(const std::vector<std::int64_t>& widths, const std::vector<double>& values) {
  double x = 0, y = 0, xx = 0, xy = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const double a = std::log(static_cast<double>(widths[i])), b = std::log(values[i]);
    x += a;
    y += b;
    xx += a * a;
    xy += a * b;
  }
  const auto n = static_cast<double>(widths.size());
  return (n * xy - x * y) / (n * xx - x * x);
}

}  // namespace

std::vector<LayerChange> coordinate_check(const Config& config,
                                          const std::vector<std::int64_t>& widths, int steps) {
  Config base = config;
  base.parallelism.set_grid({});
  base.parallelism.context = base.parallelism.experts = 1;
  base.parallelism.device = DeviceKind::cpu;
  base.training.micro_batch = 0;
  std::vector<LayerChange> layers;
  for (const std::int64_t width : widths) {
    const auto changes = changes_of(at_width(base, width), steps);
    if (layers.empty())
      for (const auto& [layer, change] : changes) layers.push_back({.layer = layer, .changes = {}});
    AXONN_CHECK(layers.size() == changes.size(), "models of other widths differ in their layers");
    for (std::size_t i = 0; i < layers.size(); ++i) layers[i].changes.push_back(changes[i].second);
  }
  for (LayerChange& layer : layers) layer.slope = slope_of(widths, layer.changes);
  return layers;
}

std::string coordinate_table(const std::vector<LayerChange>& layers,
                             const std::vector<std::int64_t>& widths) {
  std::string text = fmt::format("{:<40}", "change of a layer's outputs at width");
  for (const std::int64_t width : widths) text += fmt::format(" {:>9}", width);
  text += fmt::format(" {:>7}\n", "slope");
  for (const LayerChange& layer : layers) {
    text += fmt::format("{:<40}", layer.layer);
    for (const double change : layer.changes) text += fmt::format(" {:>9.2e}", change);
    text += fmt::format(" {:>7.2f}{}\n", layer.slope,
                        std::abs(layer.slope) <= kMostSlope ? "" : "  depends on the width");
  }
  return text;
}

}  // namespace axonn
