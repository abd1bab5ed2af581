#include "axonn/model/model.h"

#include <algorithm>
#include <map>
#include <set>

#include "axonn/base/check.h"
#include "axonn/base/log.h"
#include "axonn/comm/self.h"
#include "axonn/model/decoder.h"
#include "axonn/nn/pointwise.h"
#include "axonn/options/registry.h"

namespace axonn {

namespace {

Registry<Architecture>& families() {
  static Registry<Architecture> all("model.family", {"gpt", "llama"});
  return all;
}

/// Throws Error if a model of a registered family cannot be trained or saved.
void check_parameters(Model& model, const std::string& family) {
  const std::vector<ParameterGroup*> groups = model.groups();
  AXONN_CHECK(!groups.empty(), family, ": Model::groups() is empty; list the parameters there");
  std::set<const ParameterGroup*> seen;
  std::map<std::string_view, const ParameterGroup*> names;
  for (const ParameterGroup* group : groups) {
    AXONN_CHECK(group && seen.insert(group).second, family, ": Model::groups() has ",
                group ? "the group " + group->name() + " twice" : "a null pointer");
    for (const auto& parameter : group->parameters()) {
      const auto [other, added] = names.try_emplace(parameter->spec().name, group);
      AXONN_CHECK(added, family, ": two parameters are named ", parameter->spec().name,
                  ", in the groups ", other->second->name(), " and ", group->name(),
                  "; begin names with that of their block");
    }
  }
}

/// The output layer's input.
Var logits_input(const Context& ctx, const LanguageModel::Head& head, const Var& x) {
  const Var normed = head.norm(ctx, x);
  return head.scale == 1 ? normed : scale(ctx, normed, head.scale);
}

}  // namespace

void LanguageModel::loss(const Context& ctx, const Tokens& tokens, float scale,
                         const Tensor& total) {
  const Var x = hidden(ctx, tokens);
  const Head end = head();
  GatheredWeights weights(ctx, end.groups, ReadIn::held);
  const Context& inside = weights.context();
  end.output(inside, logits_input(inside, end, x), tokens.targets, scale, total);
  weights.release();
}

Tensor LanguageModel::target_losses(const Context& ctx, const Tokens& tokens) {
  const Var x = hidden(ctx, tokens);
  const Head end = head();
  GatheredWeights weights(ctx, end.groups, ReadIn::held);
  const Context& inside = weights.context();
  Tensor losses = end.output.each(inside, logits_input(inside, end, x), tokens.targets);
  weights.release();
  return losses;
}

Tensor LanguageModel::next_logits(const Context& ctx, const Tokens& tokens,
                                  std::span<const std::int64_t> rows) {
  AXONN_CHECK(!ctx.tape, "next_logits: got a tape; call it without one");
  const Var x = hidden(ctx, tokens);
  const Head end = head();
  GatheredWeights weights(ctx, end.groups, ReadIn::held);
  const Context& inside = weights.context();
  Tensor logits = end.output.logits_of_rows(inside, logits_input(inside, end, x), rows);
  weights.release();
  return logits;
}

void register_architecture(Architecture architecture) {
  AXONN_CHECK(architecture.make, "register_architecture: the family '", architecture.name,
              "' has no function `make`");
  add_own_section({architecture.name, architecture.help, architecture.keys});
  families().add(std::move(architecture));
}

std::span<const std::string_view> model_families() { return families().names(); }

ModelFamily model_family(std::string_view name) {
  return static_cast<ModelFamily>(families().value_of(name));
}

const Architecture* architecture_of(ModelFamily family) {
  return families().find(static_cast<std::size_t>(family));
}

void list_own_options(ModelConfig& model, OptionList& list) {
  for (const Architecture& architecture : families().entries())
    list_own_section(architecture.name, model.own_values, list);
}

std::unique_ptr<Model> make_model(const ModelConfig& config, const Grid& grid) {
  const Architecture* const own = architecture_of(config.family);
  if (!own) return make_decoder(config, grid);
  std::unique_ptr<Model> model = own->make(config, grid);
  AXONN_CHECK(model, own->name, ": its function `make` returned null");
  check_parameters(*model, own->name);
  return model;
}

std::vector<ParameterGroup*> trained_groups(Model& model) {
  std::vector<ParameterGroup*> groups = model.groups();
  std::erase_if(groups, [](const ParameterGroup* group) { return group->frozen(); });
  return groups;
}

namespace {

/// Columns of attention's output.
std::int64_t attention_width(const ModelConfig& m) { return m.heads * m.head_width(); }

/// Parameters of a layer's MLP: two or three products and the activation's, or experts and their
/// router. `experts`: how many of them are counted.
std::int64_t mlp_parameters(const ModelConfig& m, std::int64_t layer, std::int64_t experts) {
  if (!m.has_experts(layer))
    return (m.has_gate() ? 3 : 2) * m.hidden * m.ffn + (m.activation == MlpKind::xielu ? 2 : 0);
  return m.experts * (m.hidden + (m.router_bias ? 1 : 0)) + experts * 3 * m.hidden * m.expert_ffn;
}

std::int64_t qk_norm_parameters(const ModelConfig& m) {
  if (m.qk_norm == QkNormKind::none) return 0;
  return (m.qk_norm == QkNormKind::head ? 2 : m.heads + m.kv_heads) * m.head_width();
}

/// Parameters of all blocks: QKV, projection, MLPs, biases and norms, with so many experts of each
/// layer that has any.
std::int64_t block_parameters(const ModelConfig& m, std::int64_t experts) {
  const std::int64_t qkv = (m.heads + 2 * m.kv_heads) * m.head_width();
  std::int64_t each = (qkv + attention_width(m)) * m.hidden, mlps = 0;
  if (m.is_llama())
    each += (m.qkv_bias ? qkv : 0) + qk_norm_parameters(m) + 2 * m.hidden;
  else
    each += (m.bias ? qkv + m.hidden + m.ffn + m.hidden : 0) + (m.bias ? 4 : 2) * m.hidden;
  for (std::int64_t layer = 0; layer < m.layers; ++layer) mlps += mlp_parameters(m, layer, experts);
  return m.layers * each + mlps;
}

std::int64_t final_norm(const ModelConfig& m) {
  return (m.bias && !m.is_llama() ? 2 : 1) * m.hidden;
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

namespace {

std::int64_t parameters_with(const ModelConfig& m, std::int64_t experts) {
  const std::int64_t tables = (m.tied ? 1 : 2) * m.vocab * m.hidden,
                     positions = m.is_llama() ? 0 : m.positions * m.hidden;
  return block_parameters(m, experts) + tables + positions + final_norm(m);
}

}  // namespace

std::int64_t parameter_count(const ModelConfig& m) {
  if (architecture_of(m.family))
    return with_model_of(m, [](Model& model) { return parameter_count(model); });
  return parameters_with(m, m.experts);
}

std::int64_t active_parameter_count(const ModelConfig& m) {
  return m.experts == 0 ? parameter_count(m) : parameters_with(m, m.experts_per_token);
}

std::string parameters_text(const ModelConfig& m) {
  const std::string all = format_count(parameter_count(m)) + " parameters";
  if (m.experts == 0) return all;
  return all + ", " + format_count(active_parameter_count(m)) + " active";
}

double model_flops_per_token(const ModelConfig& m, std::int64_t seq_len) {
  if (architecture_of(m.family))
    return with_model_of(m, [&](Model& model) { return model.flops_per_token(seq_len); });
  const double multiplied = static_cast<double>(block_parameters(m, m.experts_per_token) +
                                                final_norm(m) + m.vocab * m.hidden);
  const double products = m.lora.rank > 0 ? 4 : 6;  // frozen weights have no gradient
  return products * multiplied + 6.0 * static_cast<double>(m.layers * attention_width(m) * seq_len);
}

StepFlops step_flops(const ModelConfig& m, std::int64_t sequences, std::int64_t seq_len,
                     double recomputed) {
  const double tokens = static_cast<double>(sequences * seq_len), s = static_cast<double>(seq_len),
               l = static_cast<double>(m.layers), h = static_cast<double>(m.hidden),
               v = static_cast<double>(m.vocab);
  StepFlops flops;
  flops.model = tokens * model_flops_per_token(m, seq_len);
  if (architecture_of(m.family)) {  // a forward pass is a third of forward and backward
    flops.hardware = flops.model * (1 + recomputed / 3);
    return flops;
  }
  const double blocks_forward = 2 * static_cast<double>(block_parameters(m, m.experts_per_token)) +
                                2 * l * static_cast<double>(attention_width(m)) * s;
  flops.hardware = flops.model + recomputed * tokens * blocks_forward;
  if (m.experts > 0) return flops;  // the formula has dense MLPs of width 4 h
  flops.narayanan = 96 * tokens * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
  return flops;
}

}  // namespace axonn
