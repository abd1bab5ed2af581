#include "axonn/foundation/grid/sequence_cut.h"

#include <algorithm>
#include <numeric>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// Runs of a balanced cut on each rank, at most; half of what a zigzag cut has for each of its two.
constexpr std::int64_t kMostRuns = 16;

/// The runs, of equal length, that each rank has: the most up to kMostRuns that are whole blocks.
std::int64_t runs_each(std::int64_t blocks, int ranks, ContextLayout layout) {
  if (layout == ContextLayout::window) return 1;
  if (layout != ContextLayout::balanced) return 2;
  for (std::int64_t runs = kMostRuns; runs > 2; runs -= 2)
    if (blocks % (runs * ranks) == 0) return runs;
  return 2;
}

/// The rank of each run: the run of most work first, to the rank of least work that has room. Ties
/// go to the lower number.
std::vector<int> balanced_ranks(const std::vector<std::int64_t>& work, int ranks) {
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](auto a, auto b) { return work[a] > work[b]; });
  std::vector<std::int64_t> load(ranks);
  std::vector<std::size_t> taken(ranks);
  const std::size_t room = work.size() / ranks;
  std::vector<int> rank_of(work.size());
  for (const std::size_t run : order) {
    int least = -1;
    for (int rank = 0; rank < ranks; ++rank)
      if (taken[rank] < room && (least < 0 || load[rank] < load[least])) least = rank;
    rank_of[run] = least;
    load[least] += work[run];
    ++taken[least];
  }
  return rank_of;
}

}  // namespace

std::int64_t unit_of_cut(int ranks) { return ranks > 1 ? 2 * ranks * kContextBlock : 1; }

std::string trouble_of_cut(std::int64_t positions, int ranks) {
  const std::int64_t unit = unit_of_cut(ranks);
  if (positions > 0 && positions % unit == 0) return "";
  return concat("sequences of ", positions, " tokens cannot be cut among ", ranks,
                " ranks into two runs each of whole blocks of ", kContextBlock,
                "; the next length that can is ", (positions / unit + 1) * unit);
}

ContextLayout layout_of(const SequenceCut& cut, std::int64_t positions, int ranks,
                        bool has_documents) {
  const bool fits = cut.window > 0 && cut.window <= positions / ranks;
  if (cut.layout == ContextLayout::window && !fits)
    refuse("[parallelism] context_layout = \"window\" needs a model with a window of up to ",
           positions / ranks, " positions, those of a rank; this one has ",
           cut.window > 0 ? concat("one of ", cut.window) : "none", "; set it to \"auto\"");
  if (cut.layout != ContextLayout::automatic) return cut.layout;
  if (fits) return ContextLayout::window;
  return has_documents ? ContextLayout::balanced : ContextLayout::zigzag;
}

std::int64_t halo_of(std::int64_t window) {
  const std::int64_t blocks = (window - 1 + kContextBlock - 1) / kContextBlock;
  return std::max<std::int64_t>(blocks, 1) * kContextBlock;
}

std::int64_t pairs_of_block(std::int64_t block, std::int64_t window,
                            std::span<const std::int32_t> starts) {
  std::int64_t pairs = 0;
  for (std::int64_t row = block * kContextBlock; row < (block + 1) * kContextBlock; ++row) {
    std::int64_t first = starts.empty() ? 0 : starts[row];
    if (window > 0) first = std::max(first, row - window + 1);
    pairs += row - first + 1;
  }
  return pairs;
}

std::vector<std::vector<std::int32_t>> context_blocks(std::int64_t positions, int ranks,
                                                      const SequenceCut& cut,
                                                      std::span<const std::int32_t> starts) {
  AXONN_CHECK(trouble_of_cut(positions, ranks).empty(), trouble_of_cut(positions, ranks));
  AXONN_CHECK(starts.empty() || std::ssize(starts) == positions, "context_blocks: ", starts.size(),
              " starts for ", positions, " positions");
  const ContextLayout layout = layout_of(cut, positions, ranks, !starts.empty());
  const std::int64_t blocks = positions / kContextBlock, each = runs_each(blocks, ranks, layout),
                     runs = each * ranks, length = blocks / runs;
  std::vector<int> rank_of(runs);
  if (layout == ContextLayout::window) {
    std::iota(rank_of.begin(), rank_of.end(), 0);
  } else if (layout == ContextLayout::balanced) {
    std::vector<std::int64_t> work(runs);
    for (std::int64_t block = 0; block < blocks; ++block)
      work[block / length] += pairs_of_block(block, cut.window, starts);
    rank_of = balanced_ranks(work, ranks);
  } else {
    for (int run = 0; run < runs; ++run)
      rank_of[run] = std::min(run, static_cast<int>(runs) - 1 - run);
  }
  std::vector<std::vector<std::int32_t>> of_rank(ranks);
  for (std::int64_t block = 0; block < blocks; ++block)
    of_rank[rank_of[block / length]].push_back(static_cast<std::int32_t>(block));
  return of_rank;
}

}  // namespace axonn
