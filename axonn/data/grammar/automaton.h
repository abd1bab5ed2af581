#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "axonn/data/grammar/expression.h"

namespace axonn {

/// Reads texts byte by byte and says which may go on, for expressions with rules: a
/// nondeterministic automaton with a node for each position in an expression, and a stack of the
/// positions to return to from rules (Thompson, 1968, with calls).
///
/// Everything is bounded: an expression has at most kMostNodes nodes, a stack kMostDepth, the
/// stacks of a state kMostKept, and what goes beyond while a text is read is dropped. So no text is
/// allowed that the expression has not; very deep ones are refused.
class Automaton {
 public:
  static constexpr std::size_t kMostNodes = 16'384, kMostDepth = 256,
                               kMostKept = std::size_t{1} << 17;  // nodes in all stacks of a state

  using Stack = std::vector<std::uint32_t>;  ///< nodes, the current one last
  /// Where a text may be: all stacks whose node reads a byte.
  struct State {
    std::vector<Stack> stacks;  ///< sorted
    bool accepts = false;       ///< whether the text may end here

    bool refused() const { return stacks.empty() && !accepts; }
    bool ended() const { return stacks.empty() && accepts; }  ///< it must end
    auto operator<=>(const State&) const = default;
  };

  struct Steps {
    std::int64_t count = 0;
    bool dropped = false;  ///< whether something went beyond a bound
  };

  /// The texts of rule `root`. Throws UsageError if there are too many nodes, or no
  /// text.
  Automaton(const Rules& rules, std::size_t root);

  const State& start() const { return start_; }
  /// The state after one more byte. Adds the steps it takes to `steps`.
  State next(const State& state, std::uint8_t byte, Steps& steps) const;
  /// The fewest bytes with which the text may end; 0 if it may end here.
  std::int64_t bytes_to_end(const State& state) const;
  /// Whether the text is one of the expression's; for tests.
  bool accepts(std::string_view text) const;

 private:
  static constexpr std::int64_t kFar = std::int64_t{1} << 40;

  struct ByteEdge {
    std::uint8_t first, last;
    std::uint32_t to;
  };
  struct Node {
    std::vector<ByteEdge> bytes = {};
    std::vector<std::uint32_t> free = {};  // nodes that are reached without a byte
    std::int32_t rule = -1;                // that is called here
    std::uint32_t after = 0;               // where it returns to
    bool ends = false;                     // of a rule
    bool passes = false;                   // leads to the end of its rule and nowhere else
    std::int64_t to_end = kFar;            // fewest bytes to the end of its rule
  };
  std::uint32_t make_node();
  std::uint32_t build(const GrammarExpression& expression, std::uint32_t from);
  std::uint32_t build_repeat(const GrammarExpression& expression, std::uint32_t from);
  void find_passing();
  void find_bytes_to_end();
  State closed(std::vector<Stack> stacks, Steps& steps) const;

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> starts_;  // of the rules
  State start_;
};

}  // namespace axonn
