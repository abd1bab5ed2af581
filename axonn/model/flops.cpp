#include "axonn/model/flops.h"

#include "axonn/comm/self.h"
#include "axonn/model/model.h"

namespace axonn {

namespace {

bool is_llama(const ModelConfig& m) { return m.family == ModelFamily::llama; }

/// Columns of attention's output.
std::int64_t attention_width(const ModelConfig& m) { return m.heads * m.head_width(); }

/// Parameters of one block: QKV, projection, the MLP's two or three products, biases and norms.
std::int64_t block_parameters(const ModelConfig& m) {
  const std::int64_t qkv = (m.heads + 2 * m.kv_heads) * m.head_width();
  const std::int64_t weights =
      (qkv + attention_width(m)) * m.hidden + (is_llama(m) ? 3 : 2) * m.hidden * m.ffn;
  if (is_llama(m))
    return weights + (m.qkv_bias ? qkv : 0) + (m.qk_norm ? 2 * m.head_width() : 0) + 2 * m.hidden;
  const std::int64_t vectors = m.bias ? qkv + m.hidden + m.ffn + m.hidden : 0;
  return weights + vectors + (m.bias ? 4 : 2) * m.hidden;
}

std::int64_t final_norm(const ModelConfig& m) {
  return (m.bias && !is_llama(m) ? 2 : 1) * m.hidden;
}

/// Calls f with a model of a registered family on one rank, without memory for its parameters.
template <typename F>
auto with_model_of(const ModelConfig& m, const F& f) {
  const auto world = make_self();
  const Grid grid(*world, {});
  return f(*make_model(m, grid));
}

}  // namespace

std::int64_t parameter_count(Model& model) {
  std::int64_t count = 0;
  for (const ParameterGroup* group : model.groups())
    for (const auto& parameter : group->parameters())
      count += parameter->spec().layout.rows * parameter->spec().layout.cols;
  return count;
}

double Model::flops_per_token(std::int64_t) {
  double flops = 0;
  for (const ParameterGroup* group : groups())
    for (const auto& parameter : group->parameters())
      flops += (group->frozen() ? 4.0 : 6.0) *
               static_cast<double>(parameter->spec().layout.rows * parameter->spec().layout.cols);
  return flops;
}

std::int64_t parameter_count(const ModelConfig& m) {
  if (architecture_of(m.family))
    return with_model_of(m, [](Model& model) { return parameter_count(model); });
  const std::int64_t tables = (m.tied ? 1 : 2) * m.vocab * m.hidden,
                     positions = is_llama(m) ? 0 : m.positions * m.hidden;
  return m.layers * block_parameters(m) + tables + positions + final_norm(m);
}

double model_flops_per_token(const ModelConfig& m, std::int64_t seq_len) {
  if (architecture_of(m.family))
    return with_model_of(m, [&](Model& model) { return model.flops_per_token(seq_len); });
  const double multiplied =
      static_cast<double>(m.layers * block_parameters(m) + final_norm(m) + m.vocab * m.hidden);
  const double products = m.lora.rank > 0 ? 4 : 6;  // frozen weights have no gradient
  return products * multiplied + 6.0 * static_cast<double>(m.layers * attention_width(m) * seq_len);
}

StepFlops step_flops(const ModelConfig& m, std::int64_t sequences, std::int64_t seq_len,
                     bool recomputes) {
  const double tokens = static_cast<double>(sequences * seq_len), s = static_cast<double>(seq_len),
               l = static_cast<double>(m.layers), h = static_cast<double>(m.hidden),
               v = static_cast<double>(m.vocab);
  StepFlops flops;
  flops.model = tokens * model_flops_per_token(m, seq_len);
  if (architecture_of(m.family)) {  // a forward pass is a third of forward and backward
    flops.hardware = flops.model * (recomputes ? 4.0 / 3 : 1);
    return flops;
  }
  const double blocks_forward = 2 * static_cast<double>(m.layers * block_parameters(m)) +
                                2 * l * static_cast<double>(attention_width(m)) * s;
  flops.hardware = flops.model + (recomputes ? tokens * blocks_forward : 0);
  flops.narayanan = 96 * tokens * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  return flops;
}

}  // namespace axonn
