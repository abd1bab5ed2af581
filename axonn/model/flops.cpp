#include "axonn/model/flops.h"

namespace axonn {

namespace {

/// One block: QKV, projection, two MLP products, and with bias those and the norms' vectors.
std::int64_t block_parameters(const ModelConfig& m) {
  const std::int64_t qkv = (m.heads + 2 * m.kv_heads) * m.head_width();
  const std::int64_t weights = qkv * m.hidden + m.hidden * m.hidden + 2 * m.hidden * m.ffn;
  const std::int64_t vectors = m.bias ? qkv + m.hidden + m.ffn + m.hidden : 0;
  return weights + vectors + (m.bias ? 4 : 2) * m.hidden;
}

std::int64_t final_norm(const ModelConfig& m) { return (m.bias ? 2 : 1) * m.hidden; }

}  // namespace

std::int64_t parameter_count(const ModelConfig& m) {
  const std::int64_t tables = (m.tied ? 1 : 2) * m.vocab * m.hidden + m.positions * m.hidden;
  return m.layers * block_parameters(m) + tables + final_norm(m);
}

double model_flops_per_token(const ModelConfig& m, std::int64_t seq_len) {
  const double multiplied =
      static_cast<double>(m.layers * block_parameters(m) + final_norm(m) + m.vocab * m.hidden);
  return 6 * multiplied + 6.0 * static_cast<double>(m.layers * m.hidden * seq_len);
}

StepFlops step_flops(const ModelConfig& m, std::int64_t sequences, std::int64_t seq_len,
                     bool recomputes) {
  const double tokens = static_cast<double>(sequences * seq_len), s = static_cast<double>(seq_len),
               l = static_cast<double>(m.layers), h = static_cast<double>(m.hidden),
               v = static_cast<double>(m.vocab);
  StepFlops flops;
  flops.model = tokens * model_flops_per_token(m, seq_len);
  const double blocks_forward =
      2 * static_cast<double>(m.layers * block_parameters(m)) + 2 * l * h * s;
  flops.hardware = flops.model + (recomputes ? tokens * blocks_forward : 0);
  flops.narayanan = 96 * tokens * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  return flops;
}

}  // namespace axonn
