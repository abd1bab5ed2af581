#include "axonn/network/nn/tokens.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/grid/sequence_cut.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

namespace {

void check_positions(const Rows& rows, const RowPositions& positions) {
  const auto fits = [&](std::span<const std::int32_t> each) {
    return each.empty() || std::ssize(each) == rows.count();
  };
  AXONN_CHECK(fits(positions.positions) && fits(positions.starts) && fits(positions.counted) &&
                  fits(positions.lengths),
              "make_tokens: ", positions.positions.size(), " positions, ", positions.starts.size(),
              " starts, ", positions.counted.size(), " marks of padding and ",
              positions.lengths.size(), " lengths for ", rows.count(), " rows");
  for (std::int32_t position : positions.positions)
    AXONN_CHECK(position >= 0 && position < rows.most_positions(), "make_tokens: position ",
                position, ", want 0 to ", rows.most_positions() - 1);
  for (std::int64_t r = 0; r < std::ssize(positions.starts); ++r)
    AXONN_CHECK(positions.starts[r] >= 0 && positions.starts[r] <= r % rows.positions,
                "make_tokens: row ", r % rows.positions,
                " of a sequence, wanted a document start from 0 to that row, got ",
                positions.starts[r]);
  AXONN_CHECK(positions.branches.empty() || std::ssize(positions.branches) == 3 * rows.sequences,
              "make_tokens: ", positions.branches.size(), " numbers of branches for ",
              rows.sequences, " sequences, want 3 for each");
  for (std::size_t i = 0; i < positions.branches.size(); i += 3) {
    const auto of = positions.branches.subspan(i, 3);
    AXONN_CHECK(0 <= of[0] && of[0] <= of[1] && of[1] <= of[2] && of[2] <= rows.positions,
                "make_tokens: branches ", of[0], ", ", of[1], " and ", of[2], " of a sequence of ",
                rows.positions, " rows, want them in order");
  }
}

/// Rows::rotary of all rows, in host memory; empty if it is.
std::vector<std::int32_t> rotary_rows(const Rows& rows, const RowPositions& positions) {
  std::vector<std::int32_t> all;
  if (positions.short_sequences == 0) return all;
  for (std::int64_t r = 0; r < std::ssize(positions.lengths); ++r) {
    const std::int64_t position =
        positions.positions.empty() ? r % rows.positions : positions.positions[r];
    const bool is_long = positions.lengths[r] > positions.short_sequences;
    all.push_back(static_cast<std::int32_t>(position + (is_long ? rows.most_positions() : 0)));
  }
  return all;
}

/// The positions of a rank's rows in all sequences, and how attention sees them.
SequenceShare share_of(const Context& ctx, const Rows& whole,
                       std::span<const std::int32_t> starts) {
  const GridShape& shape = ctx.grid.shape();
  const SequenceCut& cut = ctx.scheduling().run.sequence_cut;
  const int part = context_part(shape, ctx.grid.coords());
  const std::int64_t T = whole.positions, blocks = T / kContextBlock;
  SequenceShare share{.whole = T, .keys = T, .numbers = {}, .blocks = {}, .slots = {}};
  std::vector<std::int32_t> slots(whole.sequences * blocks);
  for (std::int64_t s = 0; s < whole.sequences; ++s) {
    const auto of_rank =
        context_blocks(T, shape.context, cut, starts.empty() ? starts : starts.subspan(s * T, T));
    std::int32_t slot = 0;
    for (const auto& numbers : of_rank)
      for (const std::int32_t number : numbers) slots[s * blocks + number] = slot++;
    share.numbers.insert(share.numbers.end(), of_rank[part].begin(), of_rank[part].end());
  }
  if (layout_of(cut, T, shape.context, !starts.empty()) != ContextLayout::window) {
    share.blocks = ctx.on_device(share.numbers);
    share.slots = ctx.on_device(slots);
    return share;
  }
  share.kind = SequenceShare::Keys::halo_and_run;
  share.halo = halo_of(cut.window);
  share.keys = share.halo + T / shape.context;
  share.first_key = part * (T / shape.context) - share.halo;
  std::vector<std::int32_t> among_keys;
  for (const std::int32_t number : share.numbers)
    among_keys.push_back(static_cast<std::int32_t>(number - share.first_key / kContextBlock));
  share.blocks = ctx.on_device(among_keys);
  return share;
}

/// This rank's part of tokens, as make_tokens() returns it.
Tokens shared_tokens(const Context& ctx, std::span<const std::int32_t> ids,
                     std::span<const std::int32_t> targets, const Rows& whole,
                     const RowPositions& positions) {
  const auto share = std::make_shared<const SequenceShare>(share_of(ctx, whole, positions.starts));
  Rows rows{.sequences = whole.sequences,
            .positions = whole.positions / ctx.grid.shape().context,
            .first = whole.first,
            .reach = whole.reach,
            .share = share};
  const auto cut = [&](auto value_of) {  // value_of: a function of the row among those of `whole`
    if (!ctx.device().keeps_values()) return ctx.empty(1, rows.count(), DType::i32);
    std::vector<std::int32_t> part;
    part.reserve(rows.count());
    rows.for_each_run([&](std::int64_t, std::int64_t count, std::int64_t number) {
      for (std::int64_t row = number - rows.first; row < number - rows.first + count; ++row)
        part.push_back(value_of(row));
    });
    return ctx.on_device(part);
  };
  const auto part_of = [&](std::span<const std::int32_t> all) {
    return all.empty() ? Tensor() : cut([all](std::int64_t row) { return all[row]; });
  };
  const std::int64_t T = whole.positions;
  rows.position = positions.positions.empty()
                      ? cut([T](std::int64_t row) { return static_cast<std::int32_t>(row % T); })
                      : part_of(positions.positions);
  rows.counted = part_of(positions.counted);
  rows.rotary = part_of(rotary_rows(whole, positions));
  if (share->has_halo()) {
    // The first rank's halo holds no keys.
    rows.start = cut([&, first_key = share->first_key](std::int64_t row) {
      const std::int64_t start = positions.starts.empty() ? 0 : positions.starts[row];
      return static_cast<std::int32_t>(std::max<std::int64_t>(start - first_key, 0));
    });
  } else {
    rows.start = part_of(positions.starts);
  }
  return {part_of(ids), part_of(targets), std::move(rows)};
}

/// Moves ids and targets one position on in each document.
void move_on(std::vector<std::int32_t>& ids, std::vector<std::int32_t>& targets,
             std::int64_t length, std::span<const std::int32_t> starts) {
  const std::int64_t rows = std::ssize(ids);
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool ends =
        (row + 1) % length == 0 || (!starts.empty() && starts[row + 1] != starts[row]);
    ids[row] = ends ? 0 : ids[row + 1];
    targets[row] = ends ? -1 : targets[row + 1];
  }
}

}  // namespace

