#include "axonn/run/train/expert_balance.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "axonn/foundation/base/check.h"
#include "axonn/run/train/step.h"

namespace axonn {

ExpertBalance::ExpertBalance(const Routers& routers, const BalanceConfig& config)
    : routers_(routers),
      config_(config),
      routing_(std::make_shared<Routing>(Routing::Options{.balance = config,
                                                          .layers = std::ssize(routers.biases),
                                                          .experts = routers.experts,
                                                          .per_row = routers.per_row})) {
  if (config.bias > 0 && std::ranges::count(routers.biases, nullptr) > 0)
    refuse("[training] balance.bias = ", config.bias,
           " moves the routers' biases, but the model "
           "has none; set model.router_bias = true, or leave balance.bias out");
}

std::string ExpertBalance::graph_obstacle() const {
  return "how many tokens each expert gets is only known in the step, and a graph cannot wait for "
         "that";
}

void ExpertBalance::begin_step(const StepInput& input) {
  routing_->begin_step(input.inputs, input.end_row, input.loss_scale);
}

void ExpertBalance::begin_pass(Context& ctx, const Rows& rows, const View&) {
  ctx.attach(routing_);
  routing_->begin_pass(ctx, rows);
}

void ExpertBalance::finish_pass(const Context& ctx) { routing_->finish_pass(ctx); }

void ExpertBalance::finish_sums(const Context& ctx, const View& sums) {
  const Routing::Sums& here = routing_->sums();
  std::vector<double> all{here.balance, here.z};
  std::ranges::copy(here.counts, std::back_inserter(all));
  ctx.device().copy_from_host(sums.data, all.data(), std::ssize(all) * bytes_of(DType::f64));
}

std::vector<Metric> ExpertBalance::metrics(std::span<const double> sums, const StepInput&) const {
  double max_load = 0;
  for (std::int64_t layer = 0; layer < layers(); ++layer) {
    const auto of = counts(sums, layer);
    const double all = std::accumulate(of.begin(), of.end(), 0.0);
    if (all > 0)
      max_load = std::max(
          max_load, *std::ranges::max_element(of) * static_cast<double>(routers_.experts) / all);
  }
  return {{.name = "balance_loss", .value = sums[0]},
          {.name = "router_z_loss", .value = sums[1]},
          {.name = "max_expert_load", .value = max_load, .decimals = 4, .in_line = "load"}};
}

void ExpertBalance::before_update(const Context& ctx, std::span<ParameterGroup* const> groups,
                                  std::span<const double> sums) {
  if (config_.bias == 0) return;
  for (ParameterGroup* group : groups)
    for (const auto& [parameter, slice] : group->piece_slices()) {
      const auto layer = std::ranges::find(routers_.biases, parameter) - routers_.biases.begin();
      if (layer == layers()) continue;
      const auto of = counts(sums, layer);
      const double all = std::accumulate(of.begin(), of.end(), 0.0);
      std::vector<float> values(slice.count());
      const View here = group->master().col_range(slice.offset, slice.count());
      ctx.device().copy_to_host(values.data(), here.data, std::ssize(values) * 4);
      for (std::int64_t i = 0; i < slice.count(); ++i) {
        // Compares counts · E with their sum, both integers.
        const double more = of[slice.row + slice.begin + i] * static_cast<double>(routers_.experts);
        if (more != all) values[i] += static_cast<float>(more < all ? config_.bias : -config_.bias);
      }
      group->set_values(ctx, slice.offset, values);
    }
}

}  // namespace axonn
