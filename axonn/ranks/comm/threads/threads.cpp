#include "axonn/ranks/comm/threads/threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/call.h"
#include "axonn/ranks/comm/pieces.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/timeout.h"

namespace axonn {

namespace {

/// A collective that touches fewer bytes is done by the last rank to arrive, which is cheaper than
/// waking another rank.
constexpr std::int64_t kSmallBytes = 64 << 10;

class Rendezvous;
class ThreadGroup;

/// State shared by all ranks of run_ranks().
///
/// Locks are taken in this order: the world's, a group's, a rendezvous's.
class ThreadWorld {
 public:
  ThreadWorld(int ranks, const ThreadsOptions& given)
      : options(given), flag(std::make_shared<AbortFlag>([this] { wake_all(); })), states_(ranks) {}

  const ThreadsOptions options;
  const std::shared_ptr<AbortFlag> flag;

  void add(ThreadGroup* group) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(group);
  }
  void remove(ThreadGroup* group) {
    const std::lock_guard lock(mutex_);
    std::erase(groups_, group);
  }

  /// Records a call that a rank starts, for the watchdog.
  void note(int rank, CallId id) {
    RankState& state = states_[rank];
    ++state.progress;
    const std::lock_guard lock(state.mutex);
    state.last = std::move(id);
  }
  void note_progress(int rank) {
    ++states_[rank].progress;
    ++noted_;
  }
  std::int64_t noted() const { return noted_; }
  /// Records that a rank waits for the other parties of a meeting, or, with null, that it does not.
  void note_wait(int rank, std::shared_ptr<Rendezvous> meeting) {
    RankState& state = states_[rank];
    const std::lock_guard lock(state.mutex);
    state.waits_in.swap(meeting);
  }
  /// The chain of waits that begins with `rank`, and the rank at its end. Empty if it waits for no
  /// rank. The caller holds no lock.
  std::vector<RankWait> waits_from(int rank) const;
  Culprit culprit_of(const std::vector<RankWait>& waits) const;
  /// Records that a rank's body has returned. Current and later waits for that rank throw Error.
  void note_returned(int rank);
  bool has_returned(int rank) const { return any_returned_ && states_[rank].returned; }
  CallId last_call(int rank) const {
    const RankState& state = states_[rank];
    const std::lock_guard lock(state.mutex);
    return state.last;
  }

  /// Keeps the current exception if it is the first of any rank, and returns its message. The
  /// message begins with "rank R: ". Call it in a catch block.
  std::string keep_current_error(int rank);
  void rethrow_first_error() const {
    if (first_error_) std::rethrow_exception(first_error_);
  }

  /// Sleeps a random time if the options request delays.
  void delay() {
    if (options.max_delay_us <= 0) return;
    const Random random(options.delay_seed, "delay");
    const std::uint64_t us = random.below(delays_++, options.max_delay_us + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(us));
  }

 private:
  struct RankState {
    mutable std::mutex mutex;
    CallId last;
    std::shared_ptr<Rendezvous> waits_in;
    std::atomic<std::int64_t> progress = 0;
    std::atomic<bool> returned = false;
  };

  void wake_all();

  std::vector<RankState> states_;
  std::atomic<bool> any_returned_ = false;
  std::atomic<std::int64_t> noted_ = 0;
  std::atomic<std::uint64_t> delays_ = 0;
  std::mutex mutex_;
  std::vector<ThreadGroup*> groups_;
  std::exception_ptr first_error_;
};

/// The meeting of the parties of one collective, or of one send and its recv. When all parties have
/// arrived, the last one enqueues its work on the ranks' devices; or, on host memory, those that
/// wait for it share its work, piece by piece.
class Rendezvous : public std::enable_shared_from_this<Rendezvous> {
 public:
  /// `parties` has the world ranks that take part.
  Rendezvous(std::shared_ptr<ThreadWorld> world, std::vector<int> parties, std::string group,
             std::int64_t sequence)
      : world_(std::move(world)),
        parties_(std::move(parties)),
        group_(std::move(group)),
        sequence_(sequence),
        calls_(parties_.size()),
        arrived_(parties_.size()),
        running_(parties_.size()) {}

