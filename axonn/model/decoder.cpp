#include "axonn/model/decoder.h"

#include <cmath>

#include "axonn/base/check.h"

namespace axonn {

double residual_init_std(const ModelConfig& config) {
  return config.init_std / std::sqrt(2.0 * static_cast<double>(config.layers));
}

void DecoderBlock::finish() {
  if (adapters_.group()) parameters_.freeze();
  adapters_.check_targets();
}

Decoder::Decoder(const ModelConfig& config, const Grid& grid, const Ends& ends)
    : config_(config),
      embedding_group_("embedding", grid),
      embedding_(embedding_group_, ends.embedding,
                 {.vocab = config.vocab,
                  .width = config.hidden,
                  .positions = ends.embedding.positions.empty() ? 0 : config.positions,
                  .init_std = config.init_std}),
      head_group_(ends.norm, grid),
      norm_(head_group_, ends.norm, ends.norm_options),
      output_(config.tied
                  ? embedding_.table()
                  : head_group_.add({.name = "lm_head.weight",
                                     .layout = vocabulary_layout(config.vocab, config.hidden),
                                     .init_std = config.init_std,
                                     .decays = true})),
      cross_entropy_(output_, {.vocab = config.vocab}) {
  if (config.lora.rank == 0) return;
  embedding_group_.freeze();
  head_group_.freeze();
}

std::vector<ParameterGroup*> Decoder::groups() {
  std::vector<ParameterGroup*> all{&embedding_group_};
  for (const auto& block : blocks_) {
    all.push_back(&block->parameters());
    if (block->adapters()) all.push_back(block->adapters());
  }
  all.push_back(&head_group_);
  return all;
}

Var Decoder::hidden(const Context& ctx, const Tokens& tokens) {
  prepare(ctx, tokens.rows);
  Var x;
  with_parameters(
      ctx, embedding_group_, [&](const Context& inside) { x = embedding_(inside, tokens); },
      ReadIn::forward);
  for (const auto& block : blocks_)
    x = run_block(ctx, block->parameters(), x,
                  [&block = *block](const Context& inside, const Var& in) {
                    if (!block.adapters()) return block(inside, in);
                    Var out;
                    with_parameters(inside, *block.adapters(),
                                    [&](const Context& both) { out = block(both, in); });
                    return out;
                  });
  return x;
}

LanguageModel::Head Decoder::head() {
  std::vector<ParameterGroup*> groups{&head_group_};
  if (config_.tied) groups.insert(groups.begin(), &embedding_group_);
  return {norm_, cross_entropy_, std::move(groups)};
}

std::string Decoder::describe() const {
  return concat(config_.layers, config_.layers == 1 ? " layer" : " layers", ", width ",
                config_.hidden, ", ", config_.heads, " heads");
}

}  // namespace axonn
