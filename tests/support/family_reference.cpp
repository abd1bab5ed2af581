#include "tests/support/family_reference.h"

#include <array>

#include "tests/support/delta_reference.h"

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

/// Llama 3.1's scaling of a frequency, from wavelengths as in Hugging Face's transformers.
double of_llama3(double f, const RopeScaling& rope) {
  const double wavelength = 2 * M_PI / f, old = double(rope.original_positions);
  if (wavelength > old / rope.low_freq_factor) return f / rope.factor;
  if (wavelength < old / rope.high_freq_factor) return f;
  const double smooth =
      (old / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * f / rope.factor + smooth * f;
}

/// YaRN's scaling of the frequency f of a pair; `width` of a head.
double of_yarn(double f, double pair, double width, double theta, const RopeScaling& rope) {
  const auto bound = [&](double turns) {
    return width * std::log(double(rope.original_positions) / (turns * 2 * M_PI)) /
           (2 * std::log(theta));
  };
  double low = bound(rope.beta_fast), high = bound(rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  const double ramp = std::min(std::max((pair - low) / (high - low), 0.0), 1.0);
  return f / rope.factor * ramp + f * (1 - ramp);
}

/// The rotary frequencies of a layer in sequences of `positions`, and the factor of cosines and
/// sines.
std::pair<std::vector<double>, double> frequencies(const ModelConfig& m, std::int64_t layer,
                                                   std::int64_t positions) {
  const bool slides = m.window_of(layer) > 0;
  const double theta = slides && m.window_rope_theta > 0 ? m.window_rope_theta : m.rope_theta;
  const RopeScaling rope = slides && !m.window_rope_scaling ? RopeScaling{} : m.rope;
  std::vector<double> out;
  const std::int64_t width =
      std::int64_t(double(m.head_width(m.window_of(layer))) * m.partial_rotary_factor);
  const auto& factors =
      positions > rope.original_positions ? rope.long_factors : rope.short_factors;
  for (std::int64_t i = 0; i < width / 2; ++i) {
    const double f = 1 / std::pow(theta, 2.0 * double(i) / double(width));
    out.push_back(rope.kind == RopeScalingKind::llama3 ? of_llama3(f, rope)
                  : rope.kind == RopeScalingKind::yarn
                      ? of_yarn(f, double(i), double(width), theta, rope)
                  : rope.kind == RopeScalingKind::longrope ? f / factors[i]
                  : rope.kind == RopeScalingKind::linear   ? f / rope.factor
                  : rope.kind == RopeScalingKind::proportional
                      ? (i < std::int64_t(rope.share * double(width) / 2) ? f : 0)
                      : f);
  }
  if (rope.kind == RopeScalingKind::longrope && rope.attention_factor == 0)
    return {out, std::sqrt(1 + std::log(rope.factor) / std::log(double(rope.original_positions)))};
  if (rope.kind != RopeScalingKind::yarn && rope.kind != RopeScalingKind::longrope) return {out, 1};
  return {out, rope.attention_factor > 0 ? rope.attention_factor : 0.1 * std::log(rope.factor) + 1};
}

/// Columns [begin, begin + count) of x.
Matrix columns(const Matrix& x, std::int64_t begin, std::int64_t count) {
  Matrix out(x.rows, count);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < count; ++c) out(r, c) = x(r, begin + c);
  return out;
}

/// A norm's factors.
Matrix factors_of(const ModelConfig& m, Matrix weight) {
  if (m.norm_plus_one)
    for (double& value : weight.values) value += 1;
  return weight;
}

/// The norm with the weight and perhaps the bias `name`.
Matrix block_norm(const Matrix& x, const ModelConfig& m, const Weights& weights,
                  const std::string& name) {
  const Matrix factors = factors_of(m, weights.at(name + ".weight"));
  if (m.norm == NormKind::rms) return rms_norm(x, factors, m.norm_eps);
  const auto bias = weights.find(name + ".bias");
  return layer_norm(x, factors, bias == weights.end() ? Matrix(1, x.cols) : bias->second,
                    m.norm_eps);
}

/// RMSNorm of each head, which has as many columns as the weight.
Matrix over_heads(const Matrix& x, const Matrix& weight, double eps) {
  Matrix heads(x.rows * x.cols / weight.cols, weight.cols), out = x;
  heads.values = x.values;
  out.values = rms_norm(heads, weight, eps).values;
  return out;
}

/// Applies RMSNorm with the weight `name`, if the model has it, to each head's D columns or to the
/// whole width, as many columns as the weight has.
Matrix head_norms(const Matrix& x, const ModelConfig& m, const Weights& weights,
                  const std::string& name) {
  const auto found = weights.find(name);
  if (found == weights.end()) return x;
  return over_heads(x, factors_of(m, found->second), m.norm_eps);
}

/// The columns of x, each head's from even and odd ones to those of its first and second half, or
/// back.
Matrix unzipped(const Matrix& x, std::int64_t width, bool back) {
  Matrix out(x.rows, x.cols);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t i = 0; i < width / 2; ++i)
      for (std::int64_t odd = 0; odd < 2; ++odd)
        if (back)
          out(r, 2 * i + odd) = x(r, i + odd * width / 2);
        else
          out(r, i + odd * width / 2) = x(r, 2 * i + odd);
  return out;
}