Tokens make_tokens(const Context& ctx, std::span<const std::int32_t> ids,
                   std::span<const std::int32_t> targets, Rows rows,
                   const RowPositions& positions) {
  AXONN_CHECK(std::ssize(ids) == rows.count() && (targets.empty() || targets.size() == ids.size()),
              "make_tokens: ", ids.size(), " ids and ", targets.size(), " targets for ",
              rows.sequences, " sequences of ", rows.positions);
  if (positions.reach > 0) rows.reach = positions.reach;
  check_positions(rows, positions);
  const bool shared = ctx.grid.shape().context > 1 && !positions.whole;
  AXONN_CHECK(positions.further == 0 || !shared,
              "make_tokens: ranks share sequences, and have not all of the further tokens");
  AXONN_CHECK(positions.branches.empty() || !shared,
              "make_tokens: ranks share sequences, and a branch needs its whole sequence");
  if (shared) return shared_tokens(ctx, ids, targets, rows, positions);
  rows.position = ctx.on_device(positions.positions);
  rows.start = ctx.on_device(positions.starts);
  rows.counted = ctx.on_device(positions.counted);
  rows.rotary = ctx.on_device(rotary_rows(rows, positions));
  rows.branches = ctx.on_device(positions.branches);
  Tokens tokens{ctx.on_device(ids), ctx.on_device(targets), std::move(rows)};
  std::vector<std::int32_t> further_ids(ids.begin(), ids.end()),
      further_targets(targets.begin(), targets.end());
  for (int i = 0; i < positions.further; ++i) {
    move_on(further_ids, further_targets, tokens.rows.positions, positions.starts);
    tokens.further.push_back({ctx.on_device(further_ids), ctx.on_device(further_targets)});
  }
  return tokens;
}

}  // namespace axonn
