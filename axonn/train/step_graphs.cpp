#include "axonn/train/step_graphs.h"

#include <algorithm>

#include "axonn/base/check.h"

namespace axonn {

std::string why_not_captured(Device& device, const Grid& grid) {
  if (!device.captures())
    return concat("device ", device.name(),
                  " has no graphs; set parallelism.device = \"cuda\", or leave it out");
  if (!grid.world().on_streams())
    return "ranks talk through the host, which a graph cannot hold; it takes NCCL "
           "(parallelism.transport) and a card for each rank";
  return {};
}

StepGraphs::Piece StepGraphs::piece_of(int micro, int micro_batches) {
  if (micro_batches == 1) return Piece::only;
  if (micro == 0) return Piece::first;
  return micro + 1 == micro_batches ? Piece::last : Piece::middle;
}

bool StepGraphs::begin_step(const Context& ctx, const Constants& constants) {
  const auto fits = [&](const Captured& piece) {
    return !piece.graph || ctx.arena.lies_as(piece.layout);
  };
  if (!std::ranges::all_of(pieces_, fits)) {
    AXONN_CHECK(ctx.grid.world().size() == 1,
                "a step's graphs would write memory that was taken from the arena after the second "
                "step and is still held, or read some that was given back; hold it for one step "
                "alone, take it before the second, or set training.cuda_graph = false");
    pieces_ = {};
  }
  const auto captured = [](const Captured& piece) { return piece.graph != nullptr; };
  if (std::ranges::none_of(pieces_, captured)) constants_ = constants;
  return constants == constants_;
}

void StepGraphs::run(Arena& arena, Piece piece, const std::function<void()>& work) {
  Captured& captured = pieces_[static_cast<std::size_t>(piece)];
  if (!captured.graph) {
    const std::int64_t live = arena.stats().live_bytes;
    captured.graph = arena.device().capture(work);
    AXONN_CHECK(arena.stats().live_bytes == live, "a captured piece of a step keeps ",
                arena.stats().live_bytes - live, " bytes; later launches would not find them");
    captured.layout = arena.layout();
    ++captures_;
  }
  captured.graph->launch();
}

const Tokens& StepGraphs::place(const Context& ctx, const Tokens& tokens) {
  const auto put = [&ctx](Tensor& to, const Tensor& from) {
    if (from.empty()) return;
    if (to.empty()) to = ctx.like(from);
    AXONN_CHECK(to.count() == from.count(), "tokens: ", from.count(), " rows, captured with ",
                to.count());
    ctx.arena.device().copy(to.view().data, from.view().data, from.bytes());
  };
  Rows& rows = tokens_.rows;
  if (tokens_.ids.empty())
    rows = {.sequences = tokens.rows.sequences,
            .positions = tokens.rows.positions,
            .reach = tokens.rows.reach};
  AXONN_CHECK(rows.sequences == tokens.rows.sequences && rows.positions == tokens.rows.positions &&
                  rows.reach == tokens.rows.reach,
              "tokens: ", tokens.rows.sequences, " sequences of ", tokens.rows.positions,
              ", captured with ", rows.sequences, " of ", rows.positions);
  put(tokens_.ids, tokens.ids);
  put(tokens_.targets, tokens.targets);
  put(rows.position, tokens.rows.position);
  put(rows.start, tokens.rows.start);
  return tokens_;
}

}  // namespace axonn