/// Rotary positions of queries or keys.
Matrix rotated(const Matrix& x, const ModelConfig& m, std::int64_t layer, std::int64_t positions) {
  if (!m.has_rope(layer)) return x;
  const auto [turns, factor] = frequencies(m, layer, positions);
  const std::int64_t width = 2 * std::int64_t(turns.size());
  const bool neighbours = m.rope_pairs == RopePairs::neighbours;
  Matrix out = x;
  for (std::int64_t first = 0; first < out.cols; first += m.head_width(m.window_of(layer))) {
    Matrix head = columns(x, first, width);
    if (neighbours) head = unzipped(head, width, false);
    head = rotary(head, positions, turns);
    if (neighbours) head = unzipped(head, width, true);
    for (std::int64_t r = 0; r < out.rows; ++r)
      for (std::int64_t c = 0; c < width; ++c) out(r, first + c) = factor * head(r, c);
  }
  return out;
}

/// A further score of each head in the softmax, without a value.
void add_sinks(AttentionResult& of, const Matrix& sinks) {
  const std::int64_t width = of.out.cols / of.lse.cols;
  for (std::int64_t r = 0; r < of.out.rows; ++r)
    for (std::int64_t c = 0; c < of.out.cols; ++c)
      of.out(r, c) /= 1 + std::exp(sinks(0, c / width) - of.lse(r, c / width));
}

/// A gated linear unit.
double gated(const ModelConfig& m, double gate, double up) {
  if (m.activation == MlpKind::geglu) return gelu(gate) * up;
  if (m.activation == MlpKind::swiglu) return silu(gate) * up;
  const double g = std::min(gate, m.swiglu_limit),
               u = std::min(std::max(up, -m.swiglu_limit), m.swiglu_limit);
  return g / (1 + std::exp(-m.swiglu_alpha * g)) * (u + 1);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Columns [begin, begin + count) of each head's `all`.
Matrix of_heads(const Matrix& x, std::int64_t all, std::int64_t begin, std::int64_t count) {
  Matrix out(x.rows, x.cols / all * count);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < out.cols; ++c)
      out(r, c) = x(r, c / count * all + begin + c % count);
  return out;
}

/// Multiplies each head's columns by the sigmoid of the gates behind its queries.
void multiply_by_gates(Matrix& out, const Matrix& queries, std::int64_t width) {
  const Matrix gates = of_heads(queries, 2 * width, width, width);
  for (std::size_t i = 0; i < gates.values.size(); ++i) out.values[i] *= sigmoid(gates.values[i]);
}

/// Keys and values of layers, which later ones may use.
using KeysValues = std::vector<std::array<Matrix, 2>>;
struct AttentionLayer {
  std::int64_t layer, positions;
  KeysValues& keys_values;
};