  /// Returns true for the last party to arrive. Throws Error if the call does not match the others.
  bool arrive(int party, const Call& call) {
    const Lock lock(mutex_);
    if (!broken_.empty()) throw Error(broken_);
    if (const int first = first_arrived(); arrivals_ > 0 && !agree(calls_[first], call)) {
      fail_all(concat(describe(call, sequence_, group_), " on rank ", parties_[party],
                      " does not match ", describe(calls_[first]), " on rank ", parties_[first],
                      "; all ranks of a group must make the same calls in the same order"));
      throw Error(broken_);
    }
    if (call.counted()) check_counts(party, call);
    calls_[party] = call;
    arrived_[party] = 1;
    if (++arrivals_ < static_cast<int>(parties_.size())) return false;
    ++running_[party];  // until it has opened the meeting
    return true;
  }

  /// Called by the last party to arrive: does small work at once, or wakes waiting threads for it.
  /// Does nothing if the waits fail.
  void open(int party) {
    Lock lock(mutex_);
    --running_[party];
    if (*world_->flag) return changed_.notify_all();
    if (const auto& device = calls_.front().device) {
      try {
        device->enqueue_all(calls_);
      } catch (const std::exception& error) {
        fail_all(concat(describe(calls_.front(), sequence_, group_), ": ", error.what()));
        throw Error(broken_);
      }
    } else {
      pieces_ = Pieces(calls_);
    }
    open_ = true;
    if (pieces_.bytes() < kSmallBytes) return help(lock, party);
    for (std::int64_t i = 0; i < std::min<std::int64_t>(pieces_.count(), parties_.size()); ++i)
      changed_.notify_one();
  }

  /// Returns when the host's work is done, which for device memory is when all is enqueued. Throws
  /// Error (calls that do not match, a party that has returned) or Aborted (also after a timeout);
  /// then nothing uses the party's buffers any more, or will.
  void wait(int party) {
    Timeout timeout(world_->options.timeout_seconds);
    Lock lock(mutex_);
    if (finished()) return;  // perhaps on a thread beside that of the rank
    const Waiting waiting(*this, parties_[party]);
    while (!finished()) {
      if (*world_->flag || !broken_.empty()) {
        changed_.wait(lock, [&] { return active_ == 0; });  // others may still write to our buffers
        changed_.notify_all();
        world_->flag->check();
        throw Error(broken_);
      }
      if (open_ && next_ < pieces_.count()) {
        help(lock, party);
      } else {
        changed_.wait_for(lock, duration_of(timeout.slice()));
        if (!finished() && timeout.look_due()) look(lock, party, timeout);
      }
    }
  }

  /// The wait of a party, which has arrived, for one that has not, or that does a piece of the
  /// work; empty if there is none, or if it is that party itself.
  std::optional<RankWait> wait_of(int rank) {
    const Lock lock(mutex_);
    auto missing = std::ranges::find(arrived_, 0) - arrived_.begin();
    if (missing == std::ssize(arrived_))
      missing = std::ranges::find_if(running_, [](int n) { return n > 0; }) - running_.begin();
    if (missing == std::ssize(arrived_) || parties_[missing] == rank) return {};
    const Call& call = calls_[std::ranges::find(parties_, rank) - parties_.begin()];
    return RankWait{rank, parties_[missing], {call.operation, call.label, group_, sequence_}};
  }

  bool done(int party) {
    Lock lock(mutex_);
    if (open_) help(lock, party);
    return finished() || (active_ == 0 && (*world_->flag || !broken_.empty()));
  }

  /// Makes waiting threads check the abort flag again.
  void wake() {
    const Lock lock(mutex_);
    changed_.notify_all();
  }

