#include "neighbours.h"

#include <functional>
#include <string>

using namespace axonn;

namespace {

/// The token `by` positions earlier in each row's document; 0 before the document's start.
Tokens earlier(const Context& ctx, const Tokens& tokens, std::int64_t by) {
  const auto count = static_cast<std::size_t>(tokens.rows.count());
  const auto host_copy = [&](const Tensor& tensor) {
    std::vector<std::int32_t> values(count);
    if (!tensor.empty())
      ctx.device().copy_to_host(values.data(), tensor.view().data, tensor.bytes());
    return values;
  };
  // Sequences of several documents name the row of its sequence where each row's document starts.
  const std::vector<std::int32_t> ids = host_copy(tokens.ids),
                                  starts = host_copy(tokens.rows.start);
  std::vector<std::int32_t> shifted(count);
  for (std::int64_t row = 0; row < tokens.rows.count(); ++row)
    if (row % tokens.rows.positions - by >= starts[row]) shifted[row] = ids[row - by];
  return make_tokens(ctx, shifted, {}, tokens.rows);
}

}  // namespace

MlpBlock::MlpBlock(const Grid& grid, const std::string& name, std::int64_t width)
    : group_(name, grid),
      norm_(group_, name + ".norm", {.width = width}),
      up_(group_, name + ".up", {.in = width, .out = 4 * width}),
      down_(group_, name + ".down",
            {.in = 4 * width, .out = width, .orientation = Orientation::transposed}),
      scale_(group_, name + ".scale", {.width = width}) {}

Var MlpBlock::operator()(const Context& ctx, const Var& x) const {
  return add(ctx, x, scale_(ctx, down_(ctx, gelu(ctx, up_(ctx, norm_(ctx, x))))));
}

Neighbours::Neighbours(const ModelConfig& config, const Grid& grid)
    : config_(config),
      embedding_group_("embedding", grid),
      head_group_("head", grid),
      norm_(head_group_, "norm", {.width = config.hidden}),
      cross_entropy_(head_group_.add({.name = "output.weight",
                                      .layout = vocabulary_layout(config.vocab, config.hidden),
                                      .init_std = 0.02,
                                      .decays = true}),
                     {.vocab = config.vocab}) {
  for (std::int64_t back = 0; back < config.own<std::int64_t>("neighbours.context"); ++back)
    embeddings_.emplace_back(
        embedding_group_,
        Embedding::Names{.tokens = "embedding." + std::to_string(back), .positions = {}},
        Embedding::Options{.vocab = config.vocab, .width = config.hidden});
  for (std::int64_t i = 0; i < config.layers; ++i)
    blocks_.push_back(
        std::make_unique<MlpBlock>(grid, "block." + std::to_string(i), config.hidden));
}

std::vector<ParameterGroup*> Neighbours::groups() {
  std::vector<ParameterGroup*> all{&embedding_group_};
  for (const auto& block : blocks_) all.push_back(&block->parameters());
  all.push_back(&head_group_);
  return all;
}

/// The embeddings are looked up, not multiplied.
double Neighbours::flops_per_token(std::int64_t seq_len) {
  const std::int64_t tables = std::ssize(embeddings_) * config_.vocab * config_.hidden;
  return Model::flops_per_token(seq_len) - 6.0 * static_cast<double>(tables);
}

std::string Neighbours::describe() const {
  return std::to_string(blocks_.size()) + " blocks, width " + std::to_string(config_.hidden) +
         ", context " + std::to_string(embeddings_.size());
}

Var Neighbours::hidden(const Context& ctx, const Tokens& tokens) {
  GatheredWeights weights(ctx, embedding_group_);
  const Context& inside = weights.context();
  Var x = embeddings_[0](inside, tokens);
  for (std::size_t back = 1; back < embeddings_.size(); ++back)
    x = add(inside, x,
            embeddings_[back](inside, earlier(inside, tokens, static_cast<std::int64_t>(back))));
  weights.release();
  for (const auto& block : blocks_) x = run_block(ctx, block->parameters(), x, std::cref(*block));
  return x;
}