Matrix self_attention(const Matrix& x, const ModelConfig& m, const Weights& weights,
                      const AttentionLayer& in) {
  const auto& [layer, positions, keys_values] = in;
  const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.";
  const auto project = [&](const char* which) {
    const std::string full = name + which;
    return with_bias(product(x, weights.at(full + "_proj.weight")), weights, full + "_proj.bias");
  };
  const Matrix all_queries = project("q");  // each head's, perhaps with its gates
  const auto projected = [&](const char* which) {
    if (*which != 'q') return project(which);
    return m.attention_gate ? of_heads(all_queries, 2 * m.head_width(), 0, m.head_width())
                            : all_queries;
  };
  const auto turned = [&](const char* which) {
    const auto normed = [&](const Matrix& of) {
      return head_norms(of, m, weights, name + which + "_norm.weight");
    };
    if (m.qk_norm == QkNormKind::rotated_plain && m.has_rope(layer))
      return over_heads(rotated(project(which), m, layer, positions), Matrix(1, m.head_width(), 1),
                        m.norm_eps);
    if (m.qk_norm == QkNormKind::rotated_head)
      return normed(rotated(projected(which), m, layer, positions));
    return rotated(normed(projected(which)), m, layer, positions);
  };
  Matrix queries = turned("q");
  for (std::int64_t r = 0; r < queries.rows; ++r)
    for (std::int64_t c = 0; c < queries.cols; ++c)
      queries(r, c) *=
          m.has_rope(layer)
              ? 1 + m.query_growth * std::log(1 + (r % positions) / m.rope.original_positions)
              : 1 + m.nope_query_growth *
                        std::log(1 + (r % positions + 1) / m.nope_query_positions);
  const std::int64_t width = m.head_width(m.window_of(layer)),
                     kv_heads = m.kv_heads_of(m.window_of(layer));
  const AttentionShape shape{.positions = positions,
                             .heads = m.heads,
                             .kv_heads = kv_heads,
                             .head_dim = width,
                             .group = m.heads / kv_heads,
                             .scale = m.attention_scale > 0 ? m.attention_scale
                                      : m.mup_base_head_dim > 0
                                          ? std::sqrt(double(m.mup_base_head_dim)) / double(width)
                                          : 1 / std::sqrt(double(width)),
                             .window = m.window_of(layer),
                             .cap = m.score_cap,
                             .chunks = m.window_chunks && m.window_of(layer) > 0};
  const std::int64_t of = layer < m.layers ? m.keys_of(layer) : layer;
  if (of == layer) {
    const bool keys = m.full_values_are_keys && m.window_of(layer) == 0;
    Matrix values = project(keys ? "k" : "v");
    if (m.value_norm) values = over_heads(values, Matrix(1, width, 1), m.norm_eps);
    keys_values[layer] = {turned("k"), values};
  }
  AttentionResult result = attention(queries, keys_values[of][0], keys_values[of][1], shape);
  if (m.sinks) add_sinks(result, weights.at(name + "sinks"));
  if (m.attention_gate) multiply_by_gates(result.out, all_queries, width);
  return with_bias(product(result.out, weights.at(name + "o_proj.weight")), weights,
                   name + "o_proj.bias");
}

