#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "axonn/comm/abort_flag.h"
#include "axonn/comm/call.h"
#include "axonn/comm/pieces.h"
#include "axonn/comm/threads.h"
#include "axonn/comm/watch.h"

namespace axonn {

class ThreadGroup;

/// What all ranks of run_ranks share.
///
/// Locks are taken in this order: the world's, a group's, a rendezvous's.
class ThreadWorld : public std::enable_shared_from_this<ThreadWorld> {
 public:
  /// What a world is made by: its flag needs to know it.
  static std::shared_ptr<ThreadWorld> create(int ranks, const ThreadsOptions& options);
  ThreadWorld(int ranks, const ThreadsOptions& options) : options_(options), states_(ranks) {}

  int ranks() const { return static_cast<int>(states_.size()); }
  const ThreadsOptions& options() const { return options_; }
  const std::shared_ptr<AbortFlag>& flag() const { return flag_; }

  void add(ThreadGroup* group);
  void remove(ThreadGroup* group);

  /// Notes what a rank starts, for the watchdog.
  void note(int rank, Place place);
  /// Notes that a rank's body is over; who waits for it, or ever will, gets an Error.
  void note_returned(int rank);
  bool has_returned(int rank) const;
  Place last_place(int rank) const;

  /// Sleeps a random time if the options ask for it.
  void delay();

 private:
  struct RankState {
    mutable std::mutex mutex;
    Place last;
    std::atomic<bool> returned = false;
  };

  void wake_all();

  ThreadsOptions options_;
  std::vector<RankState> states_;
  std::atomic<bool> any_returned_ = false;
  std::atomic<std::uint64_t> delays_ = 0;
  std::shared_ptr<AbortFlag> flag_;
  std::mutex mutex_;
  std::vector<ThreadGroup*> groups_;
};

/// One collective (or one send and its recv): where its parties meet. Whoever waits for it when all
/// have come does its work, piece by piece, together with others who wait.
class Rendezvous {
 public:
  /// parties: the world ranks that take part.
  Rendezvous(std::shared_ptr<ThreadWorld> world, std::vector<int> parties, std::string group,
             std::int64_t sequence);

  /// Throws Error if the call does not match those of the others; true for the last to come.
  bool arrive(int party, const Call& call);
  /// After the last arrival: does the work at once if it is small, else wakes sleepers for it.
  void open();

  /// Errors: Error (mismatch, a party that has returned, the watchdog), Aborted.
  void wait(int party);
  bool done();

  /// Makes waiters look at the world again; `returned`: a world rank that will not come.
  void wake();
  void break_if_missing(int returned);

 private:
  using Lock = std::unique_lock<std::mutex>;
  std::string name(const Call& call) const;
  bool finished() const { return open_ && next_ == pieces_.count() && active_ == 0; }
  void help(Lock& lock);
  [[noreturn]] void report_hang(Lock& lock, int party);

  const std::shared_ptr<ThreadWorld> world_;
  const std::vector<int> parties_;
  const std::string group_;
  const std::int64_t sequence_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  std::vector<char> arrived_;
  int arrivals_ = 0;
  bool open_ = false;
  std::string broken_;
  Pieces pieces_;
  std::int64_t next_ = 0;  // the next piece to claim
  int active_ = 0;         // pieces claimed and not finished
};

/// The part of a group that its ranks share: the collectives that some have started and not all.
class ThreadGroup {
 public:
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members, std::string name);
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  const std::shared_ptr<ThreadWorld>& world() const { return world_; }
  const std::vector<int>& members() const { return members_; }
  const std::string& name() const { return name_; }

  /// Rank `rank` of this group makes its next call.
  std::shared_ptr<Rendezvous> start(int rank, const Call& call, int& party);

  /// The sub-group that these members agreed on in the group's `sequence`-th split: the first to
  /// ask makes it.
  std::shared_ptr<ThreadGroup> child(std::int64_t sequence, std::vector<int> members,
                                     const std::string& name);

  void wake();
  void break_if_missing(int returned);

 private:
  /// A sequence of collectives among the same parties: the whole group, or a sender and a receiver.
  struct Channel {
    std::vector<int> parties;           // world ranks
    std::vector<std::int64_t> started;  // calls that each party has made
    std::int64_t first = 0;             // sequence of open.front()
    std::deque<std::shared_ptr<Rendezvous>> open;
  };
  struct Child {
    std::shared_ptr<ThreadGroup> group;
    int taken = 0;
  };

  Channel& channel(int rank, const Call& call, int& party);

  const std::shared_ptr<ThreadWorld> world_;
  const std::vector<int> members_;
  const std::string name_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, Channel> channels_;  // (-1, -1): the group's; else (from, to)
  std::mutex children_mutex_;
  std::map<std::pair<std::int64_t, int>, Child> children_;  // (split, first member)
};

}  // namespace axonn
