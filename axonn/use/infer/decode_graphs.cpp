#include "axonn/use/infer/decode_graphs.h"

#include "axonn/foundation/base/check.h"

namespace axonn {

bool DecodeGraphs::possible(LoadedModel& model) {
  return model.backend().device().captures() && model.grid().world().size() == 1 &&
         model.model().repeats_passes() && model.config().model.lora.choices.empty();
}

Tensor DecodeGraphs::copy_to(const Context& ctx, Tensor& all, const Tensor& from) const {
  if (from.empty()) return {};
  AXONN_CHECK(from.rows() == 1 && from.cols() <= most_rows_, "DecodeGraphs: ", from.raw_view(),
              " for a pass, wanted (1,n) of at most ", most_rows_);
  if (all.empty()) all = ctx.empty(1, most_rows_, from.dtype());
  Tensor kept = all.col_range(0, from.cols());
  ctx.device().copy(kept.view().data, from.view().data, from.bytes());
  return kept;
}

Tensor DecodeGraphs::run(const Context& ctx, KeyValueCache& cache, const Tokens& tokens,
                         std::int64_t wanted, const std::function<Tensor(const Tokens&)>& compute) {
  // Sizes of a few passes, as when sequences end one after another, are not worth a capture, which
  // takes longer than a pass. A pass also takes what it keeps, as tables, and chooses its products.
  constexpr int kBefore = 3;
  constexpr std::size_t kMostSizes = 32;
  const std::tuple key{tokens.ids.cols(), wanted, !tokens.rows.rotary.empty()};
  if (sizes_.size() >= kMostSizes && !sizes_.contains(key)) sizes_.clear();
  Size& size = sizes_[key];
  if (size.passes++ < kBefore) return compute(tokens);

  Tokens kept = tokens;
  kept.ids = copy_to(ctx, ids_, tokens.ids);
  kept.rows.position = copy_to(ctx, position_, tokens.rows.position);
  kept.rows.start = copy_to(ctx, start_, tokens.rows.start);
  kept.rows.rotary = copy_to(ctx, rotary_, tokens.rows.rotary);
  cache.use_slots(
      {copy_to(ctx, slots_, cache.slots().all), copy_to(ctx, kept_slots_, cache.slots().kept)});
  if (logits_.empty()) {
    const Tensor first = compute(kept);  // tells how wide logits are
    logits_ = ctx.empty(most_rows_, first.cols(), first.dtype());
    return first;
  }
  const Tensor logits = logits_.row_range(0, wanted);
  if (size.graph && !ctx.arena().lies_as(size.layout)) size.graph.reset();
  if (!size.graph) {
    size.graph = ctx.device().capture([&] {
      const Tensor computed = compute(kept);
      AXONN_CHECK(computed.count() == logits.count() && computed.dtype() == logits.dtype(),
                  "DecodeGraphs: logits ", computed.raw_view(), ", wanted ", logits.raw_view());
      ctx.device().copy(logits.view().data, computed.view().data, computed.bytes());
    });
    size.layout = ctx.arena().layout();
  }
  size.graph->launch();
  return logits;
}

}  // namespace axonn