/// Multi-head latent attention, head by head.
Matrix latent_attention(const Matrix& x, const ModelConfig& m, const Weights& weights,
                        std::int64_t layer, std::int64_t positions) {
  const std::string name = "model.layers." + std::to_string(layer) + ".self_attn.";
  const auto project = [&](const Matrix& from, const std::string& which) {
    return with_bias(product(from, weights.at(name + which + ".weight")), weights,
                     name + which + ".bias");
  };
  const auto normed = [&](const Matrix& from, const std::string& which) {
    return rms_norm(from, weights.at(name + which + ".weight"), 1e-6);
  };
  const std::int64_t n = m.qk_nope_head_dim, r = m.qk_rope_head_dim, v = m.v_head_dim;
  const Matrix q = m.q_lora_rank > 0
                       ? project(normed(project(x, "q_a_proj"), "q_a_layernorm"), "q_b_proj")
                       : project(x, "q_proj"),
               both = project(x, "kv_a_proj_with_mqa"),
               kv =
                   project(normed(columns(both, 0, m.kv_lora_rank), "kv_a_layernorm"), "kv_b_proj");
  ModelConfig turning = m;  // heads of the columns that rotate alone
  turning.kv_lora_rank = 0;
  turning.head_dim = r;
  const Matrix q_turned = rotated(of_heads(q, n + r, n, r), turning, layer, positions),
               k_turned = rotated(columns(both, m.kv_lora_rank, r), turning, layer, positions),
               q_plain = of_heads(q, n + r, 0, n), k_plain = of_heads(kv, n + v, 0, n),
               values = of_heads(kv, n + v, n, v);
  const double scale = m.attention_scale > 0 ? m.attention_scale : 1 / std::sqrt(double(n + r));
  Matrix out(x.rows, m.heads * v);
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t h = 0; h < m.heads; ++h) {
      const std::int64_t first = t / positions * positions;
      std::vector<double> p;
      double sum = 0;
      for (std::int64_t key = first; key <= t; ++key) {
        double score = 0;
        for (std::int64_t c = 0; c < n; ++c)
          score += q_plain(t, h * n + c) * k_plain(key, h * n + c);
        for (std::int64_t c = 0; c < r; ++c) score += q_turned(t, h * r + c) * k_turned(key, c);
        p.push_back(std::exp(scale * score));
        sum += p.back();
      }
      for (std::int64_t c = 0; c < v; ++c)
        for (std::int64_t key = first; key <= t; ++key)
          out(t, h * v + c) += p[key - first] / sum * values(key, h * v + c);
    }
  return project(out, "o_proj");
}

Matrix mlp(const Matrix& x, const ModelConfig& m, const Weights& weights, const std::string& name) {
  const auto project = [&](const Matrix& from, const std::string& which) {
    return with_bias(product(from, weights.at(name + which + ".weight")), weights,
                     name + which + ".bias");
  };
  if (const auto p = weights.find(name + "act_fn.alpha_p"); p != weights.end()) {
    Matrix hidden = project(x, "up_proj");
    const double n = weights.at(name + "act_fn.alpha_n")(0, 0);
    for (double& value : hidden.values) value = xielu(value, p->second(0, 0), n);
    return project(hidden, "down_proj");
  }
  if (!m.has_gate()) {
    Matrix hidden = project(x, "up_proj");
    for (double& value : hidden.values)
      value = m.activation == MlpKind::gelu ? gelu(value) : value > 0 ? value * value : 0;
    return project(hidden, "down_proj");
  }
  const Matrix gate = project(x, "gate_proj"), up = project(x, "up_proj");
  Matrix hidden(gate.rows, gate.cols);
  for (std::size_t i = 0; i < hidden.values.size(); ++i)
    hidden.values[i] = gated(m, gate.values[i], up.values[i]);
  return project(hidden, "down_proj");
}

/// The weighted sum of the chosen experts of each row, for which the router reads another matrix.
/// Every expert computes all rows.
struct MixtureInputs {
  const Matrix &x, &of_router;
};
Matrix mixture(const MixtureInputs& inputs, const ModelConfig& m, const Weights& weights,
               const std::string& name, Routing& routing) {
  const auto& [x, of_router] = inputs;
  Router router{.k = m.experts_per_token,
                .sigmoid = m.router == RouterKind::sigmoid,
                .normalise = m.expert_norm,
                .scale = m.router_scale,
                .groups = m.expert_groups,
                .kept_groups = m.expert_groups_per_token,
                .group_best = m.expert_group_best,
                .chosen = std::move(routing.ids)};
  if (m.router_bias) router.bias = weights.at(name + "gate.e_score_correction_bias").values;
  const Matrix logits = product(of_router, weights.at(name + "gate.weight"));
  routing = route(with_bias(logits, weights, name + "gate.bias"), router);
  const auto factor = [&](std::int64_t e) {
    return m.expert_block_norms ? weights.at(name + "gate.per_expert_scale")(0, e) : 1;
  };
  Matrix out(x.rows, x.cols);
  for (std::int64_t e = 0; e < m.experts; ++e) {
    Matrix scaled = x;
    for (std::int64_t r = 0; r < x.rows && m.expert_input_scores; ++r)
      for (std::int64_t j = 0; j < router.k; ++j)
        for (std::int64_t c = 0; c < x.cols && routing.ids[r * router.k + j] == e; ++c)
          scaled(r, c) *= routing.weights(r, j);
    const Matrix of_expert = mlp(scaled, m, weights, name + "experts." + std::to_string(e) + ".");
    for (std::int64_t r = 0; r < x.rows; ++r)
      for (std::int64_t j = 0; j < router.k; ++j)
        for (std::int64_t c = 0; c < x.cols && routing.ids[r * router.k + j] == e; ++c)
          out(r, c) +=
              (m.expert_input_scores ? 1 : routing.weights(r, j)) * of_expert(r, c) * factor(e);
  }
  return out;
}

