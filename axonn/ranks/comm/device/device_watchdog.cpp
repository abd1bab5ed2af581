#include "axonn/ranks/comm/device/device_watchdog.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/ranks/comm/timeout.h"

namespace axonn {

struct DeviceWatchdog::Watched {
  std::string what;
  double since = 0;  // negative: the device cannot begin it yet
  bool over = false;
  std::shared_ptr<const Event> ready, finished;
};

/// State shared by the rank's thread and the watchdog's thread, owned by both.
struct DeviceWatchdog::State {
  State(Communicator& of, std::unique_ptr<DeviceLibrary> with, Options given)
      : host(of),
        library(std::move(with)),
        options(std::move(given)),
        rank(of.rank()),
        poll(std::min(kPoll, options.timeout_seconds / 20)),
        clock(2 * poll, options.clock) {}

  static constexpr double kPoll = 0.1;

  enum class Phase { watching, ending, aborting, aborted };

  Communicator& host;  // the thread uses it after `stopping` is set only if it is joined
  const std::unique_ptr<DeviceLibrary> library;
  const Options options;
  const int rank;
  const double poll;

  std::mutex links_mutex;  // held while a link is used; never locked while `mutex` is held
  std::vector<std::shared_ptr<DeviceLink>> links;

  mutable std::mutex mutex;  // guards all members below
  std::condition_variable changed;
  RunningClock clock;  // the thread reads it at each poll
  std::map<std::string, std::deque<std::shared_ptr<Watched>>> pending;  // by group
  Phase phase = Phase::watching;
  bool stopping = false;
  bool tell = false;       // whether the host group must still be aborted with the reason
  std::string reason;      // why the links are aborted
  std::int64_t noted = 0;  // Communicator::noted_progress() as last read, and when it last grew
  double noted_at = -1;

  /// Returns since when an operation that the device could begin at `since` has been hanging.
  double hangs_since(double since, double now) {
    if (now - since < options.timeout_seconds / 10) return since;  // too early to ask
    if (const std::int64_t read = host.noted_progress(); read != std::exchange(noted, read))
      noted_at = now;
    return std::max(since, noted_at);
  }

