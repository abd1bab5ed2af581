#include "axonn/app/supervise/nodes.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/numbers.h"

namespace axonn {

namespace {

constexpr std::size_t kMostNodes = 100'000;

bool belongs_to_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '.' || c == '_';
}

/// Splits at commas that are not in brackets.
std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']') --depth;
    if (depth < 0 || depth > 1 || (i == list.size() && depth != 0))
      refuse("nodes: the brackets of '", list, "' do not fit");
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    if (i > begin) parts.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

/// Adds the names of "BEFORE[1-3,7]AFTER", whose AFTER may have brackets, too.
void add_names(const std::string& before, std::string_view rest, std::string_view list,
               std::vector<std::string>& to) {
  const std::size_t open = rest.find('['), close = rest.find(']');
  if (open == rest.npos) {
    to.push_back(before + std::string(rest));
    if (to.size() > kMostNodes) refuse("nodes: '", list, "' has more than ", kMostNodes, " names");
    return;
  }
  const std::string stem = before + std::string(rest.substr(0, open));
  const std::string_view after = rest.substr(close + 1);
  for (const std::string_view range : parts_of(rest.substr(open + 1, close - open - 1))) {
    const std::size_t dash = range.find('-');
    const std::string_view from = range.substr(0, dash),
                           last = dash == range.npos ? from : range.substr(dash + 1);
    const auto first = parse_integer(from), end = parse_integer(last);
    if (!first || !end || *first < 0 || *end < *first)
      refuse("nodes: '", range, "' in '", list, "' is no range of numbers, such as 001-016");
    for (std::int64_t n = *first; n <= *end; ++n)
      add_names(fmt::format("{}{:0{}}", stem, n, from.size()), after, list, to);
  }
}

}  // namespace

std::vector<std::string> expand_nodes(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string_view part : parts_of(list)) add_names("", part, list, names);
  return names;
}

NodePool::NodePool(std::vector<std::string> nodes, int spares, int least)
    : nodes_(std::move(nodes)) {
  const auto count = static_cast<int>(nodes_.size());
  if (spares < 0 || spares >= count)
    refuse("--spares ", spares, " of ", count, " nodes leave none for the job; lower it");
  if (least < 0 || least > count - spares)
    refuse("--least ", least, ", but a start has ", count - spares, " nodes at most; lower it");
  wanted_ = static_cast<std::size_t>(count - spares);
  least_ = least == 0 ? wanted_ : static_cast<std::size_t>(least);
}

std::vector<std::string> NodePool::left() const {
  std::vector<std::string> all;
  std::ranges::copy_if(nodes_, std::back_inserter(all),
                       [&](const std::string& node) { return !lost_.contains(node); });
  return all;
}

std::vector<std::string> NodePool::next() const {
  std::vector<std::string> chosen = left();
  // A node on which a start has failed comes last.
  std::ranges::stable_partition(chosen,
                                [&](const std::string& node) { return !blamed_.contains(node); });
  if (chosen.size() < least_) return {};
  chosen.resize(std::min(chosen.size(), wanted_));
  std::ranges::sort(chosen, {}, [&](const std::string& node) {
    return std::ranges::find(nodes_, node) - nodes_.begin();
  });
  return chosen;
}

bool NodePool::blame(const std::string& node) {
  blamed_.insert(node);
  if (blamed_.count(node) < 2) return false;
  exclude(node);
  return true;
}

std::vector<std::string> NodePool::named_in(std::string_view text) const {
  std::vector<std::string> found;
  for (const std::string& node : nodes_) {
    for (std::size_t at = text.find(node); at != text.npos; at = text.find(node, at + 1)) {
      const std::size_t end = at + node.size();
      if ((at > 0 && belongs_to_name(text[at - 1])) ||
          (end < text.size() && belongs_to_name(text[end]) && text[end] != '.'))
        continue;
      found.push_back(node);
      break;
    }
  }
  return found;
}

}  // namespace axonn