/// The experts of a layer and the MLP beside them; `in` is x after the norm before them.
struct BlockInputs {
  const Matrix &in, &x;
};
Matrix experts(const BlockInputs& inputs, const ModelConfig& m, const Weights& weights,
               const std::string& layer, Routing& routing) {
  const auto& [in, x] = inputs;
  const std::string name = layer + "mlp.";
  const auto beside = [&] {
    Matrix out = mlp(in, m, weights, name + "shared_experts.");
    if (!m.shared_gate) return out;
    const Matrix gate = product(in, weights.at(name + "shared_expert_gate.weight"));
    for (std::int64_t r = 0; r < out.rows; ++r)
      for (std::int64_t c = 0; c < out.cols; ++c) out(r, c) *= sigmoid(gate(r, 0));
    return out;
  };
  if (!m.expert_block_norms) {
    const Matrix routed = mixture({in, in}, m, weights, name, routing);
    return m.shared_ffn > 0 ? sum(routed, beside()) : routed;
  }
  const auto norm = [&](const Matrix& of, const std::string& which) {
    return block_norm(of, m, weights, layer + which);
  };
  Matrix of_router = norm(x, "mlp.gate.norm");
  for (double& value : of_router.values) value /= std::sqrt(double(m.hidden));
  const Matrix experts_in = norm(x, "pre_feedforward_layernorm_2");
  return sum(norm(beside(), "post_feedforward_layernorm_1"),
             norm(mixture({experts_in, of_router}, m, weights, name, routing),
                  "post_feedforward_layernorm_2"));
}

/// The input of a layer by token, of which x are the embeddings.
Matrix layer_input(const Matrix& x, const ModelConfig& m, const Weights& weights,
                   const std::vector<std::int32_t>& ids, std::int64_t layer) {
  const std::int64_t P = m.layer_input;
  Matrix seen =
      columns(product(x, weights.at("model.per_layer_model_projection.weight")), layer * P, P);
  for (double& value : seen.values) value /= std::sqrt(double(m.hidden));
  seen = rms_norm(seen, weights.at("model.per_layer_projection_norm.weight"), m.norm_eps);
  const Matrix& table = weights.at("model.embed_tokens_per_layer.weight");
  for (std::int64_t r = 0; r < seen.rows; ++r)
    for (std::int64_t c = 0; c < P; ++c)
      seen(r, c) =
          (seen(r, c) + std::sqrt(double(P)) * table(ids[r], layer * P + c)) / std::sqrt(2);
  return seen;
}

/// What a layer's input adds to x.
Matrix admitted(const Matrix& x, const ModelConfig& m, const Weights& weights,
                const std::string& layer, const Matrix& input) {
  Matrix gate = product(x, weights.at(layer + "per_layer_input_gate.weight"));
  for (std::size_t i = 0; i < gate.values.size(); ++i)
    gate.values[i] = gelu(gate.values[i]) * input.values[i];
  return block_norm(product(gate, weights.at(layer + "per_layer_projection.weight")), m, weights,
                    layer + "post_per_layer_input_norm");
}

}  // namespace

