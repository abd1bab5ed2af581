#include "axonn/data/grammar/automaton.h"

#include <algorithm>
#include <set>

#include "axonn/foundation/base/check.h"

namespace axonn {

Automaton::Automaton(const Rules& rules, std::size_t root) {
  for (std::size_t i = 0; i < rules.all().size(); ++i) starts_.push_back(make_node());
  for (std::size_t i = 0; i < rules.all().size(); ++i) {
    AXONN_CHECK(rules.all()[i], "Automaton: rule ", i, " was declared and not set");
    nodes_[build(*rules.all()[i], starts_[i])].ends = true;
  }
  find_passing();
  find_bytes_to_end();
  Steps steps;
  start_ = closed({{starts_[root]}}, steps);
  if (steps.dropped)
    refuse("it is too large: its beginnings take more than ", kMostKept, " places");
  if (start_.refused()) refuse("no text fits it");
}

std::uint32_t Automaton::make_node() {
  if (nodes_.size() >= kMostNodes)
    refuse("it is too large: more than ", kMostNodes, " places when repetitions are written out");
  nodes_.emplace_back();
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

/// Adds nodes that read a text of the expression from `from` on; returns the last one.
std::uint32_t Automaton::build(const GrammarExpression& expression, std::uint32_t from) {
  using Kind = GrammarExpression::Kind;
  if (expression.kind == Kind::sequence) {
    for (const ExpressionPtr& part : expression.parts) from = build(*part, from);
    return from;
  }
  if (expression.kind == Kind::repeat) return build_repeat(expression, from);
  if (expression.kind == Kind::text) {
    for (const char c : expression.text) {
      const std::uint32_t next = make_node();
      const auto byte = static_cast<std::uint8_t>(c);
      nodes_[from].bytes.push_back({byte, byte, next});
      from = next;
    }
    return from;
  }
  const std::uint32_t to = make_node();
  if (expression.kind == Kind::bytes)
    for (const auto& [first, last] : expression.ranges)
      nodes_[from].bytes.push_back({first, last, to});
  if (expression.kind == Kind::choice)
    for (const ExpressionPtr& part : expression.parts) {
      const std::uint32_t begin = make_node();
      nodes_[from].free.push_back(begin);
      const std::uint32_t end = build(*part, begin);
      nodes_[end].free.push_back(to);
    }
  if (expression.kind == Kind::rule) {
    if (nodes_[from].rule >= 0) {
      const std::uint32_t caller = make_node();
      nodes_[from].free.push_back(caller);
      from = caller;
    }
    nodes_[from].rule = static_cast<std::int32_t>(expression.rule);
    nodes_[from].after = to;
  }
  return to;
}

std::uint32_t Automaton::build_repeat(const GrammarExpression& expression, std::uint32_t from) {
  const GrammarExpression& part = *expression.parts.front();
  for (std::int64_t i = 0; i < expression.least; ++i) from = build(part, from);
  if (expression.most == GrammarExpression::kUnbounded) {
    const std::uint32_t loop = make_node();
    nodes_[from].free.push_back(loop);
    const std::uint32_t end = build(part, loop);
    nodes_[end].free.push_back(loop);
    from = loop;
  }
  const std::uint32_t exit = make_node();
  for (std::int64_t i = expression.least; i < expression.most; ++i) {
    nodes_[from].free.push_back(exit);
    const std::uint32_t begin = make_node();
    nodes_[from].free.push_back(begin);
    from = build(part, begin);
  }
  nodes_[from].free.push_back(exit);
  return exit;
}

/// A call that nothing follows need not be returned from. So lists that are rules which call
/// themselves last take no stack.
void Automaton::find_passing() {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      if (node->passes || !node->bytes.empty() || node->rule >= 0) continue;
      const bool free = node->free.size() == 1 && nodes_[node->free.front()].passes;
      if (!(node->free.empty() ? node->ends : free && !node->ends)) continue;
      node->passes = changed = true;
    }
  }
}

/// By shortening the ways until none gets shorter (Bellman and Ford); a call takes the way through
/// its rule (Knuth, 1977).
void Automaton::find_bytes_to_end() {
  for (bool changed = true; changed;) {
    changed = false;
    for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
      std::int64_t best = node->ends ? 0 : kFar;
      for (const ByteEdge& edge : node->bytes) best = std::min(best, 1 + nodes_[edge.to].to_end);
      for (const std::uint32_t to : node->free) best = std::min(best, nodes_[to].to_end);
      if (node->rule >= 0)
        best = std::min(best, nodes_[starts_[static_cast<std::size_t>(node->rule)]].to_end +
                                  nodes_[node->after].to_end);
      if (best >= node->to_end) continue;
      node->to_end = best;
      changed = true;
    }
  }
}

std::int64_t Automaton::bytes_to_end(const State& state) const {
  std::int64_t best = state.accepts ? 0 : kFar;
  for (const Stack& stack : state.stacks) {
    std::int64_t bytes = 0;
    for (const std::uint32_t node : stack) bytes = std::min(kFar, bytes + nodes_[node].to_end);
    best = std::min(best, bytes);
  }
  return best;
}

/// The stacks that read a byte, reached from these without one.
Automaton::State Automaton::closed(std::vector<Stack> stacks, Steps& steps) const {
  std::set<Stack> seen(stacks.begin(), stacks.end());
  State state;
  std::size_t kept = 0;
  const auto reach = [&](Stack stack) {
    if (stack.size() > kMostDepth || kept + stack.size() > kMostKept) {
      steps.dropped = true;
    } else if (seen.insert(stack).second) {
      kept += stack.size();
      stacks.push_back(std::move(stack));
    }
  };
  while (!stacks.empty()) {
    Stack stack = std::move(stacks.back());
    stacks.pop_back();
    ++steps.count;
    const Node& node = nodes_[stack.back()];
    if (!node.bytes.empty()) state.stacks.push_back(stack);
    stack.pop_back();
    if (node.ends && stack.empty()) state.accepts = true;
    if (node.ends && !stack.empty()) reach(stack);
    for (const std::uint32_t to : node.free) {
      Stack next = stack;
      next.push_back(to);
      reach(std::move(next));
    }
    if (node.rule < 0) continue;
    if (!nodes_[node.after].passes) stack.push_back(node.after);
    stack.push_back(starts_[static_cast<std::size_t>(node.rule)]);
    reach(std::move(stack));
  }
  std::ranges::sort(state.stacks);
  return state;
}

Automaton::State Automaton::next(const State& state, std::uint8_t byte, Steps& steps) const {
  std::vector<Stack> stacks;
  for (const Stack& stack : state.stacks) {
    ++steps.count;
    for (const ByteEdge& edge : nodes_[stack.back()].bytes) {
      if (byte < edge.first || byte > edge.last) continue;
      stacks.push_back(stack);
      stacks.back().back() = edge.to;
    }
  }
  std::ranges::sort(stacks);
  const auto same = std::ranges::unique(stacks);
  stacks.erase(same.begin(), same.end());
  return closed(std::move(stacks), steps);
}

bool Automaton::accepts(std::string_view text) const {
  State state = start_;
  Steps steps;
  for (const char c : text) state = next(state, static_cast<std::uint8_t>(c), steps);
  return state.accepts;
}

}  // namespace axonn
