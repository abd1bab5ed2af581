#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "axonn/comm/threads/rendezvous.h"

namespace axonn {

/// The state of a group that its ranks share: collectives that some, but not all, have started.
class ThreadGroup {
 public:
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members, std::string name);
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  const std::shared_ptr<ThreadWorld>& world() const { return world_; }
  const std::vector<int>& members() const { return members_; }
  const std::string& name() const { return name_; }

  /// Rank `rank` of this group makes its next call. Sets `party` to the rank's index in the
  /// meeting.
  std::shared_ptr<Rendezvous> start(int rank, const Call& call, int& party);

  /// The group of these members, which they agreed on in this group's split number `sequence`. The
  /// first caller creates it.
  std::shared_ptr<ThreadGroup> child(std::int64_t sequence, std::vector<int> members,
                                     const std::string& name);

  void wake();
  void break_if_missing(int returned);

 private:
  /// The meetings of a channel that some, but not all, parties have joined.
  struct Line {
    std::vector<int> parties;           // world ranks
    std::vector<std::int64_t> started;  // number of calls by party
    std::int64_t first = 0;             // sequence of open.front()
    std::deque<std::shared_ptr<Rendezvous>> open;
  };
  struct Child {
    std::shared_ptr<ThreadGroup> group;
    int taken = 0;
  };

  const std::shared_ptr<ThreadWorld> world_;
  const std::vector<int> members_;
  const std::string name_;
  std::mutex mutex_;
  std::map<Channel, Line> lines_;
  std::mutex children_mutex_;
  std::map<std::pair<std::int64_t, int>, Child> children_;  // (split, first member)
};

}  // namespace axonn