namespace {

/// A pass that is under way.
struct Running {
  const ModelConfig& m;
  const Weights& weights;
  const std::vector<std::int32_t>& ids;
  std::int64_t positions;
  const std::vector<Routing>& repeated;
  KeysValues keys_values = KeysValues(m.layers + m.mtp_layers);
  Matrix embedded = {};
  LlamaPass pass = {};
};

Matrix embeddings(const ModelConfig& m, const Weights& weights,
                  const std::vector<std::int32_t>& ids) {
  const Matrix& table = weights.at("model.embed_tokens.weight");
  Matrix x(std::int64_t(ids.size()), m.hidden);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) x(r, c) = m.embedding_scale * table(ids[r], c);
  return x;
}

/// The output of layer i.
Matrix layer_output(Running& p, Matrix x, std::int64_t i) {
  const ModelConfig& m = p.m;
  const Weights& weights = p.weights;
  const std::string layer = "model.layers." + std::to_string(i) + ".";
  const auto norm = [&](const Matrix& of, const char* name) {
    return block_norm(of, m, weights, layer + name + "layernorm");
  };
  const auto feed_forward = [&](const Matrix& of) {
    if (!m.has_experts(i)) return mlp(of, m, weights, layer + "mlp.");
    const std::size_t number = p.pass.routings.size();
    p.pass.routings.push_back(p.repeated.empty() ? Routing{} : p.repeated[number]);
    return experts({of, x}, m, weights, layer, p.pass.routings.back());
  };
  const auto factor = weights.find(layer + "layer_scalar");
  const auto added = [&](Matrix to, Matrix of) {
    for (double& value : of.values) value *= m.residual_scale;
    return sum(std::move(to), of);
  };
  const auto attend = [&](const Matrix& of) {
    if (m.has_delta(i)) return delta_net(of, m, weights, i, p.positions);
    return m.kv_lora_rank > 0 ? latent_attention(of, m, weights, i, p.positions)
                              : self_attention(of, m, weights, {i, p.positions, p.keys_values});
  };
  if (m.block_norm == BlockNormKind::parallel) {
    const Matrix normed = norm(x, "input_");
    x = added(x, sum(attend(normed), feed_forward(normed)));
  } else if (m.block_norm == BlockNormKind::input) {
    x = added(x, attend(norm(x, "input_")));
    x = added(x, feed_forward(norm(x, "post_attention_")));
  } else {
    const bool both = m.block_norm == BlockNormKind::both;
    x = added(x, norm(attend(both ? norm(x, "input_") : x), "post_attention_"));
    x = added(x, norm(feed_forward(both ? norm(x, "pre_feedforward_") : x), "post_feedforward_"));
  }
  if (m.layer_input > 0)
    x = sum(x, admitted(x, m, weights, layer, layer_input(p.embedded, m, weights, p.ids, i)));
  for (double& value : x.values) value *= factor == weights.end() ? 1 : factor->second(0, 0);
  return x;
}

Matrix logits_of(const ModelConfig& m, const Weights& weights, const Matrix& normed) {
  Matrix logits =
      product(normed, weights.at(m.tied ? "model.embed_tokens.weight" : "lm_head.weight"));
  for (double& logit : logits.values) {
    logit *= m.logit_scale;
    if (m.logit_cap > 0) logit = m.logit_cap * std::tanh(logit / m.logit_cap);
    if (m.mup_base > 0) logit *= double(m.mup_base) / double(m.hidden);
  }
  return logits;
}

/// The hidden state that predicts one token further than h does, whose next tokens are `ids`.
Matrix further_hidden(Running& p, const Matrix& h, const std::vector<std::int32_t>& ids,
                      std::int64_t i) {
  const std::string layer = "model.layers." + std::to_string(i) + ".";
  const Matrix e = block_norm(embeddings(p.m, p.weights, ids), p.m, p.weights, layer + "enorm"),
               of_h = block_norm(h, p.m, p.weights, layer + "hnorm");
  Matrix both(h.rows, 2 * h.cols);
  for (std::int64_t r = 0; r < h.rows; ++r)
    for (std::int64_t c = 0; c < h.cols; ++c) {
      both(r, c) = e(r, c);
      both(r, h.cols + c) = of_h(r, c);
    }
  const Matrix x = product(both, p.weights.at(layer + "eh_proj.weight"));
  return block_norm(layer_output(p, x, i), p.m, p.weights, layer + "shared_head.norm");
}

}  // namespace