  void end(std::string why, bool tell_host) {
    if (phase != Phase::watching || stopping) return;
    phase = Phase::ending;
    reason = std::move(why);
    tell = tell_host;
    changed.notify_all();
  }
};

namespace {

using State = DeviceWatchdog::State;
using Lock = std::unique_lock<std::mutex>;

/// How many seconds the destructor waits for an abort of links. An abort may block until other
/// ranks end, and those may be waiting for this rank's error; so the abort then continues alone.
constexpr double kAbort = 1;

std::string hang_text(const DeviceWatchdog::Watched& watched, double timeout) {
  const bool on_device = watched.finished != nullptr;
  return concat(watched.what, " is not done", on_device ? " on the device" : "", " after ", timeout,
                " s: another rank has died, is late, or makes different calls; the messages of the "
                "other ranks tell which, and NCCL_DEBUG=WARN gives details. "
                "parallelism.timeout_seconds is the time limit of a collective");
}

/// Removes a group's finished entries and checks the first unfinished one. Returns its error, or an
/// empty string.
std::string look_at(State& state, std::deque<std::shared_ptr<DeviceWatchdog::Watched>>& group,
                    double now) {
  const double timeout = state.options.timeout_seconds;
  while (!group.empty()) {
    DeviceWatchdog::Watched& first = *group.front();
    try {
      if (first.over || (first.finished && first.finished->done())) {
        group.pop_front();
        continue;
      }
      if (first.since < 0 && first.ready->done()) first.since = now;
      if (first.since >= 0 && now - state.hangs_since(first.since, now) > timeout)
        return hang_text(first, timeout);
    } catch (const std::exception& error) {
      return concat(first.what, ": the device has failed: ", error.what());
    }
    return {};
  }
  return {};
}

/// The first error that a link reports. Empty if there is none, or while the rank uses a link.
std::string trouble_of_links(State& state) {
  const Lock links(state.links_mutex, std::try_to_lock);
  if (!links.owns_lock()) return {};
  for (const auto& link : state.links)
    if (std::string trouble = link->trouble(); !trouble.empty()) return trouble;
  return {};
}

void look(State& state, Lock& lock) {
  const double now = state.clock.now();
  for (auto& [name, group] : state.pending)
    if (const std::string found = look_at(state, group, now); !found.empty())
      return state.end(concat("rank ", state.rank, ": ", found), true);
  lock.unlock();
  std::string end = state.host.end_reason(), trouble;
  if (end.empty()) trouble = trouble_of_links(state);
  lock.lock();
  if (!end.empty()) state.end(std::move(end), false);
  if (!trouble.empty()) state.end(concat("rank ", state.rank, ": ", trouble), true);
}

/// Takes the links as soon as the rank uses none of them. Returns no links if the rank still uses
/// one after the grace period.
std::vector<std::shared_ptr<DeviceLink>> take_links(State& state) {
  const double begin = now_seconds();
  while (now_seconds() - begin <= state.options.grace_seconds) {
    const Lock links(state.links_mutex, std::try_to_lock);
    if (links.owns_lock()) return std::exchange(state.links, {});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

/// Ends the world and the links, after State::end().
void end_all(State& state, Lock& lock) {
  const std::string reason = state.reason;
  const bool tell = state.tell;
  lock.unlock();
  if (tell) state.host.abort(reason);
  const auto links = take_links(state);
  lock.lock();
  state.phase = State::Phase::aborting;
  state.changed.notify_all();
  lock.unlock();
  state.library->abort(links);
  lock.lock();
  state.phase = State::Phase::aborted;
  state.changed.notify_all();
  const bool came_back = state.changed.wait_for(lock, duration_of(state.options.grace_seconds),
                                                [&] { return state.stopping; });
  if (!came_back) state.host.give_up(reason);  // the host exists as long as the lock is held
}

void run(const std::shared_ptr<State>& shared) {
  State& state = *shared;
  Lock lock(state.mutex, std::defer_lock);
  try {
    state.library->enter_thread();
    lock.lock();
    while (!state.stopping && state.phase == State::Phase::watching) {
      state.changed.wait_for(lock, duration_of(state.poll));
      if (!state.stopping && state.phase == State::Phase::watching) look(state, lock);
    }
  } catch (const std::exception& error) {
    if (!lock.owns_lock()) lock.lock();
    state.end(concat("rank ", state.rank, ": the watchdog of its device: ", error.what()), true);
  }
  if (state.phase == State::Phase::ending) end_all(state, lock);
}

}  // namespace

DeviceWatchdog::DeviceWatchdog(Communicator& host, std::unique_ptr<DeviceLibrary> library,
                               Options options)
    : state_(std::make_shared<State>(host, std::move(library), std::move(options))),
      thread_([state = state_] { run(state); }) {}

DeviceWatchdog::~DeviceWatchdog() {
  using Phase = State::Phase;
  Lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  state_->changed.wait(lock, [&] { return state_->phase != Phase::ending; });
  const bool ended = state_->changed.wait_for(lock, duration_of(kAbort),
                                              [&] { return state_->phase != Phase::aborting; });
  lock.unlock();
  ended ? thread_.join() : thread_.detach();
}

Lock DeviceWatchdog::hold() {
  Lock lock(state_->links_mutex);
  check();
  return lock;
}

void DeviceWatchdog::add(std::shared_ptr<DeviceLink> link) {
  const Lock lock = hold();
  state_->links.push_back(std::move(link));
}

void DeviceWatchdog::remove(const DeviceLink* link) {
  const Lock lock(state_->links_mutex);
  std::erase_if(state_->links, [&](const auto& known) { return known.get() == link; });
}

DeviceWatchdog::Entry DeviceWatchdog::begin(const std::string& group, std::string what) {
  auto watched = std::make_shared<Watched>();
  watched->what = std::move(what);
  const Lock lock(state_->mutex);
  watched->since = state_->clock.now();
  state_->pending[group].push_back(watched);
  return {state_, std::move(watched)};
}

void DeviceWatchdog::abort(const std::string& reason) noexcept {
  state_->host.abort(reason);
  const Lock lock(state_->mutex);
  state_->end(reason, false);
}

void DeviceWatchdog::end_links() noexcept {
  const Lock lock(state_->mutex);
  state_->end(concat("rank ", state_->rank, " ended with an error"), false);
}

void DeviceWatchdog::check() const {
  const Lock lock(state_->mutex);
  if (state_->phase != State::Phase::watching) throw Aborted(state_->reason);
}

DeviceWatchdog::Entry::~Entry() {
  const Lock lock(state_->mutex);
  if (!watched_->finished) watched_->over = true;
}

void DeviceWatchdog::Entry::on_device(std::shared_ptr<const Event> ready,
                                      std::shared_ptr<const Event> finished) {
  const Lock lock(state_->mutex);
  watched_->since = -1;
  watched_->ready = std::move(ready);
  watched_->finished = std::move(finished);
}

}  // namespace axonn
