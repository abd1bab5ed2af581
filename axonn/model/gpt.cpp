#include "axonn/model/gpt.h"

#include <cmath>

#include "axonn/base/check.h"

namespace axonn {

namespace {

LayerNorm::Options norm_options(const ModelConfig& config) {
  return {.width = config.hidden, .bias = config.bias, .eps = static_cast<float>(config.norm_eps)};
}

/// Projections into the residual stream start smaller, as GPT-2 does, so that its variance does not
/// grow with the depth.
double residual_std(const ModelConfig& config) {
  return config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers));
}

}  // namespace

GptBlock::GptBlock(const ModelConfig& config, const Grid& grid, const std::string& name)
    : parameters_(name, grid),
      heads_{config.heads, config.kv_heads, config.head_width()},
      norm1_(parameters_, name + ".ln_1", norm_options(config)),
      qkv_(parameters_, name + ".attn.c_attn",
           {.in = config.hidden,
            .out = heads_.qkv_width(),
            .bias = config.bias,
            .init_std = config.init_std,
            .heads = heads_}),
      project_(parameters_, name + ".attn.c_proj",
               {.in = config.hidden,
                .out = config.hidden,
                .orientation = Orientation::transposed,
                .bias = config.bias,
                .init_std = residual_std(config)}),
      norm2_(parameters_, name + ".ln_2", norm_options(config)),
      up_(parameters_, name + ".mlp.c_fc",
          {.in = config.hidden,
           .out = config.ffn,
           .bias = config.bias,
           .init_std = config.init_std}),
      down_(parameters_, name + ".mlp.c_proj",
            {.in = config.ffn,
             .out = config.hidden,
             .orientation = Orientation::transposed,
             .bias = config.bias,
             .init_std = residual_std(config)}) {}

Var GptBlock::operator()(const Context& ctx, Var x) const {
  x = add(ctx, x, project_(ctx, attention(ctx, qkv_(ctx, norm1_(ctx, x)), heads_)));
  return add(ctx, x, down_(ctx, gelu(ctx, up_(ctx, norm2_(ctx, x)))));
}

Gpt::Gpt(const ModelConfig& config, const Grid& grid)
    : config_(config),
      embedding_group_("embedding", grid),
      embedding_(embedding_group_, {.tokens = "wte.weight", .positions = "wpe.weight"},
                 {.vocab = config.vocab,
                  .width = config.hidden,
                  .positions = config.positions,
                  .init_std = config.init_std}),
      head_group_("ln_f", grid),
      norm_(head_group_, "ln_f", norm_options(config)),
      output_(config.tied
                  ? embedding_.table()
                  : head_group_.add({.name = "lm_head.weight",
                                     .layout = vocabulary_layout(config.vocab, config.hidden),
                                     .init_std = config.init_std,
                                     .decays = true})),
      cross_entropy_(output_, {.vocab = config.vocab}) {
  for (std::int64_t i = 0; i < config.layers; ++i)
    blocks_.push_back(std::make_unique<GptBlock>(config, grid, "h." + std::to_string(i)));
}

std::vector<ParameterGroup*> Gpt::groups() {
  std::vector<ParameterGroup*> all{&embedding_group_};
  for (const auto& block : blocks_) all.push_back(&block->parameters());
  all.push_back(&head_group_);
  return all;
}

Var Gpt::hidden(const Context& ctx, const Tokens& tokens) {
  Var x;
  with_parameters(ctx, embedding_group_,
                  [&](const Context& inside) { x = embedding_(inside, tokens); });
  for (const auto& block : blocks_)
    x = run_block(
        ctx, block->parameters(), x,
        [&block = *block](const Context& inside, const Var& in) { return block(inside, in); });
  return x;
}

/// The final norm, and f on its output with the logits' weight at hand.
void Gpt::head(const Context& ctx, const Var& x,
               const std::function<void(const Context&, const Var&)>& f) {
  const auto normed = [&](const Context& inside) { f(inside, norm_(inside, x)); };
  if (!config_.tied) return with_head(ctx, head_group_, normed);
  with_head(ctx, embedding_group_,
            [&](const Context& inside) { with_head(inside, head_group_, normed); });
}

void Gpt::loss(const Context& ctx, const Tokens& tokens, float scale, const Tensor& total) {
  head(ctx, hidden(ctx, tokens), [&](const Context& inside, const Var& x) {
    cross_entropy_(inside, x, tokens.targets, scale, total);
  });
}

Tensor Gpt::next_logits(const Context& ctx, const Tokens& tokens, std::int64_t position) {
  AXONN_CHECK(!ctx.tape && tokens.rows.sequences == 1 && position < tokens.rows.positions,
              "next_logits: position ", position, " of one sequence of ", tokens.rows.positions,
              " tokens, without a tape; got ", tokens.rows.sequences, " sequences");
  Tensor out;
  head(ctx, hidden(ctx, tokens), [&](const Context& inside, const Var& x) {
    const Tensor rows = whole_rows(inside, x.front(), Axis::x);
    out = cross_entropy_.logits(inside, rows.view().row_range(position, 1));
    out.wait();
  });
  return out;
}

std::unique_ptr<Model> make_gpt(const ModelConfig& config, const Grid& grid) {
  return std::make_unique<Gpt>(config, grid);
}

}  // namespace axonn
