#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// How the ranks that share sequences (context parallelism) cut them: by positions, in blocks.
namespace axonn {

/// Positions of a sequence that are never cut apart.
inline constexpr std::int64_t kContextBlock = 64;

/// The rule by which a sequence's blocks go to ranks.
enum class ContextLayout : std::uint8_t {
  automatic,  ///< window if that is possible; else balanced for several documents, else zigzag
  zigzag,     ///< of 2c equal runs, rank i has runs i and 2c - 1 - i: equal work for one document
  balanced,   ///< shorter runs, the largest work first to the rank that has the least
  window,  ///< one run each, where the window is no longer: a rank needs its neighbour's keys only
};
inline constexpr std::array<std::string_view, 4> kContextLayouts = {"auto", "zigzag", "balanced",
                                                                    "window"};

/// The settings that decide on the cut of a sequence.
struct SequenceCut {
  ContextLayout layout = ContextLayout::zigzag;
  std::int64_t window = 0;  ///< keys that a query sees, its own included; 0: all up to its own
};

/// Sequences whose length is a multiple of this can be cut among `ranks` ranks: two blocks for
/// each; 1 for one rank.
std::int64_t unit_of_cut(int ranks);
/// Returns why sequences of this length cannot be cut among `ranks`, with the next length
/// that can; "" if they can.
std::string trouble_of_cut(std::int64_t positions, int ranks);

/// The layout that automatic stands for; the others stay. Throws UsageError for a window layout
/// without a window, or with one that is longer than a rank's run.
ContextLayout layout_of(const SequenceCut& cut, std::int64_t positions, int ranks,
                        bool has_documents);

/// Rows before a rank's run whose keys it gets: the blocks that window - 1 rows take, at least one.
std::int64_t halo_of(std::int64_t window);

/// The blocks of a sequence of `positions` that each rank has, ascending; every rank has as many.
/// `starts` (positions) or empty: the row at which each row's document begins. Depends on nothing
/// else, so all ranks agree. Throws as layout_of(), and Error if the positions cannot be cut.
std::vector<std::vector<std::int32_t>> context_blocks(std::int64_t positions, int ranks,
                                                      const SequenceCut& cut,
                                                      std::span<const std::int32_t> starts = {});

/// The keys that the queries of a block see, summed over its rows: the work of attention.
std::int64_t pairs_of_block(std::int64_t block, std::int64_t window,
                            std::span<const std::int32_t> starts = {});

}  // namespace axonn
