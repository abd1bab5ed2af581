#include "neighbours.h"

#include <algorithm>
#include <string>

#include "axonn/base/check.h"
#include "axonn/nn/pointwise.h"

using namespace axonn;

namespace {

/// Shifts each sequence: the token `by` positions earlier; 0 before the sequence's start.
Tokens earlier(const Context& ctx, const Tokens& tokens, std::int64_t by) {
  const std::int64_t sequences = tokens.rows.sequences, length = tokens.rows.positions;
  Tokens out{ctx.zeros(1, tokens.rows.count(), DType::i32), {}, tokens.rows};
  const auto* from = tokens.ids.view().as<std::int32_t>();
  auto* to = out.ids.view().as<std::int32_t>();
  for (std::int64_t s = 0; s < sequences; ++s)
    ctx.device().copy(to + s * length + std::min(by, length), from + s * length,
                      std::max<std::int64_t>(length - by, 0) * bytes_of(DType::i32));
  return out;
}

}  // namespace

MlpBlock::MlpBlock(const Grid& grid, const std::string& name, std::int64_t width)
    : group_(name, grid),
      norm_(group_, name + ".norm", {.width = width}),
      up_(group_, name + ".up", {.in = width, .out = 4 * width}),
      down_(group_, name + ".down",
            {.in = 4 * width, .out = width, .orientation = Orientation::transposed}) {}

Var MlpBlock::operator()(const Context& ctx, const Var& x) const {
  return add(ctx, x, down_(ctx, gelu(ctx, up_(ctx, norm_(ctx, x)))));
}

Neighbours::Neighbours(const Grid& grid, Options options)
    : embedding_group_("embedding", grid),
      head_group_("head", grid),
      norm_(head_group_, "norm", {.width = options.width}),
      cross_entropy_(head_group_.add({.name = "output.weight",
                                      .layout = vocabulary_layout(kVocab, options.width),
                                      .init_std = 0.02,
                                      .decays = true}),
                     {.vocab = kVocab}) {
  for (int back = 0; back < options.context; ++back)
    embeddings_.emplace_back(
        embedding_group_,
        Embedding::Names{.tokens = "embedding." + std::to_string(back), .positions = {}},
        Embedding::Options{.vocab = kVocab, .width = options.width});
  for (std::int64_t i = 0; i < options.blocks; ++i)
    blocks_.push_back(
        std::make_unique<MlpBlock>(grid, "block." + std::to_string(i), options.width));
}

std::vector<ParameterGroup*> Neighbours::groups() {
  std::vector<ParameterGroup*> all{&embedding_group_};
  for (const auto& block : blocks_) all.push_back(&block->parameters());
  all.push_back(&head_group_);
  return all;
}

Var Neighbours::hidden(const Context& ctx, const Tokens& tokens) {
  AXONN_CHECK(!ctx.cache,
              "Neighbours does not support a cache: it reads the previous tokens, which a cache "
              "does not keep");
  Var x;
  with_parameters(ctx, embedding_group_, [&](const Context& inside) {
    x = embeddings_[0](inside, tokens);
    for (std::size_t back = 1; back < embeddings_.size(); ++back)
      x = add(inside, x, embeddings_[back](inside, earlier(inside, tokens, back)));
  });
  for (const auto& block : blocks_)
    x = run_block(ctx, block->parameters(), x,
                  [&](const Context& inside, const Var& in) { return (*block)(inside, in); });
  return x;
}
