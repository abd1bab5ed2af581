#include "axonn/ranks/comm/hosts.h"

#include <algorithm>
#include <map>

namespace axonn {

Hosts::Hosts(const std::vector<std::uint64_t>& names) {
  std::map<std::uint64_t, int> found;
  for (int rank = 0; rank < static_cast<int>(names.size()); ++rank) {
    const int host = found.try_emplace(names[rank], count()).first->second;
    if (host == count()) ranks_.emplace_back();
    host_of_.push_back(host);
    index_.push_back(static_cast<int>(ranks_[host].size()));
    ranks_[host].push_back(rank);
    most_ranks_ = std::max(most_ranks_, index_.back() + 1);
  }
  branches_ = branches_of_hosts(host_of_);
  branches_on_.resize(ranks_.size());
  for (const Branch& branch : branches_)
    most_branches_ = std::max(most_branches_, ++branches_on_[of(branch.first)]);
}

std::vector<int> Hosts::clients(int rank) const {
  std::vector<int> clients;
  for (int other = 0; other < static_cast<int>(host_of_.size()); ++other)
    if (of(other) != of(rank) && helper(other, of(rank)) == rank) clients.push_back(other);
  return clients;
}

}  // namespace axonn
