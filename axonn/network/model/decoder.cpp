#include "axonn/network/model/decoder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/network/model/counts.h"
#include "axonn/network/model/mtp_layer.h"
#include "axonn/network/nn/adapters/layer_adapters.h"
#include "axonn/network/nn/experts/experts.h"

namespace axonn {

namespace {

/// `layers`: those that may have adapters.
void check_targets(const ModelConfig& config, const LoraConfig& lora,
                   std::span<const std::string> layers) {
  for (const std::string_view product : {"gate", "gate_proj", "up_proj", "down_proj"})
    if (config.experts > 0 && std::ranges::any_of(lora.targets, [&](const std::string& target) {
          return ends_with_name(target, product);
        }))
      refuse("[lora] targets: '", product,
             "': routers and experts have no adapters; attention's products can have some: ",
             config.attention_products());
  check_layers(lora, layers);
}

/// Throws UsageError for names of no module of `whole`, the groups of whole modules.
void check_modules(const LoraConfig& lora, std::span<const ParameterGroup* const> whole) {
  for (const std::string& module : lora.modules) {
    const LoraConfig one{.modules = {module}};
    if (std::ranges::none_of(whole, [&](const ParameterGroup* group) {
          return std::ranges::any_of(group->parameters(), [&](const auto& parameter) {
            return trains_whole(one, parameter->spec().name);
          });
        }))
      refuse("[lora] modules: this model has no module '", module, "' that can be trained whole, ",
             "such as the embedding, lm_head or norms; experts cannot");
  }
}

/// Adapters of the embedding or of the output layer.
void check_ends(const LoraConfig& lora) {
  constexpr const char* kEnds = "adapters of the embedding and of the output layer";
  if (!lora.choices.empty())
    refuse(kEnds, " are not chosen for each sequence; merge them into the model");
  if (lora.dropout > 0)
    refuse("[lora] dropout = ", lora.dropout, ": ", kEnds,
           " have no dropout here; set dropout = 0");
  if (lora.dora)
    refuse("[lora] dora = true: ", kEnds, " have no magnitudes here; set dora = false");
}

/// `block` and what it trains beside it, without groups that have no parameters.
/// The groups of a part of the model that have parameters, in the order in which they are gathered.
std::vector<ParameterGroup*> groups_of(ParameterGroup& block, Adapters& trained,
                                       const std::optional<CodedGroups>& codes) {
  std::vector<ParameterGroup*> all = trained.groups();
  if (!block.parameters().empty()) all.insert(all.begin(), &block);
  if (codes) std::ranges::copy(codes->groups(), std::back_inserter(all));
  return all;
}

/// Lets an end of the model keep its matrix in `codes`, and returns it.
ParameterGroup& keeping_codes(ParameterGroup& group, std::optional<CodedGroups>& codes,
                              const ModelConfig& config) {
  codes.emplace(group, config, Coded::ends);
  return group;
}

bool trains(const Adapters& adapters, const ParameterGroup* group) {
  return adapters.has(group) || group == &adapters.whole();
}

}  // namespace

DecoderBlock::DecoderBlock(const ModelConfig& config, const Grid& grid, const std::string& name,
                           std::int64_t window)
    : parameters_(name, grid),
      adapters_(parameters_, config.lora),
      heads_{.heads = config.heads,
             .kv_heads = config.kv_heads_of(window),
             .head_dim = config.head_width(window),
             .window = window,
             .chunks = window > 0 && config.window_chunks,
             .base_head_dim = config.mup_base_head_dim,
             .scale = config.attention_scale,
             .cap = config.score_cap},
      residual_scale_(static_cast<float>(config.residual_scale)) {
  parameters_.set_rate(1 / config.width_factor());  // vectors keep the rate of the base
  codes_.emplace(parameters_, config, Coded::products);
}

std::vector<ParameterGroup*> DecoderBlock::groups() {
  return groups_of(parameters_, adapters_, codes_);
}

double DecoderBlock::init_std(const ModelConfig& config) {
  return config.init_std / std::sqrt(config.width_factor());
}

Linear::Options DecoderBlock::qkv_options(const ModelConfig& config, bool bias,
                                          std::vector<std::string> parts) {
  return {.in = config.hidden,
          .out = heads_.qkv_width(),
          .bias = bias,
          .init_std = init_std(config),
          .heads = heads_,
          .parts = std::move(parts),
          .adapters = &adapters_};
}

Linear::Options DecoderBlock::up_options(const ModelConfig& config, std::int64_t out, bool bias) {
  return {.in = config.hidden,
          .out = out,
          .bias = bias,
          .init_std = init_std(config),
          .segments = {{.rows = out, .kind = Segment::Kind::padded}},
          .adapters = &adapters_};
}

Linear::Options DecoderBlock::residual_options(const ModelConfig& config, std::int64_t in,
                                               std::int64_t in_unit, bool bias) {
  return {.in = in,
          .out = config.hidden,
          .in_unit = in_unit,
          .orientation = Orientation::transposed,
          .bias = bias,
          .init_std = init_std(config) / std::sqrt(2.0 * static_cast<double>(config.layers)),
          .adapters = &adapters_};
}

Decoder::Decoder(const ModelConfig& config, const Grid& grid, const Ends& ends)
    : config_(config),
      embedding_group_("embedding", grid),
      embedding_adapters_(embedding_group_, config.lora),
      embedding_(keeping_codes(embedding_group_, embedding_codes_, config), ends.embedding,
                 {.vocab = config.vocab,
                  .width = config.hidden,
                  .positions = ends.positions,
                  .unused_positions = ends.unused_positions,
                  .init_std = config.init_std,
                  .adapters = &embedding_adapters_}),
      head_group_(ends.norm, grid),
      head_adapters_(head_group_, config.lora),
      norm_(keeping_codes(head_group_, head_codes_, config), ends.norm, ends.norm_options),
      output_(config.tied
                  ? embedding_.table()
                  : head_group_.add({.name = "lm_head.weight",
                                     .layout = vocabulary_layout(config.vocab, config.hidden),
                                     .init_std = config.init_std,
                                     .decays = true})),
      cross_entropy_(output_,
                     {.vocab = config.vocab, .cap = config.logit_cap, .adapters = &head_adapters_}),
      routers_{.experts = config.experts, .per_row = config.experts_per_token, .biases = {}} {
  if (config.is_llama() && config.layer_input > 0)  // other families have no such key
    layer_inputs_.emplace(grid, LayerInputs::Options{.vocab = config.vocab,
                                                     .width = config.hidden,
                                                     .layers = config.layers,
                                                     .input = config.layer_input,
                                                     .init_std = config.init_std,
                                                     .eps = static_cast<float>(config.norm_eps)});
  if (config.lora.rank == 0) return;
  if (layer_inputs_) layer_inputs_->group().freeze();
  embedding_group_.freeze();
  head_group_.freeze();
}

Decoder::~Decoder() = default;

void Decoder::count_router(const DecoderBlock& block) {
  if (const Experts* experts = block.experts())
    routers_.biases.push_back(experts->bias() ? &experts->bias()->spec() : nullptr);
}

void Decoder::add_mtp(std::unique_ptr<MtpLayer> layer) {
  count_router(layer->block());
  mtp_layers_.push_back(std::move(layer));
}

void Decoder::add(std::unique_ptr<DecoderBlock> block) {
  count_router(*block);
  for (ParameterGroup* group : block->groups())
    if (config_.lora.rank > 0 && !trains(block->adapters(), group)) group->freeze();
  blocks_.push_back(std::move(block));
  if (std::ssize(blocks_) == config_.layers && config_.lora.rank > 0) check_adapters();
}

void Decoder::check_adapters() {
  std::vector<Adapters*> all{&embedding_adapters_, &head_adapters_};
  for (const auto& block : blocks_) all.push_back(&block->adapters());
  std::vector<std::string> layers;
  std::vector<const ParameterGroup*> whole;
  for (const Adapters* one : all) {
    std::ranges::copy(one->layers(), std::back_inserter(layers));
    whole.push_back(&one->whole());
  }
  check_modules(config_.lora, whole);
  if (embedding_adapters_.adapts() || head_adapters_.adapts()) check_ends(config_.lora);
  if (config_.lora.choices.empty()) return check_targets(config_, config_.lora, layers);
  for (const LoraConfig& choice : config_.lora.choices) try {
      check_targets(config_, choice, layers);
    } catch (const UsageError& error) {
      refuse("the adapters at ", choice.path, ": ", error.what());
    }
}

std::vector<ParameterGroup*> Decoder::groups() {
  std::vector<ParameterGroup*> all =
      groups_of(embedding_group_, embedding_adapters_, embedding_codes_);
  if (layer_inputs_) all.push_back(&layer_inputs_->group());
  for (const auto& block : blocks_) std::ranges::copy(block->groups(), std::back_inserter(all));
  std::ranges::copy(groups_of(head_group_, head_adapters_, head_codes_), std::back_inserter(all));
  for (const auto& layer : mtp_layers_) std::ranges::copy(layer->groups(), std::back_inserter(all));
  return all;
}

void Decoder::initialise_from_others(const Context& ctx) {
  if (!config_.lora.dora) return;
  for (const auto& block : blocks_) {
    GatheredWeights weights(ctx, block->groups(), ReadIn::forward);
    block->adapters().initialise_magnitudes(weights.context());
    weights.release();
  }
}

std::string Decoder::describe() const {
  return concat(config_.layers, config_.layers == 1 ? " layer" : " layers", ", width ",
                config_.hidden, ", ", config_.heads, " heads");
}

std::int64_t Decoder::parameters_in_blocks() const {
  std::int64_t count = 0;
  for (const auto& block : blocks_)
    for (const ParameterGroup* group : block->groups())
      if (!block->adapters().has(group)) count += active_parameters(*group, routers_);
  return count;
}

double Decoder::attention_columns(std::int64_t seq_len) const {
  std::int64_t columns = 0;
  for (std::int64_t layer = 0; layer < config_.layers; ++layer)
    if (!config_.has_delta(layer))
      columns += config_.heads * config_.head_width(config_.window_of(layer));
  columns += mtp_layers() * config_.heads * config_.head_width();
  return static_cast<double>(columns * seq_len);
}

double Decoder::flops_per_token(std::int64_t seq_len) {
  const std::int64_t inputs = layer_inputs_ ? layer_inputs_->active_parameters() : 0;
  std::int64_t head = active_parameters(head_group_, routers_) +
                      active_parameters(head_adapters_.whole(), routers_) +
                      (config_.tied ? config_.vocab * config_.hidden : 0);
  for (const ParameterGroup* group : head_codes_->groups())
    head += active_parameters(*group, routers_);
  std::int64_t all = parameters_in_blocks() + head + inputs;
  for (const auto& layer : mtp_layers_) {
    all += head;
    for (const ParameterGroup* group : layer->groups()) all += active_parameters(*group, routers_);
  }
  std::int64_t trained = all;
  if (config_.lora.rank > 0) {
    trained = active_parameters(head_adapters_.whole(), routers_);
    for (const auto& block : blocks_)
      trained += active_parameters(block->adapters().whole(), routers_);
  }
  return static_cast<double>(4 * all + 2 * trained) + 6 * attention_columns(seq_len);
}

double Decoder::block_flops_per_token(std::int64_t seq_len) {
  return 2 * static_cast<double>(parameters_in_blocks()) + 2 * attention_columns(seq_len);
}

void Decoder::prepare(const Context&, const Tokens&) {}

/// As Gemma's models have it, rounded to the compute type.
float Decoder::embedding_scale(const Context& ctx) const {
  return stored_as(ctx.dtype, static_cast<float>(config_.embedding_scale));
}

std::vector<Var> Decoder::embed(const Context& ctx, const std::vector<Tokens>& all) {
  const bool adapted = embedding_adapters_.adapts();
  GatheredWeights weights(ctx, groups_of(embedding_group_, embedding_adapters_, embedding_codes_),
                          adapted        ? ReadIn::both_passes
                          : config_.tied ? ReadIn::forward_again
                                         : ReadIn::forward);
  std::vector<Var> embedded;
  for (const Tokens& tokens : all) embedded.push_back(embedding_(weights.context(), tokens));
  weights.release();
  if (config_.embedding_scale != 1)
    for (Var& x : embedded) x = scale(ctx, x, embedding_scale(ctx));
  return embedded;
}

Var Decoder::hidden(const Context& ctx, const Tokens& tokens) {
  prepare(ctx, tokens);
  return through_blocks(ctx, tokens, std::move(embed(ctx, {tokens}).front()));
}

void Decoder::loss(const Context& ctx, const Tokens& tokens, float scale, const Tensor& total) {
  const MtpLoss* const mtp = ctx.find<MtpLoss>();
  if (!mtp || mtp_layers_.empty()) return LanguageModel::loss(ctx, tokens, scale, total);
  AXONN_CHECK(std::ssize(tokens.further) == mtp_layers(), "loss: ", tokens.further.size(),
              " further tokens for ", mtp_layers(), " layers that predict some");
  std::vector<Tokens> all{tokens};
  for (const auto& [ids, targets] : tokens.further) all.push_back({ids, targets, tokens.rows});
  prepare(ctx, tokens);
  std::vector<Var> embedded = embed(ctx, all);
  const Var x = through_blocks(ctx, tokens, std::exchange(embedded[0], {}));
  const Head end = head();
  GatheredWeights weights(ctx, end.groups, ReadIn::held);
  const Context& inside = weights.context();
  const auto predict = [&](const Var& normed, const Tensor& targets, float factor, const View& to) {
    const Var input = end.scale == 1 ? normed : axonn::scale(inside, normed, end.scale);
    end.output(inside, input, targets, factor, to);
  };
  Var h = end.norm(inside, x);
  predict(h, tokens.targets, scale, total.view());
  const float factor = scale * mtp->weight / static_cast<float>(mtp_layers());
  for (std::int64_t i = 0; i < mtp_layers(); ++i) {
    h = (*mtp_layers_[i])(ctx, embedded[i + 1], h, config_.layers + i);
    predict(h, tokens.further[i].targets, factor, mtp->total);
  }
  weights.release();
}

Var Decoder::through_blocks(const Context& ctx, const Tokens& tokens, Var x) {
  std::vector<Var> inputs, keys(blocks_.size());
  if (layer_inputs_) inputs = (*layer_inputs_)(ctx, tokens, x);
  for (std::int64_t number = 0; number < std::ssize(blocks_); ++number) {
    const DecoderBlock& block = *blocks_[number];
    const std::int64_t of = config_.keys_of(number);
    const BlockInputs beside{inputs.empty() ? Var() : std::exchange(inputs[number], {}),
                             of == number ? Var() : keys[of]};
    const std::size_t chunks = x.size();
    const Var out = run_block(
        ctx, blocks_[number]->groups(), x,
        [&block, beside](const Context& inner, const Var& in) {
          return block.with_inputs(inner, in, beside);
        },
        number);
    x = {};
    for (std::size_t i = 0; i < out.size(); ++i)
      (i < chunks ? x : keys[number]).append(out.part(i));
  }
  return x;
}

LanguageModel::Head Decoder::head() {
  std::vector<ParameterGroup*> groups = groups_of(head_group_, head_adapters_, head_codes_);
  if (config_.tied) {
    const std::vector<ParameterGroup*> codes = embedding_codes_->groups();
    groups.insert(groups.begin(), codes.empty() ? &embedding_group_ : codes.front());
  }
  return {norm_, cross_entropy_, std::move(groups),
          static_cast<float>(config_.logit_scale / config_.width_factor())};
}

}  // namespace axonn