  /// Makes the waits fail if world rank `returned` is a party and has not arrived.
  void break_if_missing(int returned) {
    const Lock lock(mutex_);
    const auto party = std::ranges::find(parties_, returned) - parties_.begin();
    if (party == std::ssize(parties_) || arrived_[party] || arrivals_ == 0 || !broken_.empty())
      return;
    const int first = first_arrived();
    fail_all(concat(describe(calls_[first], sequence_, group_), ", started by rank ",
                    parties_[first], ", cannot finish: rank ", returned,
                    " has returned without it, after ", describe(world_->last_call(returned))));
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// A party's wait, as the watchdogs of other ranks see it.
  struct Waiting {
    Waiting(Rendezvous& meeting, int of) : world(*meeting.world_), rank(of) {
      world.note_wait(rank, meeting.shared_from_this());
    }
    ~Waiting() { world.note_wait(rank, nullptr); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ThreadWorld& world;
    int rank;
  };

  bool finished() const { return open_ && next_ == pieces_.count() && active_ == 0; }

  int first_arrived() const {
    return static_cast<int>(std::ranges::find(arrived_, 1) - arrived_.begin());
  }

  /// Compares the counts of a party's call with those of all that have arrived.
  void check_counts(int party, const Call& call) {
    for (int other = 0; other < std::ssize(calls_); ++other) {
      if (!arrived_[other]) continue;
      const Call& theirs = calls_[other];
      for (const PairCounts& pair :
           {PairCounts{parties_[party], parties_[other], call.to[other], theirs.from[party]},
            PairCounts{parties_[other], parties_[party], theirs.to[party], call.from[other]}}) {
        if (pair.gives == pair.expects) continue;
        fail_all(concat(describe(call, sequence_, group_), ": ", describe(pair)));
        throw Error(broken_);
      }
    }
  }

  void fail_all(std::string reason) {
    broken_ = std::move(reason);
    changed_.notify_all();
  }

  /// Claims and runs pieces until none is left. Releases the lock while it runs one.
  void help(Lock& lock, int party) {
    while (next_ < pieces_.count() && !*world_->flag && broken_.empty()) {
      const std::int64_t piece = next_++;
      ++active_;
      ++running_[party];
      lock.unlock();
      pieces_.run(piece);
      world_->delay();
      lock.lock();
      --running_[party];
      --active_;
    }
    if (active_ == 0) changed_.notify_all();
  }

  /// Ends the world if the wait is over. The caller checks again whether the work has begun: the
  /// missing rank may have arrived before the world's end.
  void look(Lock& lock, int party, Timeout& timeout) {
    lock.unlock();
    const std::vector<RankWait> waits = world_->waits_from(parties_[party]);
    if (!waits.empty()) {
      const Culprit culprit = world_->culprit_of(waits);
      if (timeout.over(waits.back().awaited, culprit.progress)) {
        const auto& [seconds, on_hang, delay, seed] = world_->options;
        const std::string reason = hang_report(waits, culprit, seconds);
        if (world_->flag->set(reason) && on_hang) on_hang(reason);
      }
    }
    lock.lock();
  }

  const std::shared_ptr<ThreadWorld> world_;
  const std::vector<int> parties_;
  const std::string group_;
  const std::int64_t sequence_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  std::vector<char> arrived_;
  std::vector<int> running_;  // by party: pieces that its threads run, and whether it opens
  int arrivals_ = 0;
  bool open_ = false;
  std::string broken_;  // why the waits fail
  Pieces pieces_;
  std::int64_t next_ = 0;  // the next piece to claim
  int active_ = 0;         // number of pieces that are being run
};

class MeetingState final : public Work::State {
 public:
  MeetingState(std::shared_ptr<Rendezvous> meeting, int party)
      : meeting_(std::move(meeting)), party_(party) {}
  void wait() override { meeting_->wait(party_); }
  bool done() override { return meeting_->done(party_); }

 private:
  std::shared_ptr<Rendezvous> meeting_;
  int party_;
};

/// The state of a group that its ranks share: collectives that some, but not all, have started.
class ThreadGroup {
 public:
  ThreadGroup(std::shared_ptr<ThreadWorld> in, std::vector<int> ranks, std::string called)
      : world(std::move(in)), members(std::move(ranks)), name(std::move(called)) {
    world->add(this);
  }
  ~ThreadGroup() { world->remove(this); }
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  const std::shared_ptr<ThreadWorld> world;
  const std::vector<int> members;  // world ranks
  const std::string name;

  /// Rank `rank` of this group makes its next call.
  std::shared_ptr<MeetingState> start(int rank, const Call& call) {
    world->flag->check();
    world->delay();
    const Channel channel = channel_of(rank, call);
    const int party = channel.party_of(rank);
    std::shared_ptr<Rendezvous> meeting;
    bool last = false;
    {
      const std::lock_guard lock(mutex_);
      Line& line = lines_[channel];
      if (line.parties.empty()) {
        line.parties = channel.parties_of(members);
        line.started.resize(line.parties.size());
      }
      const std::int64_t sequence = line.started[party]++;
      world->note(members[rank], {call.operation, call.label, name, sequence});
      while (sequence >= line.first + std::ssize(line.open))
        line.open.push_back(std::make_shared<Rendezvous>(world, line.parties, name,
                                                         line.first + std::ssize(line.open)));
      meeting = line.open[sequence - line.first];
      last = meeting->arrive(party, call);
      if (last) {  // meetings complete in order, because every party makes its calls in order
        line.open.pop_front();
        ++line.first;
      } else {
        for (int member : line.parties)
          if (world->has_returned(member)) meeting->break_if_missing(member);
      }
    }
    if (last) meeting->open(party);
    return std::make_shared<MeetingState>(std::move(meeting), party);
  }

  /// The group of these members, which they agreed on in this group's split number `sequence`. The
  /// first caller creates it.
  std::shared_ptr<ThreadGroup> child(std::int64_t sequence, std::vector<int> child_members,
                                     const std::string& child_name) {
    const std::lock_guard lock(children_mutex_);
    const int size = static_cast<int>(child_members.size());
    const auto at = children_.try_emplace({sequence, child_members.front()}).first;
    auto& [group, taken] = at->second;
    if (!group) group = std::make_shared<ThreadGroup>(world, std::move(child_members), child_name);
    std::shared_ptr<ThreadGroup> made = group;
    if (++taken == size) children_.erase(at);
    return made;
  }

  /// Calls f for each meeting that some, but not all, parties have joined.
  template <typename F>
  void for_each_open(const F& f) {
    const std::lock_guard lock(mutex_);
    for (auto& [channel, line] : lines_)
      for (const auto& meeting : line.open) f(*meeting);
  }

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

  std::mutex mutex_;
  std::map<Channel, Line> lines_;
  std::mutex children_mutex_;
  std::map<std::pair<std::int64_t, int>, Child> children_;  // (split, first member)
};

std::vector<RankWait> ThreadWorld::waits_from(int rank) const {
  std::vector<RankWait> waits;
  const auto seen = [&](int of) { return std::ranges::count(waits, of, &RankWait::rank) > 0; };
  while (!seen(rank)) {
    std::shared_ptr<Rendezvous> meeting;
    {
      const std::lock_guard lock(states_[rank].mutex);
      meeting = states_[rank].waits_in;
    }
    auto wait = meeting ? meeting->wait_of(rank) : std::nullopt;
    if (!wait) break;
    rank = wait->awaited;
    waits.push_back(std::move(*wait));
  }
  return waits;
}

Culprit ThreadWorld::culprit_of(const std::vector<RankWait>& waits) const {
  const int rank = waits.back().awaited;
  const bool round = std::ranges::count(waits, rank, &RankWait::rank) > 0;
  return {.state = round                ? Culprit::State::waiting
                   : has_returned(rank) ? Culprit::State::returned
                                        : Culprit::State::running,
          .progress = states_[rank].progress,
          .last = last_call(rank)};
}

void ThreadWorld::note_returned(int rank) {
  states_[rank].returned = true;
  any_returned_ = true;
  if (*flag) return;  // the world has ended, and waits throw Aborted anyway
  const std::lock_guard lock(mutex_);
  for (ThreadGroup* group : groups_)
    group->for_each_open([&](Rendezvous& meeting) { meeting.break_if_missing(rank); });
}

void ThreadWorld::wake_all() {
  const std::lock_guard lock(mutex_);
  for (ThreadGroup* group : groups_)
    group->for_each_open([](Rendezvous& meeting) { meeting.wake(); });
}

std::string ThreadWorld::keep_current_error(int rank) {
  const std::string prefix = concat("rank ", rank, ": ");
  std::string message;
  std::exception_ptr error;
  try {
    throw;
  } catch (const UsageError& e) {
    error = std::make_exception_ptr(UsageError(message = prefix + e.what(), e.where()));
  } catch (const Error& e) {
    error = std::make_exception_ptr(Error(message = prefix + e.what(), e.where()));
  } catch (const std::exception& e) {
    error = std::make_exception_ptr(Error(message = prefix + e.what()));
  } catch (...) {
    message = prefix + "an exception of an unknown type";
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (!first_error_) first_error_ = error;
  return message;
}

class ThreadsCommunicator final : public Communicator {
 public:
  ThreadsCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : Communicator(group->name, rank, static_cast<int>(group->members.size())),
        group_(std::move(group)) {}

  std::unique_ptr<Communicator> split_off(int color, std::string name) override {
    Part part = agree_on_part(color, name);
    const std::int64_t sequence = splits_++;
    if (part.members.size() == 1) return make_self(std::move(name), group_->world->flag);
    for (int& member : part.members) member = group_->members[member];
    return std::make_unique<ThreadsCommunicator>(
        group_->child(sequence, std::move(part.members), name), part.rank);
  }

  bool in_one_process() const override { return true; }

  void abort(const std::string& reason) noexcept override { group_->world->flag->set(reason); }
  std::string end_reason() const override { return group_->world->flag->reason(); }
  void note_progress() noexcept override { group_->world->note_progress(group_->members[rank()]); }
  std::int64_t noted_progress() noexcept override { return group_->world->noted(); }
  void give_up(const std::string& reason) noexcept override {
    abort(reason);
    if (const auto& on_hang = group_->world->options.on_hang) on_hang(reason);
  }

 protected:
  std::shared_ptr<Work::State> start(Call call) override { return group_->start(rank(), call); }

 private:
  std::shared_ptr<ThreadGroup> group_;
  std::int64_t splits_ = 0;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(Communicator& world)>& body,
               const ThreadsOptions& options) {
  AXONN_CHECK(ranks > 0, "run_ranks needs at least one rank, got ", ranks);
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  const auto world = std::make_shared<ThreadWorld>(ranks, options);
  const auto group = std::make_shared<ThreadGroup>(world, members, "world");
  const auto run_rank = [&](int rank) {
    try {
      const auto communicator = ranks == 1 ? make_self(group->name, world->flag)
                                           : std::make_unique<ThreadsCommunicator>(group, rank);
      body(*communicator);
    } catch (const Aborted&) {  // the rank that failed first reports its error
    } catch (...) {
      world->flag->set(world->keep_current_error(rank));
    }
    world->note_returned(rank);
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { run_rank(rank); });
    } catch (const std::system_error& e) {
      const std::string reason =
          concat("starting rank ", threads.size(), " of ", ranks, " as a thread: ", e.what());
      world->flag->set(reason);
    }
  }
  world->rethrow_first_error();
  if (*world->flag) throw Error(world->flag->reason());
}

}  // namespace axonn
