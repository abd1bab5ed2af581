#include "axonn/network/model/model.h"

#include <algorithm>
#include <map>
#include <set>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/registry.h"
#include "axonn/network/model/families/family.h"
#include "axonn/network/nn/pointwise.h"

namespace axonn {

namespace {

/// Of the library's families, and behind them those that the program registers.
Registry<Architecture>& registry() {
  static Registry<Architecture> all("model.family", [] {
    std::vector<std::string_view> names;
    for (const Family* const family : families()) names.push_back(family->name);
    return names;
  }());
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
  const LogitFactor* by = ctx.find<LogitFactor>();
  const float factor = by ? head.scale * by->factor : head.scale;
  return factor == 1 ? normed : scale(ctx, normed, factor);
}

}  // namespace

void LanguageModel::loss(const Context& ctx, const Tokens& tokens, float scale,
                         const Tensor& total) {
  if (const Teaching* teaching = ctx.find<Teaching>())
    return learn(ctx, *teaching, tokens, scale, total);
  const Var x = hidden(ctx, tokens);
  const Head end = head();
  GatheredWeights weights(ctx, end.groups, ReadIn::held);
  const Context& inside = weights.context();
  end.output(inside, logits_input(inside, end, x), tokens.targets, scale, total.view());
  weights.release();
}

void LanguageModel::learn(const Context& ctx, const Teaching& teaching, const Tokens& tokens,
                          float scale, const Tensor& total) {
  const float factor = 1 / teaching.temperature;
  const auto input_of = [&](const Context& inside, const Head& end, const Var& x) {
    const Var input = logits_input(inside, end, x);
    return factor == 1 ? input : axonn::scale(inside, input, factor);
  };
  const Var taught = teaching.teacher->hidden(teaching.ctx, tokens), x = hidden(ctx, tokens);
  const Head of_teacher = teaching.teacher->head(), end = head();
  GatheredWeights teachers(teaching.ctx, of_teacher.groups, ReadIn::held);
  const Var teachers_input = input_of(teachers.context(), of_teacher, taught);
  GatheredWeights weights(ctx, end.groups, ReadIn::held);
  const Context& inside = weights.context();
  end.output.divergence(inside, input_of(inside, end, x),
                        {of_teacher.output, teachers.context(), teachers_input, teaching.beta,
                         teaching.losses, teaching.top_k},
                        tokens.targets, scale, total.view());
  weights.release();
  teachers.release();
}

Tensor LanguageModel::target_losses(const Context& ctx, const Tokens& tokens) {
  const Var x = hidden(ctx, tokens);
  const Head end = head();
  GatheredWeights weights(ctx, end.groups, ReadIn::held);
  const Context& inside = weights.context();
  const Var input = logits_input(inside, end, x);
  const TokenRecords* records = ctx.find<TokenRecords>();
  Tensor losses = records ? end.output.records(inside, input, tokens.targets, *records)
                          : end.output.each(inside, input, tokens.targets);
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

Tensor LanguageModel::hidden_states(const Context& ctx, const Tokens& tokens) {
  AXONN_CHECK(!ctx.tape, "hidden_states: got a tape; call it without one");
  const Var x = hidden(ctx, tokens);
  const Head end = head();
  GatheredWeights weights(ctx, end.groups, ReadIn::held);
  const Var normed = end.norm(weights.context(), x);
  weights.release();
  AXONN_CHECK(normed.size() == 1, "hidden_states: ", normed.size(), " chunks, wanted one");
  return whole_rows(ctx, normed.front(), Axis::x);
}

void register_architecture(Architecture architecture) {
  AXONN_CHECK(architecture.make, "register_architecture: the family '", architecture.name,
              "' has no function `make`");
  add_own_section({architecture.name, architecture.help, architecture.keys});
  registry().add(std::move(architecture));
}

std::span<const std::string_view> model_families() { return registry().names(); }

ModelFamily model_family(std::string_view name) {
  return static_cast<ModelFamily>(registry().value_of(name));
}

const Architecture* architecture_of(ModelFamily family) {
  return registry().find(static_cast<std::size_t>(family));
}

void list_own_options(ModelConfig& model, OptionList& list) {
  for (const Architecture& architecture : registry().entries())
    list_own_section(architecture.name, model.own_values, list, [&model, &architecture] {
      const std::string_view family = model_families()[static_cast<std::size_t>(model.family)];
      return family == architecture.name ? "" : concat("model.family is ", family);
    });
}

std::unique_ptr<Model> make_model(const ModelConfig& config, const Grid& grid) {
  if (const Family* const family = find_family(config)) return family->make(config, grid);
  const Architecture* const own = architecture_of(config.family);
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

Tensor Model::hidden_states(const Context&, const Tokens&) {
  refuse("this model has no hidden states to make embeddings of; override Model::hidden_states()");
}

double Model::flops_per_token(std::int64_t) {
  double flops = 0;
  for (const ParameterGroup* group : groups())
    for (const auto& parameter : group->parameters())
      flops +=
          (group->frozen() ? 4.0 : 6.0) * static_cast<double>(parameter->spec().layout.count());
  return flops;
}

}  // namespace axonn
