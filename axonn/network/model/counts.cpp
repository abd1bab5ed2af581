#include "axonn/network/model/counts.h"

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/self.h"

namespace axonn {

namespace {

/// Calls f with the config's model on one rank, without memory for its parameters.
template <typename F>
auto with_model_of(const ModelConfig& config, const F& f) {
  const auto world = make_self();
  const Grid grid(*world, {});
  return f(*make_model(config, grid));
}

/// Parameters of a model without adapters, all and active.
struct Counts {
  std::int64_t all = 0, active = 0;
};

Counts counts_of(ModelConfig config) {
  config.lora = {};
  return with_model_of(config, [](Model& model) {
    const Routers routers = model.routers();
    Counts counts{.all = parameter_count(model)};
    for (const ParameterGroup* group : model.groups())
      counts.active += active_parameters(*group, routers);
    return counts;
  });
}

}  // namespace

std::int64_t parameter_count(Model& model) {
  std::int64_t count = 0;
  for (const ParameterGroup* group : model.groups())
    for (const auto& parameter : group->parameters()) count += parameter->spec().layout.count();
  return count;
}

std::int64_t active_parameters(const ParameterGroup& group, const Routers& routers) {
  std::int64_t dense = 0, of_experts = 0;
  for (const auto& parameter : group.parameters()) {
    const Layout& layout = parameter->spec().layout;
    (layout.expert ? of_experts : dense) += layout.count();
  }
  return of_experts == 0 ? dense : dense + of_experts / routers.experts * routers.per_row;
}

std::int64_t parameter_count(const ModelConfig& model) { return counts_of(model).all; }

std::int64_t active_parameter_count(const ModelConfig& model) { return counts_of(model).active; }

std::string parameters_text(const ModelConfig& model) {
  const Counts counts = counts_of(model);
  const std::string all = format_count(counts.all) + " parameters";
  if (counts.active == counts.all) return all;
  return all + ", " + format_count(counts.active) + " active";
}

double model_flops_per_token(const ModelConfig& model, std::int64_t seq_len) {
  return with_model_of(model, [&](Model& made) { return made.flops_per_token(seq_len); });
}

StepFlops step_flops(const ModelConfig& model, std::int64_t sequences, std::int64_t seq_len,
                     double recomputed) {
  const double tokens = static_cast<double>(sequences * seq_len);
  StepFlops flops;
  with_model_of(model, [&](Model& made) {
    flops.model = tokens * made.flops_per_token(seq_len);
    flops.hardware = flops.model + recomputed * tokens * made.block_flops_per_token(seq_len);
  });
  // The formula has dense MLPs of width 4 h.
  if (architecture_of(model.family) || model.experts > 0) return flops;
  const double s = static_cast<double>(seq_len), l = static_cast<double>(model.layers),
               h = static_cast<double>(model.hidden), v = static_cast<double>(model.vocab);
  flops.narayanan = 96 * tokens * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  return flops;
}

}  // namespace axonn
