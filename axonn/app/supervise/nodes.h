#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// The names of a list: "a,b" or, as Slurm writes it, "nid[001-003,010],login1". Throws UsageError
/// for brackets that do not fit, a range that is none, and more than 100,000 names.
std::vector<std::string> expand_nodes(std::string_view list);

/// The nodes of an allocation, and those that a job no longer gets.
class NodePool {
 public:
  /// A start gets all but `spares` of the nodes or, once more are lost, those that are left, at
  /// least `least`; 0: as many as the first start.
  NodePool(std::vector<std::string> nodes, int spares, int least);

  /// The nodes of the next start, in their order; none if too few are left.
  std::vector<std::string> next() const;
  /// Those that a start may still get.
  std::vector<std::string> left() const;

  /// Notes that a node cannot take part: no start gets it again.
  void exclude(const std::string& node) { lost_.insert(node); }
  /// Notes that a start failed on a node; after the second time no start gets it again. Returns
  /// whether that is so.
  bool blame(const std::string& node);
  /// The nodes whose names are words of a text.
  std::vector<std::string> named_in(std::string_view text) const;

 private:
  std::vector<std::string> nodes_;
  std::set<std::string> lost_;
  std::multiset<std::string> blamed_;
  std::size_t wanted_, least_;
};

}  // namespace axonn
