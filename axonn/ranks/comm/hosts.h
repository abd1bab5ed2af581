#pragma once

#include <cstdint>
#include <vector>

#include "axonn/ranks/comm/reduce.h"

namespace axonn {

/// The hosts of a group's ranks, for collectives in two levels.
///
/// Across hosts, each rank exchanges data with one helper on each other host, the rank of the same
/// index there; on a host with fewer ranks, indices begin again with the first. The ranks that a
/// rank helps are its clients.
class Hosts {
 public:
  Hosts() = default;
  /// `names` has a number for each rank of the group, such as a hash; equal ones are the same host.
  explicit Hosts(const std::vector<std::uint64_t>& names);

  int count() const { return static_cast<int>(ranks_.size()); }
  /// The largest number of ranks on one host.
  int most_ranks() const { return most_ranks_; }
  /// A rank's host, 0 to count() - 1.
  int of(int rank) const { return host_of_[rank]; }
  /// The ranks on a host, ascending.
  const std::vector<int>& ranks_on(int host) const { return ranks_[host]; }
  /// The helper of a rank on another host.
  int helper(int rank, int on_host) const {
    const auto& there = ranks_[on_host];
    return there[static_cast<std::size_t>(index_[rank]) % there.size()];
  }
  /// The clients of a rank, ascending: O(ranks).
  std::vector<int> clients(int rank) const;

  /// The branches of one host of which sums consist (reduce.h), in the ranks' order.
  const std::vector<Branch>& branches() const { return branches_; }
  /// The number of those on a host.
  int branches_on(int host) const { return branches_on_[host]; }
  /// The largest number of branches on one host.
  int most_branches() const { return most_branches_; }

 private:
  std::vector<int> host_of_, index_;  // by rank; index_: among the ranks of its host
  std::vector<std::vector<int>> ranks_;
  std::vector<Branch> branches_;
  std::vector<int> branches_on_;
  int most_ranks_ = 0, most_branches_ = 0;
};

}  // namespace axonn