LlamaPass llama_pass(const ModelConfig& m, const Weights& weights,
                     const std::vector<std::int32_t>& ids, std::int64_t positions,
                     const std::vector<Routing>& repeated) {
  Running p{m, weights, ids, positions, repeated};
  p.embedded = embeddings(m, weights, ids);
  Matrix x = p.embedded;
  for (std::int64_t i = 0; i < m.layers; ++i) x = layer_output(p, x, i);
  Matrix h = block_norm(x, m, weights, "model.norm");
  p.pass.logits = logits_of(m, weights, h);
  std::vector<std::int32_t> next = ids;
  for (std::int64_t i = m.layers; i < m.layers + m.mtp_layers; ++i) {
    next.erase(next.begin());
    next.push_back(0);
    h = further_hidden(p, h, next, i);
    p.pass.further.push_back(logits_of(m, weights, h));
  }
  return p.pass;
}

Matrix llama_logits(const ModelConfig& m, const Weights& weights,
                    const std::vector<std::int32_t>& ids, std::int64_t positions) {
  return llama_pass(m, weights, ids, positions).logits;
}

Matrix gpt_logits(const ModelConfig& m, const Weights& weights,
                  const std::vector<std::int32_t>& ids, std::int64_t positions) {
  const bool opt = m.family == ModelFamily::opt;
  const Matrix &tokens = weights.at(opt ? "model.decoder.embed_tokens.weight" : "wte.weight"),
               &learned = weights.at(opt ? "model.decoder.embed_positions.weight" : "wpe.weight");
  const auto norm = [&](const Matrix& x, const std::string& name) {
    const auto bias = weights.find(name + ".bias");
    return layer_norm(x, weights.at(name + ".weight"),
                      bias == weights.end() ? Matrix(1, x.cols) : bias->second, m.norm_eps);
  };
  const auto linear = [&](const Matrix& x, const std::string& name) {
    return with_bias(product(x, weights.at(name + ".weight")), weights, name + ".bias");
  };
  const AttentionShape shape{.positions = positions,
                             .heads = m.heads,
                             .kv_heads = m.kv_heads,
                             .head_dim = m.head_dim,
                             .group = m.heads / m.kv_heads,
                             .scale = 1 / std::sqrt(double(m.head_dim))};
  const std::int64_t wide = m.heads * m.head_dim, narrow = m.kv_heads * m.head_dim;
  Matrix x(std::int64_t(ids.size()), m.hidden);
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c)
      x(r, c) = tokens(ids[r], c) + learned(r % positions + (opt ? 2 : 0), c);
  for (std::int64_t i = 0; i < m.layers; ++i) {
    const std::string block = (opt ? "model.decoder.layers." : "h.") + std::to_string(i) + ".";
    const Matrix in = norm(x, block + (opt ? "self_attn_layer_norm" : "ln_1"));
    const auto part = [&](const char* which, std::int64_t begin, std::int64_t count) {
      if (opt) return linear(in, block + "self_attn." + which + "_proj");
      return columns(linear(in, block + "attn.c_attn"), begin, count);
    };
    const Matrix heads = attention(part("q", 0, wide), part("k", wide, narrow),
                                   part("v", wide + narrow, narrow), shape)
                             .out;
    x = sum(x, linear(heads, block + (opt ? "self_attn.out_proj" : "attn.c_proj")));
    Matrix hidden = linear(norm(x, block + (opt ? "final_layer_norm" : "ln_2")),
                           block + (opt ? "fc1" : "mlp.c_fc"));
    for (double& value : hidden.values) value = opt ? std::max(value, 0.0) : gelu(value);
    x = sum(x, linear(hidden, block + (opt ? "fc2" : "mlp.c_proj")));
  }
  return product(norm(x, opt ? "model.decoder.final_layer_norm" : "ln_f"),
                 m.tied ? tokens : weights.at("lm_head.weight"));
}

}  // namespace axonn::reference
