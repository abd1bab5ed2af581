#include "axonn/run/train/step_graphs.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"

namespace axonn {

bool StepGraphs::begin_step(const Context& ctx, const Constants& constants) {
  const auto fits = [&](const Captured& piece) {
    return !piece.graph || ctx.arena().lies_as(piece.layout);
  };
  if (!std::ranges::all_of(pieces_, fits)) {
    AXONN_CHECK(
        ctx.grid.world().size() == 1,
        "a step's graphs would write memory that was taken from the arena after the second step "
        "and is still held, or read memory that was given back; hold such memory for one step "
        "only, take it before the second step, or set training.cuda_graph = false");
    pieces_ = {};
  }
  const auto captured = [](const Captured& piece) { return piece.graph != nullptr; };
  if (std::ranges::none_of(pieces_, captured)) constants_ = constants;
  return constants == constants_;
}

void StepGraphs::run(Arena& arena, int micro, int micro_batches,
                     const std::function<void()>& work) {
  Captured& captured = pieces_[(micro == 0 ? 1 : 0) + (micro + 1 == micro_batches ? 2 : 0)];
  if (!captured.graph) {
    const std::int64_t live = arena.stats().live_bytes;
    captured.graph = arena.device().capture(work);
    AXONN_CHECK(arena.stats().live_bytes == live, "a captured piece of a step keeps ",
                arena.stats().live_bytes - live,
                " bytes of memory, which later launches would overwrite");
    captured.layout = arena.layout();
    ++captures_;
  }
  captured.graph->launch();
}

namespace {

/// A share of the same sizes with tensors of its own; null if there is none. Its numbers, in host
/// memory, stay those of the first tokens: only dropout reads them, which graphs refuse, and counts
/// of flops.
std::shared_ptr<const SequenceShare> share_like(const Context& ctx, const SequenceShare* share) {
  if (!share) return nullptr;
  auto like = std::make_shared<SequenceShare>(*share);
  for (Tensor* tensor : {&like->blocks, &like->slots})
    if (!tensor->empty()) *tensor = ctx.like(*tensor);
  return like;
}

}  // namespace

const Tokens& StepGraphs::copy_to(const Context& ctx, const Tokens& tokens) {
  const auto put = [&ctx](Tensor& to, const Tensor& from) {
    if (from.empty()) return;
    if (to.empty()) to = ctx.like(from);
    AXONN_CHECK(to.count() == from.count(), "tokens: ", from.count(), " rows, captured with ",
                to.count());
    ctx.device().copy(to.view().data, from.view().data, from.bytes());
  };
  Rows& rows = tokens_.rows;
  if (tokens_.ids.empty())
    rows = {.sequences = tokens.rows.sequences,
            .positions = tokens.rows.positions,
            .reach = tokens.rows.reach,
            .share = share_like(ctx, tokens.rows.share.get())};
  AXONN_CHECK(rows.sequences == tokens.rows.sequences && rows.positions == tokens.rows.positions &&
                  rows.reach == tokens.rows.reach,
              "tokens: ", tokens.rows.sequences, " sequences of ", tokens.rows.positions,
              ", captured with ", rows.sequences, " of ", rows.positions);
  put(tokens_.ids, tokens.ids);
  put(tokens_.targets, tokens.targets);
  tokens_.further.resize(tokens.further.size());
  for (std::size_t i = 0; i < tokens.further.size(); ++i) {
    put(tokens_.further[i].ids, tokens.further[i].ids);
    put(tokens_.further[i].targets, tokens.further[i].targets);
  }
  put(rows.position, tokens.rows.position);
  put(rows.start, tokens.rows.start);
  put(rows.branches, tokens.rows.branches);
  if (rows.share) {
    Tensor blocks = rows.share->blocks, slots = rows.share->slots;
    put(blocks, tokens.rows.share->blocks);
    put(slots, tokens.rows.share->slots);
  }
  return tokens_;
}

}  // namespace axonn
