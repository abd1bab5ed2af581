#include "tests/support/llama_reference.h"

namespace axonn::reference {

namespace {

/// x · wᵀ.
Matrix product(const Matrix& x, const Matrix& w) { return matmul(x, transpose(w)); }

Matrix sum(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

/// Adds the vector `name` to the rows of x, if the model has it.
Matrix with_bias(Matrix x, const Weights& weights, const std::string& name) {
  const auto found = weights.find(name);
  if (found == weights.end()) return x;
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) x(r, c) += found->second(0, c);
  return x;
}

/// The rotary frequencies. Llama 3.1's are computed from wavelengths, as in Hugging Face's
/// transformers.
std::vector<double> frequencies(const ModelConfig& m) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < m.head_dim / 2; ++i) {
    const double f = 1 / std::pow(m.rope_theta, 2.0 * double(i) / double(m.head_dim));
    const double wavelength = 2 * M_PI / f, old = double(m.rope.original_positions);
    double scaled = f;
    if (wavelength > old / m.rope.low_freq_factor) {
      scaled = f / m.rope.factor;
    } else if (wavelength >= old / m.rope.high_freq_factor) {
      const double smooth = (old / wavelength - m.rope.low_freq_factor) /
                            (m.rope.high_freq_factor - m.rope.low_freq_factor);
      scaled = (1 - smooth) * f / m.rope.factor + smooth * f;
    }
    out.push_back(m.rope_scaling == RopeScalingKind::llama3 ? scaled : f);
  }
  return out;
}

/// Applies RMSNorm with the weight `name` to each head's D columns, if the model has it.
Matrix head_norms(const Matrix& x, const ModelConfig& m, const Weights& weights,
                  const std::string& name) {
  const auto found = weights.find(name);
  if (found == weights.end()) return x;
  Matrix heads(x.rows * x.cols / m.head_dim, m.head_dim);
  heads.values = x.values;
  Matrix out = x;
  out.values = rms_norm(heads, found->second, m.norm_eps).values;
  return out;
}

Matrix self_attention(const Matrix& x, const ModelConfig& m, const Weights& weights,
                      const std::string& name, std::int64_t positions) {
  const auto project = [&](const char* which) {
    const std::string full = name + which;
    return with_bias(product(x, weights.at(full + "_proj.weight")), weights, full + "_proj.bias");
  };
  const auto turned = [&](const char* which) {
    const Matrix normed = head_norms(project(which), m, weights, name + which + "_norm.weight");
    return rotary(normed, positions, frequencies(m));
  };
  const AttentionShape shape{.positions = positions,
                             .heads = m.heads,
                             .kv_heads = m.kv_heads,
                             .head_dim = m.head_dim,
                             .group = m.heads / m.kv_heads,
                             .scale = 1 / std::sqrt(double(m.head_dim)),
                             .window = m.window};
  return product(attention(turned("q"), turned("k"), project("v"), shape).out,
                 weights.at(name + "o_proj.weight"));
}

Matrix mlp(const Matrix& x, const Weights& weights, const std::string& name) {
  const Matrix gate = product(x, weights.at(name + "gate_proj.weight")),
               up = product(x, weights.at(name + "up_proj.weight"));
  Matrix hidden(gate.rows, gate.cols);
  for (std::size_t i = 0; i < hidden.values.size(); ++i) {
    const double g = gate.values[i];
    hidden.values[i] = g / (1 + std::exp(-g)) * up.values[i];
  }
  return product(hidden, weights.at(name + "down_proj.weight"));
}

}  // namespace

Matrix llama_logits(const ModelConfig& m, const Weights& weights,
                    const std::vector<std::int32_t>& ids, std::int64_t positions) {
  const Matrix& table = weights.at("model.embed_tokens.weight");
  Matrix x(std::int64_t(ids.size()), m.hidden);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) x(r, c) = table(ids[r], c);
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const auto norm = [&](const char* name) {
      return rms_norm(x, weights.at(layer + name), m.norm_eps);
    };
    x = sum(x, self_attention(norm("input_layernorm.weight"), m, weights, layer + "self_attn.",
                              positions));
    x = sum(x, mlp(norm("post_attention_layernorm.weight"), weights, layer + "mlp."));
  }
  return product(rms_norm(x, weights.at("model.norm.weight"), m.norm_eps),
                 m.tied ? table : weights.at("lm_head.weight"));
}

}  // namespace axonn::reference
